/* SPDX-License-Identifier: MIT */
/*
 * profile: describes as data the systems whose clients and workers work unchanged; each has a NAME/profile.c. A new system
 * is a folder beside this file with a profile.c and a tables.h (agent_sandbox is a model), and a row in SYSTEMS. All else
 * follows: `systems` and `domains` of the configuration, `cellgate routes` and `explain`, the headers that HAProxy is to
 * remove (`cellgate headers`).
 */
#ifndef CELLGATE_AGENT_SYSTEMS_PROFILE_H
#define CELLGATE_AGENT_SYSTEMS_PROFILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "spoa/agent/systems/tables.h"
#include "spoa/proto/refusal.h"

enum system {
    SYSTEM_NONE, /* a route of the operator's own */
#define X(name, variable, word) SYSTEM_##name,
    SYSTEMS(X)
#undef X
        SYSTEM_COUNT
};

/* The order in which the routes of all systems are tried. Hosts come first: below a domain that belongs to a form, no path of
 * an application in a sandbox can match a route of ours. Headers come next, because a client sends them on purpose. */
enum profile_stage { PROFILE_HOSTS, PROFILE_HEADERS, PROFILE_PATHS, PROFILE_STAGES };

enum { PROFILE_FORMS = 4, PROFILE_SOURCES = 4, PROFILE_WITHHELD = 8 };

/* The form of a refusal for clients that look at the status, and at `sandboxId`, `message` and `code` of its body. */
struct profile_refusal {
    enum refusal refusal;
    int status;
    /* The row is for an access secret that no record confirms, or for a sandbox that nobody here can wake. */
    bool unconfirmed, asleep;
};

struct profile {
    /* The ports at which its software in a sandbox is managed, as `ports` of a route; NULL if there are none. */
    const char *ports;
    /* Endpoints by which its host alone manages the sandbox, without a credential: no client is served a path with one of
     * these segments at that port. Port 0: there are none; NULL after the last segment. */
    struct {
        uint16_t port;
        const char *const segments[PROFILE_WITHHELD];
    } withheld;
    /* Forms of hosts that domains belong to, the keys of `domains`; NULL after the last. */
    const char *const forms[PROFILE_FORMS];
    /* Credentials that its clients alone bring, as docs/tokens.md names them; NULL after the last. */
    const char *const sources[PROFILE_SOURCES];
    /* The first row that fits a refusal counts; REFUSAL_NONE after the last. With NULL its clients get what all others get. */
    const struct profile_refusal *refusals;
    /* JSON() of each route, the more exact before the others, NULL after the last; NULL if the stage has none. */
    const char *const *routes[PROFILE_STAGES];
};

/* A route as an object of the configuration, whose first member is its name. */
#define JSON(...) #__VA_ARGS__

/* NULL for SYSTEM_NONE. */
const struct profile *profile_of(enum system system);

struct profile_route {
    enum system system;
    const char *text; /* JSON */
};
/* Returns the built-in route with this number among those of all systems, in the order in which they are tried; false after the last. */
bool profile_route_at(size_t number, struct profile_route *route);
/* Returns the form with this number among those of all systems, or NULL after the last. */
const char *profile_form_at(size_t number);

#endif
