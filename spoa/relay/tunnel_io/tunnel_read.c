/* SPDX-License-Identifier: MIT */
/* What comes from either side of a tunnel: read, or moved through a pipe where nobody needs to see it. */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "spoa/relay/tunnel_io/tunnel_io_parts.h"

/* Bytes, which the kernel doubles for what it needs itself. A client's socket that takes less than what is moved at once fills up
 * with it, so that the relay waits for HAProxy and then moves much; else it moves the few bytes that have just come. */
#define CLIENT_ROOM (96 << 10)

enum { FEW = 2 * TUNNEL_FRAMES }; /* bytes in which there are not more frames than one event handles */

/* So much is always read, however short memory is, and most reads bring less: then that is all there is to ask. */
static size_t room_for(const struct tunnel_io *io, enum side from)
{
    const struct forward *f = &io->tunnel.forward;
    bool kept = from == CLIENT && f->adapter->numbers;
    size_t room = f->steady[from] && io->little[from] && !kept ? READ_LEAST : forward_room(f, from);
    size_t most = io->dense[from] ? READ_LEAST : LEG_PAUSE;

    return room < most ? room : most;
}

/* ---- what is left for other events ---- */
void tunnel_read_forget(struct tunnel_io *io, enum side from)
{
    buffer_free(&io->left[from]);
}

/* Of bytes that the tunnel gets next: how many of them one event handles. The rest is kept; without memory for it, all are. */
static size_t leave_rest(struct tunnel_io *io, enum side from, struct slice bytes)
{
    size_t some = ws_some(&io->tunnel.forward.legs[from].in, bytes, TUNNEL_FRAMES);

    io->dense[from] = some < bytes.len;
    return buffer_put(&io->left[from], slice_from(bytes, some)) ? some : bytes.len;
}

/* Moves what one event handles of what was left to `to`, where bytes of a frame that began before stand already. */
static size_t take_left(struct tunnel_io *io, enum side from, uint8_t *to, size_t before)
{
    struct buffer *left = &io->left[from];
    const struct ws_decoder *in = &io->tunnel.forward.legs[from].in;
    struct slice next = slice_sub(buffer_slice(left), 0, LEG_PAUSE);

    if (!before)
        next = slice_sub(next, 0, ws_some(in, next, TUNNEL_FRAMES));
    memcpy(to + before, next.at, next.len);
    size_t some = before ? ws_some(in, slice_of(to, before + next.len), TUNNEL_FRAMES) - before : next.len;
    buffer_consume(left, some);
    return some;
}

ssize_t tunnel_read_into_memory(struct tunnel_io *io, enum side from, bool *done)
{
    struct relay_thread *thread = io->thread;
    struct leg *leg = &io->tunnel.forward.legs[from];
    struct slice partial = io->tunnel.forward.steady[from] ? slice_of(NULL, 0) : buffer_slice(&leg->partial);
    uint8_t *at = thread->scratch + FORWARD_FRONT;
    bool left = tunnel_read_left(io, from);
    ssize_t got = 0;
    size_t len = partial.len;

    if (!left) {
        got = recv(loop_io_fd(&io->seat->sockets[from]), at + partial.len, room_for(io, from), 0);
        if (got <= 0)
            return got;
        io->little[from] = got < READ_LEAST;
        len += (size_t)got;
    }
    if (partial.len)
        memcpy(at, partial.at, partial.len);
    if (left)
        len += (size_t)(got = (ssize_t)take_left(io, from, at, partial.len));
    else if (len > FEW)
        len = leave_rest(io, from, slice_of(at, len));
    if (partial.len)
        buffer_consume(&leg->partial, partial.len);
    *done = !tunnel_read(&io->tunnel, from, slice_of(at, len), loop_clock());
    if (!*done)
        tunnel_io_obey(io);
    return got;
}

bool tunnel_read_nothing(ssize_t got)
{
    return got < 0 && (errno == EAGAIN || errno == EINTR);
}

/* Keeps what is still in the pipe for other events, behind `rest`. Returns false if memory is short, and nothing is kept then. */
static bool leave_raw(struct tunnel_io *io, struct slice rest)
{
    struct buffer *left = &io->left[WORKER];
    struct pipe *raw = io->thread->pipes.raw;
    size_t len = raw->len, room;

    if (!buffer_put(left, rest))
        return false;
    uint8_t *to = len ? buffer_room(left, len, &room) : NULL;
    if (len && !to) {
        buffer_free(left);
        return false;
    }
    if (len) {
        pipe_read(raw, to, len);
        buffer_commit(left, len);
    }
    return true;
}

/* What was moved, and has to be read all the same: a small frame between large ones, and all that came behind it. */
static void read_raw(struct tunnel_io *io, struct slice front)
{
    struct pipe *raw = io->thread->pipes.raw;
    struct leg *worker = &io->tunnel.forward.legs[WORKER];
    struct buffer *partial = &worker->partial;
    uint8_t *at = io->thread->scratch + FORWARD_FRONT;

    while ((front.len || raw->len) && io->seat->sockets[WORKER].share && io->tunnel.state != TUNNEL_ended) {
        size_t more = raw->len < LEG_PAUSE - WS_HEAD_MAX ? raw->len : LEG_PAUSE - WS_HEAD_MAX,
               len = front.len + more;
        if (front.len)
            memcpy(at, front.at, front.len);
        pipe_read(raw, at + front.len, more);
        size_t some = ws_some(&worker->in, slice_of(at, len), TUNNEL_FRAMES);
        if (some < len && leave_raw(io, slice_of(at + some, len - some)))
            len = some;
        buffer_consume(partial, buffer_len(partial));
        tunnel_read(&io->tunnel, WORKER, slice_of(at, len), loop_clock());
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
    size_t most = from == WORKER && !tunnel_read_left(io, from) ? forward_unseen_most(f) : 0;

    if (most && !tunnel_read_nothing(got = move_unseen(io, most)))
        return got;
    got = tunnel_read_into_memory(io, from, done);
    if (got <= 0 || from == CLIENT || tunnel_read_left(io, from) || !io->seat->sockets[WORKER].share ||
        !(most = forward_unseen_most(f)))
        return got;
    more = move_unseen(io, most);
    *done = false;
    return more > 0 || tunnel_read_nothing(more) ? got : more;
}
