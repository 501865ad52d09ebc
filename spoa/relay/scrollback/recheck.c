/* SPDX-License-Identifier: MIT */
#include "spoa/relay/scrollback/recheck.h"

#include "spoa/relay/scrollback/compare.h"
#include "spoa/relay/scrollback/pass.h"
#include "spoa/relay/scrollback/replay.h"
#include "spoa/relay/scrollback/snapshot.h"

/* ---- held output ---- */
void recheck_hold_live(struct scrollback *s)
{
    struct settle *c = s->settle;
    bool late = s->phase == SCROLLBACK_LATE, full = scrollback_is_full(scrollback_collected(s));

    c->placed = !late;
    c->open = c->placed && s->had_nothing && s->live && !scrollback_collected(s);
    for (unsigned i = 0; i < 2; i++) {
        c->first[i] = late ? s->streams[i].collected : 0;
        c->ahead[i] = late ? 0 : s->streams[i].skip;
        c->base[i] = !late                ? s->streams[i].delivered.end.len - c->ahead[i]
                     : full || s->rebased ? SETTLE_NOWHERE
                                          : s->streams[i].collected;
        s->streams[i].collected = c->first[i];
    }
}

bool recheck_hold_output(struct scrollback *s, struct slice bytes, bool *held, struct adapter_edit *edit)
{
    *held = scrollback_has_room(s, bytes);
    if (!*held)
        return recheck_give_up(s, edit);
    s->settle->live[s->tag - TAG_OUTPUT] += bytes.len;
    return scrollback_collect(s, s->tag, bytes);
}

bool recheck_hold_exit(struct scrollback *s, const struct adapter_piece *piece)
{
    struct settle *c = s->settle;

    if (!piece->first || !piece->last || piece->bytes.len != sizeof c->exit)
        return false;
    memcpy(c->exit, piece->bytes.at, sizeof c->exit);
    c->exited = true;
    if (c->phase == SETTLE_HOLDING)
        c->due = 0;
    /* If an earlier connection had sent the exit code, and this one sends no output between `04` and the exit code, the replay of this
     * connection was complete. */
    return !(c->after_exit && c->placed && !c->live[0] && !c->live[1]);
}

void recheck_lost(struct scrollback *s)
{
    s->after_exit = s->settle && s->settle->exited;
    s->torn = s->torn || (s->settle && s->settle->gap); /* the next outcome declares this gap */
    settle_free(s->settle);
    s->settle = NULL;
}

/* ---- the end of the checks ---- */

/* Reports the outcome, and stops holding output. Returns false if memory is short. */
static bool end_settling(struct scrollback *s, struct adapter_edit *edit)
{
    struct settle *c = s->settle;

    s->settle = NULL;
    pass_outcome(s, c->gap, edit);
    bool put = pass_exit(s, c, edit);
    settle_free(c);
    return put;
}

/* Judges the held output as a late replay, because no snapshot continued the delivered output. Returns false if memory is short. */
static bool judge_as_late(struct scrollback *s, struct adapter_edit *edit)
{
    struct settle *c = s->settle;
    bool fine = true;

    s->settle = NULL;
    s->torn = s->torn || c->gap;
    s->phase = SCROLLBACK_LATE;
    s->compared = s->tried = false;
    s->late_at = scrollback_collected(s) ? c->since : 0;
    fine = replay_look(s, 0, edit);
    if (fine && c->exited)
        fine = replay_finish(s, edit);
    fine = fine && pass_exit(s, c, edit);
    settle_free(c);
    return fine;
}

/* Trusts the held output of the serving connection alone, without a snapshot. Returns false if memory is short. */
static bool believe_live(struct scrollback *s, struct adapter_edit *edit)
{
    struct settle *c = s->settle;

    if (!c->placed)
        return judge_as_late(s, edit);
    bool open = c->open && !c->gap && !s->torn, fine = pass_held(s, c->ahead, edit);
    if (!open)
        return fine && end_settling(s, edit);
    s->phase = SCROLLBACK_OPEN;
    s->settle = NULL;
    fine = fine && pass_exit(s, c, edit);
    settle_free(c);
    return fine;
}

bool recheck_give_up(struct scrollback *s, struct adapter_edit *edit)
{
    struct settle *c = s->settle;

    if (!c->judged || !c->placed)
        return believe_live(s, edit);
    /* A snapshot's output was delivered, and the held output may repeat it. So the held output is dropped, which is a gap. */
    c->gap = c->gap || c->live[0] || c->live[1];
    return pass_held(s, c->live, edit) && end_settling(s, edit);
}

/* ---- a check ---- */

/* Returns true if the snapshot is shorter than the output on the serving connection. Such a worker never replays before its `04`, the
 * message that should end a replay, so its snapshots prove nothing. */
static bool says_nothing(const struct settle *c)
{
    uint64_t size = c->sizes[0] + c->sizes[1];
    return size < c->first[0] + c->first[1] + c->before[0] + c->before[1] && !scrollback_is_full(size);
}

/* Handles a snapshot of `size` bytes that does not continue the delivered output. Returns false if memory is short. */
static bool judge_short(struct scrollback *s, uint64_t size, uint64_t now, struct adapter_edit *edit)
{
    struct settle *c = s->settle;

    if (settle_is_over(c, now) || (settle_stands_still(c, size) && !c->placed))
        return recheck_give_up(s, edit);
    c->last = size;
    settle_pause(c, now);
    return true;
}

/* Handles a snapshot whose new output was delivered. If `aligned`, the snapshot has the first at[i] bytes of each stream's live output.
 * Returns false if memory is short. */
static bool judge_placed(struct scrollback *s, bool aligned, const uint64_t at[2], uint64_t now,
                         struct adapter_edit *edit)
{
    struct settle *c = s->settle;

    c->placed = true;
    if (aligned || c->exited_first)
        return pass_held(s, aligned ? at : c->live, edit) && end_settling(s, edit);
    settle_pause(c, now);
    return true;
}

/* Judges the complete snapshot of a check. Returns false if memory is short. */
static bool judge_snapshot(struct scrollback *s, uint64_t now, struct adapter_edit *edit)
{
    struct settle *c = s->settle;
    struct delivered_place places[2];
    struct snapshot_held held;
    uint64_t size = c->sizes[0] + c->sizes[1], at[2];
    bool full = scrollback_is_full(size);

    if (says_nothing(c))
        return believe_live(s, edit);
    c->judged = true;
    bool memory = snapshot_swap_in(s, &held) && compare_replay(s, full, false, places);
    bool still = settle_stands_still(c, size) && size && size >= held.collected[0] + held.collected[1];
    bool believed = still || c->checks >= SETTLE_SHORT;
    bool goes_on = memory && snapshot_continues(s, full, believed, places, &memory);
    if (memory && !goes_on) {
        snapshot_swap_out(s, &held);
        return judge_short(s, size, now, edit);
    }
    bool aligned = memory && snapshot_align(s, &held.records, places, at);
    s->said += size;
    memory = memory && pass_replay(s, places, edit);
    snapshot_swap_out(s, &held);
    return memory && judge_placed(s, aligned, at, now, edit);
}

uint64_t recheck_due(const struct scrollback *s)
{
    return s->settle && !scrollback_is_inside_other(s) ? settle_due(s->settle, s->said_at) : UINT64_MAX;
}

bool recheck_tick(struct scrollback *s, uint64_t now, struct adapter_edit *edit, bool *begin)
{
    *begin = false;
    if (now < recheck_due(s))
        return true;
    if (s->settle->phase == SETTLE_CATCHING_UP)
        return judge_snapshot(s, now, edit);
    if (settle_is_over(s->settle, now))
        return recheck_give_up(s, edit);
    *begin = true;
    settle_begin(s->settle);
    return true;
}

bool recheck_read(struct scrollback *s, const struct adapter_piece *piece)
{
    struct settle *c = s->settle;
    struct slice bytes = piece->bytes;

    if (!c || c->phase != SETTLE_READING)
        return false;
    if (piece->first)
        c->tag = 0;
    if (!c->tag && bytes.len) {
        c->tag = bytes.at[0];
        bytes = slice_from(bytes, 1);
    }
    if (c->tag == TAG_LIVE && piece->last) {
        c->phase = SETTLE_CATCHING_UP;
        c->due = piece->now + (c->exited_first ? 0 : SETTLE_CATCH_UP);
    }
    if (!scrollback_stream(s, c->tag))
        return c->phase == SETTLE_READING;
    c->sizes[c->tag - TAG_OUTPUT] += bytes.len;
    return records_has_room(&c->snapshot, bytes, SETTLE_MOST) && records_put(&c->snapshot, c->tag, bytes);
}

void recheck_ended(struct scrollback *s, uint64_t now)
{
    if (s->settle && s->settle->phase == SETTLE_READING)
        settle_failed(s->settle, now);
}
