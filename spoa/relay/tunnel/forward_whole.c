/* SPDX-License-Identifier: MIT */
/* The fast path: whole messages that pass unchanged. This file does for them what forward.c does, without the steps that only other
 * messages need. */
#include "spoa/relay/tunnel/forward.h"
#include "spoa/relay/tunnel/session_end.h"

/* Returns true if the adapter needs only the length and the first byte of these messages. */
static bool is_plain(const struct adapter *adapter, enum side from)
{
    return from == CLIENT || !adapter->from_worker || adapter->whole;
}

static bool is_between_messages(const struct leg *leg, const struct leg *peer)
{
    return !leg->close_in && !buffer_len(&leg->partial) && ws_between_messages(&leg->in) &&
           !peer->message_out;
}

static bool takes(const struct leg *leg)
{
    return !leg->close_out && !leg->cut && send_queue_empty(&leg->out) && !leg->out.unseen &&
           !leg->out.message;
}

bool forward_is_steady(const struct forward *f, enum side from)
{
    const struct leg *leg = &f->legs[from], *peer = &f->legs[other(from)];

    return f->mode == FORWARD_SERVING && f->there[CLIENT] && f->there[WORKER] && leg->reading &&
           peer->reading && !f->short_at && !f->permit_at && is_plain(f->adapter, from) &&
           is_between_messages(leg, peer) && takes(peer);
}

/* Counts a message of the worker. Returns false if the adapter must see the message in pieces. */
static bool count_of_worker(struct forward *f, enum ws_opcode opcode, struct slice bytes)
{
    if (f->adapter->whole && !f->adapter->whole(f->adapter_state, opcode, bytes))
        return false;
    if (session_end_said(f->end, opcode, bytes))
        f->end_said = true;
    return true;
}

static void count_of_client(struct forward *f, const struct ws_frame *frame, struct slice bytes)
{
    if (f->adapter->tagged && frame->opcode == WS_BINARY)
        f->input = !bytes.len ? INPUT_UNTOLD : bytes.at[0] == frame->mask[0] ? INPUT_BYTES : INPUT_OTHER;
    if (f->adapter->numbers)
        f->adapter->numbers->from_client(f->adapter_state, bytes.len);
}

/* Takes the next message if it passes unchanged. Otherwise the decoder's state is restored, and the head is read again. */
static bool take_whole(struct forward *f, enum side from, struct slice *bytes)
{
    struct leg *leg = &f->legs[from];
    const struct ws_frame *frame = &leg->in.frame;
    struct slice rest = *bytes;
    struct ws_piece piece;

    if (!ws_decode_whole(&leg->in, &rest, f->max_message ? f->max_message : UINT64_MAX, &piece))
        return false;
    if (from == CLIENT)
        count_of_client(f, frame, piece.bytes);
    else if (!count_of_worker(f, frame->opcode, piece.bytes))
        return false;
    *bytes = rest;
    leg->message_in = (uint8_t)frame->opcode;
    leg->message_len = from == CLIENT && f->adapter->numbers ? 0 : piece.bytes.len;
    f->legs[other(from)].data += piece.bytes.len;
    return true;
}

/* Returns true if all bytes of the read fit into the queue, in case the queue keeps them. */
static bool has_room(const struct leg *peer, struct slice bytes)
{
    return !peer->out.keeps || send_queue_len(&peer->out) + bytes.len <= peer->out.frames.limit - LEG_SLACK;
}

bool forward_pass_whole(struct forward *f, enum side from, struct slice *bytes, uint64_t now)
{
    struct leg *leg = &f->legs[from], *peer = &f->legs[other(from)];
    struct slice run = *bytes;

    leg->pours = leg->pours || bytes->len >= FORWARD_POURS;
    if (!has_room(peer, run))
        return true;
    while (take_whole(f, from, bytes))
        continue;
    run.len -= bytes->len;
    if (!run.len)
        return true;
    leg->bytes_in += run.len;
    leg->heard = f->used = now;
    leg->pinged = 0;
    return leg_sent_of(peer, run, f->place.host->send(f->place.io, other(from), &run, 1), now);
}
