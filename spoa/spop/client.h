/* SPDX-License-Identifier: MIT */
/*
 * spop_client: HAProxy's side of one SPOP connection, without I/O: questions (a NOTIFY with one message) and
 * bytes from the agent go in, answers (ACKs, matched to their question) and bytes to send come out. The relay
 * asks with it, the load generator too. Answers come in any order.
 *
 *     hello -> READY -> spop_client_ask_begin, _ask_arg..., _ask_end -> ANSWER ... -> ENDED, then spop_client_lost
 *     until it is false
 */
#ifndef CELLGATE_SPOP_CLIENT_H
#define CELLGATE_SPOP_CLIENT_H

#include "spoa/spop/hello.h"

struct spop_client;

/* limit: questions in flight, at most 2^20. NULL when out of memory. */
struct spop_client *spop_client_new(unsigned limit);
/* NULL is fine; contexts of open questions are not touched (spop_client_lost). */
void spop_client_free(struct spop_client *client);

/* The first frame, once. `out` has room for SPOP_HELLO_MAX bytes. */
void spop_client_hello(struct spop_client *client, const struct spop_offer *offer, struct writer *out);
/* Whether a question may be asked now. */
bool spop_client_ready(const struct spop_client *client);
/* Questions in flight, forgotten ones included. */
unsigned spop_client_waiting(const struct spop_client *client);

struct spop_ask {
    struct writer *out;
    size_t frame, message;
    uint64_t id; /* for spop_client_forget */
};

/* context comes back with the answer. False when not ready. Until spop_client_ask_end nothing else is written to out. */
bool spop_client_ask_begin(struct spop_client *client, struct slice message, void *context,
                           struct writer *out, struct spop_ask *ask);
void spop_client_ask_arg(struct spop_ask *ask, struct slice name, struct spop_value value);
/* False, and nothing was asked, when the question is too large for the writer or for the agreed frame size.
 */
bool spop_client_ask_end(struct spop_client *client, struct spop_ask *ask)
    __attribute__((warn_unused_result));
/* The answer is not wanted any more: it will be swallowed, and takes its place in the limit until then. */
void spop_client_forget(struct spop_client *client, uint64_t id);

enum spop_client_step {
    SPOP_CLIENT_MORE,
    SPOP_CLIENT_READY,  /* the agent's hello came */
    SPOP_CLIENT_ANSWER, /* context and actions (checked completely; none if the agent aborted) */
    SPOP_CLIENT_ENDED /* it disconnects or broke the protocol; `status` says why: close once `out` is written */
};

struct spop_client_event {
    size_t need;
    void *context;
    struct reader actions; /* for spop_action_next */
    uint64_t status;
};

/* Takes the next frame off *in. `out` has room for SPOP_HELLO_MAX bytes. */
enum spop_client_step spop_client_next(struct spop_client *client, struct slice *in,
                                       struct spop_client_event *event, struct writer *out);
/* After the connection has ended: hands back the context
 * of one question that got no answer; false: no more. */
bool spop_client_lost(struct spop_client *client, void **context);

#endif
