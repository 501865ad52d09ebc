/* SPDX-License-Identifier: MIT */
#include "spoa/relay/tunnel/forward.h"

#include "spoa/relay/tunnel/session_end.h"

/* ---- to one side ---- */
struct outlet {
    struct forward *f;
    enum side to;
};

static size_t outlet_send(void *context, const struct slice *runs, size_t count)
{
    const struct outlet *outlet = context;
    return outlet->f->place.host->send(outlet->f->place.io, outlet->to, runs, count);
}

bool forward_flush(struct forward *f, enum side to, struct leg_batch *batch, uint64_t now)
{
    struct outlet outlet = {f, to};

    if (batch->count && !forward_gather(f, to))
        return false;
    return leg_flush(&f->legs[to], batch,
                     f->there[to] && !f->place.host->commands->unattached[to] ? outlet_send : NULL, &outlet,
                     now);
}

static struct leg_batch control_batch(const struct forward *f, enum side to, struct slice bytes)
{
    return (struct leg_batch){.runs = {bytes}, .count = 1, .message = f->legs[to].message_out, .controls = 1};
}

static bool send_bytes(struct forward *f, enum side to, struct slice bytes, uint64_t now)
{
    struct leg_batch batch = control_batch(f, to, bytes);
    return forward_flush(f, to, &batch, now);
}

static bool hold_bytes(struct forward *f, enum side to, struct slice bytes, uint64_t now)
{
    struct leg_batch batch = control_batch(f, to, bytes);
    return forward_gather(f, to) && leg_flush(&f->legs[to], &batch, NULL, NULL, now);
}

/* Returns a random mask for a frame of the relay's own, or NULL for a frame to the client. */
static const uint8_t *own_mask(struct forward *f, enum side to, uint8_t mask[4])
{
    uint32_t random = to == WORKER ? place_random(&f->place) : 0;
    memcpy(mask, &random, 4);
    return to == WORKER ? mask : NULL;
}

bool forward_send_control(struct forward *f, enum side to, enum ws_opcode opcode, struct slice payload,
                          uint64_t now)
{
    uint8_t frame[WS_CONTROL_FRAME_MAX], mask[4];

    if (f->legs[to].close_out)
        return true;
    size_t len = ws_encode_control(frame, opcode, payload, own_mask(f, to, mask));
    return send_bytes(f, to, slice_of(frame, len), now);
}

static bool put_close(struct forward *f, enum side to, unsigned code, struct slice text, bool hold,
                      uint64_t now)
{
    uint8_t frame[WS_CONTROL_FRAME_MAX], mask[4];

    if (f->legs[to].close_out || !f->there[to])
        return true;
    f->legs[to].close_out = true;
    struct slice bytes = slice_of(frame, ws_encode_close(frame, code, text, own_mask(f, to, mask)));
    return hold ? hold_bytes(f, to, bytes, now) : send_bytes(f, to, bytes, now);
}

bool forward_send_close(struct forward *f, enum side to, unsigned code, struct slice text, uint64_t now)
{
    return put_close(f, to, code, text, false, now);
}

bool forward_hold_close(struct forward *f, enum side to, unsigned code, struct slice text, uint64_t now)
{
    return put_close(f, to, code, text, true, now);
}

/* While input arrives, the relay asks a worker after each `keepalive` how far it has read, to bound the loss if the worker fails. A
 * missing answer is no sign of death: the worker's process may not read. */
bool forward_may_ask_how_far(const struct forward *f, uint64_t now)
{
    const struct leg *leg = &f->legs[WORKER];
    bool open = leg->asked > leg->read, due = now - leg->asked_at >= f->place.settings->keepalive;

    return due && !open && leg->data != leg->read && !f->adapter->numbers && !f->adapter->one_leg &&
           f->there[WORKER];
}

bool forward_ask_how_far(struct forward *f, uint64_t now)
{
    struct leg *leg = &f->legs[WORKER];
    uint8_t payload[LEG_PING_LEN];

    if (!forward_may_ask_how_far(f, now))
        return true;
    leg_ping_payload(leg, payload, now);
    return forward_send_control(f, WORKER, WS_PING, slice_of(payload, sizeof payload), now);
}

bool forward_keep_alive(struct forward *f, enum side to, uint64_t now)
{
    static const uint8_t empty_binary[] = {0x80 | WS_BINARY, 0};
    uint8_t payload[LEG_PING_LEN];
    struct leg *leg = &f->legs[to];

    /* no other message may stand between the fragments of a message */
    bool empty = to == CLIENT && f->empty_frame && !leg->message_out;
    if (empty) {
        leg->heard = now;
    } else {
        leg_ping_payload(leg, payload, now);
        leg->pinged = now;
    }
    return empty ? send_bytes(f, to, slice_of(empty_binary, sizeof empty_binary), now)
                 : forward_send_control(f, to, WS_PING, slice_of(payload, sizeof payload), now);
}

bool forward_mend_message(struct forward *f, uint64_t now)
{
    static const uint8_t empty_end[] = {0x80 | WS_CONTINUATION, 0};
    struct leg *client = &f->legs[CLIENT];

    if (!client->message_out || f->adapter->exact)
        return true;
    if (!f->stream && !(f->adapter->may_end && f->adapter->may_end(f->adapter_state)))
        return false;
    struct leg_batch batch = {
        .runs = {slice_of(empty_end, sizeof empty_end)}, .count = 1, .message = client->message_out};
    client->message_out = 0;
    return forward_flush(f, CLIENT, &batch, now);
}

/* ---- decisions of adapters ---- */
void forward_declare(struct forward *f, enum adapter_outcome outcome, uint64_t gap)
{
    if (outcome == ADAPTER_PENDING)
        return;
    if (gap)
        f->gaps++;
    if (gap != ADAPTER_UNKNOWN)
        f->missing = gap < UINT64_MAX - f->missing ? f->missing + gap : UINT64_MAX;
    commands_put(f->place.host->commands, &(struct command){.kind = COMMAND_DECLARED, .bytes = gap});
}

/* Applies a decision that the adapter took without output from the worker. */
static bool pass_decision(struct forward *f, enum adapter_verdict verdict, struct adapter_edit *edit,
                          uint64_t now)
{
    struct leg_batch batch = {.count = 1, .message = f->legs[CLIENT].message_out};
    bool fine = verdict <= ADAPTER_DROP;

    if (fine)
        forward_declare(f, edit->outcome, edit->gap);
    batch.runs[0] = buffer_slice(&edit->insert);
    if (fine && batch.runs[0].len)
        fine = forward_flush(f, CLIENT, &batch, now);
    buffer_free(&edit->insert);
    return fine;
}

bool forward_is_unsettled(const struct forward *f)
{
    return f->adapter->unsettled && f->adapter->unsettled(f->adapter_state);
}

bool forward_recheck(struct forward *f, uint64_t now, bool *begin)
{
    struct adapter_edit edit = {.insert = buffer_with_limit(f->adapter->insert_max)};

    return pass_decision(f, f->adapter->recheck(f->adapter_state, now, &edit, begin), &edit, now);
}

bool forward_tell_adapter(struct forward *f, uint64_t time, uint64_t now)
{
    struct adapter_edit edit = {.insert = buffer_with_limit(f->adapter->insert_max)};

    /* nothing may follow the beginning of a message that was cut */
    if (!f->adapter->tick || (time == ADAPTER_NO_MORE && f->legs[CLIENT].message_out))
        return true;
    return pass_decision(f, f->adapter->tick(f->adapter_state, time, &edit), &edit, now);
}

bool forward_withholds(const struct forward *f)
{
    return send_queue_len(&f->legs[CLIENT].out) >= LEG_PAUSE;
}

bool forward_acknowledge_all(struct forward *f, uint64_t now)
{
    uint8_t payload[WS_CONTROL_MAX];

    if (!f->adapter->numbers || !f->there[WORKER])
        return true;
    size_t len = f->adapter->numbers->due_pong(f->adapter_state, now, payload);
    return !len || forward_send_control(f, WORKER, WS_PONG, slice_of(payload, len), now);
}

bool forward_acknowledge(struct forward *f, uint64_t now)
{
    return forward_withholds(f) || forward_acknowledge_all(f, now);
}

void forward_mark_end(struct forward *f, uint64_t now)
{
    uint8_t payload[WS_CONTROL_MAX];

    if (!f->adapter->numbers || !f->there[WORKER])
        return;
    size_t len = f->adapter->numbers->mark_end(f->adapter_state, payload);
    /* if memory is short, the following Close cannot be sent either: the leg is lost */
    if (!forward_send_control(f, WORKER, WS_PONG, slice_of(payload, len), now))
        f->legs[WORKER].close_out = true;
}

/* ---- from one side to the other ---- */

#define MADE         2048 /* bytes of generated frames that are sent together */
#define TAGGED_SMALL 124  /* most bytes after a tag in a frame whose length field has one byte */
#define TAGGED_HEAD  6    /* bytes of such a frame's head, with the client's mask */

/* The state of one forward_read. Output is collected as runs of the memory that the input was read into: a frame that passes unchanged is
 * written to its own place, so that neighbours become one run. Small frames that cannot lie there are generated in `made`, so that one
 * system call sends many frames however small they are. */
struct pass {
    struct forward *f;
    enum side from;
    struct leg *leg, *peer;
    struct leg_batch batch; /* output for peer */
    uint8_t *memory;        /* memory of the read, with the room before the data */
    /* end of the part of `memory` that is in the batch; nothing before this may be written */
    uint8_t *unsent;
    size_t made_len, answers_len;
    uint8_t made[MADE];      /* generated frames of the batch */
    uint8_t answers[MADE];   /* control frames for leg */
    struct forward_end *end; /* result of the pass, set if the pass stops */
    uint64_t now;
};

/* Each function below returns true if the pass continues; otherwise `*end` holds the reason. */
static bool no_memory(struct pass *p)
{
    p->batch.count = 0;
    *p->end = (struct forward_end){.how = FORWARD_NO_MEMORY};
    return false;
}

/* Returns true for input of a client that was sent a Close: the relay discards such input until the client answers. */
static bool is_ignored(const struct pass *p)
{
    return p->f->mode >= FORWARD_CLOSING && p->from == CLIENT && !forward_hears_client(p->f);
}

/* Fails the leg. Further input from this side cannot be parsed, so the relay does not wait for a Close. */
static void fail_leg(struct pass *p, enum close_reason reason)
{
    p->leg->close_in = true;
    *p->end = (struct forward_end){.how = FORWARD_FAILED, .reason = reason};
}

/* Returns true if the heads of a message's fragments take more room than its data may. Such a message cannot be kept for a retry. */
static bool too_many_fragments(const struct pass *p)
{
    const struct send_queue *out = &p->peer->out;
    size_t data = send_queue_len(out) - out->controls + leg_batch_data(&p->batch);

    return out->keeps && data > out->frames.limit - LEG_SLACK + LEG_SPARE;
}

static bool flush_answers(struct pass *p)
{
    size_t len = p->answers_len;

    p->answers_len = 0;
    return !len || send_bytes(p->f, p->from, slice_of(p->answers, len), p->now) || no_memory(p);
}

static bool pass_flush(struct pass *p)
{
    if (!flush_answers(p))
        return false;
    if (too_many_fragments(p)) {
        p->batch.count = 0;
        fail_leg(p, CLOSE_message_too_big);
        return false;
    }
    bool sent = forward_flush(p->f, other(p->from), &p->batch, p->now);
    p->unsent = p->memory;
    p->made_len = 0;
    return sent || no_memory(p);
}

/* Returns room for another generated frame and its run, or NULL if the pass stops. */
static uint8_t *make_room(struct pass *p, size_t len)
{
    if ((p->made_len + len > MADE || p->batch.count == LEG_RUNS) && !pass_flush(p))
        return NULL;
    p->made_len += len;
    return p->made + p->made_len - len;
}

static bool pass_run(struct pass *p, struct slice run)
{
    struct leg_batch *batch = &p->batch;
    struct slice *last = batch->count ? &batch->runs[batch->count - 1] : NULL;

    if (last && last->at + last->len == run.at) {
        last->len += run.len;
        return true;
    }
    if (batch->count == LEG_RUNS && !pass_flush(p))
        return false;
    batch->runs[batch->count++] = run;
    return true;
}

/* Sends payload as a frame. The head is written into the `room` bytes before the payload, over its own head or bytes that are not
 * forwarded. */
static bool pass_behind_head(struct pass *p, struct slice payload, size_t room, uint64_t offset, bool fin)
{
    struct ws_frame part = ws_fragment(&p->leg->in.frame, offset, payload.len);

    part.opcode = p->peer->message_out ? WS_CONTINUATION : (enum ws_opcode)p->leg->message_in;
    part.fin = fin;
    struct slice whole = ws_put_head(payload, room, &part);
    if (!slice_present(whole))
        return no_memory(p);
    p->peer->message_out = fin ? 0 : p->leg->message_in;
    p->peer->data += payload.len;
    return pass_run(p, whole);
}

/* Sends payload that lies in the memory of the read. */
static bool pass_payload(struct pass *p, struct slice payload, uint64_t offset, bool fin)
{
    if (!pass_behind_head(p, payload, (size_t)(payload.at - p->unsent), offset, fin))
        return false;
    p->unsent = (uint8_t *)payload.at + payload.len;
    return true;
}

/* Copies a small piece into a generated frame, so that many small pieces are sent together. */
static bool pass_small_tagged(struct pass *p, struct slice bytes, uint8_t tag, uint64_t offset)
{
    uint8_t *at = make_room(p, TAGGED_HEAD + 1 + bytes.len);

    if (!at)
        return false;
    at[TAGGED_HEAD] = tag;
    memcpy(at + TAGGED_HEAD + 1, bytes.at, bytes.len);
    return pass_behind_head(p, slice_of(at + TAGGED_HEAD, bytes.len + 1), TAGGED_HEAD, offset, true);
}

/* Sends a piece of input as a message of its own with its own tag. Otherwise the next worker could get the rest of a message whose
 * beginning was lost with the last worker, and would read the first byte as a tag. */
static bool pass_tagged(struct pass *p, const struct ws_piece *in)
{
    /* treat the tag as the frame's byte before these, masked like it */
    uint64_t offset = in->offset + 3;
    uint8_t tag = p->leg->in.frame.mask[offset % 4];

    if (in->bytes.len <= TAGGED_SMALL)
        return pass_small_tagged(p, in->bytes, tag, offset);
    /* head and tag may be longer than the old head and overlap bytes that are not sent yet */
    if (!pass_flush(p))
        return false;
    uint8_t *at = (uint8_t *)in->bytes.at - 1;
    *at = tag;
    return pass_payload(p, slice_of(at, in->bytes.len + 1), offset, true);
}

static bool pass_input(struct pass *p, const struct adapter_piece *piece, const struct ws_piece *in)
{
    struct forward *f = p->f;
    bool told;

    if (piece->first)
        f->input = INPUT_UNTOLD;
    told = f->input != INPUT_UNTOLD;
    if (!told && in->bytes.len)
        f->input = in->bytes.at[0] == p->leg->in.frame.mask[in->offset % 4] ? INPUT_BYTES : INPUT_OTHER;
    if (f->input == INPUT_UNTOLD)
        return !piece->last || pass_payload(p, in->bytes, in->offset, true);
    if (f->input == INPUT_OTHER)
        return pass_payload(p, in->bytes, in->offset, piece->last);
    if (told)
        return !in->bytes.len || pass_tagged(p, in);
    return pass_payload(p, in->bytes, in->offset, true);
}

static void look_for_end(struct pass *p, const struct adapter_piece *piece)
{
    if (p->from == WORKER && piece->first && piece->last &&
        session_end_said(p->f->end, piece->opcode, piece->bytes))
        p->f->end_said = true;
}

static bool pass_insert(struct pass *p, struct adapter_edit *edit)
{
    bool passed = true;

    if (buffer_len(&edit->insert) && (passed = pass_flush(p))) {
        p->peer->message_out = edit->opened;
        p->batch.runs[p->batch.count++] = buffer_slice(&edit->insert);
        passed = pass_flush(p);
    }
    buffer_free(&edit->insert);
    return passed;
}

static bool wrong(struct pass *p, enum adapter_verdict verdict)
{
    if (verdict == ADAPTER_NO_MEMORY)
        return no_memory(p);
    if (pass_flush(p))
        fail_leg(p, verdict == ADAPTER_TOO_MUCH ? CLOSE_message_too_big
                    : verdict == ADAPTER_CUT    ? CLOSE_message_cut
                                                : CLOSE_worker_protocol);
    return false;
}

/* Forwards the part of a worker's piece that the adapter keeps. */
static bool adapt(struct pass *p, const struct adapter_piece *piece, uint64_t offset)
{
    struct adapter_edit edit = {.insert = buffer_with_limit(p->f->adapter->insert_max)};
    enum adapter_verdict verdict = p->f->adapter->from_worker(p->f->adapter_state, piece, &edit);

    if (verdict > ADAPTER_DROP) {
        buffer_free(&edit.insert);
        return wrong(p, verdict);
    }
    forward_declare(p->f, edit.outcome, edit.gap);
    if (!pass_insert(p, &edit))
        return false;
    return verdict == ADAPTER_DROP ||
           pass_payload(p, slice_from(piece->bytes, edit.skip), offset + edit.skip, piece->last);
}

static bool on_piece(struct pass *p, const struct ws_piece *in)
{
    const struct ws_frame *frame = &p->leg->in.frame;
    struct adapter_piece piece = {
        .opcode = (enum ws_opcode)p->leg->message_in,
        .first = frame->opcode != WS_CONTINUATION && in->offset == 0,
        .last = frame->fin && in->last,
        .bytes = in->bytes,
        .now = p->now,
    };
    const struct adapter *adapter = p->f->adapter;

    p->f->used = p->now;
    if (is_ignored(p))
        return true;
    look_for_end(p, &piece);
    if (adapter->from_worker && p->from == WORKER)
        return adapt(p, &piece, in->offset);
    if (adapter->numbers && p->from == CLIENT && piece.last) {
        adapter->numbers->from_client(p->f->adapter_state, p->leg->message_len);
        p->leg->message_len = 0;
    }
    if (adapter->tagged && p->from == CLIENT && piece.opcode == WS_BINARY)
        return pass_input(p, &piece, in);
    return pass_payload(p, piece.bytes, in->offset, piece.last);
}

static bool on_head(struct pass *p)
{
    const struct ws_frame *frame = &p->leg->in.frame;
    uint64_t most = p->f->max_message;

    if (frame->opcode != WS_CONTINUATION) {
        p->leg->message_in = (uint8_t)frame->opcode;
        p->leg->message_len = 0;
    }
    p->leg->message_len += frame->length;
    if (!most || p->leg->message_len <= most || is_ignored(p))
        return true;
    if (pass_flush(p))
        fail_leg(p, CLOSE_message_too_big);
    return false;
}

static bool pass_control(struct pass *p, struct slice payload)
{
    uint8_t frame[WS_CONTROL_FRAME_MAX], *at;
    const struct ws_frame *in = &p->leg->in.frame;
    size_t len = ws_encode_control(frame, in->opcode, payload, in->masked ? in->mask : NULL);

    if ((at = make_room(p, len)) == NULL)
        return false;
    memcpy(at, frame, len);
    pass_run(p, slice_of(at, len)); /* make_room has left room for a run */
    p->batch.controls |= UINT32_C(1) << (p->batch.count - 1);
    return true;
}

/* Queues a Pong of the relay's own. */
static bool answer(struct pass *p, struct slice payload)
{
    uint8_t mask[4];

    if (p->leg->close_out)
        return true;
    if (p->answers_len + WS_CONTROL_FRAME_MAX > MADE && !flush_answers(p))
        return false;
    p->answers_len +=
        ws_encode_control(p->answers + p->answers_len, WS_PONG, payload, own_mask(p->f, p->from, mask));
    return true;
}

/* Returns true if the answers held for this side are too many. RFC 6455 section 5.5.3 allows to answer only one of several Pings, and no
 * proper client sends hidden ones. */
static bool is_many_answers(const struct pass *p)
{
    return send_queue_len(&p->leg->out) >= READ_LEAST && !forward_memory(p->f, p->from);
}

/* Returns true for control frames of the adapter's protocol, which the other side must not see. */
static bool is_hidden(const struct pass *p, struct slice payload)
{
    return p->f->adapter->numbers && p->f->adapter->numbers->is_own(payload);
}

static bool on_ping(struct pass *p, struct slice payload)
{
    struct forward *f = p->f;

    if (is_hidden(p, payload) && p->from == WORKER)
        return wrong(p, ADAPTER_WRONG);
    if (is_hidden(p, payload))
        return is_many_answers(p) || answer(p, payload);
    if (!f->there[other(p->from)] || p->peer->close_out)
        return answer(p, payload);
    if (p->from == CLIENT)
        pings_put(&f->pings, payload);
    return pass_control(p, payload);
}

static bool on_hidden_pong(struct pass *p, struct slice payload)
{
    struct forward *f = p->f;
    enum adapter_verdict verdict =
        p->from == CLIENT ? ADAPTER_DROP
                          : f->adapter->numbers->pong(f->adapter_state, payload, &f->legs[WORKER].out);
    return verdict == ADAPTER_DROP || wrong(p, verdict);
}

static bool on_pong(struct pass *p, struct slice payload)
{
    if (is_hidden(p, payload))
        return on_hidden_pong(p, payload);
    if (leg_own_pong(p->leg, payload))
        return true;
    if (p->from == WORKER)
        pings_answered(&p->f->pings, payload);
    return !p->f->there[other(p->from)] || p->peer->close_out || pass_control(p, payload);
}

/* Ends the pass at a Close. The tunnel decides what the Close means. */
static bool on_close(struct pass *p, unsigned code, struct slice text)
{
    uint8_t copy[WS_CONTROL_MAX];

    memcpy(copy, text.at, text.len);
    p->leg->close_in = true;
    if (!pass_flush(p))
        return false;
    *p->end = (struct forward_end){.how = FORWARD_CLOSED, .code = code, .text_len = text.len};
    memcpy(p->end->text, copy, text.len);
    return false;
}

static bool on_control(struct pass *p)
{
    struct ws_decoder *in = &p->leg->in;

    switch (in->frame.opcode) {
    case WS_PING:
        return on_ping(p, ws_control_payload(in));
    case WS_PONG:
        return on_pong(p, ws_control_payload(in));
    default:
        return on_close(p, in->close_code, ws_close_reason(in));
    }
}

static bool on_bad(struct pass *p)
{
    if (pass_flush(p))
        fail_leg(p, p->from == CLIENT ? CLOSE_client_protocol : CLOSE_worker_protocol);
    return false;
}

static bool pass_event(struct pass *p, enum ws_event event, const struct ws_piece *piece)
{
    switch (event) {
    case WS_HEAD:
        return on_head(p);
    case WS_PIECE:
        return on_piece(p, piece);
    case WS_CONTROL:
        return on_control(p);
    default:
        return on_bad(p);
    }
}

static void keep_partial(struct pass *p, struct slice rest)
{
    p->leg->bytes_in -= rest.len;
    if (!buffer_put(&p->leg->partial, rest))
        no_memory(p);
}

static bool pass_events(struct pass *p, struct slice *bytes)
{
    struct ws_piece piece;
    enum ws_event event;
    bool on = true;

    while (on && (event = ws_decode(&p->leg->in, bytes, &piece)) != WS_MORE)
        on = pass_event(p, event, &piece);
    return on;
}

/* If memory is short, forwards an incomplete frame as fragments of the bytes at hand. */
static bool pass_rest(struct pass *p, struct slice *bytes)
{
    if (bytes->len <= READ_LEAST + WS_HEAD_MAX || forward_memory(p->f, p->from) >= LEG_FRAME_WHOLE)
        return true;
    p->leg->in.whole = READ_LEAST;
    bool on = pass_events(p, bytes);
    p->leg->in.whole = LEG_FRAME_WHOLE;
    return on;
}

static void pass_begin(struct pass *p, struct forward *f, enum side from, struct slice bytes, uint64_t now)
{
    p->f = f;
    p->from = from;
    p->memory = p->unsent = (uint8_t *)bytes.at - FORWARD_FRONT;
    p->leg = &f->legs[from];
    p->peer = &f->legs[other(from)];
    p->batch.count = 0;
    p->batch.controls = 0;
    p->batch.message = p->peer->message_out;
    p->made_len = p->answers_len = 0;
    p->now = now;
}

struct forward_end forward_read(struct forward *f, enum side from, struct slice bytes, uint64_t now)
{
    struct forward_end end;
    struct pass p;

    end.how = FORWARD_GOES_ON;
    pass_begin(&p, f, from, bytes, now);
    p.end = &end;
    p.leg->bytes_in += bytes.len;
    p.leg->heard = now;
    p.leg->pinged = 0;
    p.leg->pours = p.leg->pours || bytes.len >= FORWARD_POURS;
    bool on = pass_events(&p, &bytes) && pass_rest(&p, &bytes);
    if (on && pass_flush(&p) && bytes.len)
        keep_partial(&p, bytes);
    p.leg->dropped = on ? 0 : bytes.len;
    return end;
}

void forward_writable(struct forward *f, enum side to, uint64_t now)
{
    struct outlet outlet = {f, to};

    leg_writable(&f->legs[to], outlet_send, &outlet, now);
}
