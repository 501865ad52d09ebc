/* SPDX-License-Identifier: MIT */
#include "spoa/relay/tunnel/tunnel_parts.h"

#include "spoa/relay/tunnel/end.h"

/* ---- to one side ---- */
struct outlet {
    struct tunnel *t;
    enum side to;
};

static size_t outlet_send(void *context, const struct slice *runs, size_t count)
{
    const struct outlet *outlet = context;
    return outlet->t->host->send(outlet->t->io, outlet->to, runs, count);
}

static bool is_there(const struct tunnel *t, enum side side)
{
    return side == CLIENT ? t->client_there : t->worker_there;
}

static bool flush(struct tunnel *t, enum side to, struct leg_batch *batch, uint64_t now)
{
    struct outlet outlet = {t, to};
    return leg_flush(&t->legs[to], batch,
                     is_there(t, to) && !t->host->commands->unattached[to] ? outlet_send : NULL, &outlet,
                     now);
}

static bool send_bytes(struct tunnel *t, enum side to, struct slice bytes, uint64_t now)
{
    struct leg_batch batch = {.runs = {bytes}, .count = 1, .message = t->legs[to].message_out, .controls = 1};
    return flush(t, to, &batch, now);
}

/* A mask for a frame of the relay's own; NULL towards the client. */
static const uint8_t *own_mask(struct tunnel *t, enum side to, uint8_t mask[4])
{
    uint32_t random = to == WORKER ? t->host->random(t->io) : 0;
    memcpy(mask, &random, 4);
    return to == WORKER ? mask : NULL;
}

bool tunnel_send_control(struct tunnel *t, enum side to, enum ws_opcode opcode, struct slice payload,
                         uint64_t now)
{
    uint8_t frame[WS_CONTROL_FRAME_MAX], mask[4];

    if (t->legs[to].close_out)
        return true;
    size_t len = ws_encode_control(frame, opcode, payload, own_mask(t, to, mask));
    return send_bytes(t, to, slice_of(frame, len), now);
}

bool tunnel_send_close(struct tunnel *t, enum side to, unsigned code, struct slice text, uint64_t now)
{
    uint8_t frame[WS_CONTROL_FRAME_MAX], mask[4];

    if (t->legs[to].close_out || !is_there(t, to))
        return true;
    t->legs[to].close_out = true;
    size_t len = ws_encode_close(frame, code, text, own_mask(t, to, mask));
    return send_bytes(t, to, slice_of(frame, len), now);
}

/* While input goes on, a worker is asked as often as a quiet one how far it has read: the rest is what may be lost with
 * it. That it does not answer is no sign of death: its process may not read. */
static void ask_how_far(struct tunnel *t, uint64_t now)
{
    struct leg *leg = &t->legs[WORKER];
    uint8_t payload[LEG_PING_LEN];
    bool open = leg->asked > leg->read, due = now - leg->asked_at >= t->settings->keepalive;

    if (t->adapter->numbers || t->adapter->one_leg || !t->worker_there || leg->data == leg->read || open ||
        !due)
        return;
    leg_ping_payload(leg, payload, now);
    if (!tunnel_send_control(t, WORKER, WS_PING, slice_of(payload, sizeof payload), now))
        tunnel_close(t, CLOSE_no_memory, 0, slice_text(""), now);
}

void tunnel_keep_alive(struct tunnel *t, enum side to, uint64_t now)
{
    static const uint8_t empty_binary[] = {0x80 | WS_BINARY, 0};
    uint8_t payload[LEG_PING_LEN];
    struct leg *leg = &t->legs[to];

    /* between the fragments of a message there is no place for another one */
    bool empty = to == CLIENT && t->empty_frame && !leg->message_out;
    if (empty) {
        leg->heard = now;
    } else {
        leg_ping_payload(leg, payload, now);
        leg->pinged = now;
    }
    if (!(empty ? send_bytes(t, to, slice_of(empty_binary, sizeof empty_binary), now)
                : tunnel_send_control(t, to, WS_PING, slice_of(payload, sizeof payload), now)))
        tunnel_close(t, CLOSE_no_memory, 0, slice_text(""), now);
}

bool tunnel_mend_message(struct tunnel *t, uint64_t now)
{
    static const uint8_t empty_end[] = {0x80 | WS_CONTINUATION, 0};
    struct leg *client = &t->legs[CLIENT];

    if (!client->message_out || t->adapter->exact)
        return true;
    if (!t->stream && !(t->adapter->may_end && t->adapter->may_end(t->adapter_state)))
        return false;
    struct leg_batch batch = {
        .runs = {slice_of(empty_end, sizeof empty_end)}, .count = 1, .message = client->message_out};
    client->message_out = 0;
    return flush(t, CLIENT, &batch, now);
}

/* ---- what adapters have to say ---- */
void tunnel_declare(struct tunnel *t, enum adapter_outcome outcome, uint64_t gap)
{
    if (outcome == ADAPTER_PENDING)
        return;
    if (gap)
        t->gaps++;
    if (gap != ADAPTER_UNKNOWN)
        t->missing = gap < UINT64_MAX - t->missing ? t->missing + gap : UINT64_MAX;
    commands_put(t->host->commands, &(struct command){.kind = COMMAND_DECLARED, .bytes = gap});
}

void tunnel_tell_adapter(struct tunnel *t, uint64_t time, uint64_t now)
{
    struct adapter_edit edit = {.insert = buffer_with_limit(t->adapter->insert_max)};
    struct leg_batch batch = {.count = 1, .message = t->legs[CLIENT].message_out};

    /* behind the beginning of a message that was cut nothing can follow */
    if (!t->adapter->tick || (time == ADAPTER_NO_MORE && t->legs[CLIENT].message_out))
        return;
    bool fine = t->adapter->tick(t->adapter_state, time, &edit) <= ADAPTER_DROP;
    if (fine)
        tunnel_declare(t, edit.outcome, edit.gap);
    batch.runs[0] = buffer_slice(&edit.insert);
    if (fine && batch.runs[0].len)
        fine = flush(t, CLIENT, &batch, now);
    buffer_free(&edit.insert);
    if (!fine)
        tunnel_close(t, CLOSE_no_memory, 0, slice_text(""), now);
}

bool tunnel_withholds(const struct tunnel *t)
{
    return send_queue_len(&t->legs[CLIENT].out) >= LEG_PAUSE;
}

void tunnel_acknowledge_all(struct tunnel *t, uint64_t now)
{
    uint8_t payload[WS_CONTROL_MAX];

    if (!t->adapter->numbers || !t->worker_there)
        return;
    size_t len = t->adapter->numbers->due_pong(t->adapter_state, now, payload);
    if (len && !tunnel_send_control(t, WORKER, WS_PONG, slice_of(payload, len), now))
        tunnel_close(t, CLOSE_no_memory, 0, slice_text(""), now);
}

void tunnel_acknowledge(struct tunnel *t, uint64_t now)
{
    if (!tunnel_withholds(t))
        tunnel_acknowledge_all(t, now);
}

void tunnel_mark_end(struct tunnel *t, uint64_t now)
{
    uint8_t payload[WS_CONTROL_MAX];

    if (!t->adapter->numbers || !t->worker_there)
        return;
    size_t len = t->adapter->numbers->mark_end(t->adapter_state, payload);
    /* without memory the Close behind it is not sent either: the leg is lost */
    if (!tunnel_send_control(t, WORKER, WS_PONG, slice_of(payload, len), now))
        t->legs[WORKER].close_out = true;
}

/* ---- from one side to the other ---- */

#define MADE         2048 /* bytes of frames that are sent together */
#define TAGGED_SMALL 124  /* bytes behind a tag in a frame whose length has one byte */
#define TAGGED_HEAD  6    /* the length of such a frame's head: the client's are masked */

/* One tunnel_read. What goes to the other side is collected as runs of the memory it came in: a frame that
 * passes unchanged is written to the very place it lies at, so that neighbours become one run. Small frames
 * that cannot lie there are made elsewhere: however small frames are, a system call sends many of them. */
struct pass {
    struct tunnel *t;
    enum side from;
    struct leg *leg, *peer;
    struct leg_batch batch; /* for peer */
    uint8_t *memory; /* of the read, with its room in front */
    uint8_t *unsent; /* the end of what of it is in the batch: nothing in front of that may be written */
    size_t made_len, answers_len;
    uint8_t made[MADE];    /* of the batch */
    uint8_t answers[MADE]; /* control frames for leg */
    uint64_t now;
};

/* The functions below say whether the pass goes on; when it does not, the tunnel or this leg has come to an
 * end. */
static bool no_memory(struct pass *p)
{
    p->batch.count = 0;
    tunnel_close(p->t, CLOSE_no_memory, 0, slice_text(""), p->now);
    return false;
}

static bool is_closing_client(const struct pass *p)
{
    return p->t->state == TUNNEL_CLOSING && p->from == CLIENT;
}

/* A client that has been sent a Close: what it still says is read away until it answers. */
static bool is_ignored(const struct pass *p)
{
    return is_closing_client(p) && !tunnel_hears_client(p->t);
}

/* What else comes from this side is not understood any more: its Close is not waited for. */
static void fail_leg(struct pass *p, enum close_reason reason)
{
    p->leg->close_in = true;
    if (is_closing_client(p))
        tunnel_leave_client(p->t, p->now);
    else
        tunnel_close(p->t, reason, 0, slice_text(""), p->now);
}

/* A message in so many fragments that their heads are more than its bytes may be cannot be kept. */
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
    return !len || send_bytes(p->t, p->from, slice_of(p->answers, len), p->now) || no_memory(p);
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
    bool sent = flush(p->t, other(p->from), &p->batch, p->now);
    p->unsent = p->memory;
    p->made_len = 0;
    return sent || no_memory(p);
}

/* Room for another frame that is made, and for its run; NULL when the pass does not go on. */
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

/* Sends payload as a frame whose head is written into the `room` bytes in front of it, over what was its own head or is
 * not passed on. */
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

/* Payload that lies in the memory of the read. */
static bool pass_payload(struct pass *p, struct slice payload, uint64_t offset, bool fin)
{
    if (!pass_behind_head(p, payload, (size_t)(payload.at - p->unsent), offset, fin))
        return false;
    p->unsent = (uint8_t *)payload.at + payload.len;
    return true;
}

/* Small pieces are sent together: a frame is made of them elsewhere. */
static bool pass_small_tagged(struct pass *p, struct slice bytes, uint8_t tag, uint64_t offset)
{
    uint8_t *at = make_room(p, TAGGED_HEAD + 1 + bytes.len);

    if (!at)
        return false;
    at[TAGGED_HEAD] = tag;
    memcpy(at + TAGGED_HEAD + 1, bytes.at, bytes.len);
    return pass_behind_head(p, slice_of(at + TAGGED_HEAD, bytes.len + 1), TAGGED_HEAD, offset, true);
}

/* A piece of input becomes a message of its own, behind a tag of its own: a worker that is lost never leaves the rest
 * of one to the next, who would take the byte that stands there for its tag. */
static bool pass_tagged(struct pass *p, const struct ws_piece *in)
{
    /* as if the tag were the frame's byte in front of these, masked like it */
    uint64_t offset = in->offset + 3;
    uint8_t tag = p->leg->in.frame.mask[offset % 4];

    if (in->bytes.len <= TAGGED_SMALL)
        return pass_small_tagged(p, in->bytes, tag, offset);
    /* head and tag may be longer than what was the head: they may lie on bytes that are not sent yet */
    if (!pass_flush(p))
        return false;
    uint8_t *at = (uint8_t *)in->bytes.at - 1;
    *at = tag;
    return pass_payload(p, slice_of(at, in->bytes.len + 1), offset, true);
}

static bool pass_input(struct pass *p, const struct adapter_piece *piece, const struct ws_piece *in)
{
    struct tunnel *t = p->t;
    bool told;

    if (piece->first)
        t->input = INPUT_UNTOLD;
    told = t->input != INPUT_UNTOLD;
    if (!told && in->bytes.len)
        t->input = in->bytes.at[0] == p->leg->in.frame.mask[in->offset % 4] ? INPUT_BYTES : INPUT_OTHER;
    if (t->input == INPUT_UNTOLD)
        return !piece->last || pass_payload(p, in->bytes, in->offset, true);
    if (t->input == INPUT_OTHER)
        return pass_payload(p, in->bytes, in->offset, piece->last);
    if (told)
        return !in->bytes.len || pass_tagged(p, in);
    return pass_payload(p, in->bytes, in->offset, true);
}

static void look_for_end(struct pass *p, const struct adapter_piece *piece)
{
    if (p->from == WORKER && piece->first && piece->last && end_said(p->t->end, piece->opcode, piece->bytes))
        p->t->end_said = true;
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
        fail_leg(p, verdict == ADAPTER_TOO_MUCH ? CLOSE_message_too_big : CLOSE_worker_protocol);
    return false;
}

/* Passes what the adapter leaves of a piece from the worker. */
static bool adapt(struct pass *p, const struct adapter_piece *piece, uint64_t offset)
{
    struct adapter_edit edit = {.insert = buffer_with_limit(p->t->adapter->insert_max)};
    enum adapter_verdict verdict = p->t->adapter->from_worker(p->t->adapter_state, piece, &edit);

    if (verdict > ADAPTER_DROP) {
        buffer_free(&edit.insert);
        return wrong(p, verdict);
    }
    tunnel_declare(p->t, edit.outcome, edit.gap);
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
    const struct adapter *adapter = p->t->adapter;

    p->t->used = p->now;
    if (is_ignored(p))
        return true;
    look_for_end(p, &piece);
    if (adapter->from_worker && p->from == WORKER)
        return adapt(p, &piece, in->offset);
    if (adapter->numbers && p->from == CLIENT && piece.last) {
        adapter->numbers->from_client(p->t->adapter_state, p->leg->message_len);
        p->leg->message_len = 0;
    }
    if (adapter->tagged && p->from == CLIENT && piece.opcode == WS_BINARY)
        return pass_input(p, &piece, in);
    return pass_payload(p, piece.bytes, in->offset, piece.last);
}

static bool on_head(struct pass *p)
{
    const struct ws_frame *frame = &p->leg->in.frame;
    uint64_t most = p->t->limits.max_message;

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
    pass_run(p, slice_of(at, len)); /* there is room */
    p->batch.controls |= UINT32_C(1) << (p->batch.count - 1);
    return true;
}

/* A Pong of the relay's own. */
static bool answer(struct pass *p, struct slice payload)
{
    uint8_t mask[4];

    if (p->leg->close_out)
        return true;
    if (p->answers_len + WS_CONTROL_FRAME_MAX > MADE && !flush_answers(p))
        return false;
    p->answers_len +=
        ws_encode_control(p->answers + p->answers_len, WS_PONG, payload, own_mask(p->t, p->from, mask));
    return true;
}

/* RFC 6455 section 5.5.3: of several Pings one may be answered alone. No proper client sends hidden ones. */
static bool is_many_answers(const struct pass *p)
{
    return send_queue_len(&p->leg->out) >= READ_LEAST && !tunnel_memory(p->t, p->from);
}

/* Control frames that belong to a protocol that the client knows nothing of. */
static bool is_hidden(const struct pass *p, struct slice payload)
{
    return p->t->adapter->numbers && slice_starts(payload, "cr");
}

static bool on_ping(struct pass *p, struct slice payload)
{
    struct tunnel *t = p->t;

    if (is_hidden(p, payload) && p->from == WORKER)
        return wrong(p, ADAPTER_WRONG);
    if (is_hidden(p, payload))
        return is_many_answers(p) || answer(p, payload);
    if (!is_there(t, other(p->from)) || p->peer->close_out)
        return answer(p, payload);
    if (p->from == CLIENT)
        pings_put(&t->pings, payload);
    return pass_control(p, payload);
}

static bool on_hidden_pong(struct pass *p, struct slice payload)
{
    struct tunnel *t = p->t;
    enum adapter_verdict verdict =
        p->from == CLIENT ? ADAPTER_DROP
                          : t->adapter->numbers->pong(t->adapter_state, payload, &t->legs[WORKER].out);
    return verdict == ADAPTER_DROP || wrong(p, verdict);
}

static bool on_pong(struct pass *p, struct slice payload)
{
    if (is_hidden(p, payload))
        return on_hidden_pong(p, payload);
    if (leg_own_pong(p->leg, payload))
        return true;
    if (p->from == WORKER)
        pings_answered(&p->t->pings, payload);
    return !is_there(p->t, other(p->from)) || p->peer->close_out || pass_control(p, payload);
}

/* The client's Close goes to the worker, whose answer it then gets; without a worker the relay answers. */
static bool on_client_close(struct pass *p, unsigned code, struct slice text)
{
    struct tunnel *t = p->t;

    if (t->state == TUNNEL_CLOSING) {
        /* a client that resumes answers the worker's Close itself */
        if (t->adapter->one_leg && !tunnel_hears_client(t))
            tunnel_send_close(t, WORKER, code, text, p->now);
        tunnel_leave_client(t, p->now);
    } else
        tunnel_close(t, CLOSE_client_closed, code, text, p->now);
    return false;
}

/* The leg, and the decoder with it, may be renewed on the way. */
static bool on_close(struct pass *p, unsigned code, struct slice text)
{
    uint8_t copy[WS_CONTROL_MAX];

    memcpy(copy, text.at, text.len);
    text.at = copy;
    p->leg->close_in = true;
    if (!pass_flush(p))
        return false;
    if (p->from == CLIENT)
        return on_client_close(p, code, text);
    tunnel_worker_closed(p->t, code, text, p->now);
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

/* Where memory is short less of a frame is waited for: it goes on as fragments of the bytes at hand. */
static bool pass_rest(struct pass *p, struct slice *bytes)
{
    if (bytes->len <= READ_LEAST + WS_HEAD_MAX || tunnel_memory(p->t, p->from) >= LEG_FRAME_WHOLE)
        return true;
    p->leg->in.whole = READ_LEAST;
    bool on = pass_events(p, bytes);
    p->leg->in.whole = LEG_FRAME_WHOLE;
    return on;
}

static void pass_begin(struct pass *p, struct tunnel *t, enum side from, struct slice bytes, uint64_t now)
{
    p->t = t;
    p->from = from;
    p->memory = p->unsent = (uint8_t *)bytes.at - TUNNEL_FRONT;
    p->leg = &t->legs[from];
    p->peer = &t->legs[other(from)];
    p->batch.count = 0;
    p->batch.controls = 0;
    p->batch.message = p->peer->message_out;
    p->made_len = p->answers_len = 0;
    p->now = now;
}

void tunnel_read(struct tunnel *t, enum side from, struct slice bytes, uint64_t now)
{
    struct pass p;

    if (t->state == TUNNEL_ENDED || !is_there(t, from) || (from == WORKER && tunnel_hears_client(t)))
        return;
    pass_begin(&p, t, from, bytes, now);
    p.leg->bytes_in += bytes.len;
    p.leg->heard = now;
    p.leg->pinged = 0;
    bool on = pass_events(&p, &bytes) && pass_rest(&p, &bytes);
    if (on && pass_flush(&p) && bytes.len)
        keep_partial(&p, bytes);
    if (from == CLIENT && t->state == TUNNEL_SERVING)
        ask_how_far(t, now);
    if (t->adapter->numbers && t->state < TUNNEL_CLOSING)
        tunnel_acknowledge(t, now);
    tunnel_reading(t, now);
}

void tunnel_writable(struct tunnel *t, enum side to, uint64_t now)
{
    struct outlet outlet = {t, to};

    if (!is_there(t, to) || t->host->commands->unattached[to])
        return;
    leg_writable(&t->legs[to], outlet_send, &outlet, now);
    if (t->adapter->numbers && t->state < TUNNEL_CLOSING)
        tunnel_acknowledge(t, now);
    tunnel_reading(t, now);
}
