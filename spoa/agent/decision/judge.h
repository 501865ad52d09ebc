/* SPDX-License-Identifier: MIT */
/*
 * judge: compares a record with the admission of a caller; no other code does. decide() calls it for a request, resolve() for a tunnel,
 * whose ticket has the same fields. Therefore a decision that waited for its record, and a tunnel whose record changed, get the verdict
 * of a request that finds the record at once. The functions are pure.
 */
#ifndef CELLGATE_AGENT_DECISION_JUDGE_H
#define CELLGATE_AGENT_DECISION_JUDGE_H

#include "spoa/agent/decision/destination.h"

/* The facts that a caller was admitted by. */
struct admission {
    const struct route
        *route;    /* route of the current policy; NULL if it was removed: the caller may then go nowhere */
    bool by_token; /* if false, no token was needed, and needs, ports, iat, kid and secret are ignored */
    bool named; /* the token names the sandbox, so its state need not be hidden while its owner is unknown */
    bool org_of_record; /* org was the record's when the tunnel was opened, not the token's */
    unsigned needs;     /* granted needs, mask of enum need */
    /* mask of the SYSTEM_BITs whose software has the path's endpoint for the sandbox's host alone */
    unsigned host_only;
    uint16_t port;    /* sandbox port that the request names; 0 if there is none, or it is the worker's own */
    int64_t iat;      /* Unix seconds; -1 if the token has none */
    struct slice org; /* absent if there is none */
    struct slice uid; /* of the token's sandbox; absent if the token names none */
    struct slice
        ports; /* packed as in a grant; absent if every port is allowed; empty if the granted ports are unknown */
    struct slice kid;    /* mark of the access secret (token/static.h), if the token is one */
    struct slice secret; /* SHA-256 of the client's access secret, in hex; absent if only kid is known */
    struct slice
        bearer; /* SHA-256 of the worker's Authorization, in hex; absent if it has none; empty if unknown */
};

struct judgement {
    enum refusal caller; /* reason why the record refuses the caller: sandbox_not_found or token_revoked */
    enum refusal
        place; /* reason why the admitted caller may not reach the place: sandbox_stopped, not_granted or no_route */
    const char *why;  /* reason of a refusal, as text */
    bool owner_known; /* the record names the sandbox's owner, or says that it has none */
    bool waits;       /* the sandbox has no worker yet in the record's state */
    bool leads;       /* the caller may go to `to` */
    bool follows;     /* the place is the worker's own port, and changes when the sandbox moves */
    enum destination_result result; /* result of looking for the place, if there was one */
    struct destination to;
    bool withhold; /* Authorization has the sandbox's access secret, which its worker must not get */
};

/* Checks owner, not_before and access secret. Texts of *judgement are static. */
void judge_caller(const struct decide_view *view, const struct admission *admission,
                  const struct record *record, struct judgement *judgement);
/* Checks the caller, then state, port, networks, needs and ports. */
void judge(const struct decide_view *view, const struct admission *admission, const struct record *record,
           struct judgement *judgement);
/* Checks a caller of a service without own checks: the organisations of the route must include `org` (absent if the token names none). */
bool judge_org(const struct route *route, struct slice org);
/* Returns admission.host_only for a path at the worker. */
unsigned judge_host_only(struct slice path);
/* Returns whether admission.bearer is needed. Most records have no access secret, and a digest takes 2 us. */
bool judge_wants_bearer(const struct record *record, uint16_t port);

#endif
