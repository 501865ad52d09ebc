/* SPDX-License-Identifier: MIT */
#include "spoa/relay/io/pipes.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

/* Its pages are pieces as they came, of one packet at worst: with the kernel's own 16 little would fit. Where a user has
 * used up what he may have of them (pipe-user-pages-soft) it stays as it is. */
#define PIPE_SIZE (512 << 10)

static struct pipe *open_pipe(void)
{
    struct pipe *pipe = calloc(1, sizeof *pipe);
    int ends[2];

    if (!pipe || pipe2(ends, O_NONBLOCK | O_CLOEXEC) != 0) {
        free(pipe);
        return NULL;
    }
    (void)fcntl(ends[1], F_SETPIPE_SZ, PIPE_SIZE);
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

bool pipes_left(const struct pipes *pipes)
{
    return !pipes->failed && (pipes->unused || pipes->count < PIPES_MOST);
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
    if (pipes->count < PIPES_MOST && (pipe = open_pipe()))
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

void pipes_free(struct pipes *pipes)
{
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
            return; /* it holds them */
        pipe->len -= (size_t)got;
        to += got;
        len -= (size_t)got;
    }
}
