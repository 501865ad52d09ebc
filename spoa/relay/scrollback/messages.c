/* SPDX-License-Identifier: MIT */
/* The adapter's table, and the handling of each message of the worker (spoa/relay/scrollback/state.h). */
#include "spoa/relay/scrollback/pass.h"
#include "spoa/relay/scrollback/recheck.h"
#include "spoa/relay/scrollback/replay.h"

#define DOUBT_MAX (10 * SECOND) /* longest time in which output in doubt (see output_stream) is dropped */

static enum adapter_verdict verdict_of(bool fine, enum adapter_verdict verdict)
{
    return fine ? verdict : ADAPTER_NO_MEMORY;
}

static void start(void *state, const struct adapter_start *start)
{
    ((struct scrollback *)state)->rechecks = start->rechecks;
}

/* Notes how far the delivered output goes now: the next worker's replay has all of it, unless the worker's ring has dropped some. */
static void request(void *state, struct writer *query, struct writer *fields)
{
    struct scrollback *s = state;

    (void)query;
    (void)fields;
    for (unsigned i = 0; i < 2; i++)
        delivered_note(&s->streams[i].delivered, &s->streams[i].asked);
}

static bool may_end(const void *state)
{
    const struct scrollback *s = state;
    return s->tag == TAG_OUTPUT || s->tag == TAG_ERRORS;
}

static void joined(void *state, struct send_queue *kept, struct adapter_edit *edit)
{
    struct scrollback *s = state;

    (void)kept;
    replay_confirm(s, edit);
    recheck_lost(s);
    scrollback_clear_replay(s);
    s->torn = s->torn || (s->inside && s->tag && !may_end(s));
    s->inside = false;
    s->tag = 0;
    for (unsigned i = 0; i < 2; i++) {
        struct output_stream *stream = &s->streams[i];
        stream->skip = stream->collected = 0;
        delivered_forget(&stream->joined);
        stream->joined = stream->asked;
        stream->asked = (struct delivered_end){0};
    }
    s->marked = s->compared = s->tried = s->had_nothing = false;
    s->said = s->late_at = s->doubt_at = 0;
    s->phase = s->resumed ? SCROLLBACK_REPLAYING : SCROLLBACK_PASSING;
    s->resumed = true;
}

/* ---- messages ---- */

/* The worker's own `04` ends its replay. Returns false if memory is short. */
static bool end_snapshot(struct scrollback *s, uint64_t now, struct adapter_edit *edit)
{
    if (s->rechecks && !(s->settle = settle_new(now, s->after_exit)))
        return false;
    if (!replay_marked(s, now, edit))
        return false;
    if (s->settle)
        recheck_hold_live(s);
    return true;
}

static enum adapter_verdict on_live(struct scrollback *s, const struct adapter_piece *piece,
                                    struct adapter_edit *edit)
{
    if (!piece->last)
        return ADAPTER_DROP;
    s->marked = true;
    if (scrollback_is_collecting(s) && !s->settle && !end_snapshot(s, piece->now, edit))
        return ADAPTER_NO_MEMORY;
    if (s->live)
        return ADAPTER_DROP;
    s->live = true;
    if (piece->first)
        return ADAPTER_PASS;
    /* The message's earlier fragments were dropped, so the client gets a whole message of its own. */
    return verdict_of(adapter_put_frame(&edit->insert, WS_BINARY, true, slice_of(&s->tag, 1)), ADAPTER_DROP);
}

/* Returns the number of leading bytes of this live output that the client already has. Bytes in doubt are dropped while they equal the
 * delivered output, for DOUBT_MAX at most. */
static size_t to_skip(struct scrollback *s, struct output_stream *stream, struct slice bytes, uint64_t now)
{
    size_t most = stream->skip < bytes.len ? (size_t)stream->skip : bytes.len, same = most;

    if (!stream->doubt || !most)
        return most;
    s->doubt_at = s->doubt_at ? s->doubt_at : now;
    if (now >= s->doubt_at + DOUBT_MAX)
        same = 0;
    else
        same = delivered_again(&stream->delivered, stream->skip, slice_sub(bytes, 0, most));
    if (same < most)
        stream->skip = same;
    return same;
}

/* Passes live output. If the message's beginning is dropped because the client has it, the rest becomes a message with a new tag. */
static enum adapter_verdict pass_output(struct scrollback *s, struct output_stream *stream,
                                        struct slice bytes, const struct adapter_piece *piece,
                                        struct adapter_edit *edit)
{
    bool tagged = bytes.len < piece->bytes.len;
    bool passes = tagged && !stream->skip;
    size_t skipped = to_skip(s, stream, bytes, piece->now);

    s->begun = s->begun || passes;
    stream->skip -= skipped;
    bytes = slice_from(bytes, skipped);
    if (!delivered_put(&stream->delivered, bytes))
        return ADAPTER_NO_MEMORY;
    if (s->begun)
        return ADAPTER_PASS;
    if (!bytes.len)
        return ADAPTER_DROP;
    s->begun = true;
    edit->opened = WS_BINARY;
    edit->skip = piece->bytes.len - bytes.len;
    return verdict_of(adapter_put_frame(&edit->insert, WS_BINARY, false, slice_of(&s->tag, 1)), ADAPTER_PASS);
}

/* Collects output of a replay. Returns false if memory is short. */
static bool collect(struct scrollback *s, struct slice bytes, uint64_t now, struct adapter_edit *edit)
{
    uint64_t before = scrollback_collected(s);

    if (!scrollback_collect(s, s->tag, bytes))
        return false;
    if (s->phase != SCROLLBACK_LATE)
        return true;
    s->tried = false;
    s->late_at = s->late_at ? s->late_at : now;
    return replay_look(s, before, edit);
}

static enum adapter_verdict on_output(struct scrollback *s, struct slice bytes,
                                      const struct adapter_piece *piece, struct adapter_edit *edit)
{
    bool held = false;

    s->said += bytes.len;
    s->said_at = piece->now;
    if (s->settle && !recheck_hold_output(s, bytes, &held, edit))
        return ADAPTER_NO_MEMORY;
    if (held)
        return ADAPTER_DROP;
    if (scrollback_is_collecting(s)) {
        if (scrollback_has_room(s, bytes))
            return verdict_of(collect(s, bytes, piece->now, edit), ADAPTER_DROP);
        if (!replay_end(s, true, edit))
            return ADAPTER_NO_MEMORY;
    }
    replay_heard(s, edit);
    return pass_output(s, scrollback_stream(s, s->tag), bytes, piece, edit);
}

/* Passes or holds the exit code. No output follows it, so an outcome that is still open is counted now. */
static enum adapter_verdict on_exit_code(struct scrollback *s, const struct adapter_piece *piece,
                                         struct adapter_edit *edit)
{
    if (s->settle && recheck_hold_exit(s, piece))
        return ADAPTER_DROP;
    if (s->settle && !recheck_give_up(s, edit))
        return ADAPTER_NO_MEMORY;
    bool again = s->exited && piece->first && piece->last;
    s->exited = true;
    return verdict_of(replay_finish(s, edit), again ? ADAPTER_DROP : ADAPTER_PASS);
}

static enum adapter_verdict from_worker(void *state, const struct adapter_piece *piece,
                                        struct adapter_edit *edit)
{
    struct scrollback *s = state;
    bool tagged;

    if (piece->first) {
        s->tag = 0;
        s->begun = false;
    }
    s->inside = !piece->last;
    tagged = !s->tag && piece->bytes.len && piece->opcode == WS_BINARY;
    if (tagged)
        s->tag = piece->bytes.at[0];
    if (!s->tag && piece->opcode == WS_BINARY && !piece->last)
        return ADAPTER_DROP; /* an empty first fragment does not have the tag yet */
    switch (s->tag) {
    case TAG_LIVE:
        return on_live(s, piece, edit);
    case TAG_EXIT:
        return on_exit_code(s, piece, edit);
    case TAG_OUTPUT:
    case TAG_ERRORS:
        return on_output(s, slice_from(piece->bytes, tagged ? 1 : 0), piece, edit);
    default:
        return ADAPTER_PASS;
    }
}

/* ---- times, and the tunnel's questions ---- */
static uint64_t due(const void *state)
{
    return replay_due(state);
}

static enum adapter_verdict tick(void *state, uint64_t now, struct adapter_edit *edit)
{
    struct scrollback *s = state;

    if (now != ADAPTER_NO_MORE)
        return verdict_of(replay_tick(s, now, edit), ADAPTER_DROP);
    if (s->settle && !recheck_give_up(s, edit))
        return ADAPTER_NO_MEMORY;
    return verdict_of(replay_finish(s, edit), ADAPTER_DROP);
}

static uint64_t recheck_at(const void *state)
{
    return recheck_due(state);
}

static enum adapter_verdict recheck(void *state, uint64_t now, struct adapter_edit *edit, bool *begin)
{
    return verdict_of(recheck_tick(state, now, edit, begin), ADAPTER_DROP);
}

static bool recheck_piece(void *state, const struct adapter_piece *piece)
{
    return recheck_read(state, piece);
}

static void on_recheck_ended(void *state, uint64_t now)
{
    recheck_ended(state, now);
}

static bool unsettled(const void *state)
{
    return ((const struct scrollback *)state)->settle != NULL;
}

static bool empty(const void *state, bool *lacks)
{
    const struct scrollback *s = state;

    *lacks = s->phase == SCROLLBACK_LATE && !s->said;
    return s->marked && !s->said;
}

static bool collects(const void *state)
{
    return scrollback_is_collecting(state) || unsettled(state);
}

static size_t held(const void *state)
{
    return scrollback_held(state);
}

static void end(void *state)
{
    scrollback_free(state);
}

const struct adapter adapter_scrollback = {
    .name = "scrollback",
    .overlap = true,
    .tagged = true,
    .insert_max = SCROLLBACK_INSERT,
    .state_len = sizeof(struct scrollback),
    .image = &scrollback_table,
    .start = start,
    .request = request,
    .joined = joined,
    .from_worker = from_worker,
    .due = due,
    .tick = tick,
    .recheck_at = recheck_at,
    .recheck = recheck,
    .recheck_piece = recheck_piece,
    .recheck_ended = on_recheck_ended,
    .unsettled = unsettled,
    .empty = empty,
    .may_end = may_end,
    .collects = collects,
    .held = held,
    .end = end,
};
