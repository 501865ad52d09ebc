/* SPDX-License-Identifier: MIT */
/*
 * resolve: answers the relay's question where a sandbox is now and whether a tunnel may still connect to it (SPOE messages
 * `cell-resolve` and `cell-watch`). The functions are pure; subscriptions wait in pending.c.
 *
 * The tables below are the only list of arguments and variables.
 */
#ifndef CELLGATE_AGENT_DECISION_THREAD_RESOLVE_H
#define CELLGATE_AGENT_DECISION_THREAD_RESOLVE_H

#include "spoa/agent/decision/decide.h"
#include "spoa/proto/handover.h"
#include "spoa/spop/spop.h"

/* X(kind, field, argument); -1 for an absent INT, family 0 for an absent ADDRESS */
#define RESOLVE_ARGUMENTS(X)                                                                  \
    HANDOVER_IDENTITY(X)                                                                      \
    X(TEXT, ticket, "ticket")  /* signature of all arguments above */                         \
    X(INT, old, "old")         /* 1 if the ticket is of an older domain; the agent sets it */ \
    X(INT, settles, "settles") /* 1 if the relay replaces its ticket by that of the answer */ \
    X(INT, idle, "idle")       /* subscription: seconds since the tunnel was used */          \
    X(INT, epoch, "epoch")     /* subscription: the epoch that the relay knows */             \
    X(ADDRESS, addr,                                                                          \
      "addr") /* subscription: address that the tunnel has or is about to have; 0.0.0.0 for none yet */

struct resolve_question {
#define RESOLVE_TYPE_TEXT    struct slice
#define RESOLVE_TYPE_INT     int64_t
#define RESOLVE_TYPE_ADDRESS struct address
#define X(kind, field, name) RESOLVE_TYPE_##kind field;
    RESOLVE_ARGUMENTS(X)
#undef X
};

/* `absent`: the directory has no such sandbox; `unavailable`: it cannot answer; `not_admitted`: the question has no valid ticket. The
 * values follow those of enum record_state. */
enum resolve_state { RESOLVE_ABSENT = RECORD_STOPPED + 1, RESOLVE_UNAVAILABLE, RESOLVE_NOT_ADMITTED };

struct resolve_answer {
    int state;      /* enum record_state or enum resolve_state */
    int64_t epoch;  /* -1 if the directory gave only a state and no record was known before */
    bool unwatched; /* subscription: not kept because there are too many; the relay must ask again later */
    bool reachable; /* worker, port and host are set */
    struct worker worker;
    uint16_t port;
    struct slice host;    /* Host for the worker; absent to keep the client's */
    struct slice headers; /* headers of the destination, packed as in record_pack.h */
    bool withhold;        /* the client's Authorization is the sandbox's access secret */
    enum refusal refused; /* token_revoked, token_expired, not_granted or REFUSAL_NONE */
    /* ticket that replaces the question's, because the record has more information; absent if the ticket stays */
    struct slice ticket;
    struct slice org; /* organisation of the record, if the new ticket adds it; otherwise absent */
    bool settled;     /* the new ticket is not pending any more */
    bool own;         /* if settled: the place is the worker's own port, whatever its number */
};

/* Packs the arguments that count into a message of its own, so that a subscription keeps nothing else. Returns false if w is full. */
bool resolve_pack(const struct resolve_question *question, struct writer *w, struct spop_args *args);
/* Reads the arguments; slices point into the frame. Returns false if they are not a relay's question. */
bool resolve_from_args(struct spop_args args, struct resolve_question *question);
/* Returns whether the agent admitted the question's tunnel, and sets question->old. Without admission no information about a sandbox may
 * be given. */
bool resolve_is_admitted(const struct key *ticket_key, struct resolve_question *question);
/* Answers an admitted question. Texts of *answer point into the record, the policy and scratch. */
void resolve(const struct decide_view *view, const struct resolve_question *question, struct writer *scratch,
             struct resolve_answer *answer);
/* Returns whether the answer is new for a subscription that knows question->epoch. An uncertain answer is not new. */
bool resolve_has_changed(const struct resolve_question *question, const struct resolve_answer *answer);
void resolve_write(const struct resolve_answer *answer, struct spop_actions *actions);

#endif
