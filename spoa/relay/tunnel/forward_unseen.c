/* SPDX-License-Identifier: MIT */
/* Large frames that the relay splices from the worker to the client without reading the payload. */
#include "spoa/relay/tunnel/forward.h"
#include "spoa/relay/tunnel/session_end.h"

#define LITTLE 16384 /* bytes of a read below which the worker no longer sends in bulk */

_Static_assert(FORWARD_UNSEEN > SESSION_END_MAX, "what says a session's end is read");
_Static_assert(FORWARD_UNSEEN > LEG_FRAME_WHOLE, "what goes on whole is read");
_Static_assert(FORWARD_UNSEEN_MOST / FORWARD_UNSEEN + 2 < SEND_QUEUE_PARTS,
               "a part for each frame, and for one that is cut");

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* Returns true if neither the adapter nor the relay needs more of the worker's data than the frame heads. */
static bool is_blind(const struct forward *f)
{
    return !f->adapter->from_worker && !f->adapter->numbers && f->mode == FORWARD_SERVING &&
           f->there[CLIENT] && f->there[WORKER] && !f->place.host->commands->unattached[CLIENT];
}

static bool is_ready(const struct leg *client)
{
    return send_queue_empty(&client->out) && !client->close_out && !client->cut;
}

static bool is_large(const struct ws_frame *frame)
{
    return !ws_is_control(frame->opcode) && frame->length >= FORWARD_UNSEEN;
}

size_t forward_unseen_most(const struct forward *f)
{
    const struct leg *worker = &f->legs[WORKER];

    if (!worker->pours || !is_large(&worker->in.frame) || worker->close_in || buffer_len(&worker->partial) ||
        !worker->reading || !is_blind(f) || !is_ready(&f->legs[CLIENT]))
        return 0;
    uint64_t most = least(FORWARD_UNSEEN_MOST, f->place.settings->buffer);
    most = least(most, forward_memory(f, WORKER));
    return most >= FORWARD_UNSEEN ? (size_t)most : 0;
}

/* Parses a part of a frame head. Returns false if the frame may not be spliced; the decoder's state is then unchanged. */
static bool take_head(struct forward *f, struct slice bytes)
{
    struct leg *worker = &f->legs[WORKER];
    struct ws_decoder next = worker->in;
    size_t len = bytes.len;
    uint64_t most = f->max_message, before;
    struct ws_piece piece;
    enum ws_event event = ws_decode(&next, &bytes, &piece);

    if (event == WS_HEAD) {
        before = next.frame.opcode == WS_CONTINUATION ? worker->message_len : 0;
        if (!is_large(&next.frame) ||
            (most && (next.frame.length > most || before > most - next.frame.length)))
            return false;
        if (next.frame.opcode != WS_CONTINUATION)
            worker->message_in = (uint8_t)next.frame.opcode;
        worker->message_len = before + next.frame.length;
    } else if (event != WS_MORE || !ws_in_head(&next)) {
        return false;
    }
    worker->in = next;
    worker->bytes_in += len;
    return true;
}

/* Splices the available bytes of the payload as a fragment. Returns false if the pipe takes no more. */
static bool pass_part(struct forward *f, size_t *left, bool *piped)
{
    struct leg *worker = &f->legs[WORKER], *client = &f->legs[CLIENT];
    size_t len = (size_t)least(ws_untold(&worker->in), *left);
    struct ws_frame part = ws_fragment(&worker->in.frame, worker->in.offset, len);
    uint8_t head[WS_HEAD_MAX];

    part.opcode = client->message_out ? WS_CONTINUATION : (enum ws_opcode)worker->message_in;
    size_t head_len = send_queue_note_part(&client->out, &part, head);
    size_t over = f->place.host->pipe(f->place.io, slice_of(head, head_len), len);
    if (over == SIZE_MAX) {
        client->out.part_count--;
        return false;
    }
    client->message_out = part.fin ? 0 : worker->message_in;
    client->data += len;
    ws_skip(&worker->in, len);
    worker->bytes_in += len;
    *left -= len;
    *piped = !over;
    return *piped;
}

static bool flush_gathered(struct forward *f, struct leg_batch *batch, uint64_t now)
{
    struct send_queue *out = &f->legs[CLIENT].out;
    size_t len = send_queue_noted(out), room;
    struct buffer all = buffer_with_limit(len);
    uint8_t *at = buffer_room(&all, len, &room);
    bool passed = at != NULL;

    send_queue_forget_parts(out);
    if (at) {
        f->place.host->gather(f->place.io, at, len);
        batch->runs[0] = slice_of(at, len);
        passed = forward_flush(f, CLIENT, batch, now);
    }
    buffer_free(&all);
    return passed;
}

static bool flush_parts(struct forward *f, uint8_t message, bool piped, uint64_t now)
{
    struct send_queue *out = &f->legs[CLIENT].out;
    struct leg_batch batch = {.count = 1, .message = message};

    if (!out->part_count)
        return true;
    if (!piped)
        return flush_gathered(f, &batch, now);
    batch.runs[0] = slice_of(NULL, send_queue_noted(out));
    bool passed = forward_flush(f, CLIENT, &batch, now);
    if (!out->unseen)
        send_queue_forget_parts(out);
    return passed;
}

bool forward_pass_unseen(struct forward *f, size_t len, uint8_t seen[WS_HEAD_MAX], size_t *seen_len,
                         uint64_t now)
{
    struct leg *worker = &f->legs[WORKER];
    uint8_t message = f->legs[CLIENT].message_out;
    size_t left = len;
    bool piped = true;

    *seen_len = 0;
    while (left && !*seen_len) {
        if (ws_untold(&worker->in)) {
            if (!pass_part(f, &left, &piped))
                break;
            continue;
        }
        size_t next = (size_t)least(ws_head_rest(&worker->in), left);
        f->place.host->peel(f->place.io, seen, next);
        left -= next;
        *seen_len = take_head(f, slice_of(seen, next)) ? 0 : next;
    }
    worker->pours = len >= LITTLE || !ws_untold(&worker->in);
    worker->heard = f->used = now;
    worker->pinged = 0;
    return flush_parts(f, message, piped, now);
}

bool forward_gather(struct forward *f, enum side to)
{
    struct send_queue *out = &f->legs[to].out;
    size_t piped = send_queue_piped(out);

    if (!out->unseen)
        return true;
    uint8_t *at = send_queue_gather(out);
    if (at)
        f->place.host->gather(f->place.io, at, piped);
    return at != NULL;
}
