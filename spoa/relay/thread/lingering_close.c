/* SPDX-License-Identifier: MIT */
#include "spoa/relay/thread/lingering_close.h"

#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "spoa/base/table/list.h"
#include "spoa/net/stream.h"
#include "spoa/relay/thread/relay_metrics.h"

#define READ_AWAY (1 << 20) /* bytes to discard; a peer that sends more does not wait for our Close */

struct lingering_close {
    struct lingering_closes *all; /* NULL after the end */
    struct lingering_close *next, **link;
    struct stream stream;
    size_t held;     /* bytes counted by the limits */
    uint64_t unread; /* bytes of input that the peer may not have received */
};

static void count_unconfirmed(struct lingering_closes *lingering, uint64_t unread)
{
    if (unread)
        metrics_add(lingering->shard, METRIC_UNCONFIRMED, METRIC_PLAIN, (int64_t)unread);
}

static void note_held(struct lingering_close *p, size_t held)
{
    relay_metrics_hold(p->all->shard, p->all->limits, (int64_t)held - (int64_t)p->held);
    p->held = held;
}

static void end(struct lingering_close *p)
{
    if (!p->all)
        return;
    if (!stream_was_taken(&p->stream))
        count_unconfirmed(p->all, p->unread);
    note_held(p, 0);
    LIST_UNLINK_FROM(p->all->last, p);
    p->all->count--;
    p->all = NULL;
    stream_close(&p->stream);
}

static void on_sent(void *owner)
{
    struct lingering_close *p = owner;
    note_held(p, stream_held(&p->stream));
}

static void on_gone(void *owner)
{
    end(owner);
    free(owner);
}

/* The stream only sends: no input is delivered, and only `gone` reports the end. */
static const struct stream_user stream_user = {.sent = on_sent, .gone = on_gone};

void lingering_close_begin(struct lingering_closes *lingering, int fd, struct buffer *rest,
                           uint64_t announced, uint64_t unread)
{
    struct stream_linger linger = {
        .grace = LINGERING_TIME, .drain = READ_AWAY, .most = LINGERING_MOST_TIME, .rest = announced};
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
                                  .stream = {.user = &stream_user, .owner = p, .out = *rest},
                                  .unread = unread};
    if (!lingering->first)
        lingering->last = &lingering->first;
    LIST_APPEND(lingering->last, p);
    lingering->count++;
    stream_open(&p->stream, lingering->loop, fd);
    if (lingering->share)
        stream_join(&p->stream, lingering->share);
    stream_finish(&p->stream, &linger);
    note_held(p, stream_held(&p->stream));
}

void lingering_closes_end(struct lingering_closes *lingering)
{
    while (lingering->first)
        end(lingering->first);
}
