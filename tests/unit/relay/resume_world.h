/* SPDX-License-Identifier: MIT */
/*
 * resume_world: one tunnel in a network of the test's own, with sessions that outlive their workers. Bytes are
 * moved in pieces of random size; the leg can be cut, or its worker moved, at any byte of either direction.
 * The requests are those of a real relay (upgrade.h), the sessions are models of the four protocols, written
 * from their descriptions and not from the adapters.
 */
#ifndef CELLGATE_TESTS_RESUME_WORLD_H
#define CELLGATE_TESTS_RESUME_WORLD_H

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "spoa/relay/tunnel/tunnel.h"
#include "spoa/relay/tunnel/upgrade.h"

#define MS        UINT64_C(1000)
#define SEC       (1000 * MS)
#define LINKS     24
#define CHUNKS    40
#define SAID_MOST 300000 /* bytes at once */
#define ROUNDS    3000
#define NOWHERE   UINT64_MAX

enum direction { TO_WORKER, TO_RELAY };
enum link_state { LINK_FREE, LINK_PROBING, LINK_UPGRADING, LINK_OPEN };

/* A connection between relay and worker. */
struct link {
    enum link_state state;
    struct buffer bytes[2]; /* on the way */
    bool dead;              /* cut, or ended by both */
    bool left;              /* the relay does not read it any more */
    char key[WS_KEY_SIZE];
    struct buffer answer; /* what the relay has of the head */
    struct buffer head;   /* what the worker has of it */
    struct ws_decoder in; /* of the worker */
    uint8_t control[WS_CONTROL_MAX];
    struct buffer message;
    bool upgraded, closed; /* by the worker */
};

/* Something that was said: a message in bytes, or a piece of output. */
struct said {
    uint8_t tag; /* of output */
    enum ws_opcode opcode;
    size_t at, len;
};

struct log {
    struct buffer bytes;
    struct said said[CHUNKS * 4];
    size_t count;
};

struct session {
    struct link *leg;
    struct log output, input;
    bool ended;
    size_t first; /* of output that the ring still has */
    size_t ring;
    /* ---- cell ---- */
    uint64_t attempt, acknowledged, next, consumed, told;
    bool known, end_acknowledged;
    char id[33];
    size_t window;
    uint64_t tell_at;
};

/* What is said, and in what pieces it is moved. A negative size is text, or the other stream. */
struct script {
    const int *out, *in;
    size_t out_count, in_count;
    uint32_t step;
};

struct network;
struct model { /* of a session */
    enum handover_resume resume;
    enum handover_end end;
    const char *target, *session;
    bool (*attach)(struct network *n, struct link *link, const struct http_head *head, struct writer *fields);
    void (*produced)(struct network *n);
    void (*ended)(struct network *n);
    void (*message)(struct network *n, struct link *link, enum ws_opcode opcode, struct slice bytes);
    void (*pong)(struct network *n, struct link *link, struct slice payload);
    void (*pass)(struct network *n); /* time */
};

struct network {
    struct tunnel t;
    void *state; /* its adapter's */
    struct tunnel_settings settings;
    struct upgrade *upgrade;
    const struct model *model;
    const struct script *script;
    struct session session;
    struct link links[LINKS];
    struct link *current, *dialled;
    uint64_t now;
    uint32_t seed;
    bool asking, watching;
    uint16_t worker; /* port: where the session is */
    uint64_t moved[2];
    /* ---- what is done to it ---- */
    enum direction where;
    uint64_t cut_at, cut_again; /* bytes moved; NOWHERE */
    uint64_t move_at;
    unsigned cuts;
    /* ---- the client ---- */
    bool accepted, refused, ended, broken;
    struct ws_decoder in;
    uint8_t control[WS_CONTROL_MAX];
    struct buffer heard, to_relay;
    struct buffer message;
    enum ws_opcode opcode;
    struct log got, sent;
    unsigned pings, pong; /* its Pings so far; the one that was answered last */
    unsigned close_code;
    char close_reason[130];
    /* ---- what is declared ---- */
    unsigned exact, gaps;
    uint64_t missing;
    size_t script_out, script_in; /* next of the script */
    unsigned round;
    bool scarce;     /* there is no memory in this round */
    bool hands_over; /* now and then another process goes on with the tunnel */
    unsigned handed_over;
    struct handover handover;
};

static inline void must(bool holds, const char *what, int line)
{
    if (holds)
        return;
    fprintf(stderr, "line %d: %s\n", line, what);
    abort();
}
#define must(holds) must((holds), #holds, __LINE__)

static inline uint32_t dice(struct network *n, uint32_t sides)
{
    n->seed = n->seed * 1664525 + 1013904223;
    return (n->seed >> 8) % sides;
}

static inline void put(struct buffer *to, struct slice bytes)
{
    must(buffer_put(to, bytes));
}

static inline void log_put(struct log *log, uint8_t tag, enum ws_opcode opcode, struct slice bytes)
{
    must(log->count < sizeof log->said / sizeof log->said[0]);
    log->said[log->count++] = (struct said){tag, opcode, buffer_len(&log->bytes), bytes.len};
    put(&log->bytes, bytes);
}

static inline struct slice log_at(const struct log *log, size_t i)
{
    return slice_sub(buffer_slice(&log->bytes), log->said[i].at, log->said[i].len);
}

/* ---- the worker ---- */
static inline void link_put(struct link *link, struct slice bytes)
{
    if (link && !link->dead)
        put(&link->bytes[TO_RELAY], bytes);
}

static inline void link_frame(struct link *link, unsigned start, struct slice payload)
{
    uint8_t head[WS_HEAD_MAX];
    struct ws_frame frame = {.opcode = start & 15, .fin = start & 0x80, .length = payload.len};

    link_put(link, slice_of(head, ws_encode_head(head, &frame)));
    link_put(link, payload);
}

/* A message with one byte of tag in front (0: without), in fragments. */
static inline void link_message(struct link *link, const struct said *said, struct slice bytes,
                                size_t fragment)
{
    struct buffer whole = buffer_with_limit(1 << 22);
    unsigned start = said->opcode;

    if (said->tag)
        put(&whole, slice_of(&said->tag, 1));
    put(&whole, bytes);
    struct slice rest = buffer_slice(&whole);
    do {
        struct slice part = slice_sub(rest, 0, fragment);
        rest = slice_from(rest, part.len);
        link_frame(link, start | (rest.len ? 0 : 0x80), part);
        start = 0;
    } while (rest.len);
    buffer_free(&whole);
}

static inline void link_close(struct link *link, unsigned code, const char *reason)
{
    uint8_t frame[WS_CONTROL_FRAME_MAX];

    if (link && !link->closed)
        link_put(link, slice_of(frame, ws_encode_close(frame, code, slice_text(reason), NULL)));
    if (link)
        link->closed = true;
}

static inline void detach(struct network *n, struct link *link)
{
    if (n->session.leg == link)
        n->session.leg = NULL;
}

/* The session goes on with this leg. */
static inline void take_over(struct network *n, struct link *link)
{
    if (n->session.leg && n->session.leg != link)
        link_close(n->session.leg, 4001, "taken over");
    n->session.leg = link;
}

static inline void worker_answers(struct network *n, struct link *link, const struct http_head *head)
{
    uint8_t memory[2][4096];
    struct writer w = writer_of(memory[0], sizeof memory[0]), fields = writer_of(memory[1], sizeof memory[1]);
    struct slice key;
    struct fail why;

    if (!http_has_token(head, "Upgrade", "websocket")) {
        char body[200];
        snprintf(body, sizeof body, "{\"session_id\":\"x\",\"running\":%s,\"output_offset\":%zu}",
                 n->session.ended ? "false" : "true", buffer_len(&n->session.output.bytes));
        must(slice_is(head->target, "/pty/x"));
        writer_printf(&w, "HTTP/1.1 200 OK\r\nContent-Length: %zu\r\n\r\n%s", strlen(body), body);
        link_put(link, writer_slice(&w));
        return;
    }
    must(ws_handshake_check_request(head, &key, &why) == 0);
    link->upgraded = true;
    link->in = ws_decoder_with(WS_CLIENT, link->control);
    struct buffer replay = link->bytes[TO_RELAY]; /* what is said at once comes behind the head */
    link->bytes[TO_RELAY] = buffer_with_limit(1 << 24);
    if (!n->model->attach(n, link, head, &fields)) {
        link->upgraded = false;
        writer_printf(&w, "HTTP/1.1 409 Conflict\r\nContent-Length: 0\r\n\r\n");
    } else {
        must(ws_handshake_put_answer(&w, key, slice_text(NULL)));
        writer_put(&w, writer_slice(&fields));
        writer_text(&w, "\r\n");
    }
    put(&replay, writer_slice(&w));
    put(&replay, buffer_slice(&link->bytes[TO_RELAY]));
    buffer_free(&link->bytes[TO_RELAY]);
    link->bytes[TO_RELAY] = replay;
}

static inline void worker_control(struct network *n, struct link *link)
{
    struct slice payload = ws_control_payload(&link->in);

    if (link->in.frame.opcode == WS_PING)
        link_frame(link, 0x80 | WS_PONG, payload);
    if (link->in.frame.opcode == WS_PONG && n->model->pong)
        n->model->pong(n, link, payload);
    if (link->in.frame.opcode == WS_CLOSE) {
        link_close(link, 1000, "");
        detach(n, link);
    }
}

static inline void worker_hears(struct network *n, struct link *link, struct slice in)
{
    uint8_t plain[8192];
    struct ws_piece piece;
    enum ws_event event;

    while ((event = ws_decode(&link->in, &in, &piece)) != WS_MORE) {
        must(event != WS_BAD);
        if (event == WS_HEAD && link->in.frame.opcode != WS_CONTINUATION)
            link->message = (buffer_free(&link->message), buffer_with_limit(1 << 22));
        if (event == WS_HEAD && link->in.frame.opcode != WS_CONTINUATION)
            link->head.limit = link->in.frame.opcode; /* remembered there */
        if (event == WS_CONTROL)
            worker_control(n, link);
        if (event != WS_PIECE)
            continue;
        for (struct slice rest = piece.bytes; rest.len; rest = slice_from(rest, sizeof plain)) {
            struct slice part = slice_sub(rest, 0, sizeof plain);
            ws_mask(plain, part.at, part.len, link->in.frame.mask,
                    piece.offset + (piece.bytes.len - rest.len));
            put(&link->message, slice_of(plain, part.len));
        }
        if (piece.last && link->in.frame.fin && n->session.leg == link)
            n->model->message(n, link, (enum ws_opcode)link->head.limit, buffer_slice(&link->message));
    }
}

static inline void worker_reads(struct network *n, struct link *link, struct slice bytes)
{
    struct http_reader reader = http_reader_of(HTTP_REQUEST, HTTP_HEAD_MAX);
    static struct http_head head;

    if (link->upgraded) {
        worker_hears(n, link, bytes);
        return;
    }
    put(&link->head, bytes);
    if (http_read(&reader, buffer_slice(&link->head), &head) != HTTP_DONE)
        return;
    must(head.len == buffer_len(&link->head));
    worker_answers(n, link, &head);
    buffer_free(&link->head);
}

/* ---- the relay's side: actions ---- */
static inline struct link *link_new(struct network *n, enum link_state state)
{
    for (size_t i = 0; i < LINKS; i++) {
        struct link *link = &n->links[i];
        if (link->state != LINK_FREE)
            continue;
        *link = (struct link){.state = state,
                              .bytes = {buffer_with_limit(1 << 24), buffer_with_limit(1 << 24)},
                              .answer = buffer_with_limit(1 << 24),
                              .head = buffer_with_limit(1 << 16),
                              .message = buffer_with_limit(1 << 22)};
        return link;
    }
    must(false); /* there are enough links */
    return NULL;
}

static inline void link_kill(struct network *n, struct link *link)
{
    link->dead = true;
    buffer_free(&link->bytes[TO_WORKER]);
    buffer_free(&link->bytes[TO_RELAY]);
    detach(n, link);
}

static inline void begin_link(struct network *n, struct slice probe)
{
    uint8_t memory[3][4096];
    struct writer w = writer_of(memory[0], sizeof memory[0]), query = writer_of(memory[1], sizeof memory[1]),
                  fields = writer_of(memory[2], sizeof memory[2]);
    const struct target to = {.port = n->worker};
    uint8_t nonce[16] = {(uint8_t)n->seed};
    bool probing = slice_present(probe);

    n->dialled = link_new(n, probing ? LINK_PROBING : LINK_UPGRADING);
    ws_handshake_key(n->dialled->key, nonce);
    if (probing) {
        upgrade_probe(n->upgrade, &to, probe, &w);
    } else {
        if (n->t.forward.adapter->request)
            n->t.forward.adapter->request(n->t.forward.adapter_state, &query, &fields);
        upgrade_request(n->upgrade, &to, slice_text(n->dialled->key), writer_slice(&query),
                        writer_slice(&fields), &w);
    }
    must(!w.full);
    put(&n->dialled->bytes[TO_WORKER], writer_slice(&w));
}

static inline void net_dial(struct network *n)
{
    uint8_t memory[1024];
    struct writer probe = writer_of(memory, sizeof memory);

    must(!n->dialled);
    begin_link(n, tunnel_probe(&n->t, n->upgrade->target, &probe));
}

static inline void net_hang_up(struct network *n)
{
    if (n->dialled)
        link_kill(n, n->dialled);
    n->dialled = NULL;
}

static inline void net_adopt(struct network *n)
{
    n->current = n->dialled;
    n->current->state = LINK_OPEN;
}

static inline void net_drop(struct network *n, enum side side)
{
    if (side == WORKER && n->current) {
        link_kill(n, n->current);
        n->current = NULL;
    }
}

static inline void net_declared(struct network *n, uint64_t missing)
{
    *(missing ? &n->gaps : &n->exact) += 1;
    n->missing += missing == ADAPTER_UNKNOWN ? 0 : missing;
}

/* Memory that is short again and again. */
static inline size_t net_may_hold(void *io, bool whole, size_t grows)
{
    (void)whole, (void)grows;
    return ((const struct network *)io)->scarce ? 0 : SIZE_MAX;
}

static inline bool net_permits_replay(void *io)
{
    return dice(io, 4) != 0;
}

static inline uint32_t net_random(void *io)
{
    return dice(io, UINT32_MAX);
}

/* ---- the client ---- */
static inline void client_frame(struct network *n, unsigned start, struct slice payload)
{
    static uint8_t frame[WS_HEAD_MAX + SAID_MOST];
    struct ws_frame f = {.opcode = start & 15, .fin = start & 0x80, .masked = true, .length = payload.len};
    uint32_t mask = dice(n, UINT32_MAX);

    memcpy(f.mask, &mask, 4);
    size_t head = ws_encode_head(frame, &f);
    must(payload.len <= sizeof frame - WS_HEAD_MAX);
    if (payload.len)
        ws_mask(frame + head, payload.at, payload.len, f.mask, 0);
    put(&n->to_relay, slice_of(frame, head + payload.len));
}

static inline void client_control(struct network *n)
{
    struct slice payload = ws_control_payload(&n->in);

    must(payload.len < 2 || n->in.frame.opcode == WS_CLOSE || !slice_starts(payload, "cr"));
    if (n->in.frame.opcode == WS_PING)
        client_frame(n, 0x80 | WS_PONG, payload);
    if (n->in.frame.opcode == WS_PONG && slice_starts(payload, "client")) {
        uint64_t ping = 0;
        must(slice_u64(slice_from(payload, 6), UINT32_MAX, &ping) && ping > n->pong && ping <= n->pings);
        n->pong = (unsigned)ping;
    }
    if (n->in.frame.opcode != WS_CLOSE)
        return;
    n->close_code = n->in.close_code;
    snprintf(n->close_reason, sizeof n->close_reason, "%.*s", SLICE_PRINTF(ws_close_reason(&n->in)));
    client_frame(n, 0x80 | WS_CLOSE, slice_of("\x03\xe8", 2));
}

static inline void client_hears(struct network *n, struct slice bytes)
{
    struct ws_piece piece;
    enum ws_event event;

    while ((event = ws_decode(&n->in, &bytes, &piece)) != WS_MORE) {
        must(event != WS_BAD);
        if (event == WS_HEAD && n->in.frame.opcode != WS_CONTINUATION) {
            n->opcode = n->in.frame.opcode;
            buffer_free(&n->message);
        }
        if (event == WS_CONTROL)
            client_control(n);
        if (event != WS_PIECE)
            continue;
        put(&n->message, piece.bytes);
        if (piece.last && n->in.frame.fin)
            log_put(&n->got, 0, n->opcode, buffer_slice(&n->message));
    }
}

/* ---- moving bytes ---- */
static inline size_t net_send(void *io, enum side to, const struct slice *runs, size_t count)
{
    struct network *n = io;
    size_t taken = 0, room = dice(n, 4) ? SIZE_MAX : dice(n, 40);

    for (size_t i = 0; i < count && room; i++) {
        struct slice part = slice_sub(runs[i], 0, room);
        if (to == CLIENT)
            client_hears(n, part);
        else
            put(&n->current->bytes[TO_WORKER], part);
        taken += part.len;
        room -= part.len;
    }
    return taken;
}

static inline void net_part(struct network *n, enum side side, struct send_queue *rest)
{
    struct slice unsent = send_queue_unsent(rest);

    if (side == CLIENT)
        client_hears(n, unsent);
    else
        put(&n->current->bytes[TO_WORKER], unsent);
    if (side == WORKER) {
        n->current->left = true;
        n->current = NULL;
    }
    send_queue_free(rest);
}

static struct commands net_commands;
static const struct tunnel_host net_host = {net_send,           NULL,       NULL,         NULL, net_may_hold,
                                            net_permits_replay, net_random, &net_commands};

static inline void net_carries_out(struct network *n, struct command *command)
{
    switch (command->kind) {
    case COMMAND_DIAL:
        net_dial(n);
        break;
    case COMMAND_RECHECK:
    case COMMAND_RECHECK_END:
        break; /* settings.rechecks is false */
    case COMMAND_HANG_UP:
        net_hang_up(n);
        break;
    case COMMAND_ADOPT:
        net_adopt(n);
        tunnel_writable(&n->t, WORKER, n->now);
        break;
    case COMMAND_PART:
        net_part(n, command->side, &command->rest);
        break;
    case COMMAND_DROP:
        net_drop(n, command->side);
        break;
    case COMMAND_ASK:
        n->asking = true;
        break;
    case COMMAND_WATCH:
        n->watching = true;
        break;
    case COMMAND_ACCEPT:
        n->accepted = true;
        tunnel_writable(&n->t, CLIENT, n->now);
        break;
    case COMMAND_REFUSE:
        n->refused = true;
        break;
    case COMMAND_DECLARED:
        net_declared(n, command->bytes);
        break;
    case COMMAND_RESUMED:
    case COMMAND_UNCONFIRMED:
        break;
    }
}

static inline void net_obeys(struct network *n)
{
    for (struct command *next; (next = commands_take(&net_commands));)
        net_carries_out(n, next);
    must(!n->t.strayed);
    n->ended = n->ended || n->t.state == TUNNEL_ended;
}

/* As a port does it: writable memory, with room in front and none behind. */
static inline void relay_reads(struct network *n, enum side from, struct slice bytes)
{
    struct leg *leg = &n->t.forward.legs[from];
    struct slice partial = buffer_slice(&leg->partial);
    uint8_t *memory = malloc(FORWARD_FRONT + partial.len + bytes.len), *at = memory + FORWARD_FRONT;

    must(memory != NULL);
    if (partial.len)
        memcpy(at, partial.at, partial.len);
    memcpy(at + partial.len, bytes.at, bytes.len);
    size_t len = partial.len + bytes.len;
    buffer_consume(&leg->partial, partial.len);
    tunnel_read(&n->t, from, slice_of(at, len), n->now);
    net_obeys(n);
    free(memory);
}

static inline void dial_failed(struct network *n, enum dial_outcome outcome, unsigned status)
{
    n->dialled = NULL;
    tunnel_dialled(&n->t, outcome, status, NULL, n->now);
    net_obeys(n);
}

static inline void dial_probed(struct network *n, struct link *link, const struct http_head *head)
{
    struct slice body = slice_from(buffer_slice(&link->answer), head->len);

    if (body.len < head->length)
        return;
    enum dial_outcome outcome = tunnel_probed(&n->t, head->status, body);
    link_kill(n, link);
    n->dialled = NULL;
    if (outcome == DIAL_OPEN)
        begin_link(n, slice_text(NULL));
    else
        dial_failed(n, outcome, head->status);
}

static inline void dial_reads(struct network *n, struct link *link, struct slice bytes)
{
    struct http_reader reader = http_reader_of(HTTP_RESPONSE, HTTP_HEAD_MAX);
    static struct http_head head;
    struct fail why;

    put(&link->answer, bytes);
    if (http_read(&reader, buffer_slice(&link->answer), &head) != HTTP_DONE)
        return;
    if (link->state == LINK_PROBING) {
        dial_probed(n, link, &head);
    } else if (head.status != 101) {
        link_kill(n, link);
        dial_failed(n, DIAL_STATUS, head.status);
    } else {
        struct buffer answer = link->answer;
        must(upgrade_check(n->upgrade, &head, slice_text(link->key), !n->accepted, &why));
        link->answer = buffer_with_limit(1 << 24);
        tunnel_dialled(&n->t, DIAL_OPEN, 101, &head, n->now);
        net_obeys(n);
        n->dialled = NULL;
        struct slice rest = slice_from(buffer_slice(&answer), head.len);
        if (rest.len && n->current == link)
            relay_reads(n, WORKER, rest);
        buffer_free(&answer);
    }
}

/* The network, or the worker, fails. */
static inline void cut(struct network *n, struct link *link)
{
    n->cuts++;
    link_kill(n, link);
    if (link == n->dialled)
        dial_failed(n, DIAL_INVALID, 0);
    else if (link == n->current)
        tunnel_lost(&n->t, WORKER, LOSS_reset, n->now);
    net_obeys(n);
}

static inline void move_worker(struct network *n)
{
    struct answer answer = {.state = ANSWER_RUNNING, .epoch = ++n->worker};

    n->move_at = NOWHERE;
    answer.target = (struct target){.addr = {4, {127, 0, 0, 1}}, .port = n->worker};
    if (!n->watching)
        return;
    n->watching = false;
    tunnel_answered(&n->t, &answer, true, n->now);
    net_obeys(n);
}

/* How many bytes may be moved before something is to happen. */
static inline size_t until_event(const struct network *n, enum direction d)
{
    uint64_t next = n->cut_at < n->move_at ? n->cut_at : n->move_at;
    return d != n->where || next == NOWHERE ? SIZE_MAX : (size_t)(next - n->moved[d]);
}

static inline void events(struct network *n, struct link *link, enum direction d)
{
    if (d != n->where)
        return;
    if (n->moved[d] >= n->move_at)
        move_worker(n);
    if (n->moved[d] >= n->cut_at) {
        n->cut_at = n->cut_again == NOWHERE ? NOWHERE : n->moved[d] + n->cut_again;
        n->cut_again = NOWHERE;
        cut(n, link);
    }
}

static inline bool is_read(const struct network *n, const struct link *link)
{
    return link == n->dialled || (link == n->current && n->t.forward.legs[WORKER].reading);
}

static inline void move_some(struct network *n, struct link *link, enum direction d)
{
    static uint8_t moving[1 << 16];
    struct buffer *from = &link->bytes[d];
    size_t most = 1 + dice(n, n->script->step), limit = until_event(n, d);

    if (link->state == LINK_FREE || link->dead)
        return;
    if (d == TO_RELAY && link->left) {
        buffer_free(from); /* nobody reads it */
        return;
    }
    if (!buffer_len(from) || (d == TO_RELAY && !is_read(n, link)))
        return;
    if (limit < most)
        most = limit;
    if (d == TO_RELAY && link == n->current && forward_room(&n->t.forward, WORKER) < most)
        most = forward_room(&n->t.forward, WORKER);
    struct slice part = slice_sub(buffer_slice(from), 0, most);
    memcpy(moving, part.at, part.len);
    part.at = moving;
    buffer_consume(from, part.len);
    n->moved[d] += part.len;
    if (part.len && d == TO_WORKER)
        worker_reads(n, link, part);
    else if (part.len && link == n->dialled)
        dial_reads(n, link, part);
    else if (part.len)
        relay_reads(n, WORKER, part);
    if (!link->dead)
        events(n, link, d);
}

/* ---- the conversation ---- */

static const int small_out[] = {1, 5,   -40, 126, 0,  300, -2,  4000, 17000,
                                7, -70, 900, 3,   12, -1,  200, 64,   1200};
static const int small_in[] = {3, 1, 0, -9, 140, 700, 2, 1500, -5, 4, 7000, 31, -6, 900, 8};
/* Where heads get longer and reads end: what terminals and files really send. */
static const int large_out[] = {1,   126,    -16385, 65535,  7,     65536, -65537,
                                125, 131072, 3,      200000, 16384, -127,  65526};
static const int large_in[] = {3, 125, -16384, 65535, 2, 65536, 126, -65537, 131072, 1, 70000};
#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))
#define SCRIPT(name, step)                                                     \
    {                                                                          \
        name##_out, name##_in, COUNT_OF(name##_out), COUNT_OF(name##_in), step \
    }
static const struct script small_script = SCRIPT(small, 6000), large_script = SCRIPT(large, 65535);

static inline struct slice some_bytes(struct network *n, struct log *log, size_t len,
                                      uint8_t memory[SAID_MOST])
{
    (void)n;
    for (size_t i = 0; i < len; i++)
        memory[i] = (uint8_t)((buffer_len(&log->bytes) + i) * 2654435761u >> 13);
    return slice_of(memory, len);
}

static inline void say_something(struct network *n)
{
    static uint8_t memory[SAID_MOST];
    struct session *s = &n->session;

    if (n->script_out == n->script->out_count) {
        /* OpenSandbox runs a command again for who attaches to a session that has ended since he asked */
        if (n->dialled && n->model->resume == HANDOVER_RESUME_SINCE)
            return;
        if (!s->ended && (n->model->resume != HANDOVER_RESUME_CELL || s->consumed == n->script->in_count)) {
            s->ended = true;
            n->model->ended(n);
        }
        return;
    }
    int size = n->script->out[n->script_out++];
    bool other = size < 0, cell = n->model->resume == HANDOVER_RESUME_CELL;
    bool untagged = cell || n->model->resume == HANDOVER_RESUME_CURSOR;
    uint8_t tag = untagged ? 0 : other && n->model->resume == HANDOVER_RESUME_SCROLLBACK ? 2 : 1;
    log_put(&s->output, tag, cell && other ? WS_TEXT : WS_BINARY,
            some_bytes(n, &s->output, (size_t)(other ? -size : size), memory));
    n->model->produced(n);
}

static inline void type_something(struct network *n)
{
    static uint8_t memory[SAID_MOST];

    if (n->script_in == n->script->in_count || n->close_code)
        return;
    int size = n->script->in[n->script_in++];
    enum ws_opcode opcode = size < 0 ? WS_TEXT : WS_BINARY;
    struct slice bytes = some_bytes(n, &n->sent, (size_t)(size < 0 ? -size : size), memory);
    log_put(&n->sent, 0, opcode, bytes);
    if (bytes.len > 100) { /* in fragments, with a ping between them */
        client_frame(n, opcode, slice_sub(bytes, 0, 50));
        char ping[20];
        snprintf(ping, sizeof ping, "client%u", ++n->pings);
        client_frame(n, 0x89, slice_text(ping));
        client_frame(n, 0x00, slice_sub(bytes, 50, 30));
        client_frame(n, 0x80, slice_from(bytes, 80));
    } else {
        client_frame(n, 0x80 | opcode, bytes);
    }
}

static inline void client_writes(struct network *n)
{
    static uint8_t moving[1 << 16];
    size_t most = 1 + dice(n, n->script->step / 2), room = forward_room(&n->t.forward, CLIENT);
    struct slice part = slice_sub(buffer_slice(&n->to_relay), 0, most < room ? most : room);

    if (!n->accepted || !part.len || !n->t.forward.legs[CLIENT].reading || !n->t.forward.there[CLIENT])
        return;
    memcpy(moving, part.at, part.len);
    part.at = moving;
    buffer_consume(&n->to_relay, part.len);
    relay_reads(n, CLIENT, part);
}

static inline void agent_answers(struct network *n)
{
    struct answer answer = {.state = ANSWER_RUNNING, .epoch = n->worker};

    if (!n->asking)
        return;
    n->asking = false;
    answer.target = (struct target){.addr = {4, {127, 0, 0, 1}}, .port = n->worker};
    tunnel_answered(&n->t, &answer, false, n->now);
    net_obeys(n);
}

static inline void *net_state(const struct network *n)
{
    void *state = calloc(1, adapter_find((enum handover_resume)n->handover.resume, false)->state_len + 1);
    must(state != NULL);
    return state;
}

/* What this process has dialled, asked and watched stays behind. */
static inline void net_hands_over(struct network *n)
{
    struct tunnel_opening opening = {
        {&net_host, n, &n->settings}, &n->handover, n->upgrade->target, false, 0, net_state(n)};
    struct buffer image = buffer_with_limit(1 << 24);
    struct tunnel next;

    must(tunnel_save(&n->t, &image, n->now));
    tunnel_free(&n->t);
    free(n->state);
    n->state = opening.state;
    if (n->dialled)
        link_kill(n, n->dialled);
    n->dialled = NULL;
    n->asking = n->watching = false;
    must(tunnel_load(&next, &opening, buffer_slice(&image), n->now));
    n->t = next;
    buffer_free(&image);
    n->handed_over++;
    net_obeys(n);
}

static inline void one_round(struct network *n)
{
    n->round++;
    n->now += 10 * MS;
    n->scarce = !dice(n, 4);
    if (n->accepted && n->round % 2)
        say_something(n);
    if (n->accepted && n->round % 3 == 0)
        type_something(n);
    client_writes(n);
    for (size_t i = 0; i < LINKS; i++) {
        move_some(n, &n->links[i], TO_WORKER);
        move_some(n, &n->links[i], TO_RELAY);
    }
    agent_answers(n);
    if (n->model->pass)
        n->model->pass(n);
    for (int side = 0; side < 2; side++)
        if (!send_queue_empty(&n->t.forward.legs[side].out))
            tunnel_writable(&n->t, (enum side)side, n->now);
    net_obeys(n);
    if (tunnel_due(&n->t) <= n->now)
        tunnel_tick(&n->t, n->now);
    net_obeys(n);
    if (n->hands_over && n->accepted && !n->ended && dice(n, 8) == 0)
        net_hands_over(n);
}

static inline struct upgrade *net_upgrade(const struct model *model)
{
    char text[1024];
    static struct http_head head;
    struct http_reader reader = http_reader_of(HTTP_REQUEST, HTTP_HEAD_MAX);
    enum refusal refusal;
    struct fail why;

    snprintf(text, sizeof text,
             "GET %s HTTP/1.1\r\nHost: h\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
             "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
             "X-Cell-Handover: route=r;sandbox=s;resume=%s\r\n\r\n",
             model->target, handover_resume_names[model->resume]);
    must(http_read(&reader, slice_text(text), &head) == HTTP_DONE);
    struct upgrade *upgrade = upgrade_new(&head, &refusal, &why);
    must(upgrade != NULL);
    return upgrade;
}

static inline void network_free(struct network *n)
{
    struct buffer *buffers[] = {&n->heard,
                                &n->to_relay,
                                &n->message,
                                &n->got.bytes,
                                &n->sent.bytes,
                                &n->session.output.bytes,
                                &n->session.input.bytes};

    tunnel_free(&n->t);
    free(n->state);
    free(n->upgrade);
    for (size_t i = 0; i < COUNT_OF(buffers); i++)
        buffer_free(buffers[i]);
    for (size_t i = 0; i < LINKS; i++) {
        struct link *link = &n->links[i];
        buffer_free(&link->bytes[0]);
        buffer_free(&link->bytes[1]);
        buffer_free(&link->answer);
        buffer_free(&link->head);
        buffer_free(&link->message);
    }
}

static inline void network_open(struct network *n, const struct model *model, const struct script *script,
                                uint32_t seed)
{
    struct handover h = handover_none();

    *n = (struct network){.model = model,
                          .script = script,
                          .now = 1000 * SEC,
                          .seed = seed,
                          .worker = 1,
                          .cut_at = NOWHERE,
                          .cut_again = NOWHERE,
                          .move_at = NOWHERE,
                          .in = ws_decoder_with(WS_SERVER, n->control),
                          .settings = {.keepalive = 25 * SEC,
                                       .dead_after = 60 * SEC,
                                       .stall = 300 * SEC,
                                       .grace_period = 500 * MS,
                                       .close_timeout = 5 * SEC,
                                       .connect_budget = 5 * SEC,
                                       .migration_budget = 600 * SEC,
                                       .buffer = 256 << 10,
                                       .redial = {.backoff = {100 * MS, 250 * MS, 500 * MS, 1 * SEC},
                                                  .backoff_count = 4,
                                                  .budget = 30 * SEC,
                                                  .flap_window = 60 * SEC,
                                                  .flap_limit = 8}}};
    n->session.ring = 1 << 20;
    n->session.window = script == &small_script ? 24000 : 250000;
    n->to_relay = n->message = n->got.bytes = n->sent.bytes = buffer_with_limit(1 << 24);
    n->session.output.bytes = n->session.input.bytes = buffer_with_limit(1 << 24);
    n->upgrade = net_upgrade(model);
    h.addr = (struct address){4, {127, 0, 0, 1}};
    h.addr_port = 1;
    h.epoch = 1;
    h.resume = model->resume;
    h.end = model->end;
    h.session = slice_text(model->session);
    n->handover = h;
    struct tunnel_opening opening = {
        {&net_host, n, &n->settings}, &h, n->upgrade->target, false, 0, net_state(n)};
    n->state = opening.state;
    must(tunnel_open(&n->t, &opening, n->now));
    net_obeys(n);
}

static inline void network_run(struct network *n)
{
    while (!n->ended && n->round < ROUNDS)
        one_round(n);
    must(n->ended);
}

#endif
