/* SPDX-License-Identifier: MIT */
/*
 * route: the table that says what to do with which request: the configuration's `routes`, the built-in ones of
 * its `systems` (spoa/agent/systems), or both. First match wins. Built once, then read by any number of threads;
 * everything in a route belongs to its table.
 *
 * The keys are those of route_options(); docs/routing.md explains them. Beyond plain patterns (pattern.h) a
 * path may begin with an optional part "[/v1]", a host may hold "<FORM>", which stands for every domain
 * listed for that form in `domains`, and path, host and the values of headers may be arrays: alternatives,
 * the first that matches counts.
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
enum route_keep { ROUTE_BY_FORM, ROUTE_STRIP, ROUTE_KEEP }; /* by form: kept where `host` is a pattern */

struct route_header { /* to set towards the worker */
    struct slice name, value;
};

struct route {
    char *name;
    enum system system; /* whose entries of `tokens` are good on it; SYSTEM_NONE: nobody's */
    enum route_upgrade upgrade;
    int via;      /* enum route_via */
    int protocol; /* enum route_protocol */
    int mux;      /* enum route_mux; not off: the relay takes requests out of a WebSocket's messages */
    const struct service *service; /* that it leads to; NULL: to sandboxes */
    struct texts orgs;             /* of a service that does not judge its callers: whose they are, or "*" */
    int64_t port;                  /* that is meant where none is captured; 0: none */
    struct template *template;     /* NULL: the worker gets the path unchanged */
    unsigned need;                 /* of enum need; 0: no token */
    bool by_host; /* its host is a pattern, so that the domain it is asked by is no choice of the caller's */
    bool keep_host, keep_cookies;
    bool keep_auth;             /* an Authorization that is no credential of ours is the application's */
    bool cookie;                /* a token may come as cookie, and a query token is turned into one */
    struct texts origins, cors; /* exact origins, or "*"; no `origins`: the request's own host */
    int64_t timeout;            /* milliseconds; 0: HAProxy's */
    struct texts strip;         /* relay only */
    struct route_header *set;
    size_t set_count;
    /* for the relay (relay.md); durations in milliseconds, sizes in bytes, 0: the relay's own */
    int resume, end, keepalive; /* enum handover_resume, handover_end, handover_keepalive */
    int refuse;                 /* enum route_refuse */
    bool stream, overlap;
    bool one_leg; /* a tunnel ends with its worker */
    bool waits;   /* it says so: the next one is held until there is a worker */
    int64_t hold, idle, max_age, max_message;
    unsigned label; /* by which its decisions are counted; 0 until routes_label */
};

extern const char *const route_mux_names[]; /* of enum route_mux; NULL behind the last */

/* The keys of a route, for documentation. */
const struct option *route_options(size_t *count);

struct routes;

/* What the table is made of: members of one configuration, each may be NULL. */
struct route_nodes {
    const json_node *systems; /* which built-in routes are on */
    const json_node *routes;  /* among them "defaults" where the built-in ones stand; NULL: these alone */
    const json_node *domains;
    const json_node *services; /* named upstreams of routes with `to_service` */
};
struct route_nodes route_nodes_of(const json_node *root);

/* NULL and *why with the position. */
struct routes *routes_new(const struct json *doc, const struct route_nodes *nodes, struct fail *why);
/* The built-in routes of every system, whichever are on. */
struct routes *routes_of_all_systems(const struct json *doc, const json_node *domains, struct fail *why);
/* Reads the files that hold credentials of `services`: services_read_secrets. For the agent, before others use the table. */
bool routes_read_secrets(struct routes *routes, const struct json *doc, const json_node *services,
                         const char *base_dir, struct fail *why) __attribute__((warn_unused_result));
void routes_free(struct routes *routes); /* NULL is fine */

/* Headers that routes look at and haproxy.cfg does not know. */
const struct texts *routes_own_headers(const struct routes *routes);
/* Appends {"routes": [those in force, as a configuration would list them], "off": [names of those whose form of host has no
 * domain]}. False: the buffer is full. */
bool routes_write(const struct routes *routes, struct buffer *to);
size_t routes_count(const struct routes *routes);
const struct route *routes_at(const struct routes *routes, size_t i);
const struct route *routes_find(const struct routes *routes, struct slice name); /* NULL: none */
/* Asks for the label of each, before other threads use the table. */
void routes_label(struct routes *routes, unsigned (*label_of)(void *context, struct slice name),
                  void *context);

/* Why a route is not the one: X(NAME, text) */
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
    bool climbs; /* a dot segment leaves the captured part: to be refused */
};

/* Told about every route that is looked at. */
struct route_watcher {
    void (*looked)(void *context, const struct route *route, enum route_miss miss);
    void *context;
};

/* The first route for the request. host: in lower case, without port, absent if there is none. Captures point
 * into the request, host and the table. watcher may be NULL. */
bool route_match(const struct routes *routes, const struct request *request, bool upgrade, struct slice host,
                 struct route_match *match, const struct route_watcher *watcher);

#endif
