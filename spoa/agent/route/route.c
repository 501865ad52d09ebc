/* SPDX-License-Identifier: MIT */
#include "spoa/agent/route/route.h"

#include "spoa/agent/route/path.h"
#include "spoa/agent/route/table.h"

const struct texts *routes_own_headers(const struct routes *routes)
{
    return &routes->own_headers;
}

size_t routes_count(const struct routes *routes)
{
    return routes->count;
}

const struct route *routes_at(const struct routes *routes, size_t i)
{
    return &routes->at[i].route;
}

const struct route *routes_find(const struct routes *routes, struct slice name)
{
    for (size_t i = 0; i < routes->count; i++)
        if (slice_is(name, routes->at[i].route.name))
            return &routes->at[i].route;
    return NULL;
}

void routes_label(struct routes *routes, unsigned (*label_of)(void *context, struct slice name),
                  void *context)
{
    for (size_t i = 0; i < routes->count; i++)
        routes->at[i].route.label = label_of(context, slice_text(routes->at[i].route.name));
}

const char *route_miss_text(enum route_miss miss)
{
    switch (miss) {
#define X(name, text)       \
    case ROUTE_MISS_##name: \
        return text;
        ROUTE_MISSES(X)
#undef X
    case ROUTE_MATCHES:
        break;
    }
    return "it matches";
}

/* The state of one attempt; `captured` has a bit for every captured place. */
struct attempt {
    struct captures *captures;
    unsigned captured;
    bool climbs;
};

static bool patterns_match(const struct patterns *patterns, struct slice input, struct attempt *attempt)
{
    if (patterns->count == 0)
        return true;
    for (size_t i = 0; i < patterns->count; i++) {
        enum pattern_result result = pattern_match(patterns->at[i], input, attempt->captures);
        if (result == PATTERN_MISS)
            continue;
        attempt->captured |= pattern_captures(patterns->at[i]);
        attempt->climbs = attempt->climbs || result == PATTERN_CLIMBS;
        return true;
    }
    return false;
}

static bool headers_match(const struct route_entry *entry, const struct request *request,
                          struct attempt *attempt)
{
    for (size_t i = 0; i < entry->header_count; i++) {
        const struct route_header_rule *rule = &entry->headers[i];
        struct slice value;
        size_t lines;
        if (rule->offset == 0)
            value = request_header(request, rule->name, &lines);
        else
            memcpy(&value, (const char *)request + rule->offset, sizeof value);
        if (!patterns_match(&entry->headers[i].patterns, value, attempt))
            return false;
    }
    return true;
}

/* Returns whether the route serves the captured port. An invalid port counts as served: the decision then refuses it. The decision
 * decodes ports in the same way. */
static bool port_served(const struct route_entry *entry, const struct attempt *attempt)
{
    uint8_t digits[5];
    struct writer decoded = writer_of(digits, sizeof digits);
    uint64_t port;
    if (entry->served.count == 0 || !(attempt->captured & 1u << CAPTURE_PORT))
        return true;
    path_decode(attempt->captures->value[CAPTURE_PORT], &decoded);
    if (decoded.full || !slice_u64(writer_slice(&decoded), 65535, &port))
        return true;
    return port_list_has(&entry->served, (uint16_t)port);
}

static enum route_miss entry_match(const struct route_entry *entry, const struct request *request,
                                   bool upgrade, struct slice host, struct attempt *attempt)
{
    if (entry->off)
        return ROUTE_MISS_OFF;
    if (entry->route.upgrade == ROUTE_UPGRADE && !upgrade)
        return ROUTE_MISS_UPGRADE;
    if (entry->route.upgrade == ROUTE_PLAIN && upgrade)
        return ROUTE_MISS_PLAIN;
    if (!patterns_match(&entry->path, request->path, attempt))
        return ROUTE_MISS_PATH;
    if (!patterns_match(&entry->host, host, attempt))
        return ROUTE_MISS_HOST;
    if (!headers_match(entry, request, attempt))
        return ROUTE_MISS_HEADER;
    return port_served(entry, attempt) ? ROUTE_MATCHES : ROUTE_MISS_PORT;
}

static void match_fill(const struct route_entry *entry, const struct request *request,
                       const struct attempt *attempt, struct route_match *match)
{
    match->route = &entry->route;
    match->climbs = attempt->climbs;
    if (entry->path.count == 0)
        match->climbs = match->climbs || path_climbs(slice_from(request->path, 1));
    for (size_t i = 0; i < CAPTURES_MAX; i++)
        if (!(attempt->captured & 1u << i))
            match->captures.value[i] = (struct slice){NULL, 0};
}

bool route_match(const struct routes *routes, const struct request *request, bool upgrade, struct slice host,
                 struct route_match *match, const struct route_watcher *watcher)
{
    for (size_t i = 0; i < routes->count; i++) {
        struct attempt attempt = {.captures = &match->captures};
        enum route_miss miss = entry_match(&routes->at[i], request, upgrade, host, &attempt);
        if (watcher)
            watcher->looked(watcher->context, &routes->at[i].route, miss);
        if (miss == ROUTE_MATCHES) {
            match_fill(&routes->at[i], request, &attempt, match);
            return true;
        }
    }
    return false;
}
