/* SPDX-License-Identifier: MIT */
#include "spoa/relay/scrollback/replay.h"

#include <stdlib.h>

#include "spoa/relay/scrollback/compare.h"
#include "spoa/relay/scrollback/pass.h"

#define LATE_PAUSE (250 * MILLISECOND) /* silence after which a late replay may have ended, and is compared */
#define LATE_QUIET (2 * SECOND)        /* silence after which a late replay has ended */
#define LATE_MAX   (10 * SECOND)       /* longest time for a late replay */
#define CONFIRM    SECOND              /* silence after which an open outcome is counted */

void replay_confirm(struct scrollback *s, struct adapter_edit *edit)
{
    bool recurs = s->had_nothing;

    if (s->phase != SCROLLBACK_OPEN)
        return;
    for (unsigned i = 0; i < 2; i++) {
        recurs = recurs || s->streams[i].delivered.recurs;
        s->streams[i].delivered.watches = s->streams[i].delivered.recurs = false;
    }
    s->phase = SCROLLBACK_PASSING;
    pass_outcome(s, recurs && scrollback_is_full(s->said), edit);
}

void replay_heard(struct scrollback *s, struct adapter_edit *edit)
{
    if (scrollback_is_full(s->said))
        replay_confirm(s, edit);
}

bool replay_end(struct scrollback *s, bool more, struct adapter_edit *edit)
{
    struct delivered_place places[2];
    bool full = scrollback_is_full(scrollback_collected(s));

    if (!compare_replay(s, full, s->phase == SCROLLBACK_LATE || more, places))
        return false;
    pass_outcome(s, compare_gap(s, full, places) || more, edit);
    return pass_replay(s, places, edit);
}

bool replay_finish(struct scrollback *s, struct adapter_edit *edit)
{
    if (scrollback_is_collecting(s) && !replay_end(s, false, edit))
        return false;
    replay_confirm(s, edit);
    return true;
}

bool replay_marked(struct scrollback *s, uint64_t now, struct adapter_edit *edit)
{
    struct delivered_place places[2];
    bool full = scrollback_is_full(scrollback_collected(s));

    if (s->phase == SCROLLBACK_LATE)
        return true;
    s->said_at = now;
    s->had_nothing = scrollback_had_nothing(s);
    if (!compare_replay(s, full, false, places))
        return false;
    bool gap = compare_gap(s, full, places);
    if (!s->had_nothing && (full ? gap && s->settle : !compare_begins(s, places))) {
        s->phase = SCROLLBACK_LATE;
        s->late_at = scrollback_collected(s) ? now : 0;
        return true;
    }
    bool open = s->had_nothing && s->live && !scrollback_collected(s) && !s->torn && !s->settle;
    if (!open)
        pass_outcome(s, gap, edit);
    if (!pass_replay(s, places, edit))
        return false;
    if (open)
        s->phase = SCROLLBACK_OPEN;
    return true;
}

/* ---- a late replay ---- */

/* Passes the late replay if the places of both streams are certain. Returns false if memory is short. */
static bool try_late(struct scrollback *s, struct adapter_edit *edit)
{
    struct delivered_place places[2];
    bool full = scrollback_is_full(scrollback_collected(s));

    s->tried = true;
    if (!compare_replay(s, full, true, places))
        return false;
    if (compare_gap(s, full, places))
        return true;
    pass_outcome(s, false, edit);
    return pass_replay(s, places, edit);
}

/* Compares a late replay that is at least as long as the delivered output, and passes the rest if the replay begins with that output.
 * The outcome stays open: if the ring was full and the stream repeats itself, the place may be too late. Returns false if memory is
 * short. */
static bool compare_late(struct scrollback *s, struct adapter_edit *edit)
{
    struct delivered_place places[2];
    bool same = true, memory = true;

    s->compared = true;
    for (uint8_t i = 0; i < 2 && same && memory; i++) {
        struct output_stream *stream = &s->streams[i];
        struct slice replay = records_join(&s->replay, TAG_OUTPUT + i, 0);
        memory = slice_present(replay) && (!stream->joined.len || stream->joined.tail);
        places[i] = (struct delivered_place){true, stream->joined.len};
        same = memory && delivered_begins(&stream->delivered, &stream->joined, replay);
        if (same && stream->joined.len)
            delivered_watch(&stream->delivered, &stream->joined, replay);
        free((void *)replay.at);
    }
    if (!memory || !same)
        return memory;
    if (!pass_replay(s, places, edit))
        return false;
    s->phase = SCROLLBACK_OPEN;
    return true;
}

bool replay_look(struct scrollback *s, uint64_t before, struct adapter_edit *edit)
{
    const struct output_stream *streams = s->streams;
    bool all = streams[0].collected >= streams[0].joined.len && streams[1].collected >= streams[1].joined.len;

    if (!s->compared && all && !compare_late(s, edit))
        return false;
    if (s->phase != SCROLLBACK_LATE)
        return true;
    if (scrollback_collected(s) >= SCROLLBACK_RING)
        return replay_end(s, false, edit);
    return !scrollback_is_full(scrollback_collected(s)) || scrollback_is_full(before) || try_late(s, edit);
}

/* ---- times ---- */
uint64_t replay_due(const struct scrollback *s)
{
    if (scrollback_is_inside_other(s) || s->settle)
        return UINT64_MAX;
    if (s->phase == SCROLLBACK_OPEN)
        return s->said_at + CONFIRM;
    if (s->phase != SCROLLBACK_LATE || !s->late_at)
        return UINT64_MAX;
    uint64_t pause = s->said_at + (s->tried ? LATE_QUIET : LATE_PAUSE), most = s->late_at + LATE_MAX;
    return pause < most ? pause : most;
}

bool replay_tick(struct scrollback *s, uint64_t now, struct adapter_edit *edit)
{
    if (now < replay_due(s))
        return true;
    if (s->phase == SCROLLBACK_OPEN || now >= s->said_at + LATE_QUIET || now >= s->late_at + LATE_MAX)
        return replay_finish(s, edit);
    return try_late(s, edit);
}
