/* SPDX-License-Identifier: MIT */
/*
 * egress_io: a connection that a program in a sandbox opens to an outside host, by CONNECT (RFC 9110 section 9.3.6). The agent has
 * allowed the host and checked its address, and HAProxy hands the connection over. The relay dials the destination, answers 200 once the
 * dial has succeeded, and forwards bytes; each direction ends by itself. No byte of a TLS client leaves before its ClientHello has named
 * the allowed host. The relay subscribes to the agent's decisions about the sandbox, and ends a connection that is no longer allowed.
 *
 * An *inspected* connection is not dialled: the relay answers 200 at once, and connects the client to HAProxy's own listener (for TLS or
 * for plain HTTP, by the client's first byte), which reads the requests inside and dials the destination (docs/egress.md).
 */
#ifndef CELLGATE_RELAY_EGRESS_EGRESS_IO_H
#define CELLGATE_RELAY_EGRESS_EGRESS_IO_H

#include "spoa/proto/http.h"
#include "spoa/relay/thread/relay_thread.h"

struct egress_io;

/* Returns true if the request is a CONNECT. */
bool egress_io_wants(const struct http_head *head);
/* Opens an egress connection for a CONNECT, or refuses it. Takes ownership of `fd`. `head`, and the input after it in `early`, are
 * borrowed for the call. */
void egress_io_begin(struct relay_thread *thread, int fd, const struct http_head *head, struct slice early);
/* Ends all egress connections of a thread that drains, after their unsent output. late: closes them at once. */
void egress_ios_end(struct relay_thread *thread, bool late);
/* Ends, at once, a connection that was not handed over to another process. A CONNECT that waits is answered with 503 and Retry-After. */
void egress_io_end(struct egress_io *io);

/* A round of eviction, when memory is short: adds the thread's connections to the candidates. */
void egress_ios_look(struct relay_thread *thread, struct limits_round *round);
/* Ends the connections that the round evicts. */
void egress_ios_give_way(struct relay_thread *thread, struct limits_round *round);

#endif
