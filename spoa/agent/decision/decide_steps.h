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
    struct authority authority; /* parsed Host */
    struct slice host;          /* name of the host in lower case */
    struct route_match match;
    const struct route *route;   /* NULL before a route matched */
    struct slice sandbox, space; /* checked and decoded */
    uint16_t port;               /* 0 if the request names none */
    struct carried carried;
    bool foreign_auth;  /* an Authorization header belongs to the application */
    bool bearer_judged; /* the answer in foreign_auth may change with time */
    bool granted;       /* a token was needed and is valid, and grant is filled */
    struct grant grant;
    int64_t proven_until;  /* when the proof of a mux request's address ends; -1: never */
    bool opened;           /* grant is the opener's of a mux socket, and admits the opener to nothing */
    struct carried opener; /* the opener's token */
    bool unconfirmed;      /* the client sent a secret that no record confirms */
    bool asleep;           /* the sandbox is suspended, and no component here can wake it */
    bool looked;           /* the directory was asked */
    enum lookup lookup;
    bool found; /* record is filled */
    struct record record;
    struct judgement judgement; /* judgement of the record, if found */
    struct slice headers;       /* the record's headers for the chosen address */
};

/* A step returns true to continue, or false if the verdict is complete. */
typedef bool decide_step(struct decision *d);

void decide_tell(const struct decision *d, const char *step, const char *text, struct slice detail);
/* Completes the verdict with a refusal; always returns false. */
bool decide_deny(struct decision *d, enum refusal refusal, const char *step, const char *why);
/* Returns the SHA-256 of the Bearer token in Authorization, in hex; empty if memory or room is short. */
struct slice decide_bearer_digest(struct decision *d);
/* Sends the request to the relay, which asks for the address itself and waits for it. */
bool decide_without_address(struct decision *d, const char *why);

/* decide_record.c: find the sandbox and check its owner, and check its state. */
decide_step decide_record, decide_state;
/* Asks the directory, once per decision. `alike` is true for a caller who has proved nothing yet. */
enum lookup decide_look_up(struct decision *d, bool alike);
/* Returns the party that the decision's look-ups are charged to. */
struct asker decide_asker(const struct decision *d);

/* decide_handover.c: writes the relay's information, for a verdict that is VERDICT_RELAY. */
void decide_handover(struct decision *d);
/* Writes the relay's information about a request out of a mux, which the relay only passes on: a ticket, so that the relay learns when
 * the request must end. */
void decide_mux_ticket(struct decision *d);
/* decide_mux.c: finds the opener of a mux socket, if the opener has a token. */
void decide_mux_opener(struct decision *d);
/* decide_foreign.c: changes a refusal to the form that clients of the route's system know. */
struct slice decide_mux_proof(struct decision *d);
decide_step decide_mux_source;
void decide_foreign(struct decision *d);
/* decide_bound.c: checks that the request is the one that the token is bound to. */
decide_step decide_bound;
/* decide_target.c: choose the path, the worker and the headers. */
decide_step decide_path, decide_worker, decide_headers;

#endif
