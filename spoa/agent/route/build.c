/* SPDX-License-Identifier: MIT */
/* route_build: makes the table from the configuration's JSON. Everything that could fail later is refused here. */
#include <stdio.h>
#include <stdlib.h>

#include "spoa/agent/model/grant.h"
#include "spoa/agent/model/own_headers.h"
#include "spoa/agent/model/record_pack.h"
#include "spoa/agent/model/worker_url.h"
#include "spoa/agent/route/table.h"
#include "spoa/proto/http.h"

/* The address headers that haproxy.cfg knows (request.h). */
static const struct {
    const char *name;
    size_t offset;
} routing_headers[] = {
#define X(field, lines, name, written) {written, offsetof(struct request, field)},
    TARGET_HEADERS(X)
#undef X
};

/* The headers that haproxy.cfg can set by name. */
static const char *const direct_set[] = {
#define X(kind, field, variable, header, ...) (header),
    WORKER_HEADERS(X)
#undef X
        NULL};

/* The state while one route is built. */
struct build {
    const struct json *doc;
    const json_node *domains;
    struct route_entry *entry;
    struct texts *own_headers; /* belongs to the table */
    const struct services *services;
    struct capture_names names;
    unsigned captured; /* mask of captures of the keys read before this one */
    unsigned forms;    /* bits of the forms in the route's host */
};

/* ---- alternatives ---- */

static bool patterns_add(struct build *b, struct patterns *patterns, enum pattern_kind kind,
                         struct slice text, struct fail *why)
{
    struct pattern **more = realloc(patterns->at, (patterns->count + 1) * sizeof *more);
    if (!more)
        return fail(why, "out of memory");
    patterns->at = more;
    struct pattern *pattern = pattern_new(kind, text, &b->names, why);
    if (!pattern)
        return false;
    patterns->at[patterns->count++] = pattern;
    if (pattern_captures(pattern) & b->captured)
        return fail(why, "'%.*s' captures what another key of the route captures", SLICE_PRINTF(text));
    return true;
}

/* Adds the pattern that is the concatenation of the three texts. */
static bool patterns_add_joined(struct build *b, struct patterns *patterns, enum pattern_kind kind,
                                struct slice a, struct slice middle, struct slice c, struct fail *why)
{
    char text[1024];
    struct writer w = writer_of(text, sizeof text);
    writer_put(&w, a);
    writer_put(&w, middle);
    writer_put(&w, c);
    return w.full ? fail(why, "a pattern is too long")
                  : patterns_add(b, patterns, kind, writer_slice(&w), why);
}

/* Adds "/a" and "/v1/a" for "[/v1]/a". */
static bool path_add(struct build *b, struct patterns *patterns, struct slice text, struct fail *why)
{
    if (!slice_starts(text, "["))
        return patterns_add(b, patterns, PATTERN_PATH, text, why);
    size_t end = slice_find(text, ']');
    if (end == text.len)
        return fail(why, "'[' without ']'");
    struct slice none = {NULL, 0}, tail = slice_from(text, end + 1);
    return patterns_add(b, patterns, PATTERN_PATH, tail, why) &&
           patterns_add_joined(b, patterns, PATTERN_PATH, none, slice_sub(text, 1, end - 1), tail, why);
}

static unsigned form_bit(struct slice form) /* 0 if there is no such form */
{
    const char *known;
    for (size_t i = 0; (known = profile_form_at(i)); i++)
        if (slice_is(form, known))
            return 1u << i;
    return 0;
}

static bool no_form(const struct json *doc, const json_node *list, struct fail *why)
{
    char text[256];
    const char *known;
    struct writer w = writer_of(text, sizeof text - 1);
    for (size_t i = 0; (known = profile_form_at(i)); i++)
        writer_printf(&w, "%s%s", i ? ", " : "", known);
    text[w.len] = 0;
    return json_fail(doc, list, why, "'%s' is none of %s", json_key(list), text);
}

/* Adds for "{port}-{sandbox}.<FORM>" one pattern for each domain of the form. The pattern of a form without domains is checked
 * nevertheless. */
static bool host_add(struct build *b, struct patterns *patterns, struct slice text, struct fail *why)
{
    size_t open = slice_find(text, '<'), close = slice_find(text, '>');
    if (open == text.len)
        return patterns_add(b, patterns, PATTERN_HOST, text, why);
    if (close == text.len || close < open)
        return fail(why, "'<' without '>'");
    struct slice form = slice_sub(text, open + 1, close - open - 1);
    struct slice before = slice_sub(text, 0, open), behind = slice_from(text, close + 1);
    char name[64];
    snprintf(name, sizeof name, "%.*s", SLICE_PRINTF(form));
    const json_node *list = json_member(b->domains, name);
    if (!form_bit(form))
        return fail(why, "'<%s>' is no form of host that has domains", name);
    b->forms |= form_bit(form);
    for (const json_node *domain = json_first(list); domain; domain = json_next(domain)) {
        struct slice value = {NULL, 0};
        json_text(domain, &value);
        if (!patterns_add_joined(b, patterns, PATTERN_HOST, before, value, behind, why))
            return false;
    }
    if (json_first(list))
        return true;
    b->entry->off = true;
    return patterns_add_joined(b, patterns, PATTERN_HOST, before, SLICE_LITERAL("invalid"), behind, why);
}

static bool value_add(struct build *b, struct patterns *patterns, struct slice text, struct fail *why)
{
    return patterns_add(b, patterns, PATTERN_VALUE, text, why);
}

typedef bool add_function(struct build *b, struct patterns *patterns, struct slice text, struct fail *why);

static bool alternative_read(struct build *b, const json_node *node, add_function *add,
                             struct patterns *patterns, struct fail *why)
{
    struct slice text;
    struct fail what;
    if (!json_text(node, &text))
        return json_fail(b->doc, node, why, "a pattern is a string");
    return add(b, patterns, text, &what) || json_fail(b->doc, node, why, "%s", what.text);
}

/* Reads a string or an array of strings. Later keys may use the captures of all alternatives. */
static bool patterns_read(struct build *b, const json_node *node, add_function *add,
                          struct patterns *patterns, struct fail *why)
{
    if (!node)
        return true;
    if (json_is_array(node) && !json_first(node))
        return json_fail(b->doc, node, why, "an empty array matches nothing");
    if (!json_is_array(node) && !alternative_read(b, node, add, patterns, why))
        return false;
    if (json_is_array(node))
        for (const json_node *item = json_first(node); item; item = json_next(item))
            if (!alternative_read(b, item, add, patterns, why))
                return false;
    for (size_t i = 0; i < patterns->count; i++)
        b->captured |= pattern_captures(patterns->at[i]);
    return true;
}

static void patterns_free(struct patterns *patterns)
{
    for (size_t i = 0; i < patterns->count; i++)
        pattern_free(patterns->at[i]);
    free(patterns->at);
}

/* ---- the keys that are nodes or texts of a form of their own ---- */

/* Adds a header to the table, which owns the name; names are never removed while the table is built. */
static bool own_header(struct build *b, struct slice name, struct slice *own)
{
    if (!own_headers_add(b->own_headers, name))
        return false;
    for (size_t i = 0; i < b->own_headers->count; i++)
        if (slice_equal_nocase(name, slice_text(b->own_headers->at[i])))
            *own = slice_text(b->own_headers->at[i]);
    return slice_present(*own);
}

static bool read_own_header(struct build *b, const json_node *member, struct slice name, struct fail *why)
{
    struct route_header_rule *rule = &b->entry->headers[b->entry->header_count++];
    const char *defect = own_header_defect(name);
    if (defect || own_header_is_known(name))
        return json_fail(b->doc, member, why, "headers: '%s' is not %s", json_key(member),
                         defect ? defect : "a header that can say which sandbox is meant");
    if (!own_header(b, name, &rule->name))
        return fail(why, "out of memory");
    return patterns_read(b, member, value_add, &rule->patterns, why);
}

static bool read_header_rule(struct build *b, const json_node *member, struct fail *why)
{
    struct slice name = slice_text(json_key(member));
    struct route_entry *entry = b->entry;
    if (entry->header_count == ROUTE_HEADERS_MAX)
        return json_fail(b->doc, member, why, "more than %d headers", ROUTE_HEADERS_MAX);
    for (size_t i = 0; i < sizeof routing_headers / sizeof *routing_headers; i++)
        if (slice_equal_nocase(name, slice_text(routing_headers[i].name))) {
            struct route_header_rule *rule = &entry->headers[entry->header_count++];
            rule->offset = routing_headers[i].offset;
            rule->name = slice_text(routing_headers[i].name);
            return patterns_read(b, member, value_add, &rule->patterns, why);
        }
    return read_own_header(b, member, name, why);
}

static bool read_headers(struct build *b, struct fail *why)
{
    const json_node *node = b->entry->headers_node;
    if (node && !json_is_object(node))
        return json_fail(b->doc, node, why, "headers is an object of names and patterns");
    for (const json_node *member = json_first(node); member; member = json_next(member))
        if (!read_header_rule(b, member, why))
            return false;
    return true;
}

static bool read_set_header(struct build *b, const json_node *member, struct fail *why)
{
    struct route *route = &b->entry->route;
    struct slice name = slice_text(json_key(member)), value;
    if (!header_name_valid(name) || !json_text(member, &value) || !http_is_printable(value))
        return json_fail(b->doc, member, why, "not the name and value of a header");
    if (route->via == ROUTE_DIRECT && !text_among(name, direct_set))
        return json_fail(b->doc, member, why,
                         "on a direct route HAProxy can set these alone:"
#define X(kind, field, variable, header, ...) " " header
                         WORKER_HEADERS(X)
#undef X
        );
    struct route_header *header = &route->set[route->set_count++];
    header->name.at = (const uint8_t *)slice_dup(name);
    header->name.len = name.len;
    header->value.at = (const uint8_t *)slice_dup(value);
    header->value.len = value.len;
    return (header->name.at && header->value.at) || fail(why, "out of memory");
}

static bool set_fits(const struct route *route)
{
    size_t bytes = 0;
    for (size_t i = 0; i < route->set_count; i++)
        bytes += 4 + route->set[i].name.len + route->set[i].value.len;
    return bytes <= ROUTE_SET_MOST;
}

static bool read_set(struct build *b, struct fail *why)
{
    const json_node *node = b->entry->set_node;
    if (!node)
        return true;
    if (!json_is_object(node))
        return json_fail(b->doc, node, why, "set is an object of names and values");
    if (!(b->entry->route.set = calloc(json_count(node) + 1, sizeof *b->entry->route.set)))
        return fail(why, "out of memory");
    for (const json_node *member = json_first(node); member; member = json_next(member))
        if (!read_set_header(b, member, why))
            return false;
    return set_fits(&b->entry->route) ||
           json_fail(b->doc, node, why, "set is over %d bytes, 4 of each header beside its name and value",
                     ROUTE_SET_MOST);
}

static bool read_upgrade(struct build *b, struct fail *why)
{
    bool only = false;
    if (!b->entry->upgrade_node)
        return true;
    if (!json_bool(b->entry->upgrade_node, &only))
        return json_fail(b->doc, b->entry->upgrade_node, why, "upgrade is true or false");
    b->entry->route.upgrade = only ? ROUTE_UPGRADE : ROUTE_PLAIN;
    return true;
}

/* Reads `redial`; the patterns must be read before, because they decide its default. */
static bool read_redial(struct build *b, struct fail *why)
{
    const json_node *node = b->entry->redial_node;
    bool redial = route_redials(b->entry);
    if (node && !json_bool(node, &redial))
        return json_fail(b->doc, node, why, "redial is true or false");
    if (node && b->entry->route.via == ROUTE_DIRECT)
        return json_fail(b->doc, node, why, "redial needs \"via\": \"relay\"");
    if (!redial && b->entry->route.resume)
        return json_fail(b->doc, node, why, "a route that resumes redials");
    b->entry->route.one_leg = !redial;
    b->entry->route.waits = node && !redial;
    return true;
}

static bool read_ports(struct route_entry *entry, struct fail *why)
{
    struct fail what;
    return port_list_add(&entry->served, slice_text(entry->ports), &what) ||
           fail(why, "ports: %s", what.text);
}

static bool read_need(struct route_entry *entry, struct fail *why)
{
    struct slice need = slice_text(entry->need);
    if (slice_is(need, "none"))
        return true;
    entry->route.need = need_of(need);
    return entry->route.need != 0 || fail(why, "need: '%s' is nothing that a token grants", entry->need);
}

static bool read_system(struct route_entry *entry, struct fail *why)
{
    entry->route.system = entry->system ? system_of(slice_text(entry->system)) : SYSTEM_NONE;
    return !entry->system || entry->route.system ||
           fail(why, "system: '%s' is none of %s", entry->system, system_words());
}

static bool read_service(struct build *b, struct fail *why)
{
    const char *name = b->entry->to_service;
    b->entry->route.service = name ? services_find(b->services, slice_text(name)) : NULL;
    return !name || b->entry->route.service || fail(why, "to_service: `services` has no '%s'", name);
}

static bool read_to(struct build *b, struct fail *why)
{
    struct fail what;
    if (!b->entry->to)
        return true;
    b->entry->route.template = template_new(slice_text(b->entry->to), &b->names, &what);
    return b->entry->route.template || fail(why, "to: %s", what.text);
}

/* ---- the whole ---- */

static void entry_defaults(struct route_entry *entry)
{
    bool form = entry->host.count > 0;
    entry->route.by_host = form;
    entry->route.keep_host =
        entry->host_header == ROUTE_KEEP || (entry->host_header == ROUTE_BY_FORM && form);
    entry->route.keep_cookies = entry->cookies == ROUTE_KEEP || (entry->cookies == ROUTE_BY_FORM && form);
    entry->route.keep_auth =
        entry->auth == ROUTE_KEEP || (entry->auth == ROUTE_BY_FORM && route_host_names_sandbox(&entry->host));
    entry->path_node = entry->host_node = entry->headers_node = entry->set_node = entry->upgrade_node =
        entry->redial_node = NULL;
}

static bool entry_build(struct build *b, const json_node *node, struct fail *why)
{
    struct route_entry *entry = b->entry;
    struct fail what;
    size_t count;
    const struct option *keys = route_options(&count);
    if (!json_is_object(node))
        return json_fail(b->doc, node, why, "a route is an object");
    if (!options_read(b->doc, node, keys, count, NULL, entry, why) ||
        !patterns_read(b, entry->path_node, path_add, &entry->path, why) ||
        !patterns_read(b, entry->host_node, host_add, &entry->host, why) || !read_headers(b, why) ||
        !read_upgrade(b, why) || !read_redial(b, why) || !read_set(b, why))
        return false;
    if (!read_ports(entry, &what) || !read_system(entry, &what) || !read_service(b, &what) ||
        !read_need(entry, &what) || !read_to(b, &what) || !route_check(entry, &what))
        return json_fail(b->doc, node, why, "route '%s': %s", entry->route.name, what.text);
    entry_defaults(entry);
    return true;
}

/* The state while the whole table is built. */
struct building {
    struct routes *routes;
    const struct json *doc;
    const struct route_nodes *nodes;
    unsigned systems; /* bits of the enabled systems */
    unsigned forms;   /* bits of the forms in hosts of all routes */
    bool placed[ROUTE_DEFAULTS_MAX];
};

/* Adds a route; `doc` is the document of `node`. */
static bool add_route(struct building *w, const struct json *doc, const json_node *node, enum system system,
                      struct fail *why)
{
    struct route_entry *entry = &w->routes->at[w->routes->count++];
    struct build b = {.doc = doc,
                      .domains = w->nodes->domains,
                      .entry = entry,
                      .own_headers = &w->routes->own_headers,
                      .services = w->routes->services};
    capture_names_init(&b.names);
    bool good = entry_build(&b, node, why);
    if (system != SYSTEM_NONE)
        entry->route.system = system;
    w->forms |= b.forms;
    return good;
}

static struct slice default_name(const struct profile_route *route)
{
    static const char before[] = "{\"name\": \"";
    struct slice rest = slice_from(slice_text(route->text), sizeof before - 1);
    return slice_sub(rest, 0, slice_find(rest, '"'));
}

static bool add_default(struct building *w, size_t i, const struct profile_route *route, struct fail *why)
{
    const struct json_limits limits = {64 * 1024, 8};
    struct json *doc = json_parse(slice_text(route->text), "built-in routes", 0, limits, why);
    bool good = doc && add_route(w, doc, json_root(doc), route->system, why);
    json_free(doc);
    w->placed[i] = true;
    return good;
}

/* Returns whether a word of `routes` stands for the built-in route: the route's name, or the name of its system. */
static bool is_meant(struct slice word, const struct profile_route *route)
{
    return slice_equal(word, default_name(route)) || slice_is(word, system_text(route->system));
}

static bool is_on(const struct building *w, const struct profile_route *route)
{
    return w->systems & SYSTEM_BIT(route->system);
}

static bool is_named(const struct building *w, const struct profile_route *route)
{
    for (const json_node *node = json_first(w->nodes->routes); node; node = json_next(node)) {
        struct slice word;
        if (json_text(node, &word) && is_meant(word, route))
            return true;
    }
    return false;
}

/* Adds the routes of `systems` that `routes` does not list by name. */
static bool add_defaults(struct building *w, struct fail *why)
{
    struct profile_route route;
    for (size_t i = 0; profile_route_at(i, &route); i++)
        if (is_on(w, &route) && !is_named(w, &route) && !add_default(w, i, &route, why))
            return false;
    return true;
}

static bool add_word(struct building *w, const json_node *node, struct slice word, struct fail *why)
{
    bool known = false;
    struct profile_route route;
    for (size_t i = 0; profile_route_at(i, &route); i++) {
        if (!is_meant(word, &route))
            continue;
        if (w->placed[i])
            return json_fail(w->doc, node, why, "route '%.*s' stands twice",
                             SLICE_PRINTF(default_name(&route)));
        if (!add_default(w, i, &route, why))
            return false;
        known = true;
    }
    return known || json_fail(w->doc, node, why,
                              "a route is an object, \"defaults\", a system or the name of a built-in route");
}

/* Returns whether every route of `systems` has a place in the list. */
static bool all_placed(const struct building *w)
{
    struct profile_route route;
    for (size_t i = 0; profile_route_at(i, &route); i++)
        if (is_on(w, &route) && !w->placed[i])
            return false;
    return true;
}

/* Reads the array `routes`: objects, names, and "defaults" at most once. */
static bool add_list(struct building *w, const json_node *list, struct fail *why)
{
    bool defaults = false;
    for (const json_node *node = json_first(list); node; node = json_next(node)) {
        struct slice word;
        bool is_word = json_text(node, &word);
        bool here = is_word && slice_is(word, "defaults");
        if (here && defaults)
            return json_fail(w->doc, node, why, "\"defaults\" stands twice");
        if (here && !w->systems)
            return json_fail(w->doc, node, why,
                             "\"defaults\" stands for the routes of `systems`, which is not there");
        defaults = defaults || here;
        if (!(here      ? add_defaults(w, why)
              : is_word ? add_word(w, node, word, why)
                        : add_route(w, w->doc, node, SYSTEM_NONE, why)))
            return false;
    }
    return all_placed(w) ||
           json_fail(w->doc, w->nodes->systems, why,
                     "systems: `routes` does not say where their routes stand: add \"defaults\" to it");
}

static size_t defaults_count(void)
{
    struct profile_route route;
    size_t count = 0;
    while (profile_route_at(count, &route))
        count++;
    return count;
}

static bool add_all(struct building *w, struct fail *why)
{
    const json_node *list = w->nodes->routes;
    if (!list && !w->systems)
        return json_fail(
            w->doc, json_root(w->doc), why,
            "there is no route: name in `systems` those whose clients come here (%s), or write `routes`",
            system_words());
    if (list && !json_is_array(list))
        return json_fail(w->doc, list, why, "routes is an array");
    size_t defaults = defaults_count();
    if (defaults > ROUTE_DEFAULTS_MAX)
        return fail(why, "there are more than %d built-in routes", ROUTE_DEFAULTS_MAX);
    w->routes->at = calloc(json_count(list) + defaults, sizeof *w->routes->at);
    if (!w->routes->at)
        return fail(why, "out of memory");
    struct fail what;
    if (!(list ? add_list(w, list, why) : add_defaults(w, why)))
        return false;
    return routes_check(w->routes, &what) || json_fail(w->doc, list, why, "%s", what.text);
}

static bool domain_is_new(const json_node *domains, const json_node *domain, struct slice name)
{
    for (const json_node *list = json_first(domains); list; list = json_next(list))
        for (const json_node *other = json_first(list); other; other = json_next(other)) {
            struct slice text;
            if (other == domain)
                return true;
            if (json_text(other, &text) && slice_equal_nocase(text, name))
                return false;
        }
    return true;
}

static bool domains_check(const struct json *doc, const json_node *domains, struct fail *why)
{
    if (domains && !json_is_object(domains))
        return json_fail(doc, domains, why, "domains is an object of forms and their domains");
    for (const json_node *list = json_first(domains); list; list = json_next(list)) {
        if (!form_bit(slice_text(json_key(list))))
            return no_form(doc, list, why);
        if (!json_is_array(list))
            return json_fail(doc, list, why, "the domains of a form are an array");
        for (const json_node *domain = json_first(list); domain; domain = json_next(domain)) {
            struct slice name;
            if (!json_text(domain, &name) || !hostname_valid(name))
                return json_fail(doc, domain, why, "not the name of a domain");
            if (!domain_is_new(domains, domain, name))
                return json_fail(doc, domain, why, "'%.*s' stands twice: a domain belongs to one form",
                                 SLICE_PRINTF(name));
        }
    }
    return true;
}

/* Refuses a domain whose form no route serves: requests to it would be refused without a hint to the operator. */
static bool domains_served(const struct building *w, struct fail *why)
{
    for (const json_node *list = json_first(w->nodes->domains); list; list = json_next(list))
        if (!(w->forms & form_bit(slice_text(json_key(list)))))
            return json_fail_key(w->doc, list, why,
                                 "no route is for domains of '%s': is its system missing in `systems`?",
                                 json_key(list));
    return true;
}

static bool add_services(struct building *w, struct fail *why)
{
    struct fail what;
    w->routes->services = services_read(w->doc, w->nodes->services, &what);
    if (w->routes->services || !what.text[0])
        return true;
    *why = what;
    return false;
}

static bool routes_build(struct building *w, struct fail *why)
{
    return add_services(w, why) && domains_check(w->doc, w->nodes->domains, why) && add_all(w, why) &&
           domains_served(w, why);
}

static struct routes *routes_make(struct building *w, struct fail *why)
{
    if (!(w->routes = calloc(1, sizeof *w->routes))) {
        fail(why, "out of memory");
        return NULL;
    }
    if (routes_build(w, why))
        return w->routes;
    routes_free(w->routes);
    return NULL;
}

struct route_nodes route_nodes_of(const json_node *root)
{
    return (struct route_nodes){.systems = json_member(root, "systems"),
                                .routes = json_member(root, "routes"),
                                .domains = json_member(root, "domains"),
                                .services = json_member(root, "services")};
}

struct routes *routes_new(const struct json *doc, const struct route_nodes *nodes, struct fail *why)
{
    struct building w = {.doc = doc, .nodes = nodes};
    return systems_read(doc, nodes->systems, &w.systems, why) ? routes_make(&w, why) : NULL;
}

struct routes *routes_of_all_systems(const struct json *doc, const json_node *domains, struct fail *why)
{
    const struct route_nodes nodes = {.domains = domains};
    struct building w = {.doc = doc, .nodes = &nodes, .systems = SYSTEMS_ALL};
    return routes_make(&w, why);
}

static void entry_free(struct route_entry *entry)
{
    size_t count;
    const struct option *keys = route_options(&count);
    patterns_free(&entry->path);
    patterns_free(&entry->host);
    for (size_t i = 0; i < entry->header_count; i++)
        patterns_free(&entry->headers[i].patterns);
    template_free(entry->route.template);
    for (size_t i = 0; i < entry->route.set_count; i++) {
        free((void *)entry->route.set[i].name.at);
        free((void *)entry->route.set[i].value.at);
    }
    free(entry->route.set);
    options_free(keys, count, entry);
}

bool routes_read_secrets(struct routes *routes, const struct json *doc, const json_node *services,
                         const char *base_dir, struct fail *why)
{
    return services_read_secrets(routes->services, doc, services, base_dir, why);
}

void routes_free(struct routes *routes)
{
    if (!routes)
        return;
    for (size_t i = 0; i < routes->count; i++)
        entry_free(&routes->at[i]);
    texts_free(&routes->own_headers);
    services_free(routes->services);
    free(routes->at);
    free(routes);
}
