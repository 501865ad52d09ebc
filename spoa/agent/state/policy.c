/* SPDX-License-Identifier: MIT */
#include "spoa/agent/state/policy.h"

#include <errno.h>
#include <stdlib.h>
#include <time.h>

#include "spoa/agent/directory/options.h"
#include "spoa/agent/state/renew.h"
#include "spoa/base/os/file.h"

static bool load_revoked(struct policy *p, struct fail *why)
{
    const char *path = p->settings->tokens_revoked_file;
    struct slice text;
    if (!path)
        return true;
    file_look(path, &p->revoked_seen);
    if (!file_read(path, REVOKED_BYTES, &text, why))
        return false;
    bool good = revoked_read(text, path, time(NULL), &p->revoked, NULL, &p->revoked_over, why);
    file_free(text);
    return good;
}

/* A misspelt route name must be an error: otherwise access differs from what the operator wrote. */
static bool check_routes_of(const struct policy *p, const json_node *entry, struct fail *why)
{
    const json_node *names = json_member(entry, "routes");
    struct slice name;
    for (const json_node *n = names ? json_first(names) : NULL; n; n = json_next(n))
        if (json_text(n, &name) && !routes_find(p->routes, name))
            return json_fail(p->settings->doc, n, why, "routes: there is no route '%.*s'",
                             SLICE_PRINTF(name));
    return true;
}

static bool load_tokens(struct policy *p, struct fail *why)
{
    const struct settings *s = p->settings;
    for (const json_node *n = s->tokens ? json_first(s->tokens) : NULL; n; n = json_next(n))
        if (json_is_object(n) && !check_routes_of(p, n, why))
            return false;
    p->tokens = tokens_load(s->doc, s->tokens, s->base_dir, s->cell, TOKENS_CHECK, why);
    return p->tokens && load_revoked(p, why);
}

static bool check_renew(const struct settings *s, struct fail *why)
{
    const char *file = s->renew.password_file;
    struct fail what;
    if (!renew_check(&s->renew, &what))
        return fail(why, "%s: %s", s->path, what.text);
    return !file || file_readable(file, &what) ||
           fail(why, "%s: renew.password_file: %s", s->path, what.text);
}

struct routes *policy_routes(const struct settings *s, struct fail *why)
{
    const struct route_nodes nodes = {s->systems, s->routes, s->domains, s->services};
    return routes_new(s->doc, &nodes, why);
}

static bool warn_of_members(const struct settings *s, const json_node *container, const struct option *table,
                            size_t count, struct texts *warnings, struct fail *why)
{
    for (const json_node *node = json_first(container); node; node = json_next(node))
        if (!options_warn_old(s->doc, node, table, count, warnings, why))
            return false;
    return true;
}

/* Warns about former names of keys that settings_load does not read itself. */
static bool warn_of_old_names(struct settings *s, const struct directory_kind *kind, struct fail *why)
{
    size_t route_keys, service_keys;
    const struct option *route = route_options(&route_keys), *service = service_options(&service_keys);
    struct texts *warnings = &s->warnings;
    return options_warn_old(s->doc, s->directory, kind->options, kind->options_count, warnings, why) &&
           warn_of_members(s, s->routes, route, route_keys, warnings, why) &&
           warn_of_members(s, s->services, service, service_keys, warnings, why) &&
           tokens_warn_old(s->doc, s->tokens, warnings, why);
}

/* Warns about a file that HAProxy reads; the agent need not be able to read it. */
static bool warn_of_file(struct settings *s, const char *key, const char *path, bool secret, struct fail *why)
{
    struct stat look;
    struct fail warning = {""}, exposed;
    if (path && stat(path, &look) != 0 && errno == ENOENT)
        fail(&warning, "%s: %s: there is no such file", key, path);
    else if (path && secret && file_exposure(path, FILE_READ_BY_ROOT, &exposed) != FILE_PRIVATE)
        fail(&warning, "%s: %s", key, exposed.text);
    return !*warning.text || texts_add(&s->warnings, slice_text(warning.text)) || fail(why, "out of memory");
}

static bool is_credential(const char *name)
{
    static const char *const names[] = {"Authorization", "Cookie", "X-Api-Key",
#define X(kind, field, variable, header, ...) (header),
                                        WORKER_HEADERS(X)
#undef X
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (slice_equal_nocase(slice_text(name), slice_text(names[i])))
            return true;
    return false;
}

/* Warns about a credential in the configuration file: the relay reads this file too, and packages install it readable for everyone. */
static bool warn_of_inline(struct settings *s, const json_node *container, const char *key,
                           const char *instead, struct fail *why)
{
    const char *reader = file_is_public(s->path) ? "everybody on this machine" : "the relay";
    for (const json_node *entry = json_first(container); entry; entry = json_next(entry)) {
        const json_node *headers = json_is_object(entry) ? json_member(entry, key) : NULL;
        for (const json_node *header = json_first(headers); header; header = json_next(header)) {
            struct fail warning;
            if (!is_credential(json_key(header)))
                continue;
            json_fail(s->doc, header, &warning, "%s: %s can read this credential: %s", key, reader, instead);
            if (!texts_add(&s->warnings, slice_text(warning.text)))
                return fail(why, "out of memory");
        }
    }
    return true;
}

static bool warn_of_credentials(struct settings *s, struct fail *why)
{
    return warn_of_inline(s, s->services, "headers", "put it into a headers_file of mode 600", why) &&
           warn_of_inline(s, s->routes, "set", "put it into the headers of records, or of a service", why);
}

static bool is_of_relay(const struct option *option)
{
    return strncmp(option->key, "relay.", 6) == 0;
}

/* Refuses exposed secrets that are read later, because the operator sees the error now. */
static bool check_secrets(const struct settings *s, struct fail *why)
{
    size_t count, at = 0;
    const struct option *table = settings_options(&count);
    enum file_exposure exposure;
    do
        exposure = options_exposed_secret(table, count, s, "relay.", &at, why);
    while (exposure == FILE_READABLE || (exposure == FILE_WRITABLE && is_of_relay(&table[at - 1])));
    return exposure != FILE_WRITABLE;
}

static bool load_parts(struct policy *p, struct fail *why)
{
    struct settings *s = p->settings;
    return check_secrets(s, why) && (p->directory = directory_options_read(s, why)) &&
           (p->routes = policy_routes(s, why)) &&
           routes_read_secrets(p->routes, s->doc, s->services, s->base_dir, why) &&
           warn_of_credentials(s, why) && management_read(s, &p->management, why) &&
           (p->egress = egress_config_read(s, why)) &&
           warn_of_file(s, "egress.sign_file", s->egress.sign_file, true, why) &&
           warn_of_file(s, "egress.http2_folder", s->egress.http2_folder, true, why) &&
           warn_of_file(s, "egress.ca_file", s->egress.ca_file, false, why) && check_renew(s, why) &&
           load_tokens(p, why) && warn_of_old_names(s, p->directory->kind, why);
}

struct policy *policy_load(const char *path, const char *const *overrides, size_t override_count,
                           struct fail *why)
{
    struct policy *p = calloc(1, sizeof *p);
    if (!p) {
        fail(why, "out of memory");
        return NULL;
    }
    p->references = 1;
    p->settings = settings_load(path, overrides, override_count, why);
    if (p->settings && load_parts(p, why))
        return p;
    policy_release(p);
    return NULL;
}

struct policy *policy_reload_tokens(struct policy *old, struct fail *why)
{
    struct policy *p = calloc(1, sizeof *p);
    if (!p) {
        fail(why, "out of memory");
        return NULL;
    }
    *p = (struct policy){.references = 1,
                         .base = policy_retain(old->base ? old->base : old),
                         .settings = old->settings,
                         .routes = old->routes,
                         .management = old->management,
                         .directory = old->directory};
    if ((p->egress = egress_config_read(p->settings, why)) && load_tokens(p, why))
        return p;
    policy_release(p);
    return NULL;
}

struct policy *policy_retain(struct policy *p)
{
    references_add(&p->references);
    return p;
}

void policy_release(struct policy *p)
{
    if (!p || !references_drop(&p->references))
        return;
    tokens_free(p->tokens);
    revoked_release(p->revoked);
    egress_config_free(p->egress);
    policy_release(p->base);
    if (!p->base) {
        routes_free(p->routes);
        directory_options_release(p->directory);
        settings_free(p->settings);
    }
    free(p);
}
