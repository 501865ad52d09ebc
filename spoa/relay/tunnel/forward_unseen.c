/* SPDX-License-Identifier: MIT */
/* Payload that goes from the worker to the client without being looked at. */
#include "spoa/relay/tunnel/forward.h"
#include "spoa/relay/tunnel/session_end.h"

#define LITTLE 16384 /* bytes that came at a time: the worker does not pour any more */

_Static_assert(FORWARD_UNSEEN > SESSION_END_MAX, "what says a session's end is read");
_Static_assert(FORWARD_UNSEEN > LEG_FRAME_WHOLE, "what goes on whole is read");

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* Nobody wants to see more of its data than their heads. */
static bool is_blind(const struct forward *f)
{
    return !f->adapter->from_worker && !f->adapter->numbers && f->mode == FORWARD_SERVING &&
           f->there[CLIENT] && f->there[WORKER] && !f->place.host->commands->unattached[CLIENT];
}

static bool is_ready(const struct leg *client)
{
    return send_queue_empty(&client->out) && !client->close_out && !client->cut;
}

size_t forward_unseen_most(const struct forward *f)
{
    const struct leg *worker = &f->legs[WORKER];
    uint64_t rest = ws_untold(&worker->in);

    if (!worker->pours || rest < FORWARD_UNSEEN || buffer_len(&worker->partial) || !worker->reading ||
        !is_blind(f) || !is_ready(&f->legs[CLIENT]))
        return 0;
    uint64_t most = least(rest, least(FORWARD_UNSEEN_MOST, f->place.settings->buffer));
    most = least(most, forward_memory(f, WORKER));
    return most >= FORWARD_UNSEEN ? (size_t)most : 0;
}

bool forward_pass_unseen(struct forward *f, size_t len, uint64_t now)
{
    struct leg *worker = &f->legs[WORKER], *client = &f->legs[CLIENT];
    struct ws_frame part = ws_fragment(&worker->in.frame, worker->in.offset, len);
    struct leg_batch batch = {.count = 2, .message = client->message_out};
    uint8_t head[WS_HEAD_MAX];

    part.opcode = client->message_out ? WS_CONTINUATION : (enum ws_opcode)worker->message_in;
    batch.runs[0] = slice_of(head, ws_encode_head(head, &part));
    batch.runs[1] = slice_of(NULL, len);
    client->message_out = part.fin ? 0 : worker->message_in;
    client->data += len;
    worker->pours = len >= LITTLE || len == ws_untold(&worker->in);
    ws_skip(&worker->in, len);
    worker->bytes_in += len;
    worker->heard = f->used = now;
    worker->pinged = 0;
    return forward_flush(f, CLIENT, &batch, now);
}

size_t forward_unseen_stop(const struct forward *f, enum side from)
{
    const struct leg *worker = &f->legs[WORKER];

    if (from == CLIENT || !worker->pours || buffer_len(&worker->partial) ||
        ws_is_control(worker->in.frame.opcode) || worker->in.frame.length < FORWARD_UNSEEN ||
        ws_untold(&worker->in) >= FORWARD_UNSEEN || !is_blind(f))
        return SIZE_MAX;
    uint64_t stop = ws_to_payload(&worker->in);
    return stop ? (size_t)stop : SIZE_MAX;
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
