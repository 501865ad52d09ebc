/* SPDX-License-Identifier: MIT */
/*
 * judge: compares a record with what let a caller in. Nothing else does. decide() calls it for a request, resolve() for a tunnel,
 * whose ticket carries the same fields. So a decision that waited for its record, and a tunnel whose record has changed, get the
 * verdict of a request that finds the record at hand. Pure.
 */
#ifndef CELLGATE_AGENT_DECISION_JUDGE_H
#define CELLGATE_AGENT_DECISION_JUDGE_H

#include "spoa/agent/decision/destination.h"

/* What let a caller in. */
struct admission {
    const struct route *route; /* as the policy has it now; NULL: it is gone, and leads nowhere */
    bool by_token; /* false: no token was needed; needs, ports, iat, kid and secret do not count */
    bool named;    /* the token names the sandbox, so its state is no secret while its owner is unknown */
    bool org_of_record; /* org was the record's when the tunnel was opened, not the token's */
    unsigned needs;     /* of enum need, granted */
    /* SYSTEM_BITs: the path names an endpoint of their software that is for the sandbox\'s host alone */
    unsigned host_only;
    uint16_t port;      /* of the sandbox, that was asked for; 0: none, or the worker's own */
    int64_t iat;        /* Unix seconds; -1: the token does not say */
    struct slice org;   /* absent: none */
    struct slice uid;   /* of the sandbox that the token is for; absent: it names none */
    struct slice ports; /* packed as in a grant; absent: every port; empty: none is known to be granted */
    struct slice kid;   /* of an access secret: its mark (token/static.h) */
    struct slice
        secret; /* SHA-256 of the access secret that was brought, in hex; absent: only kid is known */
    struct slice
        bearer; /* SHA-256 of what Authorization holds for the worker, in hex; absent: nothing; empty: not known */
};

struct judgement {
    enum refusal caller; /* the record does not let the caller in: sandbox_not_found or token_revoked */
    enum refusal place;  /* it does, and not there: sandbox_stopped, not_granted or no_route */
    const char *why;     /* of a refusal */
    bool owner_known;    /* the record says whose the sandbox is, or that it is nobody's */
    bool waits;          /* the record's state leads nowhere yet */
    bool leads;          /* `to` is where the caller may go */
    bool follows;        /* of a place: the worker's own port, whatever that is where the sandbox moves */
    enum destination_result result; /* of a place that was looked for */
    struct destination to;
    bool withhold; /* Authorization holds the sandbox's access secret, which its worker must not get */
};

/* Judges owner, not_before and access secret; texts of *judgement are static. */
void judge_caller(const struct decide_view *view, const struct admission *admission,
                  const struct record *record, struct judgement *judgement);
/* Judges the caller, then state, port, networks, needs and ports. */
void judge(const struct decide_view *view, const struct admission *admission, const struct record *record,
           struct judgement *judgement);
/* Judges a caller of a service that does not judge its callers itself: org (absent: its token names none) has to be among the
 * organisations of the route. */
bool judge_org(const struct route *route, struct slice org);
/* Returns admission.host_only of a worker's path. */
unsigned judge_host_only(struct slice path);
/* Returns whether admission.bearer matters: most records have no access secret, and a digest takes 2 us. */
bool judge_wants_bearer(const struct record *record, uint16_t port);

#endif
