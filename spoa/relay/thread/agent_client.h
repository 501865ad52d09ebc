/* SPDX-License-Identifier: MIT */
/*
 * agent_client: the agent, asked over SPOP on one connection per thread: where a sandbox is (cell-resolve) and
 * when that changes (cell-watch). A watch that is dropped is taken back (cell-unwatch), or the agent would keep
 * it for its whole minute. Any number of questions may be open. When the agent goes away the
 * connection is made again and open questions are asked again; one that is not a watch is answered
 * ANSWER_UNAVAILABLE when that takes too long.
 */
#ifndef CELLGATE_RELAY_THREAD_AGENT_CLIENT_H
#define CELLGATE_RELAY_THREAD_AGENT_CLIENT_H

#include "spoa/net/loop.h"
#include "spoa/net/net.h"
#include "spoa/proto/handover.h"
#include "spoa/relay/tunnel/target.h"
#include "spoa/service/log.h"

struct agent_client;

/* What is asked: for whom, and what is known already. */
struct question_text {
    struct handover handover;
    int64_t epoch;       /* that is known; negative: none */
    struct address addr; /* of the worker that is known; family 0: it has none, as on a Unix socket */
    int32_t idle;        /* of a watch: seconds since the tunnel was used; negative: it does not matter */
    bool settles;        /* answer.ticket takes the place of the ticket */
    void *memory;        /* QUESTION_TEXTS bytes, aligned, for texts of the handover */
};
#define QUESTION_TEXTS 32768

struct question_user {
    /* Fills in *to, which says nothing yet, each time that the question leaves for the agent, with what is known by then. Texts may lie in
     * to->memory. It may not call the client. */
    void (*say)(void *owner, bool watch, struct question_text *to);
    /* Once; the question may be asked again from here. Slices live for the call. */
    void (*answered)(void *owner, bool watch, const struct answer *answer);
};

enum question_state { QUESTION_CLOSED, QUESTION_QUEUED, QUESTION_ASKED, QUESTION_OVERDUE };

/* Lives in whoever asks, zeroed before its first use. While it is open nothing else may touch it. Every tunnel has one for all
 * its life, so it is small. */
struct question {
    const struct question_user *user;
    void *owner;
    bool watch; /* may wait some milliseconds for others, with which it then leaves */

    /* the client's */
    uint8_t state; /* enum question_state */
    uint32_t due;  /* a tick of the client's, of which there are 2^32 */
    struct question *next, **link;
    uint64_t id;
};

/* most: questions that are with the agent at a time. log may be NULL. NULL when out of memory. */
struct agent_client *agent_client_new(struct loop *loop, const struct net_address *agent, unsigned most,
                                      struct log *log);
void agent_client_free(struct agent_client *client); /* drops all questions */
void agent_client_ask(struct agent_client *client, struct question *question);
/* No answer is wanted any more; a closed question is fine. */
void agent_client_drop(struct agent_client *client, struct question *question);
/* Takes what the agent has said by now, before somebody is given up. */
void agent_client_look(struct agent_client *client);
bool agent_client_connected(const struct agent_client *client);

#endif
