/* SPDX-License-Identifier: MIT */
/*
 * resume_tunnel: a Cell-Resume tunnel, the session that exists for it alone, and the connection that carries its
 * current leg, if any. It reads the session as any reader does, but holds back what is not acknowledged.
 */
#ifndef CELLGATE_WORKER_RESUME_RESUME_TUNNEL_H
#define CELLGATE_WORKER_RESUME_RESUME_TUNNEL_H

#include "examples/worker/resume/resume.h"
#include "examples/worker/session/running.h"

struct resume_tunnel;

/* A connection that carries a leg: a member of it. */
struct resume_carrier {
    void (*wake)(struct resume_carrier *c); /* resume_tunnel_next has something */
    /* It carries the tunnel no more: TAKEN_OVER by a newer leg, or OUT_OF_MEMORY. */
    void (*fenced)(struct resume_carrier *c, enum manager_code code);
    struct resume_tunnel *tunnel; /* NULL: none, or no more */
};

/* `over` is called when the tunnel is not to be remembered any longer; the owner then frees it. NULL when out of
 * memory. */
struct resume_tunnel *resume_tunnel_new(struct loop *loop, struct running *session, uint64_t grace,
                                        void (*over)(void *owner), void *owner);
/* A session that still runs is left without a reader. */
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
/* What to send next; false when there is nothing. Valid until the loop's next step. */
bool resume_tunnel_next(struct resume_carrier *c, struct manager_message *m);

#endif
