/* SPDX-License-Identifier: MIT */
/*
 * route: the table that decides how each request is handled: the configuration's `routes`, the built-in routes of its `systems`
 * (spoa/agent/systems), or both. The first match wins. The table is built once and then read by any number of threads; it owns
 * everything in a route.
 *
 * The keys of a route are those of route_options(); docs/routing.md explains them. In addition to plain patterns (pattern.h), a path may
 * begin with an optional part "[/v1]", and a host may have "<FORM>", which stands for every domain that `domains` lists for this form.
 * Path, host and the values of headers may be arrays of alternatives, of which the first match counts.
 */
#ifndef CELLGATE_AGENT_ROUTE_ROUTE_H
#define CELLGATE_AGENT_ROUTE_ROUTE_H

#include "spoa/agent/model/request.h"
#include "spoa/agent/model/service.h"
#include "spoa/agent/model/system.h"
#include "spoa/agent/route/pattern.h"
#include "spoa/agent/route/template.h"
#include "spoa/base/bytes/buffer.h"
#include "spoa/base/json/json.h"
#include "spoa/service/options.h"

enum route_upgrade { ROUTE_ANY, ROUTE_UPGRADE, ROUTE_PLAIN };
enum route_via { ROUTE_DIRECT, ROUTE_RELAY };
enum route_refuse { ROUTE_REFUSE_HTTP, ROUTE_REFUSE_CLOSE };
enum route_protocol { ROUTE_H1, ROUTE_H2 };
enum route_mux {
    ROUTE_MUX_OFF,
#define X(form, word) ROUTE_MUX_##form,
    SYSTEM_MUX_FORMS(X)
#undef X
};
enum route_keep {
    ROUTE_BY_FORM,
    ROUTE_STRIP,
    ROUTE_KEEP
}; /* BY_FORM keeps the header if `host` is a pattern */

struct route_header { /* a header that is set for the worker */
    struct slice name, value;
};

struct route {
    char *name;
    enum system
        system; /* system whose `tokens` entries are valid on this route; SYSTEM_NONE if there is none */
    enum route_upgrade upgrade;
    int via;      /* enum route_via */
    int protocol; /* enum route_protocol */
    int mux;      /* enum route_mux; if not off, the relay takes requests out of a WebSocket's messages */
    const struct service *service; /* the route's destination; NULL if it leads to sandboxes */
    struct texts orgs; /* organisations that a service without own checks of its callers belongs to, or "*" */
    int64_t port;      /* port if none is captured; 0 if there is none */
    struct template *template; /* NULL if the worker gets the path unchanged */
    unsigned need;             /* mask of enum need; 0 if no token is needed */
    bool by_host;              /* the host is a pattern, so the caller cannot choose the domain freely */
    bool keep_host, keep_cookies;
    bool keep_auth;             /* the worker gets an Authorization that is not a credential of cellgate */
    bool cookie;                /* a token may be in the cookie, and a query token is turned into one */
    struct texts origins, cors; /* exact origins, or "*"; without `origins`, only the request's own host */
    int64_t timeout;            /* milliseconds; 0 for HAProxy's timeout */
    struct texts strip;         /* headers that the relay removes */
    struct route_header *set;
    size_t set_count;
    /* settings for the relay (relay.md): durations in milliseconds, sizes in bytes; 0 for the relay's defaults */
    int resume, end, keepalive; /* enum handover_resume, handover_end, handover_keepalive */
    int refuse;                 /* enum route_refuse */
    bool stream, overlap;
    bool one_leg; /* a tunnel ends when its worker does */
    bool waits;   /* the route has `waits`: the next message is held until there is a worker */
    int64_t hold, idle, max_age, max_message;
    unsigned label; /* label under which decisions are counted; 0 before routes_label */
};

extern const char *const route_mux_names[]; /* words of enum route_mux; NULL after the last */

/* Returns the keys of a route, for documentation. */
const struct option *route_options(size_t *count);

struct routes;

/* The members of one configuration that the table is built from; each may be NULL. */
struct route_nodes {
    const json_node *systems; /* enabled systems, whose built-in routes are on */
    const json_node *
        routes; /* the routes in order, with "defaults" in the place of the built-in ones; NULL for the built-in ones only */
    const json_node *domains;
    const json_node *services; /* named upstreams of routes with `to_service` */
};
struct route_nodes route_nodes_of(const json_node *root);

/* Builds a table. Returns NULL and *why, with the position, if the configuration is invalid. */
struct routes *routes_new(const struct json *doc, const struct route_nodes *nodes, struct fail *why);
/* Builds a table of the built-in routes of all systems, enabled or not. */
struct routes *routes_of_all_systems(const struct json *doc, const json_node *domains, struct fail *why);
/* Reads the files with credentials of `services` (services_read_secrets). The agent calls this before other threads use the table. */
bool routes_read_secrets(struct routes *routes, const struct json *doc, const json_node *services,
                         const char *base_dir, struct fail *why) __attribute__((warn_unused_result));
void routes_free(struct routes *routes); /* routes may be NULL */

/* Returns the headers that routes read and haproxy.cfg does not know. */
const struct texts *routes_own_headers(const struct routes *routes);
/* Appends {"routes": [routes in force, in the form of a configuration], "off": [names of routes whose form of host has no domain]}.
 * Returns false if the buffer is full. */
bool routes_write(const struct routes *routes, struct buffer *to);
size_t routes_count(const struct routes *routes);
const struct route *routes_at(const struct routes *routes, size_t i);
const struct route *routes_find(const struct routes *routes, struct slice name); /* NULL if there is none */
/* Sets the label of each route from label_of(); call it before other threads use the table. */
void routes_label(struct routes *routes, unsigned (*label_of)(void *context, struct slice name),
                  void *context);

/* Reasons why a route does not match: X(NAME, text) */
#define ROUTE_MISSES(X)                                \
    X(OFF, "its form of host has no domain")           \
    X(UPGRADE, "it is for WebSocket upgrades only")    \
    X(PLAIN, "it is not for WebSocket upgrades")       \
    X(PATH, "the path does not match")                 \
    X(HOST, "the host does not match")                 \
    X(HEADER, "a header is missing or does not match") \
    X(PORT, "the port is not one that it serves")

enum route_miss {
    ROUTE_MATCHES,
#define X(name, text) ROUTE_MISS_##name,
    ROUTE_MISSES(X)
#undef X
};
const char *route_miss_text(enum route_miss miss);

struct route_match {
    const struct route *route;
    struct captures captures;
    bool climbs; /* a dot segment leaves the captured part: the request must be refused */
};

/* Receives each route that is tried, and why it does not match. */
struct route_watcher {
    void (*looked)(void *context, const struct route *route, enum route_miss miss);
    void *context;
};

/* Finds the first route that matches the request. `host` is in lower case, without port, and absent if there is none. Captures point
 * into the request, the host and the table. `watcher` may be NULL. */
bool route_match(const struct routes *routes, const struct request *request, bool upgrade, struct slice host,
                 struct route_match *match, const struct route_watcher *watcher);

#endif
