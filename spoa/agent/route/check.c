/* SPDX-License-Identifier: MIT */
/* route_check: checks the rules between the keys of a route, and between routes. */
#include "spoa/agent/route/table.h"
#include "spoa/agent/systems/tables.h"
#include "spoa/proto/handover.h"

/* The headers that haproxy.cfg always removes, or can remove. */
static const char *const direct_strip[] = {"Authorization",
                                           "Origin", /* removed from upgrades */
                                           "Cookie",
                                           "Forwarded",
                                           "X-Forwarded-For",
                                           "X-Forwarded-Host",
                                           "X-Forwarded-Proto",
                                           "Proxy-Authorization",
#define X(name) (name),
                                           API_HEADERS(X)
#undef X
#define X(field, lines, name, ...) name,
                                               CREDENTIAL_HEADERS(X) TARGET_HEADERS(X)
#undef X
                                                   NULL};

/* Returns whether each of the patterns captures the sandbox. */
static bool names_sandbox(const struct patterns *patterns)
{
    for (size_t i = 0; i < patterns->count; i++)
        if (!(pattern_captures(patterns->at[i]) & (1u << CAPTURE_SANDBOX | 1u << CAPTURE_SANDBOX64)))
            return false;
    return patterns->count > 0;
}

static bool captures_always(const struct patterns *patterns, enum capture capture)
{
    for (size_t i = 0; i < patterns->count; i++)
        if (!(pattern_captures(patterns->at[i]) & 1u << capture))
            return false;
    return patterns->count > 0;
}

/* A label with a token in the place of the sandbox also counts, because the token names the sandbox (decide.c). */
bool route_host_names_sandbox(const struct patterns *host)
{
    for (size_t i = 0; i < host->count; i++)
        if (!(pattern_captures(host->at[i]) & (1u << CAPTURE_SANDBOX | 1u << CAPTURE_TOKEN)))
            return false;
    return host->count > 0;
}

static bool check_sandbox(const struct route_entry *entry, struct fail *why)
{
    if (names_sandbox(&entry->path) || route_host_names_sandbox(&entry->host))
        return true;
    for (size_t i = 0; i < entry->header_count; i++)
        if (names_sandbox(&entry->headers[i].patterns))
            return true;
    return fail(why, "nothing captures {sandbox} in every case");
}

static bool names_session(const struct patterns *patterns)
{
    for (size_t i = 0; i < patterns->count; i++)
        if (pattern_captures(patterns->at[i]) & 1u << CAPTURE_SESSION)
            return true;
    return false;
}

bool route_redials(const struct route_entry *entry)
{
    const struct route *route = &entry->route;
    bool session = names_session(&entry->path) || names_session(&entry->host);
    for (size_t i = 0; i < entry->header_count; i++)
        session = session || names_session(&entry->headers[i].patterns);
    return route->resume || route->stream || route->overlap || session;
}

static bool check_direct(const struct route *route, struct fail *why)
{
    if (route->resume || route->end || route->keepalive || route->stream || route->overlap || route->hold ||
        route->idle || route->max_age || route->max_message)
        return fail(why, "resume, end, keepalive, stream, overlap, hold, idle, max_age and max_message need "
                         "\"via\": \"relay\"");
    for (size_t i = 0; i < route->strip.count; i++)
        if (!text_among(slice_text(route->strip.at[i]), direct_strip))
            return fail(why, "strip: on a direct route HAProxy cannot remove '%s'", route->strip.at[i]);
    return true;
}

/* Returns whether the list allows pages of anybody. `null` does: it is the origin of every page in a sandboxed frame. */
static bool has_anybody(const struct texts *origins)
{
    for (size_t i = 0; i < origins->count; i++)
        if (strcmp(origins->at[i], "*") == 0 || strcmp(origins->at[i], "null") == 0)
            return true;
    return false;
}

/* Browsers send a cookie with every request to its host, so the whole host must be this one sandbox (tokens.md). */
static bool check_cookie(const struct route_entry *entry, struct fail *why)
{
    bool pages = entry->route.upgrade != ROUTE_UPGRADE;
    if (!captures_always(&entry->host, CAPTURE_SANDBOX) || (pages && entry->path.count) ||
        entry->header_count)
        return fail(
            why, "cookie: only where host captures {sandbox}, without headers and, for pages, without path");
    if (has_anybody(&entry->route.origins) || has_anybody(&entry->route.cors))
        return fail(why, "cookie: not together with the origin '*' or 'null'");
    return true;
}

static unsigned captures_of(const struct patterns *patterns)
{
    unsigned captures = 0;
    for (size_t i = 0; i < patterns->count; i++)
        captures |= pattern_captures(patterns->at[i]);
    return captures;
}

static bool captures_port(const struct route_entry *entry)
{
    unsigned captures = captures_of(&entry->path) | captures_of(&entry->host);
    for (size_t i = 0; i < entry->header_count; i++)
        captures |= captures_of(&entry->headers[i].patterns);
    return captures & 1u << CAPTURE_PORT;
}

static bool has_pattern(const struct patterns *patterns, const struct pattern *wanted)
{
    for (size_t i = 0; i < patterns->count; i++)
        if (slice_equal_nocase(pattern_text(patterns->at[i]), pattern_text(wanted)))
            return true;
    return false;
}

/* Returns whether another route lets in by cookie the pages of all hosts of this route for upgrades. */
static bool has_pages(const struct routes *routes, const struct route_entry *entry)
{
    for (size_t i = 0; i < routes->count; i++) {
        const struct route_entry *other = &routes->at[i];
        bool all = other->route.cookie && other->route.upgrade != ROUTE_UPGRADE;
        for (size_t j = 0; j < entry->host.count; j++)
            all = all && has_pattern(&other->host, entry->host.at[j]);
        if (all)
            return true;
    }
    return false;
}

/* A service has no record: everything it gets follows from the route. */
static bool check_service(const struct route_entry *entry, struct fail *why)
{
    const struct route *route = &entry->route;
    if (entry->path.count == 0)
        return fail(why, "to_service: say which paths are the service's");
    if (route->via != ROUTE_DIRECT || route->refuse == ROUTE_REFUSE_CLOSE || route->cookie ||
        route->set_count || route->port || entry->ports)
        return fail(why, "to_service: not together with via, refuse, cookie, set, port or ports");
    if (captures_of(&entry->path) & (1u << CAPTURE_TOKEN | 1u << CAPTURE_SIGNATURE | 1u << CAPTURE_MAC))
        return fail(why, "to_service: no {token}, {signature} or {mac}");
    if (route->need && !route->orgs.count)
        return fail(why, "to_service: the service cannot tell one organisation's callers from another's: say "
                         "whose are good, "
                         "\"orgs\": [\"acme\"], or [\"*\"] for all");
    if (!route->need && route->orgs.count)
        return fail(why, "orgs: with \"need\": \"none\" nobody says an organisation");
    if (!route->need && (route->service->names.count || route->service->headers_file))
        return fail(why, "to_service: with \"need\": \"none\" the service's headers would be everybody's");
    return check_direct(route, why);
}

static bool check_resume(const struct route *route, struct fail *why)
{
    if (route->resume == HANDOVER_RESUME_CURSOR && route->overlap)
        return fail(why, "overlap: not with \"resume\": \"cursor\", whose output would come twice");
    return true;
}

/* The requests in the WebSocket are decided one by one; the upgrade itself reaches no sandbox and takes no token. */
static bool check_mux(const struct route_entry *entry, struct fail *why)
{
    const struct route *route = &entry->route;
    if (entry->path.count == 0)
        return fail(why, "mux: say which paths it has");
    if (route->need)
        return fail(why, "mux: say \"need\": \"none\"; each request in it needs what its own route says");
    if (route->upgrade != ROUTE_UPGRADE || route->via != ROUTE_RELAY)
        return fail(why, "mux: say \"upgrade\": true and \"via\": \"relay\"");
    if (route->service || route->orgs.count || route->cookie || route->set_count || route->port ||
        entry->ports || route->resume || route->end || route->keepalive || route->stream || route->overlap ||
        route->hold || route->strip.count)
        return fail(why, "mux: not together with to_service, orgs, cookie, set, port, ports, resume, end, "
                         "keepalive, stream, "
                         "overlap, hold or strip");
    return true;
}

bool route_check(const struct route_entry *entry, struct fail *why)
{
    const struct route *route = &entry->route;
    if (route->mux)
        return check_mux(entry, why);
    if (route->service)
        return check_service(entry, why);
    if (route->orgs.count)
        return fail(why, "orgs: only with to_service; of a sandbox its record says whose it is");
    if (route->port && captures_port(entry))
        return fail(why, "port: the route captures {port}");
    if (!check_sandbox(entry, why))
        return false;
    if (route->via == ROUTE_RELAY && route->upgrade != ROUTE_UPGRADE)
        return fail(why, "the relay takes upgrades only: say \"upgrade\": true");
    if (route->protocol == ROUTE_H2 && route->upgrade == ROUTE_UPGRADE)
        return fail(why, "protocol: upgrades are HTTP/1.1");
    if (route->via == ROUTE_DIRECT ? !check_direct(route, why) : !check_resume(route, why))
        return false;
    if (route->refuse == ROUTE_REFUSE_CLOSE && route->upgrade == ROUTE_PLAIN)
        return fail(why, "refuse: only an upgrade can be closed");
    return !route->cookie || check_cookie(entry, why);
}

/* A route by path that comes first would serve pages of other sandboxes on the cookie's host, which then share its origin. */
bool routes_check(const struct routes *routes, struct fail *why)
{
    const char *path_form = NULL;
    for (size_t i = 0; i < routes->count; i++) {
        const struct route_entry *entry = &routes->at[i];
        for (size_t j = 0; j < i; j++)
            if (strcmp(routes->at[j].route.name, entry->route.name) == 0)
                return fail(
                    why,
                    "two routes have the name '%s' (those of `systems` have names, too: `cellgate routes`)",
                    entry->route.name);
        if (!entry->host.count && entry->path.count && entry->route.upgrade != ROUTE_UPGRADE)
            path_form = entry->route.name;
        if (entry->route.cookie && !has_pages(routes, entry))
            return fail(
                why, "route '%s' has a cookie, and no route with a cookie serves plain requests of its host",
                entry->route.name);
        if (entry->route.cookie && path_form)
            return fail(why,
                        "route '%s' has a cookie and must stand before '%s', which serves pages on any host",
                        entry->route.name, path_form);
    }
    return true;
}
