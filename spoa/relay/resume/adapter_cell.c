/* SPDX-License-Identifier: MIT */
/*
 * cell: the caller's side of Cell-Resume, version 1 (docs/resume-protocol.md). The number of a message is its position. The
 * worker's queue keeps the client's messages until the worker acknowledges them, and the relay sends the kept ones again to the
 * next worker. If the session repeats items, the adapter drops those received before, and continues a cut item to the client at
 * the byte where it was cut.
 */
#include "spoa/proto/cell_resume.h"
#include "spoa/relay/resume/adapter.h"

#define ACK_DELAY (200 * MILLISECOND)

struct cell {
    char id[CELL_RESUME_ID_LEN];
    uint64_t attempt;     /* number of the last dialled attempt */
    uint64_t leg_attempt; /* number of the serving worker's attempt */
    bool known;           /* a worker answered 101, so the session has this tunnel */
    size_t buffer;
    size_t window;

    /* ---- from the session ---- */
    uint64_t received;     /* the number of whole items received */
    uint64_t requested;    /* value of `received` in the last request */
    uint64_t told;         /* the number of received items that were acknowledged */
    uint64_t told_bytes;   /* cost of the received items not acknowledged */
    uint64_t since;        /* time when the oldest of these items arrived; 0 if not noted yet */
    uint64_t repeated;     /* the number of received items that this worker will send again */
    uint64_t passed;       /* bytes of the incoming item that were forwarded to the client */
    uint64_t at;           /* bytes of the incoming item that this worker has sent */
    enum ws_opcode opcode; /* opcode of the incoming item, valid if `open` */
    bool open;             /* the client has received a part of the incoming item */
    bool end_marked;       /* the next Close ends the session */

    /* ---- from the client ---- */
    uint64_t sent;         /* the number of whole messages sent, on all legs */
    uint64_t acknowledged; /* the number of messages acknowledged by the session */
    uint64_t cost;         /* cost of the messages sent and not acknowledged */
    bool left;             /* the client's end was marked, as the item after the last message */

    /* ---- terms of the last 101 ---- */
    uint64_t answer_recv, answer_next;
};

static const char digits[] = "0123456789abcdef";

/* ---- the handshake ---- */
static void start(void *state, const struct adapter_start *start)
{
    struct cell *c = state;

    for (size_t i = 0; i < sizeof c->id; i++)
        c->id[i] = digits[start->id[i / 8] >> (4 * (i % 8)) & 15];
    c->buffer = start->buffer;
    c->window = start->buffer < CELL_RESUME_WINDOW ? start->buffer : CELL_RESUME_WINDOW;
}

static void request(void *state, struct writer *query, struct writer *fields)
{
    struct cell *c = state;

    (void)query;
    c->attempt++;
    c->requested = c->received;
    cell_resume_put_field(fields, &(struct cell_resume_terms){.tunnel = slice_of(c->id, sizeof c->id),
                                                              .attempt = c->attempt,
                                                              .recv = c->received,
                                                              .has_recv = c->known,
                                                              .buffer = c->buffer});
}

static enum adapter_answer answered(void *state, const struct http_head *head)
{
    struct cell *c = state;
    struct cell_resume_terms terms;
    enum cell_resume_found found = cell_resume_read_head(head, CELL_RESUME_ANSWER, &terms);

    if (found == CELL_RESUME_ABSENT)
        return c->known ? ADAPTER_EXPIRED : ADAPTER_PLAIN;
    if (found == CELL_RESUME_MALFORMED)
        return ADAPTER_BROKEN;
    if (terms.recv < c->acknowledged || terms.next > c->received + 1)
        return ADAPTER_EXPIRED;
    if (terms.recv > c->sent)
        return ADAPTER_BROKEN;
    uint64_t theirs = terms.buffer ? terms.buffer : CELL_RESUME_WINDOW;
    c->window = theirs < c->buffer ? (size_t)theirs : c->buffer;
    c->answer_recv = terms.recv;
    c->answer_next = terms.next;
    return ADAPTER_GOES_ON;
}

/* ---- input ---- */
static bool acknowledge(struct cell *c, struct send_queue *kept, uint64_t recv, bool unsent)
{
    uint64_t count = recv - c->acknowledged, len;

    if (!send_queue_release(kept, count, unsent, &len))
        return false;
    c->acknowledged = recv;
    c->cost -= len + count * CELL_RESUME_COST;
    return true;
}

static void joined(void *state, struct send_queue *kept, struct adapter_edit *edit)
{
    struct cell *c = state;

    edit->outcome = c->known ? ADAPTER_EXACT : ADAPTER_PENDING;
    c->known = true;
    c->leg_attempt = c->attempt;
    c->repeated = c->received + 1 - c->answer_next;
    c->at = 0;
    c->end_marked = false;
    /* the request acknowledged `requested` items; the acknowledgement of later ones is overdue */
    c->told = c->requested;
    c->told_bytes = 0;
    c->since = c->received > c->told ? 1 : 0;
    /* `answered` has checked that the queue keeps enough messages */
    if (!acknowledge(c, kept, c->answer_recv, true))
        c->cost = 0;
}

static void from_client(void *state, uint64_t len)
{
    struct cell *c = state;

    c->sent++;
    c->cost += len + CELL_RESUME_COST;
}

static size_t room(const void *state, size_t *window)
{
    const struct cell *c = state;

    *window = c->window;
    return c->cost < c->window ? c->window - (size_t)c->cost : 0;
}

static uint64_t progress(const void *state)
{
    const struct cell *c = state;
    return c->received + c->acknowledged;
}

static uint64_t unacknowledged(const void *state)
{
    const struct cell *c = state;
    return c->sent - c->acknowledged;
}

/* ---- output ---- */
static void complete(struct cell *c)
{
    c->told_bytes += c->at + CELL_RESUME_COST;
    c->received++;
    c->passed = c->at = 0;
    c->open = false;
}

static enum adapter_verdict repeat(struct cell *c, const struct adapter_piece *piece)
{
    if (piece->last)
        c->repeated--;
    return ADAPTER_DROP;
}

static enum adapter_verdict from_worker(void *state, const struct adapter_piece *piece,
                                        struct adapter_edit *edit)
{
    struct cell *c = state;
    uint64_t before = c->at, after = before + piece->bytes.len;

    c->end_marked = false;
    if (c->repeated)
        return repeat(c, piece);
    if (piece->first && c->open && piece->opcode != c->opcode)
        return ADAPTER_WRONG;
    if (piece->last && after < c->passed)
        return ADAPTER_WRONG;
    c->at = after;
    if (c->told_bytes + after > c->window)
        return ADAPTER_TOO_MUCH;
    edit->skip = after <= c->passed   ? piece->bytes.len
                 : before < c->passed ? (size_t)(c->passed - before)
                                      : 0;
    bool nothing = after <= c->passed && c->open && !piece->last;
    c->passed = after > c->passed ? after : c->passed;
    c->opcode = piece->opcode;
    c->open = true;
    if (piece->last)
        complete(c);
    return nothing ? ADAPTER_DROP : ADAPTER_PASS;
}

static bool whole(void *state, enum ws_opcode opcode, struct slice bytes)
{
    struct cell *c = state;

    if (c->repeated || c->open || c->told_bytes + bytes.len > c->window)
        return false;
    c->end_marked = false;
    c->opcode = opcode;
    c->at = bytes.len;
    complete(c);
    return true;
}

static size_t put_pong(uint8_t payload[WS_CONTROL_MAX], enum cell_resume_say say, uint64_t number)
{
    struct writer w = writer_of(payload, WS_CONTROL_MAX);

    cell_resume_put_pong(&w, say, number);
    return w.len;
}

/* While `since` is 0, nothing is due: the tunnel calls due_pong after each read, which sets `since`. */
static uint64_t due(const void *state)
{
    const struct cell *c = state;

    if (c->received == c->told || !c->since)
        return UINT64_MAX;
    return c->since + ACK_DELAY;
}

static size_t due_pong(void *state, uint64_t now, uint8_t payload[WS_CONTROL_MAX])
{
    struct cell *c = state;

    if (c->received == c->told)
        return 0;
    if (!c->since)
        c->since = now;
    if (now < c->since + ACK_DELAY && c->told_bytes < c->window / 4 && !c->end_marked)
        return 0;
    c->told = c->received;
    c->told_bytes = 0;
    c->since = 0;
    return put_pong(payload, CELL_RESUME_RECV, c->told);
}

static enum adapter_verdict pong(void *state, struct slice payload, struct send_queue *kept)
{
    struct cell *c = state;
    uint64_t value = 0;
    enum cell_resume_say say = cell_resume_read_pong(payload, &value);

    if (say == CELL_RESUME_END) {
        if (c->repeated || value != c->received + 1)
            return ADAPTER_WRONG;
        c->end_marked = true;
    } else if (say == CELL_RESUME_RECV && value > c->acknowledged) {
        /* the queue keeps no message for the client's end, which is the Close */
        if (c->left && value == c->sent + 1)
            value = c->sent;
        return value <= c->sent && acknowledge(c, kept, value, false) ? ADAPTER_DROP : ADAPTER_WRONG;
    }
    return ADAPTER_DROP;
}

/* ---- ends ---- */
static enum adapter_close closed(void *state, unsigned code)
{
    struct cell *c = state;

    if (c->end_marked) {
        c->received++;
        return ADAPTER_END;
    }
    switch (code) {
    case CELL_RESUME_CLOSE_TAKEN:
        return c->leg_attempt == c->attempt ? ADAPTER_TAKEN : ADAPTER_LOSS;
    case CELL_RESUME_CLOSE_PROTOCOL:
        return ADAPTER_REFUSED;
    case CELL_RESUME_CLOSE_TOO_BIG:
        return ADAPTER_JUDGE;
    default:
        return ADAPTER_LOSS;
    }
}

static size_t mark_end(void *state, uint8_t payload[WS_CONTROL_MAX])
{
    struct cell *c = state;

    c->left = true;
    return put_pong(payload, CELL_RESUME_END, c->sent + 1);
}

/* ---- as an image ---- */
static bool holds(const void *state)
{
    const struct cell *c = state;

    for (size_t i = 0; i < sizeof c->id; i++)
        if (!c->id[i] || !strchr(digits, c->id[i])) /* the id is written into an HTTP head */
            return false;
    return c->window <= c->buffer && c->acknowledged <= c->sent;
}

static const struct image_field fields[] = {
    IMAGE_BYTES(struct cell, id),
    IMAGE_ANY(struct cell, attempt),
    IMAGE_ANY(struct cell, leg_attempt),
    IMAGE_FLAG(struct cell, known),
    IMAGE_USUALLY(struct cell, buffer, BUFFER_LIMIT_MAX, 256 << 10),
    IMAGE_USUALLY(struct cell, window, BUFFER_LIMIT_MAX, 256 << 10),
    IMAGE_ANY(struct cell, received),
    IMAGE_ANY(struct cell, requested),
    IMAGE_ANY(struct cell, told),
    IMAGE_ANY(struct cell, told_bytes),
    IMAGE_TIME(struct cell, since),
    IMAGE_ANY(struct cell, repeated),
    IMAGE_ANY(struct cell, passed),
    IMAGE_ANY(struct cell, at),
    IMAGE_NUMBER(struct cell, opcode, WS_BINARY),
    IMAGE_FLAG(struct cell, open),
    IMAGE_FLAG(struct cell, end_marked),
    IMAGE_ANY(struct cell, sent),
    IMAGE_ANY(struct cell, acknowledged),
    IMAGE_ANY(struct cell, cost),
    IMAGE_FLAG(struct cell, left),
    IMAGE_ANY(struct cell, answer_recv),
    IMAGE_ANY(struct cell, answer_next),
};
static IMAGE_TABLE(table, struct cell, fields, .holds = holds);

static const struct adapter_numbers numbers = {
    .is_own = cell_resume_is_own,
    .pong = pong,
    .from_client = from_client,
    .room = room,
    .due_pong = due_pong,
    .due = due,
    .closed = closed,
    .mark_end = mark_end,
    .unacknowledged = unacknowledged,
};

const struct adapter adapter_cell = {
    .name = "cell",
    .exact = true,
    .overlap = true,
    .state_len = sizeof(struct cell),
    .image = &table,
    .start = start,
    .request = request,
    .answered = answered,
    .joined = joined,
    .from_worker = from_worker,
    .whole = whole,
    .progress = progress,
    .numbers = &numbers,
};
