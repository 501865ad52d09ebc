/* SPDX-License-Identifier: MIT */
#include "spoa/relay/thread/pipes.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

/* The size of a pipe in bytes. Each page of a pipe may hold only one packet, so the kernel's default of 16 pages would hold
 * little. If the user has reached pipe-user-pages-soft, the pipe keeps its default size. */
#define PIPE_SIZE (512 << 10)
/* The size of the raw pipe in bytes. Each frame moved from it costs the other pipe one page for its head and one at the cut. */
#define RAW_SIZE (PIPE_SIZE / 2)

static struct pipe *open_pipe(int size)
{
    struct pipe *pipe = calloc(1, sizeof *pipe);
    int ends[2];

    if (!pipe || pipe2(ends, O_NONBLOCK | O_CLOEXEC) != 0) {
        free(pipe);
        return NULL;
    }
    (void)fcntl(ends[1], F_SETPIPE_SZ, size);
    pipe->out = ends[0];
    pipe->in = ends[1];
    return pipe;
}

static void close_pipe(struct pipe *pipe)
{
    close(pipe->in);
    close(pipe->out);
    free(pipe);
}

struct pipe *pipes_take(struct pipes *pipes)
{
    struct pipe *pipe = pipes->unused;

    if (pipes->failed)
        return NULL;
    if (pipe) {
        pipes->unused = pipe->next;
        return pipe;
    }
    if (pipes->count < PIPES_MOST && (pipe = open_pipe(PIPE_SIZE)))
        pipes->count++;
    return pipe;
}

void pipes_give(struct pipes *pipes, struct pipe *pipe)
{
    if (!pipe)
        return;
    if (pipe->len) {
        close_pipe(pipe);
        pipes->count--;
        return;
    }
    pipe->next = pipes->unused;
    pipes->unused = pipe;
}

struct pipe *pipes_raw(struct pipes *pipes)
{
    if (!pipes->raw && !pipes->failed && pipes->count < PIPES_MOST && (pipes->raw = open_pipe(RAW_SIZE)))
        pipes->count++;
    return pipes->failed ? NULL : pipes->raw;
}

void pipes_clear_raw(struct pipes *pipes)
{
    if (!pipes->raw || !pipes->raw->len)
        return;
    close_pipe(pipes->raw);
    pipes->raw = NULL;
    pipes->count--;
}

void pipes_free(struct pipes *pipes)
{
    if (pipes->raw) {
        close_pipe(pipes->raw);
        pipes->raw = NULL;
        pipes->count--;
    }
    for (struct pipe *pipe; (pipe = pipes->unused); pipes->count--) {
        pipes->unused = pipe->next;
        close_pipe(pipe);
    }
}

ssize_t pipe_fill(struct pipe *pipe, int from, size_t most)
{
    ssize_t got = splice(from, NULL, pipe->in, NULL, most, SPLICE_F_NONBLOCK | SPLICE_F_MOVE);

    pipe->len += got > 0 ? (size_t)got : 0;
    return got;
}

ssize_t pipe_drain(struct pipe *pipe, int to, size_t most)
{
    ssize_t gone = splice(pipe->out, NULL, to, NULL, most, SPLICE_F_NONBLOCK | SPLICE_F_MOVE);

    pipe->len -= gone > 0 ? (size_t)gone : 0;
    return gone;
}

size_t pipe_move(struct pipe *from, struct pipe *to, size_t len)
{
    size_t moved = 0;

    for (ssize_t got; moved < len; moved += (size_t)got)
        if ((got = splice(from->out, NULL, to->in, NULL, len - moved, SPLICE_F_NONBLOCK | SPLICE_F_MOVE)) <=
            0)
            break;
    from->len -= moved;
    to->len += moved;
    return moved;
}

bool pipe_put(struct pipe *to, struct slice bytes)
{
    /* a write of at most PIPE_BUF bytes is atomic */
    bool put = write(to->in, bytes.at, bytes.len) == (ssize_t)bytes.len;

    to->len += put ? bytes.len : 0;
    return put;
}

static bool keep_rest(struct pipe *pipe, struct buffer *rest)
{
    size_t room, len = pipe->len;
    uint8_t *to = len ? buffer_room(rest, len, &room) : NULL;

    if (to) {
        pipe_read(pipe, to, len);
        buffer_commit(rest, len);
    }
    return to || !len;
}

bool pipes_pass(struct pipes *pipes, int from, int to, size_t most, struct buffer *rest, size_t *passed)
{
    struct pipe *pipe = pipes_take(pipes);
    bool kept = true;
    ssize_t got;

    *passed = 0;
    if (!pipe)
        return true;
    got = pipe_fill(pipe, from, most);
    if (got > 0) {
        *passed = (size_t)got;
        while (pipe->len && pipe_drain(pipe, to, pipe->len) > 0)
            ;
        kept = keep_rest(pipe, rest);
    } else if (got < 0 && (errno == EINVAL || errno == ENOSYS || errno == EPERM)) {
        pipes->failed = true;
    }
    pipes_give(pipes, pipe);
    return kept;
}

void pipe_read(struct pipe *pipe, uint8_t *to, size_t len)
{
    while (len) {
        ssize_t got = read(pipe->out, to, len);
        if (got <= 0)
            return; /* never happens, because the pipe holds the bytes */
        pipe->len -= (size_t)got;
        to += got;
        len -= (size_t)got;
    }
}
