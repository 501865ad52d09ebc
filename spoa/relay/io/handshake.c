/* SPDX-License-Identifier: MIT */
#include "spoa/relay/io/handshake.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "spoa/relay/io/tunnel_io.h"

struct handshake {
    struct relay_thread *thread;
    struct handshake *next, **link;
    struct loop_io io;
    struct loop_timer timer;
    struct loop_task gone;
    struct buffer in;
    size_t held; /* as the limits know it */
    struct http_reader reader;
};

/* ---- one handshake ---- */
static void release(void *context)
{
    free(context);
}

static void note_held(struct handshake *a)
{
    relay_metrics_hold(a->thread->shard, a->thread->limits, (int64_t)a->in.size - (int64_t)a->held);
    a->held = a->in.size;
}

/* The descriptor is the caller's. */
static int leave(struct handshake *a)
{
    struct relay_thread *thread = a->thread;
    int fd = loop_io_release(&a->io);

    loop_timer_close(&a->timer);
    buffer_free(&a->in);
    note_held(a);
    *a->link = a->next;
    if (a->next)
        a->next->link = a->link;
    else
        thread->handshakes_last = a->link;
    thread->handshakes_count--;
    a->gone = (struct loop_task){.run = release, .context = a};
    loop_defer(thread->loop, &a->gone);
    return fd;
}

static void on_upgrade(struct handshake *a, const struct http_head *head)
{
    struct relay_thread *thread = a->thread;
    struct fail why;
    enum refusal refusal;
    struct slice early = slice_from(buffer_slice(&a->in), head->len);
    struct upgrade *upgrade = upgrade_new(head, &refusal, &why);

    if (!upgrade) {
        log_write(thread->log, LOG_INFO, "upgrade refused", LOG_TEXT("why", why.text));
        relay_thread_refuse(thread, leave(a), NULL, refusal);
        return;
    }
    struct tunnel_io *io = thread->draining ? NULL : tunnel_io_new(thread, upgrade, early);
    int fd = leave(a);
    if (io) {
        tunnel_io_begin(io, fd);
        return;
    }
    relay_thread_refuse(thread, fd, upgrade, thread->draining ? REFUSAL_draining : REFUSAL_too_many_tunnels);
    free(upgrade);
}

/* HAProxy asks whether there is somebody: what it hands over it marks as such, whatever the client asked for. One that
 * drains is not, so that it asks another relay, if it has one. */
static bool is_health_check(const struct http_head *head)
{
    return slice_is(head->target, "/healthz") && http_count(head, HANDOVER_HEADER) == 0;
}

static void on_head(struct handshake *a, const struct http_head *head)
{
    struct relay_thread *thread = a->thread;

    if (is_health_check(head))
        relay_thread_answer(
            thread, leave(a),
            thread->draining ? SLICE_LITERAL("HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\n\r\n")
                             : SLICE_LITERAL("HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n"));
    else
        on_upgrade(a, head);
}

static void on_bytes(struct handshake *a)
{
    struct http_head head;

    switch (http_read(&a->reader, buffer_slice(&a->in), &head)) {
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

static void on_ready(void *owner, int events)
{
    struct handshake *a = owner;
    size_t room;
    uint8_t *to = buffer_room(&a->in, 1, &room);
    (void)events;

    if (!to) { /* a head that is too long was refused before */
        relay_thread_refuse(a->thread, leave(a), NULL, REFUSAL_relay_unavailable);
        return;
    }
    ssize_t got = recv(loop_io_fd(&a->io), to, room, 0);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
        buffer_commit(&a->in, 0);
        return;
    }
    if (got <= 0) {
        close(leave(a));
        return;
    }
    buffer_commit(&a->in, (size_t)got);
    note_held(a);
    on_bytes(a);
}

static void on_time(void *owner)
{
    relay_thread_refuse(((struct handshake *)owner)->thread, leave(owner), NULL, REFUSAL_bad_request);
}

void handshake_begin(struct relay_thread *thread, int fd)
{
    struct handshake *a = calloc(1, sizeof *a);

    /* HAProxy says at once what it wants: who is still waited for among so many is not HAProxy, or has hung */
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
        .link = thread->handshakes ? thread->handshakes_last : &thread->handshakes,
        .in = buffer_with_limit(thread->settings.head_size + LEG_FRAME_WHOLE),
        .reader = http_reader_of(HTTP_REQUEST, thread->settings.head_size),
    };
    *a->link = a;
    thread->handshakes_last = &a->next;
    thread->handshakes_count++;
    loop_io_open(&a->io, thread->loop, fd, on_ready, a);
    loop_timer_open(&a->timer, thread->loop, on_time, a);
    loop_timer_set(&a->timer, (double)thread->settings.head_time / 1e6);
    loop_io_want(&a->io, LOOP_READ);
}

void handshakes_end(struct relay_thread *thread)
{
    while (thread->handshakes)
        close(leave(thread->handshakes));
}
