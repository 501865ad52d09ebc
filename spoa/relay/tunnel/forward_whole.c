/* SPDX-License-Identifier: MIT */
/* Whole messages that go from one side to the other as they came: what forward.c does with them, without what only others need. */
#include "spoa/relay/tunnel/forward.h"
#include "spoa/relay/tunnel/session_end.h"

/* Nobody changes a message, or has to know how many there were. */
static bool is_plain(const struct adapter *adapter)
{
    return !adapter->from_worker && !adapter->numbers && !adapter->tagged;
}

static bool is_leg_steady(const struct leg *leg)
{
    return leg->reading && !leg->close_in && !leg->close_out && !leg->cut && !leg->message_out && !leg->out.message &&
           send_queue_empty(&leg->out) && !leg->out.unseen && !buffer_len(&leg->partial) &&
           ws_between_messages(&leg->in);
}

bool forward_is_steady(const struct forward *f)
{
    return is_plain(f->adapter) && f->mode == FORWARD_SERVING && f->there[CLIENT] && f->there[WORKER] &&
           !f->short_at && !f->permit_at && is_leg_steady(&f->legs[CLIENT]) &&
           is_leg_steady(&f->legs[WORKER]);
}

bool forward_pass_whole(struct forward *f, enum side from, struct slice *bytes, uint64_t now)
{
    struct leg *leg = &f->legs[from], *peer = &f->legs[other(from)];
    uint64_t most = f->max_message ? f->max_message : UINT64_MAX;
    struct slice run = *bytes;
    struct ws_piece piece;

    leg->pours = leg->pours || bytes->len >= FORWARD_POURS;
    while (ws_decode_whole(&leg->in, bytes, most, &piece)) {
        leg->message_in = (uint8_t)leg->in.frame.opcode;
        leg->message_len = piece.bytes.len;
        peer->data += piece.bytes.len;
        if (from == WORKER && session_end_said(f->end, leg->in.frame.opcode, piece.bytes))
            f->end_said = true;
    }
    run.len -= bytes->len;
    if (!run.len)
        return true;
    leg->bytes_in += run.len;
    leg->heard = f->used = now;
    return leg_sent_of(peer, run, f->place.host->send(f->place.io, other(from), &run, 1), now);
}
