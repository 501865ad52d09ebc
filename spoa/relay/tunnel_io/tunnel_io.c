/* SPDX-License-Identifier: MIT */
#include "spoa/relay/tunnel_io/tunnel_io.h"

#include <errno.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "spoa/base/table/list.h"
#include "spoa/relay/thread/dial.h"
#include "spoa/relay/tunnel_io/recheck_io.h"
#include "spoa/relay/tunnel_io/tunnel_io_parts.h"

#define EARLY_LEAST 4096   /* bytes of early input that are read however short memory is */
#define STOOD_STILL SECOND /* delay of a timer that means that the machine was stopped */
#define PATIENCE    SECOND

/* ---- reading ---- */
static void on_leg_ready(struct tunnel_io *io, enum side side, int events)
{
    bool done = false;

    if (events & LOOP_WRITE) {
        tunnel_writable(&io->tunnel, side, loop_clock());
        tunnel_io_obey(io);
    }
    if ((events & LOOP_READ) && io->seat->sockets[side].share && io->tunnel.forward.legs[side].reading) {
        ssize_t got = tunnel_read_some(io, side, &done);
        if (got == 0)
            /* The end of input after an error of send() is a reset, too. */
            tunnel_lost(&io->tunnel, side, io->broken[side] ? LOSS_reset : LOSS_eof, loop_clock());
        else if (got < 0 && !tunnel_read_nothing(got))
            tunnel_lost(&io->tunnel, side, LOSS_reset, loop_clock());
    }
    if (!done || (events & LOOP_WRITE) || tunnel_read_left(io, side))
        tunnel_io_update(io);
}

void tunnel_io_worker_ready(void *owner, int events)
{
    on_leg_ready(tunnel_work_begin(owner), WORKER, events);
    tunnel_work_end(owner);
}

/* A client that has no 101 yet may already send; that is kept as it is, up to a bound. */
static void read_early(struct tunnel_io *io)
{
    size_t room;
    uint8_t *to = buffer_room(&io->early, 1, &room);
    ssize_t got = to ? recv(loop_io_fd(&io->seat->sockets[CLIENT]), to, room, 0) : -1;
    bool waits = got < 0 && (!to || errno == EAGAIN || errno == EINTR);

    if (to)
        buffer_commit(&io->early, got > 0 ? (size_t)got : 0);
    if (got <= 0 && !waits)
        tunnel_lost(&io->tunnel, CLIENT, got == 0 ? LOSS_eof : LOSS_reset, loop_clock());
}

void tunnel_io_client_ready(void *owner, int events)
{
    struct tunnel_io *io = tunnel_work_begin(owner);

    if (io->accepted) {
        on_leg_ready(io, CLIENT, events);
    } else {
        read_early(io);
        tunnel_io_update(io);
    }
    tunnel_work_end(owner);
}

enum { CACHE_LINE = 64, IMAGE_LINES = 3 /* most of a work are shorter */ };

static void fetch(const void *at, size_t from, size_t to)
{
    for (size_t i = from; i < to; i += CACHE_LINE)
        __builtin_prefetch((const uint8_t *)at + i);
}

/* Prefetches the memory that most messages need. */
void tunnel_io_soon(const struct loop_io *io)
{
    if (io->ready != tunnel_io_client_ready && io->ready != tunnel_io_worker_ready)
        return;
    const struct tunnel_seat *seat = loop_io_owner(io);
    if (seat->rests) {
        fetch(seat->image, 0, IMAGE_LINES * CACHE_LINE);
        return;
    }
    size_t size = seat->thread->rest.kinds[seat->kind].works.size;
    if (size > sizeof(struct tunnel_io)) { /* an adapter with state reads all input */
        fetch(seat->io, 0, size);
        return;
    }
    fetch(seat->io, 0, offsetof(struct tunnel_io, tunnel.forward.legs[CLIENT].partial));
    fetch(seat->io, offsetof(struct tunnel_io, tunnel.forward.legs[WORKER]),
          offsetof(struct tunnel_io, tunnel.forward.legs[WORKER].partial));
}

void tunnel_io_feed(struct tunnel_io *io, enum side from, struct slice bytes)
{
    uint8_t *at = io->thread->scratch + FORWARD_FRONT;

    while (bytes.len && io->seat->sockets[from].share && io->tunnel.state != TUNNEL_ended) {
        struct leg *leg = &io->tunnel.forward.legs[from];
        struct slice part = slice_sub(bytes, 0, LEG_PAUSE), partial = buffer_slice(&leg->partial);
        size_t len = partial.len + part.len;
        if (partial.len)
            memcpy(at, partial.at, partial.len);
        memcpy(at + partial.len, part.at, part.len);
        buffer_consume(&leg->partial, partial.len);
        bytes = slice_from(bytes, part.len);
        tunnel_read(&io->tunnel, from, slice_of(at, len), loop_clock());
        tunnel_io_obey(io);
    }
}

void tunnel_io_feed_early(struct tunnel_io *io)
{
    struct buffer early = io->early;

    if (!io->accepted || !buffer_len(&early))
        return;
    io->early = buffer_with_limit(EARLY_MAX);
    tunnel_io_feed(io, CLIENT, buffer_slice(&early));
    buffer_free(&early);
}

/* ---- after each event ---- */
static bool may_read_early(struct tunnel_io *io)
{
    size_t len = buffer_len(&io->early);
    return len < EARLY_LEAST || (len < EARLY_MAX && tunnel_limits_may_hold(io));
}

static void want(struct tunnel_io *io)
{
    for (enum side side = CLIENT; side <= WORKER; side++) {
        const struct leg *leg = &io->tunnel.forward.legs[side];
        bool read = leg->reading;
        if (side == CLIENT && !io->accepted)
            read = may_read_early(io);
        bool write = !send_queue_empty(&leg->out) && !io->broken[side];
        if (io->seat->sockets[side].share)
            loop_io_want(&io->seat->sockets[side], (read ? LOOP_READ : 0) | (write ? LOOP_WRITE : 0));
        if (read && tunnel_read_left(io, side))
            loop_io_again(&io->seat->sockets[side], LOOP_READ);
    }
}

static uint64_t earlier(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* Sets the tunnel's deadline, but only to an earlier time: traffic postpones most deadlines, and a needless look at the old time is cheaper
 * than a change for every message. */
static void set_time(struct tunnel_io *io)
{
    uint64_t due = tunnel_due(&io->tunnel);

    if (io->permit == PERMIT_TAKEN && tunnel_limits_permit_until(io) < due)
        due = tunnel_limits_permit_until(io);
    if (due < io->patient_until)
        due = earlier(io->patient_until, tunnel_limits_due(&io->tunnel));
    if (tunnel_times_at(io->seat) <= due)
        return;
    uint64_t now = loop_clock();
    tunnel_times_set(io->seat, due > now ? due : now); /* a time in the past would make the timer look late */
}

static void release(void *context)
{
    struct tunnel_seat *seat = context;
    struct tunnel_rest *rest = &seat->thread->rest;

    tunnel_rest_give(rest, seat->io, seat->kind);
    time_shares_give(&seat->thread->shares, seat->share);
    slabs_give(&rest->seats, seat);
}

static void cut(struct tunnel_io *io)
{
    struct tunnel_seat *seat = io->seat;
    struct relay_thread *thread = seat->thread;

    io->gone = true;
    if (io->accepted)
        tunnel_stats_ended(tunnel_rest_stats(io));
    tunnel_agent_drop_ask(io);
    agent_client_drop(thread->agent, &seat->watch);
    tunnel_agent_end_move(io);
    dial_free(io->dial);
    recheck_io_end(io);
    pipes_give(&thread->pipes, io->pipe);
    loop_io_close(&seat->sockets[CLIENT]);
    loop_io_close(&seat->sockets[WORKER]);
    tunnel_times_set(seat, UINT64_MAX);
    buffer_free(&io->early);
    tunnel_read_forget(io, CLIENT);
    tunnel_read_forget(io, WORKER);
    tunnel_free(&io->tunnel);
    io->stats.opening = 0;
    tunnel_stats_update(&io->stats);
    tunnel_limits_end_permit(io);
    limits_use_end(thread->limits, &io->stats.use);
    if (io->entered)
        tunnel_limits_leave(io);
    LIST_UNLINK(seat);
    thread->tunnels_count--;
    tunnel_rest_free_upgrade(io);
    if (io->link)
        tunnel_rest_leave(io);
    seat->free_task = (struct loop_task){.run = release, .context = seat};
    loop_defer(thread->loop, &seat->free_task);
}

void tunnel_io_cut(struct tunnel_seat *seat)
{
    struct tunnel_io *io = tunnel_work_begin(seat);

    if (!io->gone)
        cut(io);
    tunnel_work_end(seat);
}

/* Handles a side to which sending has failed. Its last input, such as a Close, is read first: a worker's as fast as the client takes it. The
 * tunnel does not wait for a worker that takes no more input of a client. */
static void lose_broken(struct tunnel_io *io, enum side side)
{
    const struct tunnel *t = &io->tunnel;
    ssize_t got = 1;
    bool done = false;

    if (io->seat->sockets[side].share && t->forward.legs[side].reading)
        got = tunnel_read_into_memory(io, side, &done);
    bool waits = t->forward.legs[side].reading || (side == WORKER && t->state < TUNNEL_closing);
    if (io->seat->sockets[side].share && got > 0 && waits)
        return;
    if (io->seat->sockets[side].share)
        tunnel_lost(&io->tunnel, side, LOSS_reset, loop_clock());
    tunnel_io_obey(io);
    io->broken[side] = false;
}

void tunnel_io_update(struct tunnel_io *io)
{
    tunnel_io_obey(io);
    for (enum side side = CLIENT; side <= WORKER; side++)
        if (io->broken[side])
            lose_broken(io, side);
    tunnel_read_end(io);
    io->stats.opening = io->early.size + io->left[CLIENT].size + io->left[WORKER].size + dial_held(io->dial) +
                        recheck_io_held(io->recheck);
    tunnel_stats_update(&io->stats);
    if (io->permit == PERMIT_TAKEN &&
        (!forward_needs_permit(&io->tunnel.forward) || loop_clock() >= tunnel_limits_permit_until(io)))
        tunnel_limits_end_permit(io);
    if (io->tunnel.state == TUNNEL_ended) {
        tunnel_io_cut(io->seat);
        return;
    }
    want(io);
    set_time(io);
}

/* Reads pending input before a peer is judged by its silence: libev reports timers before descriptors, so input that arrived in time may not
 * have been read yet. */
static void look_again(struct tunnel_io *io)
{
    if (loop_clock() < tunnel_judges_at(&io->tunnel))
        return;
    agent_client_look(io->thread->agent);
    for (enum side side = CLIENT; side <= WORKER && io->accepted && !io->gone; side++)
        on_leg_ready(io, side, LOOP_READ | LOOP_WRITE);
}

static void on_due(struct tunnel_io *io, uint64_t then)
{
    uint64_t now = loop_clock();

    /* If the machine was stopped, peers on it were, too, so silent peers get a moment. A token's expiry is not postponed: otherwise a client
     * could stay by making this thread late. */
    if (now > then + STOOD_STILL)
        io->patient_until = now + PATIENCE;
    tunnel_end_expired(&io->tunnel, now);
    look_again(io);
    if (io->gone)
        return;
    now = loop_clock();
    if (now < io->patient_until)
        tunnel_end_idle(&io->tunnel, now);
    else
        tunnel_tick(&io->tunnel, now);
    tunnel_io_update(io);
}

void tunnel_io_due(struct tunnel_seat *seat, uint64_t then)
{
    on_due(tunnel_work_begin(seat), then);
    tunnel_work_end(seat);
}

/* ---- the beginning and the end ---- */
static void set_up(struct tunnel_io *io, struct tunnel_seat *seat, const struct handover *h)
{
    struct relay_thread *thread = seat->thread;
    const struct limits_owner owner = tunnel_limits_owner(h);

    io->entered = true;
    io->left[CLIENT] = io->left[WORKER] =
        buffer_with_limit(BUFFER_LIMIT_MAX); /* bounded by one read, or by one splice */
    seat->share = time_shares_take(&thread->shares, &owner);
    io->stats = (struct tunnel_stats){.use = limits_use_begin(thread->limits, &owner),
                                      .id = ++thread->next_id,
                                      .route = relay_metrics_route(thread->metrics, h->route)};
    seat->io = io;
    seat->watch = (struct question){.watch = true, .user = &tunnel_agent_user, .owner = seat};
    LIST_PUSH(thread->tunnels, seat);
    thread->tunnels_count++;
    tunnel_rest_place(io, seat);
    tunnel_rest_stir(io);
}

static const struct adapter *adapter_of(const struct upgrade *upgrade)
{
    return adapter_find((enum handover_resume)upgrade->handover.resume, upgrade->client_resumes);
}

struct tunnel_seat *tunnel_io_of(struct relay_thread *thread, const struct upgrade *upgrade,
                                 struct upgrade_kept *kept, struct slice early, bool taken_over)
{
    struct tunnel_seat *seat = slabs_take(&thread->rest.seats);
    uint8_t kind;
    struct tunnel_io *io = tunnel_rest_take(&thread->rest, adapter_of(upgrade), &kind);
    struct buffer kept_early = buffer_with_limit(EARLY_MAX);

    bool room = deadlines_reserve(&thread->times.deadlines, thread->tunnels_count + 1);

    if (!seat || !io || !kept || !room || !buffer_put(&kept_early, early) ||
        !tunnel_limits_enter(thread, &upgrade->handover, taken_over)) {
        buffer_free(&kept_early);
        tunnel_rest_give(&thread->rest, io, kind);
        slabs_give(&thread->rest.seats, seat);
        return NULL;
    }
    seat->thread = thread;
    seat->kind = kind;
    io->early = kept_early;
    set_up(io, seat, &upgrade->handover);
    tunnel_rest_keep_upgrade(io, kept);
    return seat;
}

struct tunnel_seat *tunnel_io_new(struct relay_thread *thread, struct upgrade *upgrade, struct slice early)
{
    struct upgrade_kept *kept = upgrade_keep(upgrade);
    struct tunnel_seat *seat = tunnel_io_of(thread, upgrade, kept, early, false);

    free(seat ? (void *)upgrade : kept);
    return seat;
}

/* The relay keeps this time itself, because the agent only reports an expiry when the subscription's answer is due. */
uint64_t tunnel_io_expiry(const struct handover *h)
{
    const int64_t years = (int64_t)100 * 365 * 86400;
    int64_t left = h->exp < 0 ? years : h->exp - (int64_t)time(NULL);
    return left >= years ? 0 : loop_clock() + (left > 0 ? (uint64_t)left * SECOND : 0);
}

void tunnel_io_begin(struct tunnel_seat *seat, int fd)
{
    struct tunnel_io *io = tunnel_work_begin(seat);
    const struct upgrade upgrade = upgrade_unpack(io->upgrade);
    struct tunnel_opening opening = {{&io->thread->host, io, &io->thread->settings.tunnel},
                                     &upgrade.handover,
                                     upgrade.target,
                                     upgrade.client_resumes,
                                     tunnel_io_expiry(&upgrade.handover),
                                     io + 1};

    loop_io_open(&seat->sockets[CLIENT], io->thread->loop, fd, tunnel_io_client_ready, seat);
    loop_io_join(&seat->sockets[CLIENT], seat->share);
    if (!tunnel_open(&io->tunnel, &opening, loop_clock()))
        relay_thread_refuse(io->thread, loop_io_release(&seat->sockets[CLIENT]), &upgrade,
                            REFUSAL_too_many_tunnels);
    tunnel_io_obey(io);
    tunnel_io_feed_early(io);
    tunnel_io_update(io);
    tunnel_work_end(seat);
}

void tunnel_io_end(struct tunnel_seat *seat, enum close_reason reason)
{
    struct tunnel_io *io = tunnel_work_begin(seat);

    tunnel_end(&io->tunnel, reason, loop_clock());
    tunnel_io_update(io);
    tunnel_work_end(seat);
}

struct tunnel_seat *tunnel_io_next(const struct tunnel_seat *seat)
{
    return seat->next;
}

bool tunnel_io_is_closing(const struct tunnel_seat *seat)
{
    return !seat->rests && seat->io->tunnel.state >= TUNNEL_closing;
}
