/* SPDX-License-Identifier: MIT */
/*
 * tunnel_io: the loop code of one tunnel: its sockets, its dial, its questions to the agent, its timer. The tunnel itself (tunnel.h) is
 * without I/O, and returns commands (command.h), which tunnel_io carries out. tunnel_io decides whether a worker's address is allowed
 * and which tunnels may collect a replay, and delays timers that are late because the machine was stopped.
 */
#ifndef CELLGATE_RELAY_IO_TUNNEL_IO_H
#define CELLGATE_RELAY_IO_TUNNEL_IO_H

#include "spoa/base/bytes/buffer.h"
#include "spoa/relay/thread/relay_thread.h"
#include "spoa/relay/tunnel/upgrade.h"
#include "spoa/relay/tunnel_io/tunnel_stats.h"

/* Makes a tunnel, and takes ownership of `upgrade`. `early` is the client's input after the request's head. Returns NULL, and `upgrade`
 * is still the caller's, if a limit is reached or memory is short. */
struct tunnel_seat *tunnel_io_new(struct relay_thread *thread, struct upgrade *upgrade, struct slice early);
/* Takes ownership of the client's socket, and starts the tunnel. */
void tunnel_io_begin(struct tunnel_seat *io, int fd);
/* Closes the tunnel gracefully; a tunnel that is closing already ends at once. */
void tunnel_io_end(struct tunnel_seat *io, enum close_reason reason);
/* Closes the tunnel's sockets and frees the tunnel at once. */
void tunnel_io_cut(struct tunnel_seat *io);

/* Prefetches the memory that the handling of a ready socket will read, if the socket is one of a tunnel (loop_set_soon). */
void tunnel_io_soon(const struct loop_io *io);

/* The call-backs of the thread's moves to another worker; the owner of a move is a seat. */
extern const struct moves_user tunnel_io_moves;

/* A round of eviction, when memory is short (limits.h): adds the thread's tunnels to the candidates. */
void tunnel_ios_look(struct relay_thread *thread, struct limits_round *round);
/* Ends the tunnels that the round evicts. */
void tunnel_ios_give_way(struct relay_thread *thread, struct limits_round *round);

/* Opens the state that the tunnels of a thread share. Returns false if memory is short. */
bool tunnel_rest_open(struct tunnel_rest *rest, struct relay_thread *thread)
    __attribute__((warn_unused_result));
/* Frees that state. No tunnel may exist, and rest.look must be closed. */
void tunnel_rest_close(struct tunnel_rest *rest);
/* Opens the timer that the tunnels of a thread share. */
void tunnel_times_open(struct tunnel_times *times, struct relay_thread *thread);
/* Closes the timer. No tunnel may exist, and the loop must still exist. */
void tunnel_times_end(struct tunnel_times *times);
/* Fills in the functions through which tunnels reach their thread. */
void tunnel_io_host(struct tunnel_host *host, struct commands *commands);

struct tunnel_seat *tunnel_io_next(const struct tunnel_seat *io);
bool tunnel_io_is_closing(const struct tunnel_seat *io);

#define TUNNEL_WORK_MAX 4096           /* largest tunnel_io with its adapter's state, in bytes */
#define TUNNEL_HEAD_MAX IMAGE_PACK_MAX /* largest upgrade that is packed into an image, in bytes */

/* A read-only view of a tunnel. */
struct tunnel_visit {
    const struct tunnel_io *io;
    struct tunnel_stats stats;
    _Alignas(max_align_t) uint8_t work[TUNNEL_WORK_MAX]; /* private: tunnel_io as read from an image */
};
struct tunnel_head {
    _Alignas(max_align_t) uint8_t memory[TUNNEL_HEAD_MAX];
};
/* Reads a tunnel without a change to it: an idle tunnel is not woken. Its upgrade is read into `head`, which has TUNNEL_HEAD_MAX aligned
 * bytes; if `head` is NULL, so is stats.upgrade. The view is valid until the tunnel's next event. */
void tunnel_visit(const struct tunnel_seat *io, struct tunnel_visit *visit, void *head);

#endif
