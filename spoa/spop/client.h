/* SPDX-License-Identifier: MIT */
/*
 * spop_client: HAProxy's end of one SPOP connection, without I/O. Questions (a NOTIFY with one message each) and the agent's bytes go
 * in; answers (ACKs, matched to their questions) and bytes to send come out. The relay asks the agent with it, and so does the load
 * generator. Answers may come in any order.
 *
 *     spop_client_hello -> READY -> spop_client_ask_begin, _ask_arg..., _ask_end -> ANSWER ... -> ENDED
 *     then spop_client_lost until it returns false
 */
#ifndef CELLGATE_SPOP_CLIENT_H
#define CELLGATE_SPOP_CLIENT_H

#include "spoa/spop/hello.h"

struct spop_client;

/* Returns a client with at most `limit` questions in flight, or NULL if memory is short or limit is 0 or above 2^20. */
struct spop_client *spop_client_new(unsigned limit) MUST_CHECK;
/* Frees a client; NULL is fine. The contexts of open questions are the caller's: get them with spop_client_lost before. */
void spop_client_free(struct spop_client *client);

/* Writes the first frame, once. `out` must have room for SPOP_HELLO_MAX bytes. */
void spop_client_hello(struct spop_client *client, const struct spop_offer *offer, struct writer *out);
/* Returns true if another question may be asked now. */
bool spop_client_ready(const struct spop_client *client);
/* Returns the number of questions in flight, forgotten ones included. */
unsigned spop_client_waiting(const struct spop_client *client);

/* A question that is being written. */
struct spop_ask {
    struct writer *out;
    size_t frame, message; /* positions in out */
    uint64_t id;           /* names the question for spop_client_forget */
};

/* Begins a question; `context` is returned with its answer. Returns false if the client is not ready. Nothing else may be written to
 * `out` until spop_client_ask_end. */
bool spop_client_ask_begin(struct spop_client *client, struct slice message, void *context,
                           struct writer *out, struct spop_ask *ask) MUST_CHECK;
void spop_client_ask_arg(struct spop_ask *ask, struct slice name, struct spop_value value);
/* Ends a question. Returns false, and drops the question, if the question exceeds the writer's room or the agreed frame size. */
bool spop_client_ask_end(struct spop_client *client, struct spop_ask *ask) MUST_CHECK;
/* Drops a question. Its answer will not be reported; the question counts as one in flight until the answer has come. */
void spop_client_forget(struct spop_client *client, uint64_t id);

enum spop_client_step {
    SPOP_CLIENT_MORE,   /* there is no whole frame; the input needs event.need bytes in all */
    SPOP_CLIENT_READY,  /* the agent's hello has come */
    SPOP_CLIENT_ANSWER, /* event.context and event.actions are an answer */
    /* the agent disconnects or broke the protocol, for event.status: send `out`, then close */
    SPOP_CLIENT_ENDED
};

struct spop_client_event {
    size_t need;
    void *context; /* the context of spop_client_ask_begin */
    /* the actions, for spop_action_next; already checked, and empty if the agent aborted */
    struct reader actions;
    uint64_t status;
};

/* Takes the next frame off *in. `out` must have room for SPOP_HELLO_MAX bytes. */
enum spop_client_step spop_client_next(struct spop_client *client, struct slice *in,
                                       struct spop_client_event *event, struct writer *out) MUST_CHECK;
/* Ends the connection and returns, one with each call, the contexts of the questions that got no answer. Returns false if there
 * are no more. */
bool spop_client_lost(struct spop_client *client, void **context) MUST_CHECK;

#endif
