/* SPDX-License-Identifier: MIT */
/*
 * tunnel_io: the loop code of one tunnel: its sockets, its dial, its questions to the agent, its timer. It carries out what
 * the tunnel commands (command.h). What it decides itself: whether a worker's address is allowed, who may replay, and that
 * timers which are late because the machine stood still wait a moment.
 */
#ifndef CELLGATE_RELAY_IO_TUNNEL_IO_H
#define CELLGATE_RELAY_IO_TUNNEL_IO_H

#include "spoa/base/bytes/buffer.h"
#include "spoa/relay/thread/relay_thread.h"
#include "spoa/relay/tunnel/upgrade.h"
#include "spoa/relay/tunnel_io/tunnel_stats.h"

/* Takes over upgrade. early: bytes behind the client's head. NULL, and upgrade is still the caller's: a limit is
 * reached, or out of memory. */
struct tunnel_seat *tunnel_io_new(struct relay_thread *thread, struct upgrade *upgrade, struct slice early);
/* Takes over the client's socket and starts. */
void tunnel_io_begin(struct tunnel_seat *io, int fd);
/* Ends its tunnel in good order, or, if it is closing already, now. */
void tunnel_io_end(struct tunnel_seat *io, enum close_reason reason);
/* Closes its sockets and frees it, whatever its tunnel does. */
void tunnel_io_cut(struct tunnel_seat *io);

/* A socket, of a tunnel or not, is ready: of a tunnel's, what its handling reads is brought into the cache (loop_set_soon). */
void tunnel_io_soon(const struct loop_io *io);

/* Of the thread's moves: the owner of each is a seat. */
extern const struct moves_user tunnel_io_moves;

/* The two parts of a round where memory is short (limits.h), of the thread's tunnels. */
void tunnel_ios_look(struct relay_thread *thread, struct limits_round *round);
void tunnel_ios_give_way(struct relay_thread *thread, struct limits_round *round);

/* What the tunnels of a thread have in common. False: out of memory. */
bool tunnel_rest_open(struct tunnel_rest *rest, struct relay_thread *thread)
    __attribute__((warn_unused_result));
/* There are no tunnels, and rest.look is closed. */
void tunnel_rest_close(struct tunnel_rest *rest);
void tunnel_times_open(struct tunnel_times *times, struct relay_thread *thread);
/* There are no tunnels; before the loop ends. */
void tunnel_times_end(struct tunnel_times *times);
/* What the tunnels of a thread ask of it. */
void tunnel_io_host(struct tunnel_host *host, struct commands *commands);

struct tunnel_seat *tunnel_io_next(const struct tunnel_seat *io);
bool tunnel_io_is_closing(const struct tunnel_seat *io);

#define TUNNEL_WORK_MAX 4096           /* bytes of a tunnel's work with its adapter's state */
#define TUNNEL_HEAD_MAX IMAGE_PACK_MAX /* bytes of an upgrade that is packed at rest */

/* A look at a tunnel. */
struct tunnel_visit {
    const struct tunnel_io *io;
    struct tunnel_stats stats;
    _Alignas(max_align_t) uint8_t work[TUNNEL_WORK_MAX]; /* private: what was read from an image */
};
struct tunnel_head {
    _Alignas(max_align_t) uint8_t memory[TUNNEL_HEAD_MAX];
};
/* Looks at a tunnel without changing anything: one that rests goes on resting. Its upgrade is read into `head`, TUNNEL_HEAD_MAX aligned
 * bytes; NULL: it is not needed, and stats.upgrade is NULL. The visit is good until something happens to the tunnel. */
void tunnel_visit(const struct tunnel_seat *io, struct tunnel_visit *visit, void *head);

#endif
