/* SPDX-License-Identifier: MIT */
/* tunnel_read: receives the input of both sides of a tunnel: reads it into memory, or splices payload that no code needs to see. */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "spoa/relay/tunnel_io/tunnel_io_parts.h"

/* Size of the client's socket buffer in bytes, which the kernel doubles for its own needs (socket(7)). It is smaller than one splice, so that
 * the socket fills up and the next splice is large; otherwise each splice would move only the few bytes that have just arrived. */
#define CLIENT_ROOM (96 << 10)

enum { FEW = 2 * TUNNEL_FRAMES }; /* bytes that cannot hold more frames than one event handles */

/* Returns the size of the next read. READ_LEAST bytes are always allowed, however short memory is; if the last read returned fewer, the
 * limits need not be asked. */
static size_t room_for(const struct tunnel_io *io, enum side from)
{
    const struct forward *f = &io->tunnel.forward;
    bool kept = from == CLIENT && f->adapter->numbers;
    size_t room = f->steady[from] && io->little[from] && !kept ? READ_LEAST : forward_room(f, from);
    size_t most = io->dense[from] ? READ_LEAST : LEG_PAUSE;

    return room < most ? room : most;
}

/* ---- input that waits for the next event ---- */
void tunnel_read_forget(struct tunnel_io *io, enum side from)
{
    buffer_free(&io->left[from]);
}

/* Returns the number of bytes that this event handles, and keeps the rest for the next one. If memory is short, this event handles all. */
static size_t leave_rest(struct tunnel_io *io, enum side from, struct slice bytes)
{
    size_t some = ws_some(&io->tunnel.forward.legs[from].in, bytes, TUNNEL_FRAMES);

    io->dense[from] = some < bytes.len;
    return buffer_put(&io->left[from], slice_from(bytes, some)) ? some : bytes.len;
}

/* Moves waiting input for one event to `to`, after `before` bytes of an unfinished frame that are there already. Returns the number of bytes
 * moved. */
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

/* Keeps `rest`, and after it the pipe's content, for the next event. Returns false, and keeps nothing, if memory is short. */
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

/* Reads the pipe's content into memory and hands it to the tunnel: a splice may also bring a small frame after a large one, which must be
 * read. `front` is the beginning of that frame's head. */
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

/* Gives the tunnel a pipe to the client, and limits the client's socket buffer once. Returns false if there is no pipe. */
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

/* Splices up to `most` bytes from the worker. Returns what recv(2) would return; EAGAIN also means that the bytes must be read instead. */
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
