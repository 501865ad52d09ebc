/* SPDX-License-Identifier: MIT */
/* tunnel_commands: carries out the commands of a tunnel (command.h). */
#include <assert.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "spoa/relay/thread/dial.h"
#include "spoa/relay/tunnel_io/recheck_io.h"
#include "spoa/relay/tunnel_io/tunnel_io_parts.h"

/* ---- to dial ---- */
static void on_dialled(void *owner, enum dial_outcome outcome);

/* Returns the folder of worker_sockets that has the target's socket, or NULL. */
static const char *socket_folder(const struct relay_thread_settings *settings, const struct target *target)
{
    for (size_t i = 0; i < NET_FOLDERS_MAX && settings->socket_folders[i][0]; i++)
        if (net_path_beneath(settings->socket_folders[i], target->unix_path))
            return settings->socket_folders[i];
    return NULL;
}

/* Returns true if the relay may dial the target: a worker in the configured networks or folders, or an outside destination, whose address
 * the agent has checked by the sandbox's rules. */
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

/* Returns the options that all dials of a tunnel share. The tunnel's upgrade must be in memory (tunnel_rest_upgrade). */
static struct dial_options dial_options(struct tunnel_io *io, const struct target *to)
{
    const struct relay_thread_settings *settings = &io->thread->settings;

    return (struct dial_options){.loop = io->thread->loop,
                                 .share = io->seat->share,
                                 .tls = worker_tls(io),
                                 .timeout = settings->dial_timeout,
                                 .head_max = settings->head_size,
                                 .upgrade = io->upgrade,
                                 .to = to,
                                 .folder = socket_folder(settings, to),
                                 .first = !io->accepted};
}

static struct dial *start_dial(struct tunnel_io *io, const struct target *to, struct slice probe,
                               struct slice query, struct slice fields)
{
    tunnel_rest_upgrade(io);
    if (!io->upgrade)
        return NULL;
    struct dial_options options = dial_options(io, to);
    options.ahead = io->ahead && target_same(io->ahead->to, to) ? &io->ahead->fd : NULL;
    options.probe = probe;
    options.query = query;
    options.fields = fields;
    options.done = on_dialled;
    options.owner = io;
    return dial_new(&options);
}

struct dial *tunnel_dial_beside(struct tunnel_io *io, const struct target *to, tunnel_dial_done *done,
                                void *owner)
{
    tunnel_rest_upgrade(io);
    if (!io->upgrade || !is_allowed(&io->thread->settings, to, io->tunnel.outside))
        return NULL;
    struct dial_options options = dial_options(io, to);
    options.done = done;
    options.owner = owner;
    return dial_new(&options);
}

/* Returns false, and sets *why, if the dial cannot begin. */
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

static void take_outcome(struct tunnel_io *io, enum dial_outcome outcome)
{
    if (io->probing && (outcome = judge_probe(io, outcome)) == DIAL_OPEN &&
        begin_dial(io, tunnel_target(&io->tunnel), slice_text(NULL), &outcome)) {
        tunnel_io_update(io);
        return;
    }
    if (io->dial)
        outcome = judge_dial(io, outcome);
    tunnel_dialled(&io->tunnel, outcome, io->dial ? dial_status(io->dial) : 0,
                   outcome == DIAL_OPEN ? dial_head(io->dial) : NULL, loop_clock());
    tunnel_io_obey(io);
    /* both sides may have spoken before the tunnel was there */
    if (io->dial && outcome == DIAL_OPEN)
        tunnel_io_feed(io, WORKER, dial_rest(io->dial));
    dial_free(io->dial);
    io->dial = NULL;
    tunnel_agent_end_move(io);
    tunnel_io_feed_early(io);
    tunnel_io_update(io);
}

static void on_dialled(void *owner, enum dial_outcome outcome)
{
    struct tunnel_seat *seat = ((struct tunnel_io *)owner)->seat;

    take_outcome(tunnel_work_begin(seat), outcome);
    tunnel_work_end(seat);
}

int tunnel_connect_ahead(const struct tunnel_io *io, const struct target *to)
{
    const struct relay_thread_settings *settings = &io->thread->settings;
    struct fail why;

    if (!is_allowed(settings, to, io->tunnel.outside))
        return -1;
    return dial_connect(to, worker_tls(io), socket_folder(settings, to), &why);
}

/* ---- to take over a socket, and to part with it ---- */
static void adopt(struct tunnel_io *io)
{
    io->broken[WORKER] = false;
    tunnel_read_forget(io, WORKER);
    if (io->permit == PERMIT_OVER)
        io->permit = PERMIT_NONE;
    io->permit_since = loop_clock();
    loop_io_open(&io->seat->sockets[WORKER], io->thread->loop, dial_take(io->dial), tunnel_io_worker_ready,
                 io->seat);
    loop_io_join(&io->seat->sockets[WORKER], io->seat->share);
}

static void part(struct tunnel_io *io, struct command *command)
{
    struct send_queue *rest = &command->rest;
    struct loop_io *socket = &io->seat->sockets[command->side];

    tunnel_read_forget(io, command->side);
    buffer_consume(&rest->frames, rest->sent);
    /* An evicted tunnel keeps little output for a slow peer, because others wait for its memory. */
    if (io->gives_way && rest->frames.size > TUNNEL_LEFT_MOST) {
        tunnel_stats_unconfirmed(&io->stats, command->bytes);
        send_queue_free(rest);
        loop_io_close(socket);
        return;
    }
    lingering_close_begin(&io->thread->lingering, loop_io_release(socket), &rest->frames, command->announced,
                          command->bytes);
}

/* ---- to answer the client ---- */
/* Sends a head at once. A new socket has room for it, so a failure means that the connection is broken. */
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

/* ---- all of them ---- */
static void carry_out(struct tunnel_io *io, struct command *command)
{
    switch (command->kind) {
    case COMMAND_DIAL:
        dial(io);
        break;
    case COMMAND_HANG_UP:
        hang_up(io);
        break;
    case COMMAND_RECHECK:
        recheck_io_begin(io);
        break;
    case COMMAND_RECHECK_END:
        recheck_io_end(io);
        break;
    case COMMAND_ADOPT:
        adopt(io);
        tunnel_writable(&io->tunnel, WORKER, loop_clock());
        break;
    case COMMAND_PART:
        part(io, command);
        break;
    case COMMAND_DROP:
        tunnel_read_forget(io, command->side);
        loop_io_close(&io->seat->sockets[command->side]);
        break;
    case COMMAND_ASK:
        tunnel_agent_ask(io);
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

/* Call after every event of the tunnel. A command's execution may be another event, and add commands. */
void tunnel_io_obey(struct tunnel_io *io)
{
    assert(tunnel_is_at_work(io->seat));
    for (struct command *next; (next = commands_take(&io->thread->commands));)
        carry_out(io, next);
}
