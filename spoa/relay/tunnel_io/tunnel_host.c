/* SPDX-License-Identifier: MIT */
/* tunnel_host: the functions of struct tunnel_host: sending, reading from the pipe, and the limits of memory. */
#include <errno.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "spoa/base/os/random.h"
#include "spoa/relay/tunnel_io/tunnel_io_parts.h"

static ssize_t send_runs(int fd, const struct slice *runs, size_t count)
{
    struct iovec parts[LEG_RUNS];
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = count};

    /* A single run is the usual case, and send is faster: sendmsg first copies its header and parts into the kernel. */
    if (count == 1)
        return send(fd, runs->at, runs->len, MSG_NOSIGNAL | MSG_DONTWAIT);
    for (size_t i = 0; i < count; i++)
        parts[i] = (struct iovec){(void *)runs[i].at, runs[i].len};
    return sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static size_t taken(struct tunnel_io *io, enum side to, ssize_t sent)
{
    if (sent >= 0)
        return (size_t)sent;
    io->broken[to] = errno != EAGAIN && errno != EINTR;
    return 0;
}

static size_t host_send(void *context, enum side to, const struct slice *runs, size_t count)
{
    struct tunnel_io *io = context;
    int fd = loop_io_fd(&io->seat->sockets[to]);

    if (io->broken[to])
        return 0;
    size_t sent = taken(
        io, to, leg_is_unseen(runs[0]) ? pipe_drain(io->pipe, fd, runs[0].len) : send_runs(fd, runs, count));
    metrics_series_add(io->thread->sent[to], sent);
    return sent;
}

static void host_peel(void *context, uint8_t *to, size_t len)
{
    struct tunnel_io *io = context;
    pipe_read(io->thread->pipes.raw, to, len);
}

static size_t host_pipe(void *context, struct slice head, size_t len)
{
    struct tunnel_io *io = context;
    return pipe_put(io->pipe, head) ? len - pipe_move(io->thread->pipes.raw, io->pipe, len) : SIZE_MAX;
}

static void host_gather(void *context, uint8_t *to, size_t len)
{
    struct tunnel_io *io = context;
    size_t piped = io->pipe->len < len ? io->pipe->len : len;

    pipe_read(io->pipe, to, piped);
    if (piped < len)
        pipe_read(io->thread->pipes.raw, to + piped, len - piped);
}

static uint32_t host_random(void *context)
{
    (void)context;
    return random_u32();
}

void tunnel_io_host(struct tunnel_host *host, struct commands *commands)
{
    *host = (struct tunnel_host){
        host_send,   host_peel, host_pipe, host_gather, tunnel_limits_room, tunnel_limits_permit_replay,
        host_random, commands};
}
