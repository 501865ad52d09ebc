/* SPDX-License-Identifier: MIT */
/*
 * agent_client: asks the agent over SPOP, on one connection per thread, where a sandbox is (cell-resolve) and when that changes
 * (cell-watch). The client withdraws a dropped watch (cell-unwatch), because the agent would otherwise keep the watch for a whole
 * minute. Any number of questions may be open. If the connection is lost, the client reconnects and asks open questions again; a
 * question that is no watch is answered ANSWER_UNAVAILABLE if that takes too long.
 */
#ifndef CELLGATE_RELAY_THREAD_AGENT_CLIENT_H
#define CELLGATE_RELAY_THREAD_AGENT_CLIENT_H

#include "spoa/net/loop.h"
#include "spoa/net/net.h"
#include "spoa/proto/handover.h"
#include "spoa/relay/tunnel/target.h"
#include "spoa/service/log.h"

struct agent_client;

/* The content of a question: the tunnel's handover, and the facts already known. */
struct question_text {
    struct handover handover;
    int64_t epoch; /* epoch already known; negative if none is */
    /* address of the known worker; family 0 if the worker has none, as on a Unix socket */
    struct address addr;
    int32_t idle; /* seconds without use of the tunnel, for a watch; negative if irrelevant */
    bool settles; /* the tunnel takes a new ticket from the answer (answer.ticket) in place of its own */
    void *memory; /* QUESTION_TEXTS bytes, aligned, for texts of the handover */
};
#define QUESTION_TEXTS 32768

struct question_user {
    /* Fills in the empty *to with the facts known by now, each time the client sends the question to the agent. Texts may lie in
     * to->memory. The function must not call the client. */
    void (*say)(void *owner, bool watch, struct question_text *to);
    /* Receives the answer, once. The owner may ask the question again from here. Slices are valid during the call. */
    void (*answered)(void *owner, bool watch, const struct answer *answer);
};

enum question_state { QUESTION_CLOSED, QUESTION_QUEUED, QUESTION_ASKED, QUESTION_OVERDUE };

/* A question, in memory of its owner, zeroed before the first use. The owner must not change an open question. Every tunnel contains
 * a question for its whole life, so the structure is small. */
struct question {
    const struct question_user *user;
    void *owner;
    /* the question is a watch, which may wait some milliseconds to be sent together with others */
    bool watch;

    /* ---- private to the client ---- */
    uint8_t state; /* enum question_state */
    uint32_t due;  /* deadline in ticks of the client, modulo 2^32 */
    struct question *next, **link;
    uint64_t id;
};

/* Returns a client that sends at most `most` questions at a time, or NULL if memory is short. `log` may be NULL. */
struct agent_client *agent_client_new(struct loop *loop, const struct net_address *agent, unsigned most,
                                      struct log *log);
void agent_client_free(struct agent_client *client); /* drops all questions */
void agent_client_ask(struct agent_client *client, struct question *question);
/* Closes the question without an answer. A closed question is allowed. */
void agent_client_drop(struct agent_client *client, struct question *question);
/* Reads the answers that have already arrived. Call before a tunnel is ended for lack of an answer. */
void agent_client_look(struct agent_client *client);
bool agent_client_connected(const struct agent_client *client);

#endif
