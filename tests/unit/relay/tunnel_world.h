/* SPDX-License-Identifier: MIT */
/*
 * tunnel_world: a client, workers, an agent and a clock for one tunnel, for its unit tests and its fuzzer.
 * What the tunnel sends is decoded, checked against RFC 6455 and written down as text, one word per frame:
 *   T<text> B<bytes>   whole message     t<text> b<bytes>    first fragment     +<bytes> .<bytes>   next, last one
 *   PING<payload> PONG<payload>          C<code>:<reason>
 */
#ifndef CELLGATE_TESTS_TUNNEL_WORLD_H
#define CELLGATE_TESTS_TUNNEL_WORLD_H

#include <stdio.h>
#include <stdlib.h>

#include "spoa/relay/tunnel/tunnel.h"

#define MS  UINT64_C(1000)
#define SEC (1000 * MS)

struct ear { /* one peer, who hears what the tunnel sends it */
    struct ws_decoder in;
    struct buffer bytes;
    size_t room; /* what its socket takes */
    bool broken; /* what came was not right */
    char said[4096];
};

struct world {
    struct tunnel t;
    void *state; /* its adapter's */
    struct tunnel_settings settings;
    uint64_t now;
    struct ear ears[2]; /* the client, the worker that is there */
    unsigned sends[2];
    unsigned dials, hang_ups, adopts, asks, watches, accepts, parted[2], dropped[2], resumes, ends, refusals;
    bool dialling, open, asking, watching;
    unsigned rechecks;       /* second connections to a worker that serves */
    bool rechecking;         /* one is open */
    bool full, tight;        /* no memory; none but for what has to become whole */
    unsigned frees;          /* when it has been asked for so often, others give memory back */
    bool pipes;              /* what need not be looked at goes by the pipe */
    size_t pipe_room;        /* of that; 0: enough */
    struct buffer pipe, raw; /* raw: what came without being read */
    bool crowded, turn;      /* nobody gets a turn; this worker's replay has had it */
    uint16_t dialled_port;
    enum refusal refusal;
    enum loss loss;
    uint64_t gap;
    unsigned declared[2];         /* exact, gaps */
    uint64_t missing;             /* of the last gap */
    uint64_t unconfirmed, unread; /* input: lost for certain, left with a worker */
    const struct http_head *head; /* of the next 101 */
    uint32_t seed;
    struct handover handover;
    const char *target;
    bool client_resumes;
    bool spoiled; /* by a hostile neighbour: where it says it is, it may not be */
    bool twins;   /* what a steady tunnel does with a read is compared with what one does that is not */
    unsigned compared, passed; /* and it need not be looked at */
    struct buffer sent[2];     /* while it is */
};

static inline void ear_renew(struct ear *ear, enum ws_sender sender)
{
    buffer_free(&ear->bytes);
    *ear = (struct ear){
        .in = ws_decoder_of(sender, LEG_FRAME_WHOLE), .bytes = buffer_with_limit(64 << 20), .room = SIZE_MAX};
}

static inline void ear_say(struct ear *ear, const char *word, struct slice payload)
{
    size_t len = strlen(ear->said), shown = payload.len < 40 ? payload.len : 40;
    if (len + shown + 32 > sizeof ear->said)
        return;
    snprintf(ear->said + len, sizeof ear->said - len, "%s%s%.*s", len ? " " : "", word, (int)shown,
             payload.at ? (const char *)payload.at : "");
}

static inline const char *frame_word(const struct ws_frame *frame, const struct ws_piece *piece)
{
    bool first = frame->opcode != WS_CONTINUATION && piece->offset == 0, last = frame->fin && piece->last;
    if (first)
        return frame->opcode == WS_TEXT ? (last ? "T" : "t") : (last ? "B" : "b");
    return last ? "." : "+";
}

static inline void ear_control(struct ear *ear)
{
    char word[32];
    struct slice payload = ws_control_payload(&ear->in);
    if (ear->in.frame.opcode == WS_CLOSE) {
        snprintf(word, sizeof word, "C%u:", ear->in.close_code);
        ear_say(ear, word, ws_close_reason(&ear->in));
        return;
    }
    bool own = payload.len == LEG_PING_LEN && slice_starts(payload, "cellgate");
    ear_say(ear, ear->in.frame.opcode == WS_PING ? "PING" : "PONG", own ? SLICE_LITERAL("own") : payload);
}

static inline void ear_hear(struct ear *ear)
{
    static uint8_t plain[1 << 20];
    struct slice in = buffer_slice(&ear->bytes);
    size_t before = in.len;
    struct ws_piece piece;
    enum ws_event event;
    while ((event = ws_decode(&ear->in, &in, &piece)) != WS_MORE && event != WS_BAD) {
        if (event == WS_CONTROL)
            ear_control(ear);
        if (event == WS_PIECE) {
            size_t len = piece.bytes.len < sizeof plain ? piece.bytes.len : sizeof plain;
            ws_mask(plain, piece.bytes.at, len, ear->in.frame.mask, piece.offset);
            ear_say(ear, frame_word(&ear->in.frame, &piece), slice_of(plain, len));
        }
    }
    ear->broken = ear->broken || event == WS_BAD;
    buffer_consume(&ear->bytes, before - in.len);
}

/* ---- what the tunnel asks ---- */
static inline struct slice world_run(const struct world *w, struct slice run)
{
    if (leg_is_unseen(run) && run.len != buffer_len(&w->pipe))
        abort(); /* it is not where it was put */
    return leg_is_unseen(run) ? buffer_slice(&w->pipe) : run;
}

static inline void world_peel(void *io, uint8_t *to, size_t len)
{
    struct world *w = io;
    if (len > buffer_len(&w->raw))
        abort();
    memcpy(to, buffer_slice(&w->raw).at, len);
    buffer_consume(&w->raw, len);
}

static inline size_t world_pipe(void *io, struct slice head, size_t len)
{
    struct world *w = io;
    size_t room = w->pipe_room - buffer_len(&w->pipe), fits = head.len + len < room ? len : room - head.len;
    if (head.len > room)
        return SIZE_MAX;
    if (len > buffer_len(&w->raw) || !buffer_put(&w->pipe, head) ||
        !buffer_put(&w->pipe, slice_sub(buffer_slice(&w->raw), 0, fits)))
        abort();
    buffer_consume(&w->raw, fits);
    return len - fits;
}

static inline void world_gather(void *io, uint8_t *to, size_t len)
{
    struct world *w = io;
    size_t piped = buffer_len(&w->pipe);
    if (len < piped)
        abort();
    if (piped)
        memcpy(to, buffer_slice(&w->pipe).at, piped);
    buffer_consume(&w->pipe, piped);
    if (len > piped)
        world_peel(io, to + piped, len - piped);
}

static inline size_t world_send(void *io, enum side to, const struct slice *runs, size_t count)
{
    struct world *w = io;
    struct ear *ear = &w->ears[to];
    size_t taken = 0;
    w->sends[to]++;
    for (size_t i = 0; i < count; i++) {
        struct slice run = world_run(w, runs[i]), part = slice_sub(run, 0, ear->room);
        if (!buffer_put(&ear->bytes, part)) /* a test of short memory */
            return taken;
        ear->room -= ear->room == SIZE_MAX ? 0 : part.len;
        taken += part.len;
        if (leg_is_unseen(runs[i]))
            buffer_consume(&w->pipe, part.len);
        if (part.len < run.len)
            break;
    }
    ear_hear(ear);
    return taken;
}

/* Only written down. */
static inline size_t twin_send(void *io, enum side to, const struct slice *runs, size_t count)
{
    struct world *w = io;
    size_t taken = 0;
    for (size_t i = 0; i < count && !leg_is_unseen(runs[i]); i++) {
        struct slice part = slice_sub(runs[i], 0, w->ears[to].room);
        if (!buffer_put(&w->sent[to], part))
            abort();
        w->ears[to].room -= w->ears[to].room == SIZE_MAX ? 0 : part.len;
        taken += part.len;
        if (part.len < runs[i].len)
            break;
    }
    return taken;
}

static inline size_t world_may_hold(void *io, bool whole, size_t grows)
{
    (void)grows;
    struct world *w = io;
    if (w->frees && !--w->frees)
        w->full = false;
    return w->full || (w->tight && !whole) ? 0 : SIZE_MAX;
}

static inline bool world_permits_replay(void *io)
{
    struct world *w = io;
    w->turn = w->turn || !w->crowded;
    return w->turn;
}

static inline uint32_t world_random(void *io)
{
    struct world *w = io;
    return w->seed = w->seed * 1664525 + 1013904223;
}

static struct commands world_commands;
static const struct tunnel_host world_host = {world_send,   world_peel,     world_pipe,
                                              world_gather, world_may_hold, world_permits_replay,
                                              world_random, &world_commands};

static struct commands twin_commands;
static const struct tunnel_host twin_host = {twin_send,    world_peel,     world_pipe,
                                             world_gather, world_may_hold, world_permits_replay,
                                             world_random, &twin_commands};

/* ---- what it commands ---- */
static inline void world_hang_up(struct world *w)
{
    if (!w->dialling && !w->open)
        abort();
    w->hang_ups++;
    w->dialling = w->open = false;
}

static inline void world_adopt(struct world *w)
{
    if (!w->open)
        abort();
    w->open = w->turn = false;
    w->adopts++;
    ear_renew(&w->ears[WORKER], WS_CLIENT);
}

static inline void world_part(struct world *w, struct command *command)
{
    enum side side = command->side;
    size_t room = w->ears[side].room;
    struct slice unsent = send_queue_unsent(&command->rest);
    if (command->rest.unseen)
        abort(); /* who sends the rest has no pipe */
    w->ears[side].room = SIZE_MAX;
    w->t.forward.place.host->send(w, side, &unsent, 1);
    w->ears[side].room = room;
    send_queue_free(&command->rest);
    w->parted[side]++;
    w->unread += command->bytes;
    /* a leg that is left in good order is left between two frames */
    if (buffer_len(&w->ears[side].bytes))
        w->ears[side].broken = true;
}

static inline void world_carries_out(struct world *w, struct command *command)
{
    switch (command->kind) {
    case COMMAND_DIAL:
        w->dials++;
        w->dialling = true;
        w->dialled_port = tunnel_target(&w->t)->port;
        break;
    case COMMAND_RECHECK:
        w->rechecks++;
        w->rechecking = true;
        break;
    case COMMAND_RECHECK_END:
        w->rechecking = false;
        break;
    case COMMAND_HANG_UP:
        world_hang_up(w);
        break;
    case COMMAND_ADOPT:
        world_adopt(w);
        tunnel_writable(&w->t, WORKER, w->now);
        break;
    case COMMAND_PART:
        world_part(w, command);
        break;
    case COMMAND_DROP:
        w->dropped[command->side]++;
        break;
    case COMMAND_ASK:
        w->asks++;
        w->asking = true;
        break;
    case COMMAND_WATCH:
        if (w->watching)
            abort();
        w->watches++;
        w->watching = true;
        break;
    case COMMAND_ACCEPT:
        w->accepts++;
        tunnel_writable(&w->t, CLIENT, w->now);
        break;
    case COMMAND_REFUSE:
        w->refusals++;
        w->refusal = command->refusal;
        break;
    case COMMAND_RESUMED:
        w->resumes++;
        w->loss = command->loss;
        w->gap = command->time;
        break;
    case COMMAND_DECLARED:
        w->declared[command->bytes ? 1 : 0]++;
        w->missing = command->bytes;
        break;
    case COMMAND_UNCONFIRMED:
        w->unconfirmed += command->bytes;
        break;
    }
}

/* Behind every event. */
static inline void world_obeys(struct world *w)
{
    for (struct command *next; (next = commands_take(w->t.forward.place.host->commands));)
        world_carries_out(w, next);
    if (w->t.strayed && !w->spoiled)
        abort(); /* a way that state.h does not know */
    if (!w->t.forward.legs[CLIENT].out.unseen)
        buffer_free(&w->pipe); /* its rest is nobody's */
    if (w->t.state == TUNNEL_ended)
        w->ends = 1;
}

static inline void *adapter_state_for(const struct handover *h, bool client_resumes)
{
    size_t len = adapter_find((enum handover_resume)h->resume, client_resumes)->state_len;
    return calloc(1, len ? len : 1);
}

/* ---- a steady tunnel and its twin, that is not ---- */
static inline void twin_begin(struct world *twin, const struct world *w)
{
    struct tunnel_opening opening = {{&twin_host, twin, &twin->settings},
                                     &w->handover,
                                     slice_text(w->target),
                                     w->client_resumes,
                                     w->t.expires,
                                     adapter_state_for(&w->handover, w->client_resumes)};
    struct buffer image = buffer_with_limit(64 << 20);
    *twin = *w;
    twin->state = opening.state;
    bool loaded =
        tunnel_save(&w->t, &image, w->now) && tunnel_load(&twin->t, &opening, buffer_slice(&image), w->now);
    if (!loaded || twin->t.forward.steady[CLIENT] || twin->t.forward.steady[WORKER])
        abort();
    for (enum side side = CLIENT; side <= WORKER; side++)
        twin->sent[side] = buffer_with_limit(64 << 20);
    twin_commands = (struct commands){0}; /* of its beginning: its worker is there */
    buffer_free(&image);
}

/* How many commands there were. */
static inline unsigned twins_obey(void)
{
    unsigned count = 0;
    for (struct command *next; (next = commands_take(&twin_commands)); count++)
        if (next->kind == COMMAND_PART)
            send_queue_free(&next->rest);
    return count;
}

static inline void twin_end(struct world *twin)
{
    tunnel_free(&twin->t);
    free(twin->state);
    buffer_free(&twin->sent[CLIENT]);
    buffer_free(&twin->sent[WORKER]);
}

static inline bool twin_reads(struct world *twin, enum side from, struct slice bytes, uint64_t now)
{
    uint8_t *memory = malloc(FORWARD_FRONT + bytes.len);
    memcpy(memory + FORWARD_FRONT, bytes.at, bytes.len);
    bool changed = tunnel_read(&twin->t, from, slice_of(memory + FORWARD_FRONT, bytes.len), now);
    free(memory);
    return changed;
}

/* What no decoder reads again. */
static inline void twin_forgets_heads(struct tunnel *t)
{
    for (enum side side = CLIENT; side <= WORKER; side++) {
        struct ws_decoder *in = &t->forward.legs[side].in;
        memset(in->head + in->head_len, 0, WS_HEAD_MAX - in->head_len);
    }
}

static inline void twins_are_alike(struct world *a, struct world *b)
{
    struct buffer images[2] = {buffer_with_limit(64 << 20), buffer_with_limit(64 << 20)};
    twin_forgets_heads(&a->t);
    twin_forgets_heads(&b->t);
    bool saved = tunnel_save(&a->t, &images[0], a->now);
    if (saved != tunnel_save(&b->t, &images[1], b->now) || a->t.state != b->t.state)
        abort();
    if (saved && !slice_equal(buffer_slice(&images[0]), buffer_slice(&images[1])))
        abort();
    for (enum side side = CLIENT; side <= WORKER; side++)
        if (a->t.forward.legs[side].reading != b->t.forward.legs[side].reading ||
            a->t.forward.legs[side].pours != b->t.forward.legs[side].pours ||
            !slice_equal(buffer_slice(&a->sent[side]), buffer_slice(&b->sent[side])))
            abort();
    buffer_free(&images[0]);
    buffer_free(&images[1]);
}

/* The second is not steady: it decides anew behind what it reads, and so says what the first need not look at. */
static inline void world_compares(struct world *w, enum side from, struct slice bytes, uint64_t now)
{
    static struct world quick, slow;
    twin_begin(&quick, w);
    twin_begin(&slow, w);
    uint64_t before = tunnel_due(&slow.t);
    twin_reads(&slow, from, bytes, now);
    unsigned commands = twins_obey();
    quick.t.forward.steady[from] = true;
    bool changed = twin_reads(&quick, from, bytes, now);
    if (twins_obey() != commands)
        abort();
    if (!changed) {
        if (commands || tunnel_due(&slow.t) < before || !forward_is_steady(&quick.t.forward, from))
            abort();
        forward_decide(&quick.t.forward, now);
    }
    twins_are_alike(&quick, &slow);
    twin_end(&quick);
    twin_end(&slow);
    w->compared++;
}

/* ---- events ---- */
static inline void world_read(struct world *w, enum side from, struct slice bytes, uint64_t now)
{
    if (w->twins && w->t.forward.steady[from] && w->t.connector.phase == CONNECTOR_IDLE)
        world_compares(w, from, bytes, now);
    bool changed = tunnel_read(&w->t, from, bytes, now);
    if (!changed && world_commands.count != world_commands.first)
        abort();
    w->passed += !changed;
    world_obeys(w);
}

static inline void world_feed(struct world *w, enum side from, struct slice seen, struct slice bytes)
{
    struct leg *leg = &w->t.forward.legs[from];
    struct slice partial = buffer_slice(&leg->partial);
    size_t len = partial.len + seen.len + bytes.len;
    uint8_t *memory = malloc(FORWARD_FRONT + len), *at = memory + FORWARD_FRONT;
    if (partial.len)
        memcpy(at, partial.at, partial.len);
    if (seen.len)
        memcpy(at + partial.len, seen.at, seen.len);
    if (bytes.len)
        memcpy(at + len - bytes.len, bytes.at, bytes.len);
    buffer_consume(&leg->partial, partial.len);
    world_read(w, from, slice_of(at, len), w->now);
    free(memory);
}

/* As many of these as may go without being read: how many. */
static inline size_t world_moves(struct world *w, struct slice bytes)
{
    struct slice part = slice_sub(bytes, 0, w->pipes ? forward_unseen_most(&w->t.forward) : 0);
    uint8_t seen[WS_HEAD_MAX];
    if (!part.len)
        return 0;
    if (buffer_len(&w->pipe) || buffer_len(&w->raw))
        abort();
    w->pipe = buffer_with_limit(2 * FORWARD_UNSEEN_MOST);
    w->raw = buffer_with_limit(FORWARD_UNSEEN_MOST);
    if (!w->pipe_room)
        w->pipe_room = 2 * FORWARD_UNSEEN_MOST;
    if (!buffer_put(&w->raw, part))
        abort();
    size_t seen_len = tunnel_unseen(&w->t, part.len, seen, w->now);
    world_obeys(w);
    if (seen_len || buffer_len(&w->raw))
        world_feed(w, WORKER, slice_of(seen, seen_len), buffer_slice(&w->raw));
    buffer_free(&w->raw);
    return part.len;
}

static inline void world_writable(struct world *w, enum side to, uint64_t now)
{
    tunnel_writable(&w->t, to, now);
    world_obeys(w);
}

static inline void world_lost(struct world *w, enum side side, enum loss how, uint64_t now)
{
    tunnel_lost(&w->t, side, how, now);
    world_obeys(w);
}

static inline void world_tick(struct world *w, uint64_t now)
{
    tunnel_tick(&w->t, now);
    world_obeys(w);
}

static inline void world_end(struct world *w, enum close_reason reason, uint64_t now)
{
    tunnel_end(&w->t, reason, now);
    world_obeys(w);
}

static inline void world_answered(struct world *w, const struct answer *answer, bool watch, uint64_t now)
{
    tunnel_answered(&w->t, answer, watch, now);
    world_obeys(w);
}

static inline struct handover world_handover(void)
{
    struct handover h = handover_none();
    h.addr = (struct address){4, {127, 0, 0, 1}};
    h.addr_port = 1;
    h.epoch = 1;
    h.hold = 5000;
    return h;
}

/* Tunnels of such a world open a second connection to a worker where their adapter asks for it. */
static bool world_rechecks;

static inline bool world_open_to(struct world *w, const struct handover *h, const char *target,
                                 bool client_resumes)
{
    *w = (struct world){
        .now = 1000 * SEC,
        .settings = {.keepalive = 25 * SEC,
                     .dead_after = 60 * SEC,
                     .stall = 300 * SEC,
                     .grace_period = 500 * MS,
                     .close_timeout = 5 * SEC,
                     .connect_budget = 5 * SEC,
                     .migration_budget = 600 * SEC,
                     .buffer = 256 << 10,
                     .rechecks = world_rechecks,
                     .redial = {.backoff = {100 * MS, 250 * MS, 500 * MS, 1 * SEC, 2 * SEC, 4 * SEC},
                                .backoff_count = 6,
                                .budget = 30 * SEC,
                                .flap_window = 60 * SEC,
                                .flap_limit = 3}},
    };
    ear_renew(&w->ears[CLIENT], WS_SERVER);
    ear_renew(&w->ears[WORKER], WS_CLIENT);
    struct tunnel_opening opening = {{&world_host, w, &w->settings},
                                     h,
                                     slice_text(target),
                                     client_resumes,
                                     0,
                                     w->state = adapter_state_for(h, client_resumes)};
    w->handover = *h;
    w->target = target;
    w->client_resumes = client_resumes;
    world_commands = (struct commands){0};
    bool opened = w->state && tunnel_open(&w->t, &opening, w->now);
    if (opened)
        world_obeys(w);
    else
        free(w->state);
    return opened;
}

static inline bool world_open(struct world *w, const struct handover *h)
{
    return world_open_to(w, h, "/", false);
}

static inline void world_close(struct world *w)
{
    tunnel_free(&w->t);
    free(w->state);
    buffer_free(&w->ears[CLIENT].bytes);
    buffer_free(&w->ears[WORKER].bytes);
    buffer_free(&w->pipe);
}

/* Another process goes on with the tunnel, by what spoil has left of the image: what was dialled, asked and watched stays
 * behind. False: it does not take it, and the tunnel goes on here. */
static inline bool world_hands_over(struct world *w, void (*spoil)(struct buffer *image, void *context),
                                    void *context)
{
    struct tunnel_opening opening = {{w->t.forward.place.host, w, &w->settings},
                                     &w->handover,
                                     slice_text(w->target),
                                     w->client_resumes,
                                     0,
                                     adapter_state_for(&w->handover, w->client_resumes)};
    struct buffer image = buffer_with_limit(64 << 20);
    struct tunnel next;
    bool saved = forward_gather(&w->t.forward, CLIENT) && tunnel_save(&w->t, &image, w->now);
    if (saved && spoil)
        spoil(&image, context);
    bool loaded = saved && opening.state && tunnel_load(&next, &opening, buffer_slice(&image), w->now);
    buffer_free(&image);
    if (!loaded) {
        free(opening.state);
        return false;
    }
    w->dialling = w->open = w->asking = w->watching = false;
    w->spoiled = spoil != NULL;
    tunnel_free(&w->t);
    free(w->state);
    w->t = next;
    w->state = opening.state;
    world_obeys(w);
    return true;
}

/* ---- what happens ---- */

/* Bytes from one side, in reads of at most `step`. Memory is as a port gives it: writable, with room in
 * front, and not a byte behind. False: the side was not read. */
static inline bool world_bytes(struct world *w, enum side from, struct slice bytes, size_t step)
{
    while (bytes.len && w->t.state != TUNNEL_ended) {
        struct slice part = slice_sub(bytes, 0, step);
        if (!w->t.forward.legs[from].reading)
            return false;
        size_t moved = from == WORKER ? world_moves(w, part) : 0;
        bytes = slice_from(bytes, moved);
        if (moved)
            continue;
        bytes = slice_from(bytes, part.len);
        world_feed(w, from, slice_of(NULL, 0), part);
    }
    return true;
}

/* start: the frame's first byte, 0x82 is a whole binary message. */
static inline struct slice world_frame(uint8_t *to, enum side from, unsigned start, struct slice payload)
{
    static const uint8_t mask[4] = {0x11, 0x22, 0x33, 0x44};
    struct ws_frame frame = {
        .opcode = start & 0x0f, .fin = start & 0x80, .masked = from == CLIENT, .length = payload.len};
    memcpy(frame.mask, frame.masked ? mask : (const uint8_t[4]){0}, 4);
    size_t head = ws_encode_head(to, &frame);
    to[0] = (uint8_t)start; /* reserved bits, too */
    if (payload.len)
        ws_mask(to + head, payload.at, payload.len, frame.mask, 0);
    return slice_of(to, head + payload.len);
}

/* start as above. */
static inline bool world_says(struct world *w, enum side from, unsigned start, const char *text)
{
    uint8_t frame[512];
    return world_bytes(w, from, world_frame(frame, from, start, slice_text(text)), SIZE_MAX);
}

/* As the peer says it, a Ping of the relay's own, or the Pong to it. */
static inline bool world_says_own(struct world *w, enum side from, unsigned start, uint32_t mark,
                                  uint32_t number)
{
    uint8_t payload[LEG_PING_LEN], frame[64];
    struct writer to = writer_of(payload, sizeof payload);
    writer_text(&to, "cellgate");
    writer_be(&to, mark, 4);
    writer_be(&to, number, 4);
    return world_bytes(w, from, world_frame(frame, from, start, writer_slice(&to)), SIZE_MAX);
}

/* The Pong to the relay's Ping of that number. */
static inline void world_pongs(struct world *w, enum side from, uint32_t number)
{
    world_says_own(w, from, 0x8a, w->t.forward.legs[from].mark, number);
}

static inline void world_closes(struct world *w, enum side from, unsigned code, const char *reason)
{
    uint8_t frame[WS_CONTROL_FRAME_MAX], mask[4] = {1, 2, 3, 4};
    size_t len = ws_encode_close(frame, code, slice_text(reason), from == CLIENT ? mask : NULL);
    world_bytes(w, from, slice_of(frame, len), SIZE_MAX);
}

static inline void world_dialled(struct world *w, enum dial_outcome outcome, unsigned status)
{
    w->dialling = false;
    w->open = outcome == DIAL_OPEN;
    tunnel_dialled(&w->t, outcome, status, w->head, w->now);
    world_obeys(w);
}

/* port 0: no worker. */
static inline struct answer world_answer(enum answer_state state, uint16_t port, int64_t epoch)
{
    struct answer answer = {.state = state, .epoch = epoch};
    if (port)
        answer.target = (struct target){.addr = {4, {127, 0, 0, 1}}, .port = port};
    return answer;
}

static inline void world_answers(struct world *w, enum answer_state state, uint16_t port, int64_t epoch)
{
    struct answer answer = world_answer(state, port, epoch);
    w->asking = false;
    world_answered(w, &answer, false, w->now);
}

static inline void world_tells(struct world *w, enum answer_state state, uint16_t port, int64_t epoch)
{
    struct answer answer = world_answer(state, port, epoch);
    w->watching = false;
    world_answered(w, &answer, true, w->now);
}

/* Time passes; everything that is due on the way happens. */
static inline void world_pass(struct world *w, uint64_t time)
{
    uint64_t until = w->now + time;
    for (uint64_t due; (due = tunnel_due(&w->t)) <= until;) {
        if (due > w->now)
            w->now = due;
        world_tick(w, w->now);
        if (tunnel_due(&w->t) <= w->now)
            abort(); /* a tick has to do what is due */
    }
    w->now = until;
}

#endif
