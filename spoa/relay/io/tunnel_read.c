/* SPDX-License-Identifier: MIT */
/* What comes from either side of a tunnel: read, or moved through a pipe where nobody needs to see it. */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "spoa/relay/io/tunnel_io_parts.h"

/* Bytes, which the kernel doubles for what it needs itself. A client's socket that takes less than what is moved at once fills up
 * with it, so that the relay waits for HAProxy and then moves much; else it moves the few bytes that have just come. */
#define CLIENT_ROOM (96 << 10)

/* So much is always read, however short memory is, and most reads bring less: then that is all there is to ask. */
static size_t room_for(const struct tunnel_io *io, enum side from)
{
    const struct forward *f = &io->tunnel.forward;
    bool kept = from == CLIENT && f->adapter->numbers;
    size_t room = f->steady[from] && io->little[from] && !kept ? READ_LEAST : forward_room(f, from);

    return room < LEG_PAUSE ? room : LEG_PAUSE;
}

ssize_t tunnel_read_into_memory(struct tunnel_io *io, enum side from, bool *done)
{
    struct relay_thread *thread = io->thread;
    struct leg *leg = &io->tunnel.forward.legs[from];
    struct slice partial = io->tunnel.forward.steady[from] ? slice_of(NULL, 0) : buffer_slice(&leg->partial);
    uint8_t *at = thread->scratch + FORWARD_FRONT;
    ssize_t got = recv(loop_io_fd(&io->seat->sockets[from]), at + partial.len, room_for(io, from), 0);
    if (got <= 0)
        return got;
    io->little[from] = got < READ_LEAST;
    size_t len = partial.len + (size_t)got;
    if (partial.len) {
        memcpy(at, partial.at, partial.len);
        buffer_consume(&leg->partial, partial.len);
    }
    *done = !tunnel_read(&io->tunnel, from, slice_of(at, len), loop_clock());
    if (!*done)
        tunnel_io_obey(io);
    return got;
}

bool tunnel_read_nothing(ssize_t got)
{
    return got < 0 && (errno == EAGAIN || errno == EINTR);
}

/* What was moved, and has to be read all the same: a small frame between large ones, and all that came behind it. */
static void read_raw(struct tunnel_io *io, struct slice front)
{
    struct pipe *raw = io->thread->pipes.raw;
    struct buffer *partial = &io->tunnel.forward.legs[WORKER].partial;
    uint8_t *at = io->thread->scratch + FORWARD_FRONT;

    while ((front.len || raw->len) && io->seat->sockets[WORKER].loop && io->tunnel.state != TUNNEL_ended) {
        size_t more = raw->len < LEG_PAUSE - WS_HEAD_MAX ? raw->len : LEG_PAUSE - WS_HEAD_MAX,
               len = front.len;
        if (len)
            memcpy(at, front.at, len);
        pipe_read(raw, at + len, more);
        buffer_consume(partial, buffer_len(partial));
        tunnel_read(&io->tunnel, WORKER, slice_of(at, len + more), loop_clock());
        tunnel_io_obey(io);
        front = raw->len ? buffer_slice(partial) : slice_of(NULL, 0);
    }
    pipes_clear_raw(&io->thread->pipes);
}

/* A pipe to the client, who has had large frames before or not. */
static bool take_pipe(struct tunnel_io *io)
{
    int room = CLIENT_ROOM;

    if (io->pipe)
        return true;
    io->pipe = pipes_take(&io->thread->pipes);
    if (io->pipe && !io->client_bounded)
        setsockopt(loop_io_fd(&io->seat->sockets[CLIENT]), SOL_SOCKET, SO_SNDBUF, &room, sizeof room);
    io->client_bounded |= io->pipe != NULL;
    return io->pipe != NULL;
}

/* Up to `most` bytes of the worker's that need not be seen; as recv, EAGAIN also where they have to be read. */
static ssize_t move_unseen(struct tunnel_io *io, size_t most)
{
    struct pipes *pipes = &io->thread->pipes;

    if (!pipes_raw(pipes) || !take_pipe(io)) {
        errno = EAGAIN;
        return -1;
    }
    ssize_t got = pipe_fill(pipes->raw, loop_io_fd(&io->seat->sockets[WORKER]), most);
    if (got > 0) {
        uint8_t seen[WS_HEAD_MAX];
        size_t seen_len = tunnel_unseen(&io->tunnel, (size_t)got, seen, loop_clock());
        tunnel_io_obey(io);
        read_raw(io, slice_of(seen, seen_len));
    } else if (got < 0 && (errno == EINVAL || errno == ENOSYS || errno == EPERM)) {
        pipes->failed = true;
        errno = EAGAIN;
    }
    return got;
}

void tunnel_read_end(struct tunnel_io *io)
{
    if (io->pipe && !io->tunnel.forward.legs[CLIENT].out.unseen) {
        pipes_give(&io->thread->pipes, io->pipe);
        io->pipe = NULL;
    }
}

ssize_t tunnel_read_some(struct tunnel_io *io, enum side from, bool *done)
{
    const struct forward *f = &io->tunnel.forward;
    ssize_t got = -1, more;
    size_t most = from == WORKER ? forward_unseen_most(f) : 0;

    if (most && !tunnel_read_nothing(got = move_unseen(io, most)))
        return got;
    got = tunnel_read_into_memory(io, from, done);
    if (got <= 0 || from == CLIENT || !io->seat->sockets[WORKER].loop || !(most = forward_unseen_most(f)))
        return got;
    more = move_unseen(io, most);
    *done = false;
    return more > 0 || tunnel_read_nothing(more) ? got : more;
}
