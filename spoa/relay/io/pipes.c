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
