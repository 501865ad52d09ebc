/* SPDX-License-Identifier: MIT */
/* tunnel_limits: applies the limits (limits.h) to a tunnel: its owner, its memory, its permit to collect a replay, and its eviction. */
#include "spoa/relay/tunnel_io/tunnel_io_parts.h"

#define REPLAY_QUIET 8 /* a replay that is silent for dial_timeout / REPLAY_QUIET loses its permit */

/* ---- to count ---- */
struct limits_owner tunnel_limits_owner(const struct handover *h)
{
    if (h->refuse >= 400)
        return (struct limits_owner){.refused = true};
    if (slice_present(h->egress))
        return (struct limits_owner){.space = h->space,
                                     .sandbox = h->sandbox,
                                     .org = h->org,
                                     .egress = true,
                                     .inside = true,
                                     .most = h->most > 0 ? (uint64_t)h->most : 0};
    return (struct limits_owner){.space = h->space, .sandbox = h->sandbox, .org = h->org, .token = h->token};
}

static bool has_entered(struct relay_thread *thread, const struct handover *h, const struct limits_owner *of,
                        enum limit limit)
{
    if (limit == LIMIT_NONE)
        return true;
    if (limit == LIMIT_MEMORY)
        return false;
    metrics_add(thread->shard, METRIC_LIMITED, METRIC_INDEX(limit), 1);
    log_write(thread->log, LOG_INFO, "too many tunnels", LOG_TEXT("limit", limit_names[limit]),
              LOG_U64("at", limits_most(thread->limits, of, limit)), LOG_SLICE("id", h->id),
              LOG_SLICE("route", h->route), LOG_SLICE("sandbox", h->sandbox), LOG_SLICE("org", h->org),
              LOG_SLICE("sub", h->sub), LOG_SLICE("jti", h->jti));
    return false;
}

bool tunnel_limits_enter(struct relay_thread *thread, const struct handover *h, bool taken_over)
{
    struct limits_owner owner = tunnel_limits_owner(h);

    owner.kept = taken_over;
    return has_entered(thread, h, &owner, limits_enter(thread->limits, &owner));
}

/* Moves the tunnel to the time share of another owner, unless it has a dial, whose socket uses the present share. */
static void change_share(struct tunnel_io *io, const struct limits_owner *owner)
{
    struct tunnel_seat *seat = io->seat;
    struct loop_share *before = seat->share;

    if (io->dial || io->recheck)
        return;
    seat->share = time_shares_take(&io->thread->shares, owner);
    loop_io_join(&seat->sockets[CLIENT], seat->share);
    loop_io_join(&seat->sockets[WORKER], seat->share);
    time_shares_give(&io->thread->shares, before);
}

bool tunnel_limits_name_org(struct tunnel_io *io, const struct handover *h)
{
    const struct limits_owner owner = tunnel_limits_owner(h);
    bool entered =
        has_entered(io->thread, h, &owner, limits_name_org(io->thread->limits, &owner, &io->stats.use));

    if (entered)
        change_share(io, &owner);
    return entered;
}

void tunnel_limits_leave(struct tunnel_io *io)
{
    const struct handover handover = upgrade_handover(tunnel_rest_upgrade(io));
    const struct limits_owner owner = tunnel_limits_owner(&handover);

    limits_leave(io->thread->limits, &owner);
}

/* ---- memory ---- */
size_t tunnel_limits_room(void *context, bool whole, size_t grows)
{
    const struct tunnel_io *io = context;
    const struct limits *limits = io->thread->limits;
    uint64_t held = tunnel_stats_held(&io->stats);

    if (whole && io->permit == PERMIT_TAKEN && limits_replay_alone(limits))
        return SIZE_MAX;
    return whole ? limits_room_whole(limits, &io->stats.use, held, grows)
                 : limits_room(limits, &io->stats.use, held);
}

bool tunnel_limits_may_hold(struct tunnel_io *io)
{
    return tunnel_limits_room(io, false, 0) > 0;
}

/* Returns true if evicting the tunnel would free memory. A closing tunnel counts, because a slow client may take its output for as long as
 * `stall`. */
static bool may_give_way(const struct tunnel_stats *s)
{
    return tunnel_is_open(s->tunnel) ||
           (s->tunnel->state == TUNNEL_closing && s->use.held > TUNNEL_LEFT_MOST);
}

void tunnel_ios_look(struct relay_thread *thread, struct limits_round *round)
{
    struct tunnel_visit visit;

    for (const struct tunnel_seat *seat = thread->tunnels; seat; seat = seat->next) {
        if (seat->rests && !seat->holds)
            continue;
        tunnel_visit(seat, &visit, NULL);
        if (may_give_way(&visit.stats))
            limits_round_look(round, &visit.stats.use);
    }
}

static void give_way(struct tunnel_seat *seat)
{
    struct tunnel_io *io = tunnel_work_begin(seat);

    io->gives_way = true;
    tunnel_io_end(seat, CLOSE_held_too_much);
    if (!io->gone && tunnel_stats_held(&io->stats) > TUNNEL_LEFT_MOST)
        tunnel_io_end(seat, CLOSE_held_too_much); /* the client does not read the output before the Close */
    tunnel_work_end(seat);
}

void tunnel_ios_give_way(struct relay_thread *thread, struct limits_round *round)
{
    struct tunnel_visit visit;

    for (struct tunnel_seat *seat = thread->tunnels, *next; seat && round->lacking; seat = next) {
        next = seat->next;
        if (seat->rests && !seat->holds)
            continue;
        tunnel_visit(seat, &visit, NULL);
        if (may_give_way(&visit.stats) && limits_round_takes(thread->limits, round, &visit.stats.use))
            give_way(seat);
    }
}

/* ---- replays ---- */
bool tunnel_limits_permit_replay(void *context)
{
    struct tunnel_io *io = context;
    if (io->permit != PERMIT_NONE)
        return true;
    if (limits_replay_begin(io->thread->limits, &io->stats.use)) {
        io->permit = PERMIT_TAKEN;
        io->permit_since = loop_clock();
    }
    return io->permit != PERMIT_NONE;
}

uint64_t tunnel_limits_permit_until(const struct tunnel_io *io)
{
    uint64_t timeout = io->thread->settings.dial_timeout;
    uint64_t quiet = io->tunnel.forward.legs[WORKER].heard + timeout / REPLAY_QUIET,
             most = io->permit_since + timeout;
    return quiet < most ? quiet : most;
}

void tunnel_limits_end_permit(struct tunnel_io *io)
{
    limits_replay_end(io->thread->limits, &io->stats.use);
    io->permit = PERMIT_OVER;
}
