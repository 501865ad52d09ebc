/* SPDX-License-Identifier: MIT */
#include "spoa/relay/io/tunnel_io.h"

#include <errno.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "spoa/relay/io/dial.h"
#include "spoa/relay/io/tunnel_io_parts.h"

#define EARLY_MAX    (LEG_FRAME_WHOLE + HTTP_HEAD_MAX) /* bytes of a client that does not wait for its 101 */
#define EARLY_LEAST  4096                              /* of them, however short memory is */
#define STOOD_STILL  SECOND                            /* that a timer is late then */
#define PATIENCE     SECOND
#define LEFT_MOST    16384 /* bytes for a side that are still sent to it when a tunnel gives way */
#define REPLAY_QUIET 8 /* a replay of which nothing comes for this part of dial_timeout is not waited for */

static void update(struct tunnel_io *io);

/* ---- its turn to move ---- */
static const struct answer no_news = {.state = ANSWER_UNAVAILABLE, .epoch = -1};

/* False: it waits for it. */
static bool begin_move(struct tunnel_io *io, const struct answer *answer)
{
    if (!io->moving)
        io->move = moves_begin(&io->thread->moves, io->seat, answer);
    io->moving = !io->move;
    return io->moving;
}

static void end_move(struct tunnel_io *io)
{
    bool moving = io->moving;

    if (io->move)
        moves_drop(&io->thread->moves, io->move);
    io->move = NULL;
    io->moving = false;
    if (moving)
        moves_end(&io->thread->moves);
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

/* Of a destination outside the agent has checked the address by the sandbox's rules. */
static bool is_allowed(const struct relay_thread_settings *settings, const struct target *target,
                       bool outside)
{
    if (slice_present(target->unix_path))
        return !outside && socket_folder(settings, target) != NULL;
    return !cidr_is_metadata(&target->addr) &&
           (outside || cidr_any_contains(settings->networks, settings->networks_count, &target->addr));
}

static const struct net_address *worker_tls(const struct tunnel_io *io)
{
    return io->tunnel.outside ? &io->thread->settings.egress_out : &io->thread->settings.worker_tls;
}

static struct dial *start_dial(struct tunnel_io *io, const struct target *to, struct slice probe,
                               struct slice query, struct slice fields)
{
    const struct relay_thread_settings *settings = &io->thread->settings;
    struct upgrade_kept *upgrade = tunnel_rest_upgrade(io);
    if (!io->upgrade)
        return NULL;
    struct dial_options options = {
        .loop = io->thread->loop,
        .tls = worker_tls(io),
        .timeout = settings->dial_timeout,
        .head_max = settings->head_size,
        .upgrade = upgrade,
        .to = to,
        .ahead = io->ahead && target_same(io->ahead->to, to) ? &io->ahead->fd : NULL,
        .folder = socket_folder(settings, to),
        .probe = probe,
        .query = query,
        .fields = fields,
        .first = !io->accepted,
        .done = on_dialled,
        .owner = io,
    };
    return dial_new(&options);
}

/* False: *why not. */
static bool begin_dial(struct tunnel_io *io, const struct target *target, struct slice probe,
                       enum dial_outcome *why)
{
    uint8_t memory[2][2048];
    struct writer query = writer_of(memory[0], sizeof memory[0]),
                  fields = writer_of(memory[1], sizeof memory[1]);
    const struct adapter *adapter = io->tunnel.forward.adapter;

    dial_free(io->dial);
    io->dial = NULL;
    io->probing = slice_present(probe);
    io->dialled_at = loop_clock();
    if (adapter->request && !io->probing)
        adapter->request(io->tunnel.forward.adapter_state, &query, &fields);
    *why = DIAL_FORBIDDEN;
    if (!is_allowed(&io->thread->settings, target, io->tunnel.outside)) {
        tunnel_stats_problem(tunnel_rest_stats(io), "worker refused",
                             slice_present(target->unix_path) ? "its socket is not in worker_sockets"
                                                              : "its address is not in worker_networks");
        return false;
    }
    *why = DIAL_MEMORY;
    io->dial = start_dial(io, target, probe, writer_slice(&query), writer_slice(&fields));
    if (io->dial)
        dial_hurry(io->dial);
    return io->dial != NULL;
}

static void dial(struct tunnel_io *io)
{
    uint8_t memory[HTTP_HEAD_MAX];
    struct writer probe = writer_of(memory, sizeof memory);
    enum dial_outcome why;

    if (!begin_dial(io, tunnel_target(&io->tunnel),
                    tunnel_probe(&io->tunnel, upgrade_unpack(tunnel_rest_upgrade(io)).target, &probe), &why))
        tunnel_dialled(&io->tunnel, why, 0, NULL, loop_clock());
}

static void hang_up(struct tunnel_io *io)
{
    dial_free(io->dial);
    io->dial = NULL;
}

static void on_worker_ready(void *owner, int events);
static void on_client_ready(void *owner, int events);

static void adopt(struct tunnel_io *io)
{
    io->broken[WORKER] = false;
    if (io->permit == PERMIT_OVER)
        io->permit = PERMIT_NONE;
    io->permit_since = loop_clock();
    loop_io_open(&io->seat->sockets[WORKER], io->thread->loop, dial_take(io->dial), on_worker_ready,
                 io->seat);
}

static void part(struct tunnel_io *io, struct command *command)
{
    struct send_queue *rest = &command->rest;
    struct loop_io *socket = &io->seat->sockets[command->side];

    buffer_consume(&rest->frames, rest->sent);
    /* others wait for this memory: they do not wait for who does not take it */
    if (io->gives_way && rest->frames.size > LEFT_MOST) {
        tunnel_stats_unconfirmed(&io->stats, command->bytes);
        send_queue_free(rest);
        loop_io_close(socket);
        return;
    }
    lingering_close_begin(&io->thread->lingering, loop_io_release(socket), &rest->frames, command->bytes);
}

static const struct question_user question_user;

static void ask(struct tunnel_io *io)
{
    static const struct answer no_memory = {.state = ANSWER_UNAVAILABLE, .epoch = -1};

    if (!io->ask)
        io->ask = calloc(1, sizeof *io->ask);
    if (!io->ask) {
        tunnel_answered(&io->tunnel, &no_memory, false, loop_clock());
        return;
    }
    agent_client_drop(io->thread->agent, io->ask);
    *io->ask = (struct question){.user = &question_user, .owner = io->seat};
    agent_client_ask(io->thread->agent, io->ask);
}

static void drop_ask(struct tunnel_io *io)
{
    if (io->ask)
        agent_client_drop(io->thread->agent, io->ask);
    free(io->ask);
    io->ask = NULL;
}

/* The socket is new: it has room for a head, or it is broken. */
static bool send_head(int fd, struct slice head)
{
    for (ssize_t sent; head.len; head = slice_from(head, (size_t)sent))
        if ((sent = send(fd, head.at, head.len, MSG_NOSIGNAL | MSG_DONTWAIT)) <= 0)
            return false;
    return true;
}

static void accept_client(struct tunnel_io *io)
{
    static _Thread_local uint8_t memory[UPGRADE_HEAD_MAX];
    struct writer w = writer_of(memory, sizeof memory);

    const struct upgrade upgrade = upgrade_unpack(tunnel_rest_upgrade(io));

    io->accepted = true;
    tunnel_stats_opened(tunnel_rest_stats(io));
    if (!upgrade_accept(&upgrade, tunnel_target(&io->tunnel), io->dial ? dial_head(io->dial) : NULL, &w) ||
        !send_head(loop_io_fd(&io->seat->sockets[CLIENT]), writer_slice(&w)))
        io->broken[CLIENT] = true;
}

static void refuse(struct tunnel_io *io, enum refusal refusal)
{
    static _Thread_local uint8_t memory[2 * UPGRADE_HEAD_MAX + 65536];
    struct writer w = writer_of(memory, sizeof memory);
    const struct upgrade upgrade = upgrade_unpack(tunnel_rest_upgrade(io));
    int fd = loop_io_release(&io->seat->sockets[CLIENT]);

    if (refusal != REFUSAL_NONE) {
        relay_thread_refuse(io->thread, fd, &upgrade, refusal);
        return;
    }
    relay_metrics_refused(io->thread->shard, REFUSAL_NONE);
    upgrade_pass_refusal(&upgrade, tunnel_target(&io->tunnel), dial_head(io->dial), dial_body(io->dial), &w);
    relay_thread_answer(io->thread, fd, writer_slice(&w));
}

static void carry_out(struct tunnel_io *io, struct command *command)
{
    switch (command->kind) {
    case COMMAND_DIAL:
        dial(io);
        break;
    case COMMAND_HANG_UP:
        hang_up(io);
        break;
    case COMMAND_ADOPT:
        adopt(io);
        tunnel_writable(&io->tunnel, WORKER, loop_clock());
        break;
    case COMMAND_PART:
        part(io, command);
        break;
    case COMMAND_DROP:
        loop_io_close(&io->seat->sockets[command->side]);
        break;
    case COMMAND_ASK:
        ask(io);
        break;
    case COMMAND_WATCH:
        agent_client_ask(io->thread->agent, &io->seat->watch);
        break;
    case COMMAND_ACCEPT:
        accept_client(io);
        tunnel_writable(&io->tunnel, CLIENT, loop_clock());
        break;
    case COMMAND_REFUSE:
        refuse(io, command->refusal);
        break;
    case COMMAND_RESUMED:
        tunnel_stats_resumed(tunnel_rest_stats(io), command->loss, command->time);
        break;
    case COMMAND_DECLARED:
        tunnel_stats_declared(tunnel_rest_stats(io), command->bytes);
        break;
    case COMMAND_UNCONFIRMED:
        tunnel_stats_unconfirmed(&io->stats, command->bytes);
        break;
    }
}

/* Behind every event of the tunnel; what is carried out may be the next one. */
void tunnel_io_obey(struct tunnel_io *io)
{
    for (struct command *next; (next = commands_take(&io->thread->commands));)
        carry_out(io, next);
}

/* ---- reading ---- */
static void on_leg_ready(struct tunnel_io *io, enum side side, int events)
{
    bool done = false;

    if (events & LOOP_WRITE) {
        tunnel_writable(&io->tunnel, side, loop_clock());
        tunnel_io_obey(io);
    }
    if ((events & LOOP_READ) && io->seat->sockets[side].loop && io->tunnel.forward.legs[side].reading) {
        ssize_t got = tunnel_read_some(io, side, &done);
        if (got == 0)
            /* behind an error that send() has reported there is an end, too */
            tunnel_lost(&io->tunnel, side, io->broken[side] ? LOSS_reset : LOSS_eof, loop_clock());
        else if (got < 0 && !tunnel_read_nothing(got))
            tunnel_lost(&io->tunnel, side, LOSS_reset, loop_clock());
    }
    if (!done || (events & LOOP_WRITE))
        update(io);
}

static void on_worker_ready(void *owner, int events)
{
    struct tunnel_io *io = tunnel_rest_wake(owner);

    if (io)
        on_leg_ready(io, WORKER, events);
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

static void on_client_ready(void *owner, int events)
{
    struct tunnel_io *io = tunnel_rest_wake(owner);

    if (!io)
        return;
    if (io->accepted) {
        on_leg_ready(io, CLIENT, events);
    } else {
        read_early(io);
        update(io);
    }
}

enum { CACHE_LINE = 64, PACKED_LINES = 2 /* most are shorter */ };

static void fetch(const void *at, size_t from, size_t to)
{
    for (size_t i = from; i < to; i += CACHE_LINE)
        __builtin_prefetch((const uint8_t *)at + i);
}

/* What most messages need of it. */
void tunnel_io_soon(const struct loop_io *io)
{
    if (io->ready != on_client_ready && io->ready != on_worker_ready)
        return;
    const struct tunnel_seat *seat = loop_io_owner(io);
    if (seat->rests) {
        fetch(seat->packed, 0, PACKED_LINES * CACHE_LINE);
        return;
    }
    size_t size = seat->thread->rest.kinds[seat->kind].works.size;
    if (size > sizeof(struct tunnel_io)) { /* its adapter looks at all that comes */
        fetch(seat->io, 0, size);
        return;
    }
    fetch(seat->io, 0, offsetof(struct tunnel_io, tunnel.forward.legs[CLIENT].partial));
    fetch(seat->io, offsetof(struct tunnel_io, tunnel.forward.legs[WORKER]),
          offsetof(struct tunnel_io, tunnel.forward.legs[WORKER].partial));
}

/* Bytes that were received before the tunnel could take them. */
static void feed(struct tunnel_io *io, enum side from, struct slice bytes)
{
    uint8_t *at = io->thread->scratch + FORWARD_FRONT;

    while (bytes.len && io->seat->sockets[from].loop && io->tunnel.state != TUNNEL_ended) {
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

static void feed_early(struct tunnel_io *io)
{
    struct buffer early = io->early;

    io->early = buffer_with_limit(EARLY_MAX);
    feed(io, CLIENT, buffer_slice(&early));
    buffer_free(&early);
}

/* ---- the dial and the agent ---- */
static enum dial_outcome judge_dial(struct tunnel_io *io, enum dial_outcome outcome)
{
    uint64_t took = loop_clock() - io->dialled_at;

    if (outcome == DIAL_OPEN)
        metrics_observe(io->thread->shard, METRIC_DIAL, METRIC_PLAIN, (double)took / 1e6);
    else
        tunnel_stats_dial_failed(tunnel_rest_stats(io), dial_why(io->dial));
    return outcome;
}

static enum dial_outcome judge_probe(struct tunnel_io *io, enum dial_outcome outcome)
{
    if (outcome != DIAL_STATUS)
        return outcome == DIAL_OPEN ? DIAL_INVALID : outcome;
    return tunnel_probed(&io->tunnel, dial_status(io->dial), dial_body(io->dial));
}

static void on_dialled(void *owner, enum dial_outcome outcome)
{
    struct tunnel_io *io = owner;

    if (io->probing && (outcome = judge_probe(io, outcome)) == DIAL_OPEN &&
        begin_dial(io, tunnel_target(&io->tunnel), slice_text(NULL), &outcome)) {
        update(io);
        return;
    }
    if (io->dial)
        outcome = judge_dial(io, outcome);
    tunnel_dialled(&io->tunnel, outcome, io->dial ? dial_status(io->dial) : 0,
                   outcome == DIAL_OPEN ? dial_head(io->dial) : NULL, loop_clock());
    tunnel_io_obey(io);
    /* both sides may have spoken before the tunnel was there */
    if (io->dial && outcome == DIAL_OPEN)
        feed(io, WORKER, dial_rest(io->dial));
    dial_free(io->dial);
    io->dial = NULL;
    end_move(io);
    if (io->accepted && buffer_len(&io->early))
        feed_early(io);
    update(io);
}

static void take_answer(struct tunnel_io *io, bool watch, const struct answer *answer)
{
    tunnel_answered(&io->tunnel, answer, watch, loop_clock());
    update(io);
    if (io->moving && !io->dial)
        end_move(io);
}

/* What a tunnel that waits is told otherwise is news: it hears of its move anew. */
static void on_answered(void *owner, bool watch, const struct answer *answer)
{
    struct tunnel_io *io = tunnel_rest_wake(owner);

    if (!io)
        return;
    bool waited = io->move;
    if (!watch)
        drop_ask(io);
    if (waited)
        end_move(io);
    if (watch && tunnel_would_move(&io->tunnel, answer) && !begin_move(io, answer))
        return;
    take_answer(io, watch, answer);
    if (waited && !io->gone)
        take_answer(io, true, &no_news);
}

/* A tunnel that is joined by the new worker while the old one serves needs nothing ahead. It is looked at only: to wake it could
 * end it, and its move with it. */
static int connect_ahead(void *owner, const struct answer *answer)
{
    const struct tunnel_io *io = tunnel_rest_look_at(owner);
    struct fail why;

    if (!tunnel_would_leave(&io->tunnel, answer) ||
        !is_allowed(&io->thread->settings, &answer->target, io->tunnel.outside))
        return -1;
    return dial_connect(&answer->target, worker_tls(io),
                        socket_folder(&io->thread->settings, &answer->target), &why);
}

static void go(void *owner, const struct answer *answer, int fd)
{
    struct tunnel_io *io = tunnel_rest_wake(owner);
    struct ahead ahead = {fd, &answer->target};

    if (io) {
        io->move = NULL;
        io->moving = true;
        io->ahead = &ahead;
        take_answer(io, true, answer);
        io->ahead = NULL;
    }
    if (ahead.fd >= 0)
        close(ahead.fd);
}

const struct moves_user tunnel_io_moves = {connect_ahead, go};

static int32_t idle_seconds(const struct tunnel *t)
{
    uint64_t idle = (loop_clock() - t->forward.used) / SECOND;

    if (t->outside) /* going out keeps no sandbox awake */
        return -1;
    return idle < INT32_MAX ? (int32_t)idle : INT32_MAX;
}

/* Also of a tunnel that rests, which it then still does: the agent may have come back. */
static void say(void *owner, bool watch, struct question_text *to)
{
    union tunnel_memory memory;
    const struct tunnel *t = &tunnel_rest_read(owner, &memory)->tunnel;
    const struct target *target = tunnel_target(t);

    to->handover = upgrade_handover(tunnel_rest_look_at_upgrade(owner));
    to->epoch = watch ? t->connector.watched : t->connector.epoch;
    if (!watch)
        return;
    to->idle = idle_seconds(t);
    /* 0.0.0.0, where no worker is: with none known, any is news */
    to->addr = target_known(target) ? target->addr : (struct address){.family = 4};
}

static const struct question_user question_user = {.say = say, .answered = on_answered};

/* ---- after each event ---- */
static bool may_read_early(struct tunnel_io *io)
{
    size_t len = buffer_len(&io->early);
    return len < EARLY_LEAST || (len < EARLY_MAX && tunnel_io_may_hold(io));
}

static void want(struct tunnel_io *io)
{
    for (enum side side = CLIENT; side <= WORKER; side++) {
        const struct leg *leg = &io->tunnel.forward.legs[side];
        bool read = leg->reading;
        if (side == CLIENT && !io->accepted)
            read = may_read_early(io);
        bool write = !send_queue_empty(&leg->out) && !io->broken[side];
        if (io->seat->sockets[side].loop)
            loop_io_want(&io->seat->sockets[side], (read ? LOOP_READ : 0) | (write ? LOOP_WRITE : 0));
    }
}

/* When the permit is given back, whether or not the replay has ended. */
static uint64_t permit_until(const struct tunnel_io *io)
{
    uint64_t timeout = io->thread->settings.dial_timeout;
    uint64_t quiet = io->tunnel.forward.legs[WORKER].heard + timeout / REPLAY_QUIET,
             most = io->permit_since + timeout;
    return quiet < most ? quiet : most;
}

/* Moved only when it would be too late: traffic puts off most of what is due, and it is then looked at for nothing, which is
 * cheaper than to move it for every message. */
static void set_time(struct tunnel_io *io)
{
    uint64_t due = tunnel_due(&io->tunnel);

    if (io->permit == PERMIT_TAKEN && permit_until(io) < due)
        due = permit_until(io);
    if (due < io->patient_until)
        due = io->patient_until;
    if (tunnel_times_at(io->seat) <= due)
        return;
    uint64_t now = loop_clock();
    tunnel_times_set(io->seat, due > now ? due : now); /* what is over already is not late for that */
}

static void end_permit(struct tunnel_io *io)
{
    if (io->permit == PERMIT_TAKEN) {
        const struct handover h = upgrade_handover(tunnel_rest_upgrade(io));
        limits_replay_end(io->thread->limits, h.space, tunnel_io_owner(&h).sandbox);
    }
    io->permit = PERMIT_OVER;
}

static void leave(struct tunnel_io *io)
{
    const struct handover handover = upgrade_handover(tunnel_rest_upgrade(io));
    const struct limits_owner owner = tunnel_io_owner(&handover);

    limits_leave(io->thread->limits, &owner);
}

static void release(void *context)
{
    struct tunnel_seat *seat = context;
    struct tunnel_rest *rest = &seat->thread->rest;

    tunnel_rest_give(rest, seat->io, seat->kind);
    slabs_give(&rest->seats, seat);
}

void tunnel_io_cut(struct tunnel_seat *seat)
{
    struct relay_thread *thread = seat->thread;
    struct tunnel_io *io = tunnel_rest_wake(seat);
    if (!io || io->gone)
        return;
    io->gone = true;
    if (io->accepted)
        tunnel_stats_ended(tunnel_rest_stats(io));
    drop_ask(io);
    agent_client_drop(thread->agent, &seat->watch);
    end_move(io);
    dial_free(io->dial);
    pipes_give(&thread->pipes, io->pipe);
    loop_io_close(&seat->sockets[CLIENT]);
    loop_io_close(&seat->sockets[WORKER]);
    tunnel_times_set(seat, UINT64_MAX);
    buffer_free(&io->early);
    tunnel_free(&io->tunnel);
    io->stats.opening = 0;
    tunnel_stats_update(&io->stats);
    end_permit(io);
    if (io->entered)
        leave(io);
    *seat->link = seat->next;
    if (seat->next)
        seat->next->link = seat->link;
    thread->tunnels_count--;
    tunnel_rest_free_upgrade(io);
    if (io->link)
        tunnel_rest_leave(io);
    seat->free_task = (struct loop_task){.run = release, .context = seat};
    loop_defer(thread->loop, &seat->free_task);
}

/* A side that takes no more may have said something before it went: its last words, its Close. They are read first, a
 * worker's as slowly as its client takes them. Nobody waits for a worker that does not take those of a client. */
static void lose_broken(struct tunnel_io *io, enum side side)
{
    const struct tunnel *t = &io->tunnel;
    ssize_t got = 1;
    bool done = false;

    if (io->seat->sockets[side].loop && t->forward.legs[side].reading)
        got = tunnel_read_into_memory(io, side, &done);
    bool waits = t->forward.legs[side].reading || (side == WORKER && t->state < TUNNEL_closing);
    if (io->seat->sockets[side].loop && got > 0 && waits)
        return;
    if (io->seat->sockets[side].loop)
        tunnel_lost(&io->tunnel, side, LOSS_reset, loop_clock());
    tunnel_io_obey(io);
    io->broken[side] = false;
}

static void update(struct tunnel_io *io)
{
    tunnel_io_obey(io);
    for (enum side side = CLIENT; side <= WORKER; side++)
        if (io->broken[side])
            lose_broken(io, side);
    tunnel_read_end(io);
    io->stats.opening = io->early.size + dial_held(io->dial);
    tunnel_stats_update(&io->stats);
    if (io->permit == PERMIT_TAKEN &&
        (!forward_needs_permit(&io->tunnel.forward) || loop_clock() >= permit_until(io)))
        end_permit(io);
    if (io->tunnel.state == TUNNEL_ended) {
        tunnel_io_cut(io->seat);
        return;
    }
    want(io);
    set_time(io);
}

/* What has come meanwhile came in time: it is looked at before anybody is given up. libev tells of timers first. */
static void look_again(struct tunnel_io *io)
{
    if (loop_clock() < tunnel_judges_at(&io->tunnel))
        return;
    agent_client_look(io->thread->agent);
    for (enum side side = CLIENT; side <= WORKER && io->accepted && !io->gone; side++)
        on_leg_ready(io, side, LOOP_READ | LOOP_WRITE);
}

void tunnel_io_due(struct tunnel_seat *seat, uint64_t then)
{
    struct tunnel_io *io = tunnel_rest_wake(seat);
    uint64_t now = loop_clock();

    if (!io)
        return;
    /* with the machine all others may have stood still, too: they get a moment to say what they would have */
    if (now > then + STOOD_STILL) {
        io->patient_until = now + PATIENCE;
        set_time(io);
        return;
    }
    look_again(io);
    if (io->gone)
        return;
    tunnel_tick(&io->tunnel, loop_clock());
    update(io);
}

/* ---- for the outside ---- */
/* Also one that is closing: its client may take what is left for as long as `stall`. */
static bool may_give_way(const struct tunnel_io *io)
{
    return tunnel_is_open(&io->tunnel) ||
           (io->tunnel.state == TUNNEL_closing && io->stats.use.held > LEFT_MOST);
}

void tunnel_ios_look(struct relay_thread *thread, struct limits_round *round)
{
    for (const struct tunnel_seat *seat = thread->tunnels; seat; seat = seat->next) {
        if (seat->rests && !seat->holds)
            continue;
        const struct tunnel_io *io = tunnel_rest_look_at(seat);
        if (may_give_way(io))
            limits_round_look(round, &io->stats.use);
    }
}

static void give_way(struct tunnel_io *io)
{
    struct tunnel_seat *seat = io->seat;

    io->gives_way = true;
    tunnel_io_end(seat, CLOSE_held_too_much);
    if (!io->gone && tunnel_stats_held(&io->stats) > LEFT_MOST)
        tunnel_io_end(seat, CLOSE_held_too_much); /* its client does not take what is before the Close */
}

void tunnel_ios_give_way(struct relay_thread *thread, struct limits_round *round)
{
    for (struct tunnel_seat *seat = thread->tunnels, *next; seat && round->lacking; seat = next) {
        next = seat->next;
        if (seat->rests && !seat->holds)
            continue;
        const struct tunnel_io *seen = tunnel_rest_look_at(seat);
        if (!may_give_way(seen) || !limits_round_takes(thread->limits, round, &seen->stats.use))
            continue;
        struct tunnel_io *io = tunnel_rest_wake(seat);
        if (io)
            give_way(io);
    }
}

static bool enter(struct relay_thread *thread, const struct handover *h)
{
    struct limits_owner owner = tunnel_io_owner(h);
    enum limit limit = limits_enter(thread->limits, &owner);

    if (limit == LIMIT_NONE)
        return true;
    if (limit == LIMIT_MEMORY)
        return false;
    metrics_add(thread->shard, METRIC_LIMITED, METRIC_INDEX(limit), 1);
    log_write(thread->log, LOG_INFO, "too many tunnels", LOG_TEXT("limit", limit_names[limit]),
              LOG_U64("at", limits_most(thread->limits, &owner, limit)), LOG_SLICE("id", h->id),
              LOG_SLICE("route", h->route), LOG_SLICE("sandbox", h->sandbox), LOG_SLICE("org", h->org),
              LOG_SLICE("sub", h->sub), LOG_SLICE("jti", h->jti));
    return false;
}

static void set_up(struct tunnel_io *io, struct tunnel_seat *seat, const struct handover *h)
{
    struct relay_thread *thread = seat->thread;
    const struct limits_owner owner = tunnel_io_owner(h);

    io->entered = true;
    io->thread = thread;
    io->stats = (struct tunnel_stats){.thread = thread,
                                      .use = limits_use_begin(thread->limits, &owner),
                                      .id = ++thread->next_id,
                                      .route = relay_metrics_route(thread->metrics, h->route)};
    seat->io = io;
    seat->watch = (struct question){.watch = true, .user = &question_user, .owner = seat};
    seat->next = thread->tunnels;
    seat->link = &thread->tunnels;
    if (seat->next)
        seat->next->link = &seat->next;
    thread->tunnels = seat;
    thread->tunnels_count++;
    tunnel_rest_place(io, seat);
    tunnel_rest_stir(io);
}

static const struct adapter *adapter_of(const struct upgrade *upgrade)
{
    return adapter_find((enum handover_resume)upgrade->handover.resume, upgrade->client_resumes);
}

struct tunnel_seat *tunnel_io_new(struct relay_thread *thread, struct upgrade *upgrade, struct slice early)
{
    struct tunnel_seat *seat = slabs_take(&thread->rest.seats);
    uint8_t kind;
    struct tunnel_io *io = tunnel_rest_take(&thread->rest, adapter_of(upgrade), &kind);
    struct buffer kept_early = buffer_with_limit(EARLY_MAX);
    struct upgrade_kept *kept = upgrade_keep(upgrade);

    bool room = deadlines_reserve(&thread->times.deadlines, thread->tunnels_count + 1);

    if (!seat || !io || !kept || !room || !buffer_put(&kept_early, early) ||
        !enter(thread, &upgrade->handover)) {
        buffer_free(&kept_early);
        free(kept);
        tunnel_rest_give(&thread->rest, io, kind);
        slabs_give(&thread->rest.seats, seat);
        return NULL;
    }
    seat->thread = thread;
    seat->kind = kind;
    io->early = kept_early;
    set_up(io, seat, &upgrade->handover);
    tunnel_rest_keep_upgrade(io, kept);
    free(upgrade);
    return seat;
}

/* The agent says so too, but no sooner than the watch comes back. */
static uint64_t expiry(const struct handover *h)
{
    const int64_t years = (int64_t)100 * 365 * 86400;
    int64_t left = h->exp < 0 ? years : h->exp - (int64_t)time(NULL);
    return left >= years ? 0 : loop_clock() + (left > 0 ? (uint64_t)left * SECOND : 0);
}

void tunnel_io_begin(struct tunnel_seat *seat, int fd)
{
    struct tunnel_io *io = seat->io;
    const struct upgrade upgrade = upgrade_unpack(io->upgrade);
    struct tunnel_opening opening = {{&io->thread->host, io, &io->thread->settings.tunnel},
                                     &upgrade.handover,
                                     upgrade.target,
                                     upgrade.client_resumes,
                                     expiry(&upgrade.handover),
                                     io + 1};

    loop_io_open(&seat->sockets[CLIENT], io->thread->loop, fd, on_client_ready, seat);
    if (!tunnel_open(&io->tunnel, &opening, loop_clock()))
        relay_thread_refuse(io->thread, loop_io_release(&seat->sockets[CLIENT]), &upgrade,
                            REFUSAL_too_many_tunnels);
    tunnel_io_obey(io);
    if (io->accepted && buffer_len(&io->early))
        feed_early(io);
    update(io);
}

void tunnel_io_end(struct tunnel_seat *seat, enum close_reason reason)
{
    struct tunnel_io *io = tunnel_rest_wake(seat);

    if (!io)
        return;
    tunnel_end(&io->tunnel, reason, loop_clock());
    update(io);
}

struct tunnel_seat *tunnel_io_next(const struct tunnel_seat *seat)
{
    return seat->next;
}

bool tunnel_io_is_closing(const struct tunnel_seat *seat)
{
    return !seat->rests && seat->io->tunnel.state >= TUNNEL_closing;
}

struct slice tunnel_io_sandbox(const struct tunnel_seat *seat)
{
    return upgrade_handover(tunnel_rest_look_at_upgrade(seat)).sandbox;
}

const struct tunnel_stats *tunnel_io_stats(const struct tunnel_seat *seat)
{
    struct tunnel_io *io = tunnel_rest_look_at(seat);

    io->stats.upgrade = tunnel_rest_look_at_upgrade(seat);
    return &io->stats;
}
