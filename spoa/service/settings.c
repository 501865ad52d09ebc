/* SPDX-License-Identifier: MIT */
#include "spoa/service/settings.h"

#include <limits.h>
#include <stdlib.h>
#include <unistd.h>

#include "spoa/service/log.h"

enum { FILE_MAX = 4 << 20, DEPTH_MAX = 32 }; /* bytes; nested containers */

/* ---- checks that the table cannot express ---- */

/* Fails with the position of the key in the file, or of the whole file if the key is not there. */
static bool refuse_setting(const struct settings *s, const char *key, struct fail *why, const char *what)
{
    return json_fail(s->doc, json_member_at(json_root(s->doc), key), why, "%s %s", key, what);
}

/* Checks which addresses may be TCP. */
static bool check_addresses(const struct settings *s, struct fail *why)
{
    const struct {
        const char *key;
        const struct net_address *address;
    } sockets[] = {{"agent.relay_listen", &s->agent.relay_listen},
                   {"agent.control", &s->agent.control},
                   {"relay.listen", &s->relay.listen},
                   {"relay.agent", &s->relay.agent},
                   {"relay.control", &s->relay.control},
                   {"relay.worker_tls", &s->relay.worker_tls},
                   {"relay.egress_tls", &s->relay.egress_tls},
                   {"relay.egress_http", &s->relay.egress_http},
                   {"relay.egress_out", &s->relay.egress_out}};
    for (size_t i = 0; i < sizeof sockets / sizeof *sockets; i++)
        if (!net_is_unix(sockets[i].address))
            return refuse_setting(s, sockets[i].key, why, "must be a Unix socket (unix@PATH)");
    if (!net_is_unix(&s->agent.listen) && !s->agent.trust_tcp)
        return refuse_setting(s, "agent.listen", why,
                              "must be a Unix socket (unix@PATH), or set agent.trust_tcp");
    if (!net_is_unix(&s->agent.listen) && s->agent.haproxy_user)
        return refuse_setting(s, "agent.haproxy_user", why,
                              "cannot be checked on TCP: let agent.listen be a Unix socket, or leave it out");
    const char *const admins[] = {"agent.admin", "relay.admin"};
    for (size_t i = 0; i < 2; i++) {
        const struct net_address *admin = i == 0 ? &s->agent.admin : &s->relay.admin;
        if (!net_is_unix(admin) && !net_is_loopback(admin))
            return refuse_setting(s, admins[i], why, "must be a loopback address or a Unix socket");
    }
    return true;
}

/* Checks the types of nodes, and that an empty list of tokens is intended. */
static bool check_nodes(const struct settings *s, struct fail *why)
{
    if (!json_is_object(s->directory))
        return refuse_setting(s, "directory", why, "must be an object");
    if (s->tokens && !json_is_array(s->tokens))
        return refuse_setting(s, "tokens", why, "must be a list");
    if (s->routes && !json_is_array(s->routes))
        return refuse_setting(s, "routes", why, "must be a list");
    if (s->systems && !json_is_array(s->systems))
        return refuse_setting(s, "systems", why, "must be a list");
    if (s->domains && !json_is_object(s->domains))
        return refuse_setting(s, "domains", why, "must be an object");
    if (s->egress.fallback && !json_is_object(s->egress.fallback))
        return refuse_setting(s, "egress.default", why, "must be an object");
    if (s->egress.hosts && !json_is_object(s->egress.hosts))
        return refuse_setting(s, "egress.hosts", why, "must be an object");
    if (s->egress.secrets && !json_is_object(s->egress.secrets))
        return refuse_setting(s, "egress.secrets", why, "must be an object");
    if (s->open && json_first(s->tokens))
        return refuse_setting(s, "open", why,
                              "lets everybody in, whatever tokens says: leave one of them out");
    if (s->open || json_first(s->tokens))
        return true;
    if (s->tokens)
        return refuse_setting(s, "tokens", why, "is empty: say \"open\": true to let everybody in");
    return json_fail(s->doc, json_root(s->doc), why,
                     "tokens is missing: say \"open\": true to let everybody in");
}

static int64_t processors(void)
{
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    return online < 1 ? 1 : online > SETTINGS_THREADS_MAX ? SETTINGS_THREADS_MAX : online;
}

/* Computes what follows from the values. The table's checks have accepted all texts, so parsing cannot fail. */
static bool derive(struct settings *s, struct fail *why)
{
    s->networks = calloc(s->worker_networks.count, sizeof *s->networks);
    if (!s->networks)
        return fail(why, "%s: out of memory", s->path);
    s->networks_count = s->worker_networks.count;
    for (size_t i = 0; i < s->networks_count; i++)
        if (!cidr_parse(slice_text(s->worker_networks.at[i]), &s->networks[i]))
            return fail(why, "%s: worker_networks has a text that is no network", s->path);
    const struct texts *pauses = &s->relay.redial_backoff_texts;
    s->relay.redial_backoff_count = pauses->count;
    for (size_t i = 0; i < pauses->count; i++)
        (void)!options_duration(slice_text(pauses->at[i]), &s->relay.redial_backoff[i]);
    if (!s->agent.threads)
        s->agent.threads = processors();
    if (!s->relay.threads)
        s->relay.threads = processors();
    return true;
}

/* ---- reading ---- */

/* Keeps the path and its folder. */
static bool set_paths(struct settings *s, const char *path, struct fail *why)
{
    const char *slash = strrchr(path, '/');
    s->path = strdup(path);
    if (!slash)
        s->base_dir = strdup(".");
    else
        s->base_dir = slash == path ? strdup("/") : strndup(path, (size_t)(slash - path));
    return (s->path && s->base_dir) || fail(why, "%s: out of memory", path);
}

/* Adds a warning for each former name, in the file and in overrides. */
static bool warn_old(struct settings *s, const struct option *table, size_t keys,
                     const char *const *overrides, size_t count, struct fail *why)
{
    if (!options_warn_old(s->doc, json_root(s->doc), table, keys, &s->warnings, why))
        return false;
    for (size_t i = 0; i < count; i++) {
        struct slice key = slice_of(overrides[i], strcspn(overrides[i], "="));
        const struct option *option = options_find(table, keys, key);
        struct fail warning;
        if (slice_is(key, option->key))
            continue;
        fail(&warning, "-o %s is now called %s", option->old, option->key);
        if (!texts_add(&s->warnings, slice_text(warning.text)))
            return fail(why, "%s: out of memory", s->path);
    }
    return true;
}

/* Reads the file and applies the overrides. */
static bool read_file(struct settings *s, const char *const *overrides, size_t count, struct fail *why)
{
    size_t keys;
    const struct option *table = settings_options(&keys);
    s->doc = json_parse_file(s->path, JSON_COMMENTS, (struct json_limits){FILE_MAX, DEPTH_MAX}, why);
    if (!s->doc || !options_read(s->doc, json_root(s->doc), table, keys, s->base_dir, s, why))
        return false;
    for (size_t i = 0; i < count; i++)
        if (!options_override(table, keys, overrides[i], s, why))
            return false;
    return warn_old(s, table, keys, overrides, count, why);
}

struct settings *settings_load(const char *path, const char *const *overrides, size_t count, struct fail *why)
{
    struct settings *s = calloc(1, sizeof *s);
    if (!s) {
        fail(why, "%s: out of memory", path);
        return NULL;
    }
    bool good = set_paths(s, path, why) && read_file(s, overrides, count, why) && check_nodes(s, why) &&
                check_addresses(s, why);
    if (good && s->relay.memory < s->relay.buffer)
        good = refuse_setting(s, "relay.memory", why, "must not be less than relay.buffer");
    if (good && derive(s, why))
        return s;
    settings_free(s);
    return NULL;
}

void settings_free(struct settings *settings)
{
    size_t keys;
    const struct option *table = settings_options(&keys);
    if (!settings)
        return;
    options_free(table, keys, settings);
    texts_free(&settings->warnings);
    json_free(settings->doc);
    free(settings->networks);
    free(settings->path);
    free(settings->base_dir);
    free(settings);
}

bool settings_worker_allowed(const struct settings *settings, const struct address *address)
{
    return !cidr_is_metadata(address) &&
           cidr_any_contains(settings->networks, settings->networks_count, address);
}

const char *settings_socket_folder(const struct settings *settings, struct slice path)
{
    for (size_t i = 0; i < settings->worker_sockets.count; i++)
        if (net_path_beneath(settings->worker_sockets.at[i], path))
            return settings->worker_sockets.at[i];
    return NULL;
}

void settings_print_warnings(const struct settings *settings, FILE *to)
{
    for (size_t i = 0; i < settings->warnings.count; i++)
        fprintf(to, "warning: %s\n", settings->warnings.at[i]);
}

void settings_log_warnings(const struct settings *settings, struct log *log)
{
    for (size_t i = 0; i < settings->warnings.count; i++)
        log_write(log, LOG_WARN, "configuration", LOG_TEXT("warning", settings->warnings.at[i]));
}

bool settings_mark(const struct settings *settings, struct settings_marks *marks)
{
    size_t keys;
    const struct option *table = settings_options(&keys);

    if (!hash_secret_init(&marks->secret))
        return false;
    for (size_t i = 0; i < keys; i++)
        marks->of[i] = options_mark(&table[i], &marks->secret, settings);
    return true;
}

/* Both daemons read the keys without a section, and each of the other keys is read by one daemon. */
static bool is_read_by(enum settings_daemon daemon, const char *key)
{
    static const char of_relay[] = "relay.";
    bool relays = strncmp(key, of_relay, sizeof of_relay - 1) == 0;

    return !strchr(key, '.') || relays == (daemon == SETTINGS_OF_RELAY);
}

void settings_log_ignored(const struct settings *settings, const struct settings_marks *start,
                          enum settings_daemon daemon, struct log *log)
{
    size_t keys;
    const struct option *table = settings_options(&keys);

    for (size_t i = 0; i < keys; i++)
        if (table[i].restart && is_read_by(daemon, table[i].key) &&
            options_mark(&table[i], &start->secret, settings) != start->of[i])
            log_write(log, LOG_WARN, "a change of this key needs a restart", LOG_TEXT("key", table[i].key));
}
