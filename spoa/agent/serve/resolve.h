/* SPDX-License-Identifier: MIT */
/*
 * resolve: the relay's question where a sandbox is now and whether a tunnel may still go there (SPOE messages
 * `cell-resolve` and `cell-watch`), and its answer. Pure; a subscription waits in pending.c.
 *
 * The tables below are the one list of arguments and variables.
 */
#ifndef CELLGATE_AGENT_SERVE_RESOLVE_H
#define CELLGATE_AGENT_SERVE_RESOLVE_H

#include "spoa/agent/decision/decide.h"
#include "spoa/proto/handover.h"
#include "spoa/spop/spop.h"

/*  X(kind, field, argument); an INT that is absent is -1, an ADDRESS has family 0 */
#define RESOLVE_ARGUMENTS(X)                                                          \
    HANDOVER_IDENTITY(X)                                                              \
    X(TEXT, ticket, "ticket") /* for all of that */                                   \
    X(INT, idle, "idle")      /* a subscription: seconds since the tunnel was used */ \
    X(INT, epoch, "epoch")    /* a subscription: the one it knows */                  \
    X(ADDRESS, addr, "addr") /* a subscription: where the tunnel is or is about to be; 0.0.0.0: nowhere yet */

struct resolve_question {
#define RESOLVE_TYPE_TEXT    struct slice
#define RESOLVE_TYPE_INT     int64_t
#define RESOLVE_TYPE_ADDRESS struct address
#define X(kind, field, name) RESOLVE_TYPE_##kind field;
    RESOLVE_ARGUMENTS(X)
#undef X
};

/* `absent`: the directory says that there is none;
 * `unavailable`: it cannot say; `not_admitted`: nobody was let in who could ask that. They stand behind the record's. */
enum resolve_state { RESOLVE_ABSENT = RECORD_STOPPED + 1, RESOLVE_UNAVAILABLE, RESOLVE_NOT_ADMITTED };

struct resolve_answer {
    int state;      /* enum record_state or enum resolve_state */
    int64_t epoch;  /* -1: of a state alone, where no record was known before */
    bool unwatched; /* of a subscription: it is not kept, there are too many; to be asked again later */
    bool reachable; /* worker, port and host are set */
    struct worker worker;
    uint16_t port;
    struct slice host;    /* Host towards the worker; absent: keep the client's */
    struct slice headers; /* of the destination, packed as in record_pack.h */
    enum refusal refused; /* token_revoked, token_expired, not_granted; REFUSAL_NONE */
};

/* What of the arguments counts, in a message of its own, so that a subscription keeps nothing else. False: w
 * is full. */
bool resolve_pack(const struct resolve_question *question, struct writer *w, struct spop_args *args);
/* Slices point into the frame. False: the arguments are not a question of a relay's. */
bool resolve_from_args(struct spop_args args, struct resolve_question *question);
/* Whether the agent has admitted the tunnel that it is asked for: nothing else may be said of a sandbox. */
bool resolve_is_admitted(const struct key *ticket_key, const struct resolve_question *question);
/* Of a question that is admitted. Texts of *answer point into the record, the policy and scratch. */
void resolve(const struct decide_view *view, const struct resolve_question *question, struct writer *scratch,
             struct resolve_answer *answer);
/* Whether a subscription that knows question->epoch has something
 * to learn from the answer. What is in doubt is no change. */
bool resolve_has_changed(const struct resolve_question *question, const struct resolve_answer *answer);
void resolve_write(const struct resolve_answer *answer, struct spop_actions *actions);

#endif
