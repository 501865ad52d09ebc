/* SPDX-License-Identifier: MIT */
/*
 * resolve: the relay's question where a sandbox is now and whether a tunnel may still go there (SPOE messages
 * `cell-resolve` and `cell-watch`), and its answer. Pure; a subscription waits in pending.c.
 *
 * The tables below are the one list of arguments and variables.
 */
#ifndef CELLGATE_AGENT_DECISION_THREAD_RESOLVE_H
#define CELLGATE_AGENT_DECISION_THREAD_RESOLVE_H

#include "spoa/agent/decision/decide.h"
#include "spoa/proto/handover.h"
#include "spoa/spop/spop.h"

/*  X(kind, field, argument); an INT that is absent is -1, an ADDRESS has family 0 */
#define RESOLVE_ARGUMENTS(X)                                                                      \
    HANDOVER_IDENTITY(X)                                                                          \
    X(TEXT, ticket, "ticket")  /* for all of that */                                              \
    X(INT, old, "old")         /* 1: the ticket is of an older domain; the agent's own finding */ \
    X(INT, settles, "settles") /* 1: the relay replaces its ticket by an answer's */              \
    X(INT, idle, "idle")       /* a subscription: seconds since the tunnel was used */            \
    X(INT, epoch, "epoch")     /* a subscription: the one it knows */                             \
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
    bool withhold;        /* Authorization of the client is the sandbox's access secret */
    enum refusal refused; /* token_revoked, token_expired, not_granted; REFUSAL_NONE */
    /* The ticket that replaces the question's, because the record says more than was known; absent: it stays. */
    struct slice ticket;
    struct slice org; /* the record's, which it adds; absent: it adds none */
    bool settled;     /* it is not pending any more */
    bool own;         /* of one that is settled: the place is the worker's own, whatever its port */
};

/* What of the arguments counts, in a message of its own, so that a subscription keeps nothing else. False: w
 * is full. */
bool resolve_pack(const struct resolve_question *question, struct writer *w, struct spop_args *args);
/* Slices point into the frame. False: the arguments are not a question of a relay's. */
bool resolve_from_args(struct spop_args args, struct resolve_question *question);
/* Returns whether the agent has admitted the tunnel that it is asked for: nothing else may be said of a sandbox. Sets
 * question->old. */
bool resolve_is_admitted(const struct key *ticket_key, struct resolve_question *question);
/* Of a question that is admitted. Texts of *answer point into the record, the policy and scratch. */
void resolve(const struct decide_view *view, const struct resolve_question *question, struct writer *scratch,
             struct resolve_answer *answer);
/* Whether a subscription that knows question->epoch has something
 * to learn from the answer. What is in doubt is no change. */
bool resolve_has_changed(const struct resolve_question *question, const struct resolve_answer *answer);
void resolve_write(const struct resolve_answer *answer, struct spop_actions *actions);

#endif
