/* SPDX-License-Identifier: MIT */
/*
 * profile: what is special about a system whose clients and workers work unchanged, one file for each. A new one is a file
 * NAME.c beside this and a row in PROFILES (agent_sandbox.c is a model). A header of its own has a row in headers.h. All
 * else follows: `systems` and `domains` of the configuration, `cellgate routes` and `explain`, the headers that HAProxy is to
 * remove (`cellgate headers`).
 */
#ifndef CELLGATE_AGENT_PROFILE_PROFILE_H
#define CELLGATE_AGENT_PROFILE_PROFILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "spoa/proto/refusal.h"

/* X(NAME, variable, word in `systems`): in this order their routes of one stage are tried. */
#define PROFILES(X)                               \
    X(OPENCOMPUTER, opencomputer, "opencomputer") \
    X(OPENSANDBOX, opensandbox, "opensandbox")    \
    X(SANDBOX_SDK, sandbox_sdk, "sandbox-sdk")    \
    X(DAYTONA, daytona, "daytona")                \
    X(E2B, e2b, "e2b")                            \
    X(AGENT_SANDBOX, agent_sandbox, "agent-sandbox")

enum system {
    SYSTEM_NONE, /* a route of the operator's own */
#define X(name, variable, word) SYSTEM_##name,
    PROFILES(X)
#undef X
        SYSTEM_COUNT
};

/* The stages in which routes of all systems are tried. Hosts come first: where a domain belongs to a form, no path that an
 * application in a sandbox may have is taken for one of ours. Then headers, which a client sends on purpose. Then paths. */
enum profile_stage { PROFILE_HOSTS, PROFILE_HEADERS, PROFILE_PATHS, PROFILE_STAGES };

enum { PROFILE_FORMS = 4, PROFILE_SOURCES = 4, PROFILE_WITHHELD = 8 };

/* What a refusal is to clients that go by the status, and by `sandboxId`, `message` and `code` of its body. */
struct profile_refusal {
    enum refusal refusal;
    int status;
    /* It is so only of an access secret that no record confirms, or of a sandbox that nobody here can wake. */
    bool unconfirmed, asleep;
};

struct profile {
    /* Where its software in a sandbox is managed, as `ports` of a route; NULL: nowhere. */
    const char *ports;
    /* Endpoints by which its host alone manages the sandbox, without a credential: no client is served a path with one of
     * these segments at that port. Port 0: there are none; NULL after the last segment. */
    struct {
        uint16_t port;
        const char *const segments[PROFILE_WITHHELD];
    } withheld;
    /* Forms of hosts that domains belong to, the keys of `domains`; NULL behind the last. */
    const char *const forms[PROFILE_FORMS];
    /* Credentials that its clients alone bring, as docs/tokens.md names them; NULL behind the last. */
    const char *const sources[PROFILE_SOURCES];
    /* The first row that is true of a refusal counts; REFUSAL_NONE behind the last. NULL: its clients get what all others get. */
    const struct profile_refusal *refusals;
    /* JSON() of each, the more exact before the others; NULL behind the last. NULL: none of that stage. */
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
/* The built-in routes of all systems, in the order in which they are tried: the one of that number, or false. */
bool profile_route_at(size_t number, struct profile_route *route);
/* The form of that number of all systems, NULL: there are fewer. */
const char *profile_form_at(size_t number);

#endif
