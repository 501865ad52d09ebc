/* SPDX-License-Identifier: MIT */
#include "spoa/relay/io/arrival.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "spoa/relay/io/port.h"

struct arrival {
    struct lane *lane;
    struct arrival *next, **link;
    struct loop_io io;
    struct loop_timer timer;
    struct loop_task gone;
    struct buffer in;
    size_t held; /* as the limits know it */
    struct http_reader reader;
};

/* ---- one arrival ---- */
static void release(void *context)
{
    free(context);
}

static void note_held(struct arrival *a)
{
    counts_hold(a->lane->shard, a->lane->limits, (int64_t)a->in.size - (int64_t)a->held);
    a->held = a->in.size;
}

/* The descriptor is the caller's. */
static int leave(struct arrival *a)
{
    struct lane *lane = a->lane;
    int fd = loop_io_release(&a->io);

    loop_timer_close(&a->timer);
    buffer_free(&a->in);
    note_held(a);
    *a->link = a->next;
    if (a->next)
        a->next->link = a->link;
    else
        lane->arrivals_last = a->link;
    lane->arrivals_count--;
    a->gone = (struct loop_task){.run = release, .context = a};
    loop_defer(lane->loop, &a->gone);
    return fd;
}

static void on_upgrade(struct arrival *a, const struct http_head *head)
{
    struct lane *lane = a->lane;
    struct fail why;
    enum refusal refusal;
    struct slice early = slice_from(buffer_slice(&a->in), head->len);
    struct upgrade *upgrade = upgrade_new(head, &refusal, &why);

    if (!upgrade) {
        log_write(lane->log, LOG_INFO, "upgrade refused", LOG_TEXT("why", why.text));
        lane_refuse(lane, leave(a), NULL, refusal);
        return;
    }
    struct port *port = lane->draining ? NULL : port_new(lane, upgrade, early);
    int fd = leave(a);
    if (port) {
        port_begin(port, fd);
        return;
    }
    lane_refuse(lane, fd, upgrade, lane->draining ? REFUSAL_draining : REFUSAL_too_many_tunnels);
    free(upgrade);
}

/* HAProxy asks whether there is somebody: what it hands over it marks as such, whatever the client asked for. One that
 * drains is not, so that it asks another relay, if it has one. */
static bool is_health_check(const struct http_head *head)
{
    return slice_is(head->target, "/healthz") && http_count(head, HANDOVER_HEADER) == 0;
}

static void on_head(struct arrival *a, const struct http_head *head)
{
    struct lane *lane = a->lane;

    if (is_health_check(head))
        lane_answer(lane, leave(a),
                       lane->draining
                           ? SLICE_LITERAL("HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\n\r\n")
                           : SLICE_LITERAL("HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n"));
    else
        on_upgrade(a, head);
}

static void on_bytes(struct arrival *a)
{
    struct http_head head;

    switch (http_read(&a->reader, buffer_slice(&a->in), &head)) {
    case HTTP_MORE:
        break;
    case HTTP_DONE:
        on_head(a, &head);
        break;
    default:
        log_write(a->lane->log, LOG_INFO, "upgrade refused", LOG_TEXT("why", a->reader.why));
        lane_refuse(a->lane, leave(a), NULL, REFUSAL_bad_request);
    }
}

static void on_ready(void *owner, int events)
{
    struct arrival *a = owner;
    size_t room;
    uint8_t *to = buffer_room(&a->in, 1, &room);
    (void)events;

    if (!to) { /* a head that is too long was refused before */
        lane_refuse(a->lane, leave(a), NULL, REFUSAL_relay_unavailable);
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
    lane_refuse(((struct arrival *)owner)->lane, leave(owner), NULL, REFUSAL_bad_request);
}

void arrival_begin(struct lane *lane, int fd)
{
    struct arrival *a = calloc(1, sizeof *a);

    /* HAProxy says at once what it wants: who is still waited for among so many is not HAProxy, or has hung */
    if (lane->arrivals_count >= ARRIVALS_MOST) {
        metrics_add(lane->shard, COUNT_CUT_SHORT, METRIC_INDEX(CUT_ARRIVAL), 1);
        close(leave(lane->arrivals));
    }
    if (!a) {
        lane_refuse(lane, fd, NULL, REFUSAL_relay_unavailable);
        return;
    }
    *a = (struct arrival){
        .lane = lane,
        .link = lane->arrivals ? lane->arrivals_last : &lane->arrivals,
        .in = buffer_with_limit(lane->settings.head_size + LEG_FRAME_WHOLE),
        .reader = http_reader_of(HTTP_REQUEST, lane->settings.head_size),
    };
    *a->link = a;
    lane->arrivals_last = &a->next;
    lane->arrivals_count++;
    loop_io_open(&a->io, lane->loop, fd, on_ready, a);
    loop_timer_open(&a->timer, lane->loop, on_time, a);
    loop_timer_set(&a->timer, (double)lane->settings.head_time / 1e6);
    loop_io_want(&a->io, LOOP_READ);
}

void arrivals_end(struct lane *lane)
{
    while (lane->arrivals)
        close(leave(lane->arrivals));
}
