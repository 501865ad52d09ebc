/* SPDX-License-Identifier: MIT */
#include "spoa/relay/io/tunnel_io.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "spoa/relay/io/dial.h"
#include "spoa/relay/io/tunnel_stats.h"

#define EARLY_MAX   (LEG_FRAME_WHOLE + HTTP_HEAD_MAX) /* bytes of a client that does not wait for its 101 */
#define EARLY_LEAST 4096                              /* of them, however short memory is */
#define STOOD_STILL UINT64_C(1000000)                 /* microseconds that a timer is late then */
#define PATIENCE    UINT64_C(1000000)
#define LEFT_MOST   16384 /* bytes for a side that are still sent to it when a tunnel gives way */
#define REPLAY_QUIET  8 /* a replay of which nothing comes for this part of dial_timeout is not waited for */

enum replay_permit {
    PERMIT_NONE,
    PERMIT_TAKEN, /* counted by the limits */
    PERMIT_OVER,  /* it goes on without: others do not wait longer */
};

struct tunnel_io {
    struct tunnel tunnel;
    struct relay_thread *thread;
    struct tunnel_stats stats;
    struct tunnel_io *next, **link;
    struct upgrade *upgrade;
    struct loop_io io[2];
    bool broken[2]; /* found out while sending; told to the tunnel behind its event */
    bool entered;   /* counted by the limits */
    bool accepted;
    bool gone;
    bool gives_way; /* its memory goes to those that wait */
    struct loop_timer timer;
    uint64_t timer_at;      /* when it is to fire */
    uint64_t patient_until; /* it does not before */
    struct loop_task free_task;
    struct buffer early; /* from the client, before its 101 */
    struct dial *dial;
    bool probing;                /* what is dialled is asked about the session first */
    uint64_t dialled_at;
    struct question ask, watch;
    enum replay_permit permit; /* to collect what the worker replays */
    uint64_t permit_since;
};

static void update(struct tunnel_io *p);

/* Who is only told why not takes no place of a sandbox that is not his. */
static struct limits_owner owner_of(const struct handover *h)
{
    if (h->refuse >= 400)
        return (struct limits_owner){.refused = true};
    return (struct limits_owner){.space = h->space, .sandbox = h->sandbox, .org = h->org, .token = h->token};
}

/* ---- what the tunnel asks ---- */
static size_t host_send(void *context, enum side to, const struct slice *runs, size_t count)
{
    struct tunnel_io *p = context;
    struct iovec parts[LEG_RUNS];
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = count};

    for (size_t i = 0; i < count; i++)
        parts[i] = (struct iovec){(void *)runs[i].at, runs[i].len};
    if (p->broken[to])
        return 0;
    ssize_t sent = sendmsg(loop_io_fd(&p->io[to]), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0)
        return (size_t)sent;
    p->broken[to] = errno != EAGAIN && errno != EINTR;
    return 0;
}

static size_t host_may_hold(void *context, bool whole)
{
    struct tunnel_io *p = context;

    if (whole && p->permit == PERMIT_TAKEN && limits_replay_alone(p->thread->limits))
        return SIZE_MAX;
    return limits_room(p->thread->limits, &p->stats.use, tunnel_stats_held(&p->stats), whole);
}

static bool host_permits_replay(void *context)
{
    struct tunnel_io *p = context;
    const struct handover *h = &p->upgrade->handover;

    if (p->permit == PERMIT_NONE && limits_replay_begin(p->thread->limits, h->space, owner_of(h).sandbox)) {
        p->permit = PERMIT_TAKEN;
        p->permit_since = loop_clock();
    }
    return p->permit != PERMIT_NONE;
}

static uint32_t host_random(void *context)
{
    (void)context;
    return arc4random();
}

/* ---- what the tunnel commands ---- */
static void on_dialled(void *owner, enum dial_outcome outcome);

/* The folder of worker_sockets that the target's socket is in; NULL: none. */
static const char *socket_folder(const struct relay_thread_settings *settings, const struct target *target)
{
    for (size_t i = 0; i < NET_FOLDERS_MOST && settings->socket_folders[i][0]; i++)
        if (net_path_beneath(settings->socket_folders[i], target->unix_path))
            return settings->socket_folders[i];
    return NULL;
}

static bool is_allowed(const struct relay_thread_settings *settings, const struct target *target)
{
    if (slice_present(target->unix_path))
        return socket_folder(settings, target) != NULL;
    return !cidr_is_metadata(&target->addr) &&
           cidr_any_contains(settings->networks, settings->networks_count, &target->addr);
}

static struct dial *start_dial(struct tunnel_io *p, const struct target *to, struct slice probe,
                               struct slice query, struct slice fields)
{
    const struct relay_thread_settings *settings = &p->thread->settings;
    struct dial_options options = {
        .loop = p->thread->loop,
        .worker_tls = &settings->worker_tls,
        .timeout = settings->dial_timeout,
        .head_max = settings->head_size,
        .upgrade = p->upgrade,
        .to = to,
        .folder = socket_folder(settings, to),
        .probe = probe,
        .query = query,
        .fields = fields,
        .first = !p->accepted,
        .done = on_dialled,
        .owner = p,
    };
    return dial_new(&options);
}

/* False: *why not. */
static bool begin_dial(struct tunnel_io *p, const struct target *target, struct slice probe,
                       enum dial_outcome *why)
{
    uint8_t memory[2][2048];
    struct writer query = writer_of(memory[0], sizeof memory[0]),
                  fields = writer_of(memory[1], sizeof memory[1]);
    const struct adapter *adapter = p->tunnel.forward.adapter;

    dial_free(p->dial);
    p->dial = NULL;
    p->probing = slice_present(probe);
    p->dialled_at = loop_clock();
    if (adapter->request && !p->probing)
        adapter->request(p->tunnel.forward.adapter_state, &query, &fields);
    *why = DIAL_FORBIDDEN;
    if (!is_allowed(&p->thread->settings, target)) {
        tunnel_stats_problem(&p->stats, "worker refused",
                             slice_present(target->unix_path) ? "its socket is not in worker_sockets"
                                                              : "its address is not in worker_networks");
        return false;
    }
    *why = DIAL_MEMORY;
    p->dial = start_dial(p, target, probe, writer_slice(&query), writer_slice(&fields));
    return p->dial != NULL;
}

static void dial(struct tunnel_io *p)
{
    uint8_t memory[HTTP_HEAD_MAX];
    struct writer probe = writer_of(memory, sizeof memory);
    enum dial_outcome why;

    if (!begin_dial(p, tunnel_target(&p->tunnel), tunnel_probe(&p->tunnel, p->upgrade->target, &probe), &why))
        tunnel_dialled(&p->tunnel, why, 0, NULL, loop_clock());
}

static void hang_up(struct tunnel_io *p)
{
    dial_free(p->dial);
    p->dial = NULL;
}

static void on_worker_ready(void *owner, int events);
static void on_client_ready(void *owner, int events);

static void adopt(struct tunnel_io *p)
{
    p->broken[WORKER] = false;
    if (p->permit == PERMIT_OVER)
        p->permit = PERMIT_NONE;
    p->permit_since = loop_clock();
    loop_io_open(&p->io[WORKER], p->thread->loop, dial_take(p->dial), on_worker_ready, p);
}

static void part(struct tunnel_io *p, struct command *command)
{
    struct send_queue *rest = &command->rest;
    struct loop_io *io = &p->io[command->side];

    buffer_consume(&rest->frames, rest->sent);
    /* others wait for this memory: they do not wait for who does not take it */
    if (p->gives_way && rest->frames.size > LEFT_MOST) {
        tunnel_stats_unconfirmed(&p->stats, command->bytes);
        send_queue_free(rest);
        loop_io_close(io);
        return;
    }
    lingering_close_begin(&p->thread->lingering, loop_io_release(io), &rest->frames, command->bytes);
}

static void ask(struct tunnel_io *p)
{
    p->ask.epoch = p->tunnel.connector.epoch;
    resolver_ask(p->thread->resolver, &p->ask);
}

static void watch(struct tunnel_io *p)
{
    p->watch.epoch = p->tunnel.connector.epoch;
    p->watch.idle = (int64_t)((loop_clock() - p->tunnel.forward.used) / 1000000);
    const struct target *target = tunnel_target(&p->tunnel);
    /* 0.0.0.0, where no worker is: with none known, any is news */
    p->watch.addr = target_known(target) ? target->addr : (struct address){.family = 4};
    resolver_ask(p->thread->resolver, &p->watch);
}

/* The socket is new: it has room for a head, or it is broken. */
static bool send_head(int fd, struct slice head)
{
    for (ssize_t sent; head.len; head = slice_from(head, (size_t)sent))
        if ((sent = send(fd, head.at, head.len, MSG_NOSIGNAL | MSG_DONTWAIT)) <= 0)
            return false;
    return true;
}

static void accept_client(struct tunnel_io *p)
{
    static _Thread_local uint8_t memory[UPGRADE_HEAD_MAX];
    struct writer w = writer_of(memory, sizeof memory);

    p->accepted = true;
    tunnel_stats_opened(&p->stats);
    if (!upgrade_accept(p->upgrade, tunnel_target(&p->tunnel), p->dial ? dial_head(p->dial) : NULL, &w) ||
        !send_head(loop_io_fd(&p->io[CLIENT]), writer_slice(&w)))
        p->broken[CLIENT] = true;
}

static void refuse(struct tunnel_io *p, enum refusal refusal)
{
    static _Thread_local uint8_t memory[2 * UPGRADE_HEAD_MAX + 65536];
    struct writer w = writer_of(memory, sizeof memory);
    int fd = loop_io_release(&p->io[CLIENT]);

    if (refusal != REFUSAL_NONE) {
        relay_thread_refuse(p->thread, fd, p->upgrade, refusal);
        return;
    }
    relay_metrics_refused(p->thread->shard, REFUSAL_NONE);
    upgrade_pass_refusal(p->upgrade, tunnel_target(&p->tunnel), dial_head(p->dial), dial_body(p->dial), &w);
    relay_thread_answer(p->thread, fd, writer_slice(&w));
}

static void carry_out(struct tunnel_io *p, struct command *command)
{
    switch (command->kind) {
    case COMMAND_DIAL:
        dial(p);
        break;
    case COMMAND_HANG_UP:
        hang_up(p);
        break;
    case COMMAND_ADOPT:
        adopt(p);
        tunnel_writable(&p->tunnel, WORKER, loop_clock());
        break;
    case COMMAND_PART:
        part(p, command);
        break;
    case COMMAND_DROP:
        loop_io_close(&p->io[command->side]);
        break;
    case COMMAND_ASK:
        ask(p);
        break;
    case COMMAND_WATCH:
        watch(p);
        break;
    case COMMAND_ACCEPT:
        accept_client(p);
        tunnel_writable(&p->tunnel, CLIENT, loop_clock());
        break;
    case COMMAND_REFUSE:
        refuse(p, command->refusal);
        break;
    case COMMAND_RESUMED:
        tunnel_stats_resumed(&p->stats, command->loss, command->time);
        break;
    case COMMAND_DECLARED:
        tunnel_stats_declared(&p->stats, command->bytes);
        break;
    case COMMAND_UNCONFIRMED:
        tunnel_stats_unconfirmed(&p->stats, command->bytes);
        break;
    }
}

/* Behind every event of the tunnel; what is carried out may be the next one. */
static void obey(struct tunnel_io *p)
{
    for (struct command *next; (next = commands_take(&p->thread->commands));)
        carry_out(p, next);
}

/* ---- reading ---- */
static ssize_t receive(struct tunnel_io *p, enum side from)
{
    struct relay_thread *thread = p->thread;
    struct leg *leg = &p->tunnel.forward.legs[from];
    struct slice partial = buffer_slice(&leg->partial);
    uint8_t *at = thread->scratch + FORWARD_FRONT;
    size_t room = forward_room(&p->tunnel.forward, from);

    ssize_t got = recv(loop_io_fd(&p->io[from]), at + partial.len, room < LEG_PAUSE ? room : LEG_PAUSE, 0);
    if (got <= 0)
        return got;
    if (partial.len)
        memcpy(at, partial.at, partial.len);
    size_t len = partial.len + (size_t)got;
    buffer_consume(&leg->partial, partial.len);
    tunnel_read(&p->tunnel, from, slice_of(at, len), loop_clock());
    obey(p);
    return got;
}

static void on_leg_ready(struct tunnel_io *p, enum side side, int events)
{
    if (events & LOOP_WRITE) {
        tunnel_writable(&p->tunnel, side, loop_clock());
        obey(p);
    }
    if ((events & LOOP_READ) && p->io[side].loop && p->tunnel.forward.legs[side].reading) {
        ssize_t got = receive(p, side);
        if (got == 0)
            /* behind an error that send() was told of there is an end, too */
            tunnel_lost(&p->tunnel, side, p->broken[side] ? LOSS_reset : LOSS_eof, loop_clock());
        else if (got < 0 && errno != EAGAIN && errno != EINTR)
            tunnel_lost(&p->tunnel, side, LOSS_reset, loop_clock());
    }
    update(p);
}

static void on_worker_ready(void *owner, int events)
{
    on_leg_ready(owner, WORKER, events);
}

/* A client that has no 101 yet may already send; that is kept as it is, up to a bound. */
static void read_early(struct tunnel_io *p)
{
    size_t room;
    uint8_t *to = buffer_room(&p->early, 1, &room);
    ssize_t got = to ? recv(loop_io_fd(&p->io[CLIENT]), to, room, 0) : -1;
    bool waits = got < 0 && (!to || errno == EAGAIN || errno == EINTR);

    if (to)
        buffer_commit(&p->early, got > 0 ? (size_t)got : 0);
    if (got <= 0 && !waits)
        tunnel_lost(&p->tunnel, CLIENT, got == 0 ? LOSS_eof : LOSS_reset, loop_clock());
}

static void on_client_ready(void *owner, int events)
{
    struct tunnel_io *p = owner;

    if (p->accepted) {
        on_leg_ready(p, CLIENT, events);
    } else {
        read_early(p);
        update(p);
    }
}

/* Bytes that were received before the tunnel could take them. */
static void feed(struct tunnel_io *p, enum side from, struct slice bytes)
{
    uint8_t *at = p->thread->scratch + FORWARD_FRONT;

    while (bytes.len && p->io[from].loop && p->tunnel.state != TUNNEL_ended) {
        struct leg *leg = &p->tunnel.forward.legs[from];
        struct slice part = slice_sub(bytes, 0, LEG_PAUSE), partial = buffer_slice(&leg->partial);
        size_t len = partial.len + part.len;
        if (partial.len)
            memcpy(at, partial.at, partial.len);
        memcpy(at + partial.len, part.at, part.len);
        buffer_consume(&leg->partial, partial.len);
        bytes = slice_from(bytes, part.len);
        tunnel_read(&p->tunnel, from, slice_of(at, len), loop_clock());
        obey(p);
    }
}

static void feed_early(struct tunnel_io *p)
{
    struct buffer early = p->early;

    p->early = buffer_with_limit(EARLY_MAX);
    feed(p, CLIENT, buffer_slice(&early));
    buffer_free(&early);
}

/* ---- the dial and the agent ---- */
static enum dial_outcome judge_dial(struct tunnel_io *p, enum dial_outcome outcome)
{
    uint64_t took = loop_clock() - p->dialled_at;

    if (outcome == DIAL_OPEN)
        metrics_observe(p->thread->shard, METRIC_DIAL, METRIC_PLAIN, (double)took / 1e6);
    else
        tunnel_stats_problem(&p->stats, "dial failed", dial_why(p->dial));
    return outcome;
}

static enum dial_outcome judge_probe(struct tunnel_io *p, enum dial_outcome outcome)
{
    if (outcome != DIAL_STATUS)
        return outcome == DIAL_OPEN ? DIAL_INVALID : outcome;
    return tunnel_probed(&p->tunnel, dial_status(p->dial), dial_body(p->dial));
}

static void on_dialled(void *owner, enum dial_outcome outcome)
{
    struct tunnel_io *p = owner;

    if (p->probing && (outcome = judge_probe(p, outcome)) == DIAL_OPEN &&
        begin_dial(p, tunnel_target(&p->tunnel), slice_text(NULL), &outcome)) {
        update(p);
        return;
    }
    if (p->dial)
        outcome = judge_dial(p, outcome);
    tunnel_dialled(&p->tunnel, outcome, p->dial ? dial_status(p->dial) : 0,
                   outcome == DIAL_OPEN ? dial_head(p->dial) : NULL, loop_clock());
    obey(p);
    /* both sides may have spoken before the tunnel was there */
    if (p->dial && outcome == DIAL_OPEN)
        feed(p, WORKER, dial_rest(p->dial));
    dial_free(p->dial);
    p->dial = NULL;
    if (p->accepted && buffer_len(&p->early))
        feed_early(p);
    update(p);
}

static void on_answered(void *owner, bool watch, const struct answer *answer)
{
    struct tunnel_io *p = owner;
    tunnel_answered(&p->tunnel, answer, watch, loop_clock());
    update(p);
}

/* ---- after each event ---- */
static bool may_read_early(struct tunnel_io *p)
{
    size_t len = buffer_len(&p->early);
    return len < EARLY_LEAST || (len < EARLY_MAX && host_may_hold(p, false));
}

static void want(struct tunnel_io *p)
{
    for (enum side side = CLIENT; side <= WORKER; side++) {
        const struct leg *leg = &p->tunnel.forward.legs[side];
        bool read = leg->reading;
        if (side == CLIENT && !p->accepted)
            read = may_read_early(p);
        bool write = !send_queue_empty(&leg->out) && !p->broken[side];
        if (p->io[side].loop)
            loop_io_want(&p->io[side], (read ? LOOP_READ : 0) | (write ? LOOP_WRITE : 0));
    }
}

/* When the permit is given back, whether or not the replay has ended. */
static uint64_t permit_until(const struct tunnel_io *p)
{
    uint64_t timeout = p->thread->settings.dial_timeout;
    uint64_t quiet = p->tunnel.forward.legs[WORKER].heard + timeout / REPLAY_QUIET,
             most = p->permit_since + timeout;
    return quiet < most ? quiet : most;
}

/* Moved only when it would fire too late: traffic puts off most of what is due, and the timer then fires for
 * nothing, which is cheaper than to set it for every message. */
static void set_timer(struct tunnel_io *p)
{
    uint64_t due = tunnel_due(&p->tunnel), now;

    if (p->permit == PERMIT_TAKEN && permit_until(p) < due)
        due = permit_until(p);
    if (due < p->patient_until)
        due = p->patient_until;
    if (loop_timer_active(&p->timer) && p->timer_at <= due)
        return;
    if (due == UINT64_MAX) {
        loop_timer_stop(&p->timer);
        return;
    }
    now = loop_clock();
    p->timer_at = due > now ? due : now;
    loop_timer_set(&p->timer, (double)(p->timer_at - now) / 1e6);
}

static void end_permit(struct tunnel_io *p)
{
    const struct handover *h = &p->upgrade->handover;

    if (p->permit == PERMIT_TAKEN)
        limits_replay_end(p->thread->limits, h->space, owner_of(h).sandbox);
    p->permit = PERMIT_OVER;
}

static void release(void *context)
{
    free(context);
}

void tunnel_io_cut(struct tunnel_io *p)
{
    struct relay_thread *thread = p->thread;
    struct limits_owner owner = owner_of(&p->upgrade->handover);

    if (p->gone)
        return;
    p->gone = true;
    if (p->accepted)
        tunnel_stats_ended(&p->stats);
    resolver_drop(thread->resolver, &p->ask);
    resolver_drop(thread->resolver, &p->watch);
    dial_free(p->dial);
    loop_io_close(&p->io[CLIENT]);
    loop_io_close(&p->io[WORKER]);
    loop_timer_close(&p->timer);
    buffer_free(&p->early);
    tunnel_free(&p->tunnel);
    p->stats.opening = 0;
    tunnel_stats_update(&p->stats);
    end_permit(p);
    if (p->entered)
        limits_leave(thread->limits, &owner);
    *p->link = p->next;
    if (p->next)
        p->next->link = p->link;
    thread->tunnels_count--;
    free(p->upgrade);
    p->free_task = (struct loop_task){.run = release, .context = p};
    loop_defer(thread->loop, &p->free_task);
}

/* A side that takes no more may have said something before it went: its last words, its Close. They are read first, a
 * worker's as slowly as its client takes them. Nobody waits for a worker that does not take those of a client. */
static void lose_broken(struct tunnel_io *p, enum side side)
{
    const struct tunnel *t = &p->tunnel;
    ssize_t got = 1;

    if (p->io[side].loop && t->forward.legs[side].reading)
        got = receive(p, side);
    bool waits = t->forward.legs[side].reading || (side == WORKER && t->state < TUNNEL_closing);
    if (p->io[side].loop && got > 0 && waits)
        return;
    if (p->io[side].loop)
        tunnel_lost(&p->tunnel, side, LOSS_reset, loop_clock());
    obey(p);
    p->broken[side] = false;
}

static void update(struct tunnel_io *p)
{
    obey(p);
    for (enum side side = CLIENT; side <= WORKER; side++)
        if (p->broken[side])
            lose_broken(p, side);
    p->stats.opening = p->early.size + dial_held(p->dial);
    tunnel_stats_update(&p->stats);
    if (p->permit == PERMIT_TAKEN && (!forward_needs_permit(&p->tunnel.forward) || loop_clock() >= permit_until(p)))
        end_permit(p);
    if (p->tunnel.state == TUNNEL_ended) {
        tunnel_io_cut(p);
        return;
    }
    want(p);
    set_timer(p);
}

/* What has come meanwhile came in time: it is looked at before anybody is given up. libev tells of timers first. */
static void look_again(struct tunnel_io *p)
{
    if (loop_clock() < tunnel_judges_at(&p->tunnel))
        return;
    resolver_look(p->thread->resolver);
    for (enum side side = CLIENT; side <= WORKER && p->accepted && !p->gone; side++)
        on_leg_ready(p, side, LOOP_READ | LOOP_WRITE);
}

static void on_time(void *owner)
{
    struct tunnel_io *p = owner;
    uint64_t now = loop_clock();

    /* with the machine all others may have stood still, too: they get a moment to say what they would have */
    if (now > p->timer_at + STOOD_STILL) {
        p->patient_until = now + PATIENCE;
        set_timer(p);
        return;
    }
    look_again(p);
    if (p->gone)
        return;
    tunnel_tick(&p->tunnel, loop_clock());
    update(p);
}

/* ---- for the outside ---- */
/* Also one that is closing: its client may take what is left for as long as `stall`. */
static bool may_give_way(const struct tunnel_io *p)
{
    return tunnel_is_open(&p->tunnel) || (p->tunnel.state == TUNNEL_closing && p->stats.use.held > LEFT_MOST);
}

void tunnel_ios_look(struct relay_thread *thread, struct limits_round *round)
{
    for (struct tunnel_io *p = thread->tunnels; p; p = p->next)
        if (may_give_way(p))
            limits_round_look(round, &p->stats.use);
}

void tunnel_ios_give_way(struct relay_thread *thread, struct limits_round *round)
{
    for (struct tunnel_io *p = thread->tunnels, *next; p && round->lacking; p = next) {
        next = p->next;
        if (!may_give_way(p) || !limits_round_takes(thread->limits, round, &p->stats.use))
            continue;
        p->gives_way = true;
        tunnel_io_end(p, CLOSE_held_too_much);
        if (!p->gone && tunnel_stats_held(&p->stats) > LEFT_MOST)
            tunnel_io_end(p, CLOSE_held_too_much); /* its client does not take what is before the Close */
    }
}

static bool enter(struct relay_thread *thread, const struct handover *h)
{
    struct limits_owner owner = owner_of(h);
    enum limit limit = limits_enter(thread->limits, &owner);

    if (limit == LIMIT_NONE)
        return true;
    if (limit == LIMIT_MEMORY)
        return false;
    metrics_add(thread->shard, METRIC_LIMITED, METRIC_INDEX(limit), 1);
    log_write(thread->log, LOG_INFO, "too many tunnels", LOG_TEXT("limit", limit_names[limit]),
              LOG_SLICE("route", h->route), LOG_SLICE("sandbox", h->sandbox), LOG_SLICE("org", h->org),
              LOG_SLICE("sub", h->sub), LOG_SLICE("jti", h->jti));
    return false;
}

struct tunnel_io *tunnel_io_new(struct relay_thread *thread, struct upgrade *upgrade, struct slice early)
{
    const struct handover *h = &upgrade->handover;
    struct tunnel_io *p = calloc(1, sizeof *p);

    if (p)
        p->early = buffer_with_limit(EARLY_MAX);
    if (!p || !buffer_put(&p->early, early) || !enter(thread, h)) {
        if (p)
            buffer_free(&p->early);
        free(p);
        return NULL;
    }
    p->entered = true;
    p->thread = thread;
    p->upgrade = upgrade;
    struct limits_owner owner = owner_of(h);
    p->stats = (struct tunnel_stats){.thread = thread,
                                     .use = limits_use_begin(thread->limits, &owner),
                                     .handover = h,
                                     .tunnel = &p->tunnel,
                                     .id = ++thread->next_id,
                                     .route = relay_metrics_route(thread->metrics, h->route)};
    p->ask = (struct question){.handover = h, .answered = on_answered, .owner = p};
    p->watch = (struct question){.watch = true, .handover = h, .answered = on_answered, .owner = p};
    p->next = thread->tunnels;
    p->link = &thread->tunnels;
    if (p->next)
        p->next->link = &p->next;
    thread->tunnels = p;
    thread->tunnels_count++;
    return p;
}

/* The agent says so too, but no sooner than the watch comes back. */
static uint64_t expiry(const struct handover *h)
{
    const int64_t years = (int64_t)100 * 365 * 86400;
    int64_t left = h->exp < 0 ? years : h->exp - (int64_t)time(NULL);
    return left >= years ? 0 : loop_clock() + (left > 0 ? (uint64_t)left * 1000000 : 0);
}

void tunnel_io_host(struct tunnel_host *host, struct commands *commands)
{
    *host = (struct tunnel_host){host_send, host_may_hold, host_permits_replay, host_random, commands};
}

void tunnel_io_begin(struct tunnel_io *p, int fd)
{
    struct tunnel_opening opening = {{&p->thread->host, p, &p->thread->settings.tunnel},
                                     &p->upgrade->handover,
                                     p->upgrade->target,
                                     p->upgrade->client_resumes,
                                     expiry(&p->upgrade->handover)};

    loop_io_open(&p->io[CLIENT], p->thread->loop, fd, on_client_ready, p);
    loop_timer_open(&p->timer, p->thread->loop, on_time, p);
    if (!tunnel_open(&p->tunnel, &opening, loop_clock()))
        relay_thread_refuse(p->thread, loop_io_release(&p->io[CLIENT]), p->upgrade, REFUSAL_too_many_tunnels);
    obey(p);
    if (p->accepted && buffer_len(&p->early))
        feed_early(p);
    update(p);
}

void tunnel_io_end(struct tunnel_io *p, enum close_reason reason)
{
    tunnel_end(&p->tunnel, reason, loop_clock());
    update(p);
}

struct tunnel_io *tunnel_io_next(const struct tunnel_io *p)
{
    return p->next;
}

bool tunnel_io_is_closing(const struct tunnel_io *p)
{
    return p->tunnel.state >= TUNNEL_closing;
}

struct slice tunnel_io_sandbox(const struct tunnel_io *p)
{
    return p->upgrade->handover.sandbox;
}

const struct tunnel_stats *tunnel_io_stats(const struct tunnel_io *p)
{
    return &p->stats;
}
