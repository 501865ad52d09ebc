/* SPDX-License-Identifier: MIT */
/* route_text: writes a table in the form of the configuration, for people. */
#include "spoa/agent/route/table.h"
#include "spoa/base/json/json_write.h"

/* An object while it is written. */
struct object {
    struct buffer *to;
    bool good, filled;
};

static void put(struct object *o, const char *text)
{
    o->good = o->good && buffer_put(o->to, slice_text(text));
}

static void put_text(struct object *o, struct slice text)
{
    o->good = o->good && json_write_text(o->to, text);
}

static void put_key(struct object *o, const char *key)
{
    put(o, o->filled ? ", " : "");
    put_text(o, slice_text(key));
    put(o, ": ");
    o->filled = true;
}

static void put_pair(struct object *o, const char *key, const char *value)
{
    put_key(o, key);
    put_text(o, slice_text(value));
}

static void put_patterns(struct object *o, const struct patterns *patterns)
{
    put(o, patterns->count == 1 ? "" : "[");
    for (size_t i = 0; i < patterns->count; i++) {
        put(o, i ? ", " : "");
        put_text(o, pattern_text(patterns->at[i]));
    }
    put(o, patterns->count == 1 ? "" : "]");
}

static void put_texts(struct object *o, const struct texts *texts)
{
    put(o, "[");
    for (size_t i = 0; i < texts->count; i++) {
        put(o, i ? ", " : "");
        put_text(o, slice_text(texts->at[i]));
    }
    put(o, "]");
}

static void put_where(struct object *o, const struct route_entry *entry)
{
    if (entry->path.count) {
        put_key(o, "path");
        put_patterns(o, &entry->path);
    }
    if (entry->host.count) {
        put_key(o, "host");
        put_patterns(o, &entry->host);
    }
    for (size_t i = 0; i < entry->header_count; i++) {
        if (i == 0)
            put_key(o, "headers");
        put(o, i ? ", " : "{");
        put_text(o, entry->headers[i].name);
        put(o, ": ");
        put_patterns(o, &entry->headers[i].patterns);
    }
    put(o, entry->header_count ? "}" : "");
    if (entry->route.upgrade != ROUTE_ANY) {
        put_key(o, "upgrade");
        put(o, entry->route.upgrade == ROUTE_UPGRADE ? "true" : "false");
    }
}

static void put_redial(struct object *o, const struct route_entry *entry)
{
    bool redials = !entry->route.one_leg;
    if (entry->route.via == ROUTE_RELAY && (entry->route.waits || redials != route_redials(entry))) {
        put_key(o, "redial");
        put(o, redials ? "true" : "false");
    }
}

static void put_set(struct object *o, const struct route *route)
{
    for (size_t i = 0; i < route->set_count; i++) {
        if (i == 0)
            put_key(o, "set");
        put(o, i ? ", " : "{");
        put_text(o, route->set[i].name);
        put(o, ": ");
        put_text(o, route->set[i].value);
    }
    put(o, route->set_count ? "}" : "");
}

/* Writes a key of the table, unless it has its default. */
static void put_option(struct object *o, const struct option *option, const struct route_entry *entry)
{
    const void *field = (const char *)entry + option->offset;
    switch (option->type) {
    case OPTION_BOOL:
        if (*(const bool *)field) {
            put_key(o, option->key);
            put(o, "true");
        }
        break;
    case OPTION_INT:
    case OPTION_DURATION:
    case OPTION_SIZE:
        if (*(const int64_t *)field) {
            const char *quote = option->type == OPTION_INT ? "" : "\"";
            const char *unit = option->type == OPTION_DURATION ? "ms"
                               : option->type == OPTION_SIZE   ? "B"
                                                               : "";
            put_key(o, option->key);
            o->good = o->good &&
                      json_write(o->to, "%s%lld%s%s", quote, (long long)*(const int64_t *)field, unit, quote);
        }
        break;
    case OPTION_ENUM:
        if (strcmp(option->names[*(const int *)field], option->fallback) != 0)
            put_pair(o, option->key, option->names[*(const int *)field]);
        break;
    case OPTION_TEXT:
        if (*(char *const *)field)
            put_pair(o, option->key, *(char *const *)field);
        break;
    case OPTION_TEXTS:
        if (((const struct texts *)field)->count) {
            put_key(o, option->key);
            put_texts(o, field);
        }
        break;
    default: /* nodes have writers of their own */
        break;
    }
}

static bool write_route(const struct route_entry *entry, struct buffer *to)
{
    size_t count;
    const struct option *keys = route_options(&count);
    const struct route *route = &entry->route;
    struct object o = {.to = to, .good = true};
    put(&o, "{");
    put_pair(&o, "name", route->name);
    if (route->system)
        put_pair(&o, "system", system_text(route->system));
    put_where(&o, entry);
    put_redial(&o, entry);
    for (size_t i = 1; i < count; i++)
        if (!slice_is(slice_text(keys[i].key), "host_header") &&
            !slice_is(slice_text(keys[i].key), "cookies") && !slice_is(slice_text(keys[i].key), "auth") &&
            !slice_is(slice_text(keys[i].key), "system"))
            put_option(&o, &keys[i], entry);
    put_pair(&o, "host_header", route->keep_host ? "keep" : "worker");
    put_pair(&o, "cookies", route->keep_cookies ? "keep" : "strip");
    put_pair(&o, "auth", route->keep_auth ? "keep" : "strip");
    put_set(&o, route);
    put(&o, "}");
    return o.good;
}

bool routes_write(const struct routes *routes, struct buffer *to)
{
    const char *before = "";
    bool good = buffer_put(to, SLICE_LITERAL("{\"routes\": ["));
    for (size_t i = 0; good && i < routes->count; i++) {
        if (routes->at[i].off)
            continue;
        good = buffer_put(to, slice_text(*before ? ",\n  " : "\n  ")) && write_route(&routes->at[i], to);
        before = ",";
    }
    good = good && buffer_put(to, SLICE_LITERAL("\n], \"off\": ["));
    before = "";
    for (size_t i = 0; good && i < routes->count; i++)
        if (routes->at[i].off) {
            good = buffer_put(to, slice_text(before)) &&
                   json_write_text(to, slice_text(routes->at[i].route.name));
            before = ", ";
        }
    return good && buffer_put(to, SLICE_LITERAL("]}\n"));
}
