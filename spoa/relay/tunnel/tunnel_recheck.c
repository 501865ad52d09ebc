/* SPDX-License-Identifier: MIT */
/* Opens a second connection to the serving worker for an adapter that needs the worker's current output (spoa/relay/scrollback/settle.h).
 * The connection only receives: the relay sends no input of the client to it. */
#include <stdlib.h>

#include "spoa/relay/tunnel/tunnel_parts.h"

#define RECHECK_TIME (3 * SECOND / 2) /* longest time from the dial until the snapshot is complete */
/* most consecutive exits after which the worker is dialled again before the exit is believed */
#define HELD_MOST 4

const struct target *tunnel_recheck_target(const struct tunnel *t)
{
    return &t->connector.target;
}

static void free_recheck(struct tunnel *t, uint64_t now)
{
    free(t->recheck);
    t->recheck = NULL;
    t->forward.adapter->recheck_ended(t->forward.adapter_state, now);
}

void tunnel_end_recheck(struct tunnel *t, uint64_t now)
{
    if (!t->recheck)
        return;
    place_put(&t->forward.place, COMMAND_RECHECK_END);
    free_recheck(t, now);
}

static void begin(struct tunnel *t, uint64_t now)
{
    t->recheck = calloc(1, sizeof *t->recheck);
    if (!t->recheck) {
        t->forward.adapter->recheck_ended(t->forward.adapter_state, now);
        return;
    }
    t->recheck->in = ws_decoder_with(WS_SERVER, t->recheck->control);
    t->recheck->until = now + RECHECK_TIME;
    place_put(&t->forward.place, COMMAND_RECHECK);
}

/* Returns the time of the adapter's next recheck. While a worker is not read, its output is incomplete, so the check waits until reading
 * resumes. */
static uint64_t adapter_at(const struct tunnel *t)
{
    const struct forward *f = &t->forward;
    bool waits =
        f->adapter->recheck_at && t->state == TUNNEL_serving && f->there[WORKER] && f->legs[WORKER].reading;

    return waits ? f->adapter->recheck_at(f->adapter_state) : UINT64_MAX;
}

uint64_t tunnel_recheck_due(const struct tunnel *t)
{
    uint64_t at = adapter_at(t);

    return t->recheck && t->recheck->until < at ? t->recheck->until : at;
}

void tunnel_check_recheck(struct tunnel *t, uint64_t now)
{
    bool wanted = false;

    if (t->recheck && now >= t->recheck->until)
        tunnel_end_recheck(t, now);
    if (now < adapter_at(t))
        return;
    tunnel_need(t, forward_recheck(&t->forward, now, &wanted), now);
    if (wanted && tunnel_is_open(t))
        begin(t, now);
}

/* Handles an event of the second connection. Returns false if the connection is no longer needed, has ended, or breaks the protocol. */
static bool on_event(struct tunnel *t, enum ws_event event, const struct ws_piece *piece, uint64_t now)
{
    struct recheck *r = t->recheck;
    const struct ws_frame *frame = &r->in.frame;

    if (event == WS_HEAD && frame->opcode != WS_CONTINUATION)
        r->message = frame->opcode;
    if (event == WS_HEAD || (event == WS_CONTROL && frame->opcode != WS_CLOSE))
        return true;
    if (event != WS_PIECE)
        return false;
    const struct adapter_piece given = {.opcode = r->message,
                                        .first = frame->opcode != WS_CONTINUATION && piece->offset == 0,
                                        .last = frame->fin && piece->last,
                                        .bytes = piece->bytes,
                                        .now = now};
    return t->forward.adapter->recheck_piece(t->forward.adapter_state, &given);
}

size_t tunnel_recheck_bytes(struct tunnel *t, struct slice bytes, unsigned frames, uint64_t now)
{
    struct ws_piece piece;
    enum ws_event event;
    bool on = true;

    if (!t->recheck)
        return bytes.len;
    size_t some = ws_some(&t->recheck->in, bytes, frames);
    bytes = slice_sub(bytes, 0, some);
    while (on && (event = ws_decode(&t->recheck->in, &bytes, &piece)) != WS_MORE)
        on = on_event(t, event, &piece, now);
    if (!on)
        tunnel_end_recheck(t, now);
    return some;
}

void tunnel_recheck_over(struct tunnel *t, uint64_t now)
{
    if (t->recheck)
        free_recheck(t, now);
}

bool tunnel_holds_exit(struct tunnel *t)
{
    if (!forward_is_unsettled(&t->forward) || t->exits_held == HELD_MOST)
        return false;
    t->exits_held++;
    t->exit_held = true;
    t->forward.end_said = false; /* the next connection says it again */
    return true;
}
