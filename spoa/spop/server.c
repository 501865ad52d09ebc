/* SPDX-License-Identifier: MIT */
#include "spoa/spop/server.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "spoa/net/net.h"
#include "spoa/spop/server_parts.h"

/* Connections that one turn of the loop accepts. Threads share the listener, and a burst should reach all of them. */
#define ACCEPTS_A_TURN 4

/* ---- accepting ---- */
static void count_pause(void *owner)
{
    server_add(&((struct server *)owner)->counters.accept_pauses, 1);
}

/* Returns true if the peer's process has per_process connections already: one client process must not take the places of all others.
 * Sets *pid, to 0 if it is not known. */
static bool has_too_many(const struct server *server, int fd, pid_t *pid)
{
    struct net_peer peer;
    size_t others = 0;
    *pid = 0;
    if (!server->options.per_process || !net_peer(fd, &peer))
        return false;
    *pid = peer.pid;
    for (size_t i = 0; i < server->options.connections; i++)
        others += server->slots[i].connection && server->slots[i].connection->peer == peer.pid;
    return others >= server->options.per_process;
}

static void admit(void *owner, int fd)
{
    struct server *server = owner;
    pid_t peer;
    uint32_t slot = server->free_slot;
    if ((server->handler.admit && !server->handler.admit(server->handler.context, fd)) ||
        has_too_many(server, fd, &peer)) {
        server_add(&server->counters.refused_peers, 1);
        listener_gone(&server->listener);
        close(fd);
        return;
    }
    struct connection *connection = connection_new(server, slot, fd);
    if (!connection) {
        server_add(&server->counters.errors_resource, 1);
        listener_gone(&server->listener);
        return;
    }
    server->free_slot = server->slots[slot].next_free;
    server->slots[slot].connection = connection;
    connection->peer = peer;
    server_add(&server->counters.connections, 1);
    server_add(&server->counters.accepted, 1);
    /* accepting continues when one is closed */
    if (server->counters.connections >= server->options.connections) {
        listener_hold(&server->listener, true);
        count_pause(server);
    }
}

void server_forget(struct server *server, uint32_t index)
{
    struct slot *slot = &server->slots[index];
    if (server->handler.closed)
        server->handler.closed(server->handler.context, index, slot->generation);
    slot->connection = NULL;
    slot->generation++;
    slot->next_free = server->free_slot;
    server->free_slot = index;
    server_add(&server->counters.connections, -(uint64_t)1);
    if (server->counters.connections == 0 && server->draining)
        loop_defer(server->loop, &server->drained_task);
    listener_gone(&server->listener);
    listener_hold(&server->listener, false);
}

/* ---- tickets ---- */
/* Returns the ticket's connection if it is open and owes an answer, else NULL. */
static struct connection *find_connection(const struct server *server, const struct server_ticket *ticket)
{
    if (ticket->slot >= server->options.connections ||
        server->slots[ticket->slot].generation != ticket->generation)
        return NULL;
    struct connection *connection = server->slots[ticket->slot].connection;
    return connection && connection->waiting ? connection : NULL;
}

bool server_has_room(const struct server *server, const struct server_ticket *ticket)
{
    const struct connection *connection = find_connection(server, ticket);
    return !connection || buffer_len(&connection->stream.out) < server->options.output;
}

static struct spop_frame frame_of(const struct server_ticket *ticket)
{
    return (struct spop_frame){.stream_id = ticket->stream_id, .frame_id = ticket->frame_id};
}

bool server_answer_begin(struct server *server, const struct server_ticket *ticket,
                         struct spop_actions *actions)
{
    struct connection *connection = find_connection(server, ticket);
    if (!connection)
        return false;
    size_t room;
    uint8_t *memory =
        buffer_room(&connection->stream.out, SPOP_LENGTH_BYTES + connection->conversation.agreed, &room);
    if (!memory) {
        server_add(&server->counters.errors_resource, 1);
        connection_close(connection);
        return false;
    }
    struct spop_frame frame = frame_of(ticket);
    server->answering = connection;
    server->answer = writer_of(memory, room);
    server->answer_at = connection_ack_begin(connection, &server->answer, &frame, actions);
    return true;
}

void server_answer_end(struct server *server, const struct server_ticket *ticket,
                       struct spop_actions *actions)
{
    struct connection *connection = server->answering;
    struct spop_frame frame = frame_of(ticket);
    connection_ack_end(connection, server->answer_at, &frame, actions);
    buffer_commit(&connection->stream.out, server->answer.len);
    connection->unsent += server->answer.len;
    connection->waiting--;
    server_add(&server->counters.waiting, -(uint64_t)1);
    connection_send_later(connection);
}

/* ---- draining ---- */
static void drain_all(struct server *server, bool now)
{
    for (size_t i = 0; i < server->options.connections; i++)
        if (server->slots[i].connection)
            connection_drain(server->slots[i].connection, now);
}

static void on_grace(void *owner)
{
    drain_all(owner, true);
}

static void on_drained(void *owner)
{
    struct server *server = owner;
    loop_timer_close(&server->grace);
    if (server->drained)
        server->drained(server->drained_context);
}

void server_drain(struct server *server, uint64_t grace, void (*drained)(void *context), void *context)
{
    if (server->draining)
        return;
    server->draining = true;
    server->drained = drained;
    server->drained_context = context;
    listener_close(&server->listener);
    loop_timer_set(&server->grace, grace);
    if (server->counters.connections == 0)
        loop_defer(server->loop, &server->drained_task);
    drain_all(server, false);
}

/* ---- the server ---- */
/* Checks the options. The fallback replaces an answer that cannot be sent, so it must itself always be sendable: in the smallest frame,
 * under a name that HAProxy can take. */
static bool options_sane(const struct server_options *options)
{
    uint8_t memory[SPOP_SIZE_MIN];
    struct writer out = writer_of(memory, sizeof memory);
    struct spop_actions actions = {.out = &out, .prefix_len = options->prefix_len};
    spop_frame_begin(&out, SPOP_TYPE_ACK, UINT64_MAX, UINT64_MAX);
    spop_set_var(&actions, SPOP_TRANSACTION, slice_text(options->fallback_name),
                 spop_text(slice_text(options->fallback_value)));
    return !out.full && options->connections > 0 && options->connections < UINT32_MAX && options->output > 0;
}

/* Allocates the slots and the output buffer. Returns false if memory is short. */
static bool take_memory(struct server *server)
{
    size_t connections = server->options.connections;
    server->slots = calloc(connections, sizeof *server->slots);
    server->output = malloc(SERVER_WRITE);
    if (!server->slots || !server->output)
        return false;
    for (uint32_t i = 0; i < connections; i++)
        server->slots[i].next_free = i + 1;
    return true;
}

static void give_memory_back(struct server *server)
{
    free(server->slots);
    free(server->output);
    free(server);
}

struct server *server_new(struct loop *loop, int listener, const struct server_options *options,
                          const struct server_handler *handler)
{
    struct server *server = options_sane(options) ? calloc(1, sizeof *server) : NULL;
    if (!server)
        return NULL;
    server->loop = loop;
    server->options = *options;
    server->handler = *handler;
    server->drained_task = (struct loop_task){.run = on_drained, .context = server};
    server->ready_task = (struct loop_task){.run = connections_turn, .context = server};
    int own = fcntl(listener, F_DUPFD_CLOEXEC, 0);
    if (own < 0 || !take_memory(server)) {
        if (own >= 0)
            close(own);
        give_memory_back(server);
        return NULL;
    }
    server->listener = (struct listener){.accepted = admit,
                                         .rested = count_pause,
                                         .owner = server,
                                         .batch = ACCEPTS_A_TURN,
                                         .share = options->share};
    listener_open(&server->listener, loop, own);
    loop_timer_open(&server->grace, loop, on_grace, server);
    return server;
}

static void free_now(void *owner)
{
    give_memory_back(owner);
}

/* Connections free themselves at the end of the turn. free_task is queued after their tasks, so the server outlives them. */
void server_free(struct server *server)
{
    if (!server)
        return;
    server->draining = true;
    server->drained = NULL;
    listener_close(&server->listener);
    loop_timer_close(&server->grace);
    for (size_t i = 0; i < server->options.connections; i++)
        if (server->slots[i].connection)
            connection_close(server->slots[i].connection);
    server->free_task = (struct loop_task){.run = free_now, .context = server};
    loop_defer(server->loop, &server->free_task);
}

const struct server_counters *server_counters(const struct server *server)
{
    return &server->counters;
}
