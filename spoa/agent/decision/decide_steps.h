/* SPDX-License-Identifier: MIT */
/* decide_steps: the state that the steps of a decision share (decide.c, decide_target.c). */
#ifndef CELLGATE_AGENT_DECISION_DECIDE_STEPS_H
#define CELLGATE_AGENT_DECISION_DECIDE_STEPS_H

#include "spoa/agent/decision/decide.h"
#include "spoa/agent/decision/judge.h"
#include "spoa/agent/model/authority.h"
#include "spoa/agent/token/credential_source.h"

struct decision {
    const struct decide_view *view;
    const struct request *request;
    struct writer *scratch;
    struct verdict *verdict;
    bool upgrade, pending;
    struct authority authority; /* of Host */
    struct slice host;          /* its name in lower case */
    struct route_match match;
    const struct route *route;   /* NULL until one matched */
    struct slice sandbox, space; /* checked and decoded */
    uint16_t port;               /* 0: none is named */
    struct carried carried;
    bool foreign_auth;  /* Authorization, if there is any, is the application's */
    bool bearer_judged; /* and that it is, or is not, may be true for a while only */
    bool granted;       /* grant is filled: a token was needed and is good */
    struct grant grant;
    bool opened;           /* grant is that of who opens a mux socket, which it admits to nothing */
    struct carried opener; /* the token of that */
    bool unconfirmed;      /* a secret was brought, and no record confirms it */
    bool asleep;           /* the sandbox is suspended, and nobody here can wake it */
    bool looked;           /* the directory has been asked */
    enum lookup lookup;
    bool found; /* record is filled */
    struct record record;
    struct judgement judgement; /* of the record, once it is found */
    struct slice headers;       /* of the record, for the address that was chosen */
};

/* Every step returns true to go on; false: the verdict is complete. */
typedef bool decide_step(struct decision *d);

void decide_tell(const struct decision *d, const char *step, const char *text, struct slice detail);
/* Completes the verdict with a refusal; always false. */
bool decide_deny(struct decision *d, enum refusal refusal, const char *step, const char *why);
/* Returns the SHA-256 of what Authorization holds after `Bearer`, in hex; empty if there is no memory or room for it. */
struct slice decide_bearer_digest(struct decision *d);
/* To the relay, which asks for the address itself and waits for it. */
bool decide_without_address(struct decision *d, const char *why);

/* decide_record.c: whose the sandbox is, and its state. */
decide_step decide_record, decide_state;
/* Asks the directory, once a decision. alike: of somebody of whom nothing is proven yet. */
enum lookup decide_look_up(struct decision *d, bool alike);
/* Returns whose share of others' work this decision takes. */
struct asker decide_asker(const struct decision *d);

/* decide_handover.c: what the relay has to know, of a verdict that is VERDICT_RELAY. */
void decide_handover(struct decision *d);
/* The same of a request out of a mux, which passes by the relay only: what it needs to hear when that may not go on. */
void decide_mux_ticket(struct decision *d);
/* decide_mux.c: who opens a mux socket, as far as it says so by a token. */
void decide_mux_opener(struct decision *d);
/* decide_foreign.c: a refusal as clients of the route's system know it. */
void decide_foreign(struct decision *d);
/* decide_bound.c: whether the request is the one that a token is bound to. */
decide_step decide_bound;
/* decide_target.c: what the worker gets. */
decide_step decide_path, decide_worker, decide_headers;

#endif
