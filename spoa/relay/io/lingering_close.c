/* SPDX-License-Identifier: MIT */
#include "spoa/relay/io/lingering_close.h"

#include <errno.h>
#include <linux/sockios.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "spoa/relay/io/relay_metrics.h"

#define READ_AWAY (1 << 20) /* bytes: a peer that sends more is not waiting for our Close */

struct lingering_close {
    struct lingering_closes *all;
    struct lingering_close *next, **link;
    struct loop_io io;
    struct loop_timer timer;
    struct loop_task gone;
    struct buffer rest;
    size_t read;
    size_t held;     /* as the limits know it */
    bool ended;      /* the peer says no more; it may still take the rest */
    uint64_t unread; /* input, as far as is known */
};

static void release(void *context)
{
    free(context);
}

static void count_unconfirmed(struct lingering_closes *lingering, uint64_t unread)
{
    if (unread)
        metrics_add(lingering->shard, METRIC_UNCONFIRMED, METRIC_PLAIN, (int64_t)unread);
}

static void note_held(struct lingering_close *p)
{
    relay_metrics_hold(p->all->shard, p->all->limits, (int64_t)p->rest.size - (int64_t)p->held);
    p->held = p->rest.size;
}

static void end(struct lingering_close *p)
{
    if (!p->io.loop)
        return;
    struct loop *loop = p->io.loop;
    count_unconfirmed(p->all, p->unread);
    loop_io_close(&p->io);
    loop_timer_close(&p->timer);
    buffer_free(&p->rest);
    note_held(p);
    *p->link = p->next;
    if (p->next)
        p->next->link = p->link;
    else
        p->all->last = p->link;
    p->all->count--;
    p->gone = (struct loop_task){.run = release, .context = p};
    loop_defer(loop, &p->gone);
}

static void on_time(void *owner)
{
    end(owner);
}

/* False: the peer is gone, or has nothing more to get nor to say. */
static bool send_rest(struct lingering_close *p)
{
    while (buffer_len(&p->rest)) {
        struct slice rest = buffer_slice(&p->rest);
        ssize_t sent = send(loop_io_fd(&p->io), rest.at, rest.len, MSG_NOSIGNAL);
        if (sent < 0)
            return errno == EAGAIN || errno == EINTR;
        buffer_consume(&p->rest, (size_t)sent);
    }
    shutdown(loop_io_fd(&p->io), SHUT_WR);
    return !p->ended;
}

/* What is still on its way when the peer has ended its side it may never read. Our own FIN counts as one, too. */
static bool is_taken(int fd)
{
    int queued;
    return ioctl(fd, SIOCOUTQ, &queued) == 0 && queued <= 1;
}

static bool read_away(struct lingering_close *p)
{
    uint8_t scratch[16384];
    ssize_t got = recv(loop_io_fd(&p->io), scratch, sizeof scratch, 0);

    if (got < 0)
        return errno == EAGAIN || errno == EINTR;
    p->read += (size_t)got;
    p->ended = got == 0;
    if (!p->ended)
        return p->read < READ_AWAY;
    if (buffer_len(&p->rest))
        return true;
    if (is_taken(loop_io_fd(&p->io)))
        p->unread = 0;
    return false;
}

static void on_ready(void *owner, int events)
{
    struct lingering_close *p = owner;
    bool alive = true;

    if (events & LOOP_WRITE)
        alive = send_rest(p);
    if (alive && (events & LOOP_READ))
        alive = read_away(p);
    note_held(p);
    if (!alive)
        end(p);
    else
        loop_io_want(&p->io, (p->ended ? 0 : LOOP_READ) | (buffer_len(&p->rest) ? LOOP_WRITE : 0));
}

void lingering_close_begin(struct lingering_closes *lingering, int fd, struct buffer *rest, uint64_t unread)
{
    struct lingering_close *p = calloc(1, sizeof *p);

    if (!p) {
        struct slice last = buffer_slice(rest);
        (void)!send(fd, last.at, last.len, MSG_NOSIGNAL | MSG_DONTWAIT);
        count_unconfirmed(lingering, unread);
        buffer_free(rest);
        close(fd);
        return;
    }
    if (lingering->count >= lingering->most) {
        metrics_add(lingering->shard, METRIC_CUT_SHORT, METRIC_INDEX(CUT_LINGERING), 1);
        end(lingering->first);
    }
    *p = (struct lingering_close){.all = lingering,
                                  .link = lingering->first ? lingering->last : &lingering->first,
                                  .rest = *rest,
                                  .unread = unread};
    *p->link = p;
    lingering->last = &p->next;
    lingering->count++;
    loop_io_open(&p->io, lingering->loop, fd, on_ready, p);
    loop_timer_open(&p->timer, lingering->loop, on_time, p);
    loop_timer_set(&p->timer, LINGERING_SECONDS);
    on_ready(p, LOOP_WRITE);
}

void lingering_closes_end(struct lingering_closes *lingering)
{
    while (lingering->first)
        end(lingering->first);
}
