/* SPDX-License-Identifier: MIT */
/*
 * egress_io: a connection that a program in a sandbox opens to the outside, by CONNECT: the agent has allowed it and checked
 * the address, HAProxy hands it over. The relay dials, answers 200 only then, and moves bytes; each side ends by itself.
 * Before the first byte leaves it looks whether a TLS client asks for the host that was allowed. It subscribes to the
 * sandbox's record, and ends what is allowed no longer.
 */
#ifndef CELLGATE_RELAY_EGRESS_EGRESS_IO_H
#define CELLGATE_RELAY_EGRESS_EGRESS_IO_H

#include "spoa/proto/http.h"
#include "spoa/relay/thread/relay_thread.h"

struct egress_io;

/* Whether this head is one for here: a CONNECT. */
bool egress_io_wants(const struct http_head *head);
/* Takes fd over. head and early, what came behind it, are borrowed for the call. */
void egress_io_begin(struct relay_thread *thread, int fd, const struct http_head *head, struct slice early);
/* Ends all of a thread: `late`: at once, else with what is left to be sent. */
void egress_ios_end(struct relay_thread *thread, bool late);

/* Of a round of the limits: shows what could give way, and ends what has to. */
void egress_ios_look(struct relay_thread *thread, struct limits_round *round);
void egress_ios_give_way(struct relay_thread *thread, struct limits_round *round);

#endif
