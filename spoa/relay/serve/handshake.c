/* SPDX-License-Identifier: MIT */
#include "spoa/relay/serve/handshake.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "spoa/base/table/list.h"
#include "spoa/net/stream.h"
#include "spoa/relay/egress/egress_io.h"
#include "spoa/relay/mux_io/mux_io.h"
#include "spoa/relay/tunnel_io/tunnel_io.h"

#define HEAD_USUAL 1024 /* bytes: a head of HAProxy's is there with one read, and many may be waited for */

struct handshake {
    struct relay_thread *thread;
    struct handshake *next, **link;
    struct stream stream;
    size_t held; /* bytes of memory that the limits know */
    struct http_reader reader;
};

/* ---- one handshake ---- */
static void note_held(struct handshake *a, size_t held)
{
    relay_metrics_hold(a->thread->shard, a->thread->limits, (int64_t)held - (int64_t)a->held);
    a->held = held;
}

/* The descriptor is the caller's. */
static int leave(struct handshake *a)
{
    struct relay_thread *thread = a->thread;
    int fd = stream_release(&a->stream);

    note_held(a, 0);
    LIST_UNLINK_FROM(thread->handshakes_last, a);
    thread->handshakes_count--;
    stream_close(&a->stream);
    return fd;
}

static void on_upgrade(struct handshake *a, const struct http_head *head)
{
    struct relay_thread *thread = a->thread;
    struct fail why;
    enum refusal refusal;
    struct slice early = slice_from(buffer_slice(&a->stream.in), head->len);
    struct upgrade *upgrade = upgrade_new(head, &refusal, &why);

    if (!upgrade) {
        log_write(thread->log, LOG_INFO, "upgrade refused", LOG_TEXT("why", why.text));
        relay_thread_refuse(thread, leave(a), NULL, refusal);
        return;
    }
    if (slice_present(upgrade->handover.mux) && upgrade->handover.refuse < 0) {
        mux_io_begin(thread, stream_release(&a->stream), upgrade, early);
        (void)leave(a);
        return;
    }
    struct tunnel_seat *io = thread->draining ? NULL : tunnel_io_new(thread, upgrade, early);
    int fd = leave(a);
    if (io) {
        tunnel_io_begin(io, fd);
        return;
    }
    relay_thread_refuse(thread, fd, upgrade, thread->draining ? REFUSAL_draining : REFUSAL_too_many_tunnels);
    free(upgrade);
}

/* Returns true for a health check of HAProxy. A client cannot forge one: HAProxy adds the handover's field to each request that it hands
 * over, whatever its target. A relay that drains fails the check, so that HAProxy uses another relay. */
static bool is_health_check(const struct http_head *head)
{
    return slice_is(head->target, "/healthz") && http_count(head, HANDOVER_HEADER) == 0;
}

/* The stream's buffer, where the head stands, is there until the loop's next turn. */
static void on_connect(struct handshake *a, const struct http_head *head)
{
    struct relay_thread *thread = a->thread;
    struct slice early = slice_from(buffer_slice(&a->stream.in), head->len);
    int fd = stream_release(&a->stream);
    egress_io_begin(thread, fd, head, early);
    (void)leave(a);
}

static void on_head(struct handshake *a, const struct http_head *head)
{
    struct relay_thread *thread = a->thread;

    if (egress_io_wants(head))
        on_connect(a, head);
    else if (is_health_check(head))
        relay_thread_answer(
            thread, leave(a),
            thread->draining ? SLICE_LITERAL("HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\n\r\n")
                             : SLICE_LITERAL("HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n"));
    else
        on_upgrade(a, head);
}

static void on_input(void *owner)
{
    struct handshake *a = owner;
    struct http_head head;

    note_held(a, stream_held(&a->stream));
    switch (http_read(&a->reader, buffer_slice(&a->stream.in), &head)) {
    case HTTP_MORE:
        break;
    case HTTP_DONE:
        on_head(a, &head);
        break;
    default:
        log_write(a->thread->log, LOG_INFO, "upgrade refused", LOG_TEXT("why", a->reader.why));
        relay_thread_refuse(a->thread, leave(a), NULL, REFUSAL_bad_request);
    }
}

static void on_ended(void *owner, int error)
{
    struct handshake *a = owner;

    if (error == ENOMEM)
        relay_thread_refuse(a->thread, leave(a), NULL, REFUSAL_relay_unavailable);
    else
        close(leave(a));
}

static void on_late(void *owner)
{
    struct handshake *a = owner;
    relay_thread_refuse(a->thread, leave(a), NULL, REFUSAL_bad_request);
}

static const struct stream_user stream_user = {
    .input = on_input, .ended = on_ended, .late = on_late, .gone = free, .read_size = HEAD_USUAL};

void handshake_begin(struct relay_thread *thread, int fd)
{
    struct handshake *a = calloc(1, sizeof *a);

    /* HAProxy sends its request at once, so the oldest of many silent connections is not HAProxy's, or hangs. */
    if (thread->handshakes_count >= HANDSHAKES_MOST) {
        metrics_add(thread->shard, METRIC_CUT_SHORT, METRIC_INDEX(CUT_HANDSHAKE), 1);
        close(leave(thread->handshakes));
    }
    if (!a) {
        relay_thread_refuse(thread, fd, NULL, REFUSAL_relay_unavailable);
        return;
    }
    *a = (struct handshake){
        .thread = thread,
        .stream = {.user = &stream_user,
                   .owner = a,
                   .in = buffer_with_limit(thread->settings.head_size + LEG_FRAME_WHOLE)},
        .reader = http_reader_of(HTTP_REQUEST, thread->settings.head_size),
    };
    if (!thread->handshakes)
        thread->handshakes_last = &thread->handshakes;
    LIST_APPEND(thread->handshakes_last, a);
    thread->handshakes_count++;
    stream_open(&a->stream, thread->loop, fd);
    stream_join(&a->stream, &thread->shares.unknown);
    stream_set_time(&a->stream, thread->settings.head_time);
}

void handshakes_end(struct relay_thread *thread)
{
    while (thread->handshakes)
        close(leave(thread->handshakes));
}
