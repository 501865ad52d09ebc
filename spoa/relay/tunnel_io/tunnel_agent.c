/* SPDX-License-Identifier: MIT */
/* tunnel_agent: the tunnel's questions and subscription at the agent, and its turn when many tunnels move at once. */
#include <assert.h>
#include <stdlib.h>
#include <unistd.h>

#include "spoa/relay/tunnel_io/tunnel_io_parts.h"

/* The agent is away, or there was no memory to ask it. */
static const struct answer no_news = {.state = ANSWER_UNAVAILABLE, .epoch = -1};

/* ---- to ask ---- */
void tunnel_agent_ask(struct tunnel_io *io)
{
    if (!io->ask)
        io->ask = calloc(1, sizeof *io->ask);
    if (!io->ask) {
        tunnel_answered(&io->tunnel, &no_news, false, loop_clock());
        return;
    }
    agent_client_drop(io->thread->agent, io->ask);
    *io->ask = (struct question){.user = &tunnel_agent_user, .owner = io->seat};
    agent_client_ask(io->thread->agent, io->ask);
}

void tunnel_agent_drop_ask(struct tunnel_io *io)
{
    if (io->ask)
        agent_client_drop(io->thread->agent, io->ask);
    free(io->ask);
    io->ask = NULL;
}

static int32_t idle_seconds(const struct tunnel *t)
{
    uint64_t idle = (loop_clock() - t->forward.used) / SECOND;

    if (t->outside) /* an egress tunnel does not keep its sandbox awake */
        return -1;
    return idle < INT32_MAX ? (int32_t)idle : INT32_MAX;
}

/* Fills in the tunnel's question. Does not wake the tunnel, because after a restart of the agent all tunnels are asked at once. */
static void say(void *owner, bool watch, struct question_text *to)
{
    static_assert(QUESTION_TEXTS >= TUNNEL_HEAD_MAX, "an upgrade is read there");
    struct tunnel_visit visit;

    tunnel_visit(owner, &visit, to->memory);
    const struct tunnel *t = visit.stats.tunnel;
    const struct target *target = tunnel_target(t);

    to->handover = upgrade_handover(visit.stats.upgrade);
    to->epoch = watch ? t->connector.watched : t->connector.epoch;
    to->settles = !t->outside;
    if (!watch)
        return;
    to->idle = idle_seconds(t);
    /* A tunnel that knows no worker claims to know 0.0.0.0, which no worker has, so that the agent reports any worker. */
    to->addr = target_known(target) ? target->addr : (struct address){.family = 4};
}

/* ---- the turn to move ---- */
/* Returns false if the tunnel must wait for its turn. */
static bool begin_move(struct tunnel_io *io, const struct answer *answer)
{
    if (!io->moving)
        io->move = moves_begin(&io->thread->moves, io->seat, answer);
    io->moving = !io->move;
    return io->moving;
}

void tunnel_agent_end_move(struct tunnel_io *io)
{
    bool moving = io->moving;

    if (io->move)
        moves_drop(&io->thread->moves, io->move);
    io->move = NULL;
    io->moving = false;
    if (moving)
        moves_end(&io->thread->moves);
}

/* ---- answers ---- */
static void take_answer(struct tunnel_io *io, bool watch, const struct answer *answer)
{
    tunnel_answered(&io->tunnel, answer, watch, loop_clock());
    tunnel_io_update(io);
    if (io->moving && !io->dial)
        tunnel_agent_end_move(io);
}

/* ---- the directory's additions to the ticket ---- */
static struct handover handover_with(struct handover h, const struct answer *answer)
{
    h.ticket = answer->ticket;
    if (slice_present(answer->org)) {
        h.org = answer->org;
        h.org_of_record = 1;
    }
    if (answer->settled)
        h.pending = -1;
    if (answer->own)
        h.port = -1;
    return h;
}

/* Nothing is dialled by an answer before the tunnel counts for the organisation that it names. Under a dial, which uses the
 * upgrade, the answer's ticket is not kept; the watch brings it again. */
static void settle(struct tunnel_io *io, struct answer *answer)
{
    if (!slice_present(answer->ticket) || io->dial)
        return;
    const struct handover before = upgrade_handover(tunnel_rest_upgrade(io)),
                          after = handover_with(before, answer);
    bool named = !slice_present(before.org) && slice_present(after.org);
    struct upgrade_kept *fresh = tunnel_rest_with_handover(io, &after);

    if (!fresh) {
        *answer = no_news;
    } else if (named && !tunnel_limits_name_org(io, &after)) {
        free(fresh);
        answer->refused = REFUSAL_too_many_tunnels;
    } else {
        tunnel_rest_replace_upgrade(io, fresh);
    }
    answer->ticket = answer->org = slice_text(NULL); /* the answer may be kept for longer than its frame */
}

/* Handles an answer. If the answer changes while the tunnel waits for its turn, the tunnel begins to wait again with the new answer. */
static void hear(struct tunnel_io *io, bool watch, const struct answer *told)
{
    struct answer known = *told, *answer = &known;
    bool waited = io->move;

    if (!watch)
        tunnel_agent_drop_ask(io);
    if (waited)
        tunnel_agent_end_move(io);
    settle(io, answer);
    if (watch && tunnel_would_move(&io->tunnel, answer) && !begin_move(io, answer))
        return;
    take_answer(io, watch, answer);
    if (waited && !io->gone)
        take_answer(io, true, &no_news);
}

static void on_answered(void *owner, bool watch, const struct answer *told)
{
    hear(tunnel_work_begin(owner), watch, told);
    tunnel_work_end(owner);
}

const struct question_user tunnel_agent_user = {.say = say, .answered = on_answered};

/* Connects to the next worker ahead, for a tunnel that will leave its worker. A tunnel that overlaps both workers needs no such
 * connection. The tunnel is not woken. */
static int connect_ahead(void *owner, const struct answer *answer)
{
    struct tunnel_visit visit;

    tunnel_visit(owner, &visit, NULL);
    return tunnel_would_leave(visit.stats.tunnel, answer) ? tunnel_connect_ahead(visit.io, &answer->target)
                                                          : -1;
}

static void go(void *owner, const struct answer *answer, int fd)
{
    struct tunnel_io *io = tunnel_work_begin(owner);
    struct ahead ahead = {fd, &answer->target};

    io->move = NULL;
    io->moving = true;
    io->ahead = &ahead;
    take_answer(io, true, answer);
    io->ahead = NULL;
    if (ahead.fd >= 0)
        close(ahead.fd);
    tunnel_work_end(owner);
}

const struct moves_user tunnel_io_moves = {connect_ahead, go};
