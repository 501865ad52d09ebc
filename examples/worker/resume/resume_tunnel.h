/* SPDX-License-Identifier: MIT */
/*
 * resume_tunnel: a Cell-Resume tunnel with its own session, and with the connection (carrier) of its current leg, if there is one. The tunnel
 * is a reader of the session that needs its output until the caller has acknowledged it.
 */
#ifndef CELLGATE_WORKER_RESUME_RESUME_TUNNEL_H
#define CELLGATE_WORKER_RESUME_RESUME_TUNNEL_H

#include "examples/worker/resume/resume.h"
#include "examples/worker/session/running.h"

struct resume_tunnel;

/* A connection that carries a leg: a member of it. */
struct resume_carrier {
    void (*wake)(struct resume_carrier *c); /* resume_tunnel_next has something */
    /* The carrier was detached: TAKEN_OVER by a newer leg, or OUT_OF_MEMORY. */
    void (*fenced)(struct resume_carrier *c, enum manager_code code);
    struct resume_tunnel *tunnel; /* NULL while the connection carries no tunnel */
};

/* `over` is called when the tunnel is not to be remembered any longer; the owner then frees it. NULL when out of
 * memory. */
struct resume_tunnel *resume_tunnel_new(struct loop *loop, struct running *session, uint64_t grace,
                                        void (*over)(void *owner), void *owner);
/* Frees the tunnel. Its session goes on without a reader if it still runs. */
void resume_tunnel_free(struct resume_tunnel *t);
bool resume_tunnel_is(const struct resume_tunnel *t, struct slice scope, struct slice id);
bool resume_tunnel_is_over(const struct resume_tunnel *t);

/* Accepted: the carrier carries it, another one has been fenced, and *answer is what to say. Otherwise only the number of
 * inputs consumed is set. */
enum resume_answer resume_tunnel_request(struct resume_tunnel *t, struct resume_carrier *c,
                                         const struct manager_message *request,
                                         struct manager_message *answer);
/* The leg is lost. Fine for a carrier that carries nothing. */
void resume_tunnel_left(struct resume_carrier *c);
/* MESSAGE, ACKNOWLEDGE or END. After anything but RESUME_FINE the carrier carries nothing. */
enum resume_verdict resume_tunnel_handle(struct resume_carrier *c, const struct manager_message *m);
/* Fills in the next message to send. Returns false if there is none. The message is valid until the next event of the loop. */
bool resume_tunnel_next(struct resume_carrier *c, struct manager_message *m);

#endif
