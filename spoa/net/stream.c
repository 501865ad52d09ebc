/* SPDX-License-Identifier: MIT */
#include "spoa/net/stream.h"

#include <errno.h>
#include <linux/sockios.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "spoa/base/bytes/min_max.h"
#include "spoa/net/net.h"

#define SCRATCH 16384 /* bytes of one read of a finishing stream */

/* ---- the events to wait for ---- */
static bool may_read(const struct stream *s)
{
    if (s->connecting || s->dead)
        return false;
    if (s->again && !s->finishing)
        return !s->paused;
    return !s->ended && (s->finishing || (!s->paused && buffer_len(&s->in) < s->in.limit));
}

static void want(struct stream *s)
{
    /* after a failed write the loop reports the failure: a broken socket is always writable */
    bool writes = !s->dead && (s->connecting || buffer_len(&s->out) || (s->failed && !s->user->hears_out));
    loop_io_want(&s->io, (may_read(s) ? LOOP_READ : 0) | (writes ? LOOP_WRITE : 0));
    if (s->again && !s->finishing)
        loop_io_again(&s->io, LOOP_READ);
}

/* ---- the end ---- */
static void free_buffers(struct stream *s)
{
    buffer_free(&s->in);
    buffer_free(&s->out);
}

static void on_gone(void *context)
{
    struct stream *s = context;
    free_buffers(s);
    s->user->gone(s->owner);
}

void stream_close(struct stream *s)
{
    struct loop *loop = s->loop;
    if (!loop) {
        if (!s->busy && !s->task.queued)
            free_buffers(s); /* it was never opened */
        return;
    }
    s->loop = NULL;
    loop_io_close(&s->io);
    loop_timer_close(&s->timer);
    s->task = (struct loop_task){.run = on_gone, .context = s};
    if (s->user->gone)
        loop_defer(loop, &s->task);
    else if (!s->busy)
        free_buffers(s);
}

int stream_release(struct stream *s)
{
    loop_timer_close(&s->timer);
    return loop_io_release(&s->io);
}

static void report_error(struct stream *s, int error)
{
    s->dead = true;
    if (s->finishing)
        stream_close(s);
    else
        s->user->ended(s->owner, error);
}

/* ---- call-backs run between enter and leave: closing, finishing and pausing within them takes effect in leave ---- */
static void enter(struct stream *s)
{
    s->busy = true;
}

static void leave(struct stream *s)
{
    s->busy = false;
    if (s->loop && s->finishing)
        buffer_free(&s->in);
    if (s->loop)
        want(s);
    else if (!s->user->gone)
        free_buffers(s);
}

/* ---- writing ---- */
/* Writes once, without a call-back. Returns true if the socket took bytes. */
static bool write_some(struct stream *s)
{
    struct slice rest = buffer_slice(&s->out);
    if (rest.len == 0 || s->failed || s->dead || s->connecting || !s->io.share)
        return false;
    /* MSG_MORE lets the FIN that follows leave in the same packet */
    int more = s->half_closing ? MSG_MORE : 0;
    ssize_t n = send(loop_io_fd(&s->io), rest.at, rest.len, MSG_NOSIGNAL | more);
    if (n < 0 && errno != EAGAIN && errno != EINTR)
        s->failed = errno;
    buffer_consume(&s->out, n > 0 ? (size_t)n : 0);
    return n > 0;
}

/* Sets the time of a finishing stream, at most until over_at. */
static void set_linger(struct stream *s, uint64_t time)
{
    uint64_t now = loop_clock(), left = s->over_at > now ? s->over_at - now : 0;
    loop_timer_set(&s->timer, left < time ? left : time);
}

/* Call after each write. Drops `out` if it cannot be sent any more, and sends FIN or closes once `out` is empty. */
static void after_write(struct stream *s)
{
    if (s->failed)
        buffer_free(&s->out);
    if (buffer_len(&s->out) || s->connecting)
        return;
    if (s->finishing && (s->failed || s->ended)) {
        stream_close(s);
    } else if (s->half_closing && !s->shut && !s->failed) {
        s->shut = true;
        shutdown(loop_io_fd(&s->io), SHUT_WR);
        if (s->finishing && s->linger.step)
            set_linger(s, s->linger.grace);
    }
}

void stream_send_soon(struct stream *s)
{
    if (!s->loop)
        return;
    after_write(s);
    want(s);
}

void stream_send(struct stream *s)
{
    if (!s->loop)
        return;
    write_some(s);
    stream_send_soon(s);
}

bool stream_send_early(struct stream *s)
{
    if (!s->connecting || !s->io.share || !net_is_connected(loop_io_fd(&s->io)))
        return false;
    s->connecting = false;
    stream_send(s);
    return !s->failed;
}

static void on_writable(struct stream *s)
{
    bool progress = write_some(s);
    if (progress && s->finishing && s->linger.step)
        set_linger(s, s->linger.step);
    after_write(s);
    if ((progress || (s->failed && s->user->hears_out)) && s->user->sent)
        s->user->sent(s->owner);
    /* an owner that hears the peer out learns of the failure after it has read everything: reading meets the failure again */
    if (s->loop && s->failed && !s->user->hears_out && !may_read(s))
        report_error(s, s->failed);
}

/* ---- reading ---- */
/* A read has failed with `error`. An earlier failure of a write is reported here, after all input was read. */
static void on_no_input(struct stream *s, int error)
{
    if (error != EAGAIN && error != EINTR)
        report_error(s, error);
    else if (s->failed && !s->user->hears_out)
        report_error(s, s->failed);
}

/* Reads once, or offers the input that the owner has left. */
static void read_some(struct stream *s)
{
    if (s->again) {
        s->again = false;
        s->user->input(s->owner);
        return;
    }
    if (s->user->reading)
        s->user->reading(s->owner);
    if (!s->io.share || !may_read(s))
        return;
    size_t room = 0, left = s->in.limit - buffer_len(&s->in), size = s->user->read_size;
    uint8_t *to = buffer_room(&s->in, size && size < left ? size : left, &room);
    if (!to) {
        report_error(s, ENOMEM);
        return;
    }
    ssize_t got = recv(loop_io_fd(&s->io), to, room, 0);
    int error = errno;
    buffer_commit(&s->in, got > 0 ? (size_t)got : 0);
    if (got > 0) {
        s->user->input(s->owner);
    } else if (got == 0) {
        s->ended = true;
        s->user->ended(s->owner, 0);
    } else {
        on_no_input(s, error);
    }
}

/* Reads once and drops the input. Returns false if there was none, or if the stream is closed now. */
static bool drop_some(struct stream *s)
{
    uint8_t scratch[SCRATCH];
    ssize_t got = recv(loop_io_fd(&s->io), scratch, sizeof scratch, 0);
    if (got < 0) {
        on_no_input(s, errno);
        return false;
    }
    /* bytes of the frame that the peer has begun do not count against linger.drain */
    uint64_t of_rest = min_u64((uint64_t)got, s->linger.rest);
    s->linger.rest -= of_rest;
    s->drained += (size_t)got - (size_t)of_rest;
    if (of_rest)
        set_linger(s, s->linger.step && buffer_len(&s->out) ? s->linger.step : s->linger.grace);
    if (of_rest && !s->linger.rest)
        stream_half_close(s);
    s->ended = got == 0;
    /* a peer that has ended its side may never read bytes that are still on their way; this side's FIN counts as one of them */
    int queued;
    s->taken = s->ended && s->shut && ioctl(loop_io_fd(&s->io), SIOCOUTQ, &queued) == 0 && queued <= 1;
    if ((s->ended && buffer_len(&s->out) == 0) || s->drained >= s->linger.drain)
        stream_close(s);
    return got > 0 && s->loop;
}

/* ---- events ---- */
/* Reports the result of connecting. Returns true if the connection is made and the stream is not closed. */
static bool connect_is_made(struct stream *s)
{
    int error = net_connected(loop_io_fd(&s->io));
    s->connecting = false;
    if (error)
        report_error(s, error);
    else if (!s->finishing)
        s->user->connected(s->owner);
    return s->loop && !error;
}

static void on_ready(void *owner, int events)
{
    struct stream *s = owner;
    enter(s);
    bool good = !s->connecting || connect_is_made(s);
    if (good && (events & LOOP_WRITE))
        on_writable(s);
    /* after a failed write, input that has come is read before the failure is reported */
    if (s->io.share && ((events & LOOP_READ) || s->failed) && may_read(s)) {
        if (!s->finishing)
            read_some(s);
        else if (drop_some(s))
            drop_some(s); /* most peers end right after their last bytes: this read finds that without another turn */
    }
    leave(s);
}

static void on_due(void *owner)
{
    struct stream *s = owner;
    enter(s);
    if (s->finishing) {
        /* if this thread was late, the peer may have sent meanwhile what begins `grace` anew */
        if (loop_clock() < s->over_at && s->io.share && !s->connecting)
            drop_some(s);
        if (s->loop && !loop_timer_active(&s->timer))
            stream_close(s);
        leave(s);
        return;
    }
    s->late = true;
    if (may_read(s))
        read_some(s);
    if (s->io.share && s->late && !s->finishing)
        s->user->late(s->owner);
    leave(s);
}

void stream_offer(struct stream *s)
{
    if (!stream_is_open(s) || s->busy || buffer_len(&s->in) == 0)
        return;
    enter(s);
    s->user->input(s->owner);
    leave(s);
}

void stream_offer_again(struct stream *s)
{
    s->again = true;
    if (!s->busy && s->loop)
        want(s);
}

void stream_join(struct stream *s, struct loop_share *share)
{
    loop_io_join(&s->io, share);
    if (s->loop)
        want(s);
}

void stream_look(struct stream *s)
{
    if (!s->io.share || s->busy || s->finishing || !may_read(s))
        return;
    enter(s);
    read_some(s);
    leave(s);
}

/* ---- for the owner ---- */
void stream_open(struct stream *s, struct loop *loop, int fd)
{
    *s = (struct stream){.user = s->user,
                         .owner = s->owner,
                         .in = s->in,
                         .out = s->out,
                         .loop = loop,
                         .connecting = s->user->connected != NULL};
    loop_io_open(&s->io, loop, fd, on_ready, s);
    loop_timer_open(&s->timer, loop, on_due, s);
    want(s);
}

void stream_consume(struct stream *s, size_t len)
{
    buffer_consume(&s->in, len);
    if (s->loop)
        want(s);
}

void stream_pause(struct stream *s, bool paused)
{
    s->paused = paused;
    if (s->loop)
        want(s);
}

void stream_set_time(struct stream *s, uint64_t microseconds)
{
    s->late = false;
    if (!s->finishing)
        loop_timer_set(&s->timer, microseconds);
}

void stream_stop_time(struct stream *s)
{
    s->late = false;
    if (!s->finishing)
        loop_timer_stop(&s->timer);
}

void stream_half_close(struct stream *s)
{
    s->half_closing = true;
    stream_send(s);
}

void stream_finish(struct stream *s, const struct stream_linger *linger)
{
    if (!stream_is_open(s))
        return;
    s->finishing = true;
    s->linger = *linger;
    uint64_t all = linger->step ? STREAM_STEPS * linger->step : linger->grace;
    s->over_at = loop_clock() + (linger->rest && all < linger->most ? linger->most : all);
    set_linger(s, linger->step && !s->shut ? linger->step : linger->grace);
    if (s->dead)
        stream_close(s);
    else if (linger->rest)
        stream_send(s);
    else
        stream_half_close(s);
}

bool stream_is_open(const struct stream *s)
{
    return s->loop && !s->finishing;
}

bool stream_is_broken(const struct stream *s)
{
    struct pollfd fd = {.fd = loop_io_fd(&s->io)};
    return fd.fd >= 0 && poll(&fd, 1, 0) == 1 && (fd.revents & (POLLHUP | POLLERR));
}

bool stream_was_taken(const struct stream *s)
{
    return s->taken;
}

size_t stream_held(const struct stream *s)
{
    return s->in.size + s->out.size;
}
