/* SPDX-License-Identifier: MIT */
/*
 * scrollback: OpenComputer's exec. Each worker replays the session's ring from its start and says `04`; the
 * messages are `01` and output, `02` and standard error. Nothing is numbered, so the replay of a further
 * worker is collected and compared with what the client had when that worker was asked, for each of both
 * streams:
 *   - the ring never was full: the count says where it goes on, if the bytes that stand there agree;
 *   - else where the last bytes delivered occur, if they do exactly once;
 *   - else there may be a gap. What can be a repetition is not passed on then.
 * A stream without a place of its own goes on where the other one does, or later where it may have said the rest: the ring
 * drops its oldest chunks, so what it has behind that place is all there ever was.
 * Behind a gap, live output is not passed on either while it is what was delivered there, for LATE_MOST.
 * What the old worker has said since the new one was asked comes next, in the replay or live: as many bytes are
 * not passed on.
 *
 * A worker that has to fetch the ring first says `04` at once, and replays behind it as if that were live; chunks may be
 * missing then. A ring that was not full and does not hold what was delivered is such a late replay. It is collected on
 * until it has all that was delivered, or a full ring, or nothing more comes: output waits for that as long as LATE_MOST.
 * Whether the ring that had all of it was full (and dropped some before it) is known only when nothing more comes; till
 * then the outcome is open.
 */
#include "spoa/relay/tunnel/adapter.h"

#include <stdlib.h>

#include "spoa/relay/tunnel/delivered.h"
#include "spoa/relay/tunnel/settle.h"

#define RING_LEN   (1 << 20)
#define REPLAY_MAX (4 << 20) /* bytes collected, with RECORD_HEAD in front of each record */
#define INSERT_MAX (REPLAY_MAX + WS_HEAD_MAX + 1) /* and the head and tag of the message behind them */

#define LATE_PAUSE (250 * MILLISECOND) /* of a late replay, after which its end may have come */
#define LATE_QUIET (2 * SECOND)        /* after which it has */
#define LATE_MOST  (10 * SECOND)       /* since it began */
#define CONFIRM    SECOND              /* without output: nothing of the replay is to come */

#define TAG_OUTPUT 1
#define TAG_ERRORS 2
#define TAG_EXIT   3
#define TAG_LIVE   4 /* the replay has ended */

struct output_stream {
    struct delivered delivered;
    struct delivered_end asked; /* as it was when the next worker was asked */
    /* as it was when the one that serves was asked, until its replay has ended */
    struct delivered_end joined;
    uint64_t since;     /* what was delivered in front of there is not compared: a gap was declared there */
    uint64_t collected; /* bytes of its replay */
    uint64_t skip;      /* bytes of the live output that were delivered already */
    bool doubt;         /* or may have been: as long as they are the same */
};

struct scrollback {
    struct output_stream streams[2];
    bool resumed;              /* this is not the first worker */
    bool collecting;           /* its replay */
    bool marked;               /* it has said `04` */
    bool late;                 /* and goes on with its replay */
    bool compared;             /* with all that was delivered */
    bool had_nothing;          /* the client, when it was asked */
    bool tried;                /* to find the place since it said something */
    bool open;                 /* the outcome is not known yet */
    bool live;                 /* the client has its `04` */
    bool exited;               /* and its `03` */
    bool torn;                 /* a message that is not output was cut: its rest may not come again */
    bool inside;               /* a message */
    uint64_t said;             /* bytes of output, by the worker that serves */
    uint64_t late_at, said_at; /* when its late replay began, when it said the last output */
    uint64_t doubt_at;         /* when it said some behind a gap; 0: not yet */
    struct records replay;
    struct settle *settle; /* its live output is held until a second snapshot confirms it; NULL: it is not */
    bool rebased;    /* the client lacks some of the session, which was declared: not all of it is compared */
    bool after_exit; /* the connection before this one had said an exit that was held */
    bool rechecks;   /* the relay opens a second connection if the adapter asks for it */
    uint8_t tag;     /* of the message that is coming in; 0: none yet */
    bool begun;      /* some of it was passed on */
};

static struct output_stream *stream_of(struct scrollback *s, uint8_t tag)
{
    return tag == TAG_OUTPUT || tag == TAG_ERRORS ? &s->streams[tag - TAG_OUTPUT] : NULL;
}

static void start(void *state, const struct adapter_start *start)
{
    ((struct scrollback *)state)->rechecks = start->rechecks;
}

/* What the next worker's replay will hold for certain, unless its ring has dropped it. */
static void request(void *state, struct writer *query, struct writer *fields)
{
    struct scrollback *s = state;

    (void)query;
    (void)fields;
    for (unsigned i = 0; i < 2; i++)
        delivered_note(&s->streams[i].delivered, &s->streams[i].asked);
}

/* ---- the replay ---- */
static bool has_room_for(const struct scrollback *s, struct slice bytes)
{
    return records_has_room(&s->replay, bytes, s->settle ? SETTLE_MOST : REPLAY_MAX);
}

/* False: out of memory. However long a piece is, no record is longer than RECORD_MAX. */
static bool collect(struct scrollback *s, uint8_t tag, struct slice bytes)
{
    stream_of(s, tag)->collected += bytes.len;
    return records_put(&s->replay, tag, bytes);
}

/* False: out of memory. */
static bool place_stream(const struct scrollback *s, uint8_t tag, bool full, struct delivered_place *place)
{
    const struct output_stream *stream = &s->streams[tag - TAG_OUTPUT];

    *place = (struct delivered_place){false, 0};
    if (!stream->joined.len)
        return true;
    if (!stream->joined.tail)
        return false;
    struct delivered_replay replay = {records_join(&s->replay, tag, 0), full, s->late};
    if (!slice_present(replay.bytes))
        return false;
    const uint8_t *memory = replay.bytes.at;
    if (!full && delivered_begins(&stream->delivered, &stream->joined, replay.bytes))
        *place = (struct delivered_place){true, stream->joined.len};
    else
        *place = delivered_find(&stream->delivered, &stream->joined, &replay);
    free((void *)memory);
    return true;
}

/* How many bytes of the stream `of` stand in front of that place of the other one. */
static uint64_t before(const struct scrollback *s, uint8_t of, uint64_t place)
{
    struct slice rest = buffer_slice(&s->replay.memory), bytes;
    uint64_t mine = 0, others = 0;
    uint8_t tag;

    while (others < place && records_take(&rest, &tag, &bytes))
        *(tag == of ? &mine : &others) += bytes.len;
    return mine;
}

static bool had_nothing(const struct scrollback *s)
{
    return !s->streams[0].joined.len && !s->streams[1].joined.len;
}

static bool has_gap(struct scrollback *s, bool full, struct delivered_place places[2])
{
    bool gap = false;

    /* a client that had read an empty ring to its end lacks what was dropped since */
    if (had_nothing(s))
        return s->live && full;
    for (uint8_t i = 0; i < 2; i++) {
        if (places[i].found)
            continue;
        if (!places[1 - i].found) {
            gap = true;
        } else if (s->streams[i].joined.len) {
            gap = true;
            uint64_t least = before(s, TAG_OUTPUT + i, places[1 - i].at);
            places[i].at = places[i].at > least ? places[i].at : least;
        }
    }
    return gap;
}

/* A ring that holds so much may have dropped a chunk. */
static bool is_full(uint64_t len)
{
    return len + RECORD_MAX >= RING_LEN;
}

static uint64_t collected(const struct scrollback *s)
{
    return s->streams[0].collected + s->streams[1].collected;
}

/* ---- what follows what was delivered ---- */

/* A record's bytes become a frame where they lie, and move down to the end of the frames before them; false: there is no
 * room for its head. */
static bool put_frame(uint8_t *frames, size_t *len, uint8_t tag, struct slice bytes)
{
    struct ws_frame frame = {.opcode = WS_BINARY, .fin = true, .length = bytes.len + 1};
    uint8_t *at = (uint8_t *)bytes.at;
    size_t room = (size_t)(at - (frames + *len));

    if (room < 1)
        return false;
    struct slice whole = ws_put_head(slice_of(at - 1, bytes.len + 1), room - 1, &frame);
    if (!slice_present(whole))
        return false;
    at[-1] = tag;
    memmove(frames + *len, whole.at, whole.len);
    *len += whole.len;
    return true;
}

/* Turns the records into frames, over the same memory: of at most RECORD_MAX bytes, the head of a frame and its tag are
 * as long as the head of a record. */
static bool put_rest(struct scrollback *s, const struct delivered_place places[2])
{
    struct slice rest = buffer_slice(&s->replay.memory), bytes;
    uint8_t *frames = (uint8_t *)rest.at, tag;
    uint64_t seen[2] = {0, 0};
    size_t len = 0;

    while (records_take(&rest, &tag, &bytes)) {
        unsigned i = tag - TAG_OUTPUT;
        uint64_t place = places[i].at, from = seen[i];
        seen[i] += bytes.len;
        if (place >= seen[i])
            continue;
        if (place > from)
            bytes = slice_from(bytes, (size_t)(place - from));
        if (!delivered_put(&s->streams[i].delivered, bytes) || !put_frame(frames, &len, tag, bytes))
            return false;
    }
    buffer_cut(&s->replay.memory, len);
    buffer_consume(&s->replay.memory, 0);
    for (unsigned i = 0; i < 2; i++) {
        s->streams[i].skip = places[i].at > seen[i] ? places[i].at - seen[i] : 0;
        s->streams[i].doubt = !places[i].found;
    }
    return true;
}

/* The rest of the replay passes, from the places on. */
static bool go_on(struct scrollback *s, struct delivered_place places[2], struct adapter_edit *edit)
{
    for (unsigned i = 0; i < 2; i++) {
        places[i].at += s->streams[i].delivered.end.len - s->streams[i].joined.len;
        delivered_forget(&s->streams[i].joined);
    }
    if (!put_rest(s, places))
        return false;
    edit->insert = s->replay.memory;
    edit->insert.limit = INSERT_MAX;
    s->replay = records_with_limit(REPLAY_MAX);
    s->collecting = s->late = false;
    return true;
}

static void tell(struct scrollback *s, bool gap, struct adapter_edit *edit)
{
    if (s->settle) {
        s->settle->gap = s->settle->gap || gap || s->torn;
        s->torn = s->open = false;
        return;
    }
    edit->outcome = gap || s->torn ? ADAPTER_GAP : ADAPTER_EXACT;
    edit->gap = edit->outcome == ADAPTER_GAP ? ADAPTER_UNKNOWN : 0;
    s->torn = s->open = false;
}

/* Nothing more of the replay is to come, or more has come than a ring holds, which may have dropped something then. */
static void confirm(struct scrollback *s, struct adapter_edit *edit)
{
    bool recurs = s->had_nothing;

    if (!s->open)
        return;
    for (unsigned i = 0; i < 2; i++) {
        recurs = recurs || s->streams[i].delivered.recurs;
        s->streams[i].delivered.watches = s->streams[i].delivered.recurs = false;
    }
    tell(s, recurs && is_full(s->said), edit);
}

static bool place_both(const struct scrollback *s, bool full, struct delivered_place places[2])
{
    return place_stream(s, TAG_OUTPUT, full, &places[0]) && place_stream(s, TAG_ERRORS, full, &places[1]);
}

/* Whatever the places are, it goes on. more: there was no room for all of it, and whether the rest agrees nobody knows.
 * False: out of memory. */
static bool end_replay(struct scrollback *s, bool more, struct adapter_edit *edit)
{
    struct delivered_place places[2];
    bool full = is_full(collected(s));

    s->late = s->late || more;
    if (!place_both(s, full, places))
        return false;
    tell(s, has_gap(s, full, places) || more, edit);
    return go_on(s, places, edit);
}

/* ---- a late replay ---- */

/* Goes on if the places are beyond doubt. */
static bool try_late(struct scrollback *s, struct adapter_edit *edit)
{
    struct delivered_place places[2];
    bool full = is_full(collected(s));

    s->tried = true;
    if (!place_both(s, full, places))
        return false;
    if (has_gap(s, full, places))
        return true;
    tell(s, false, edit);
    return go_on(s, places, edit);
}

/* Of each stream there is as much as was delivered: if it is the same, it goes on there. Of one that says the same again and
 * again that may be too late, if the ring was full. */
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
    s->open = memory && same;
    return !s->open ? memory : go_on(s, places, edit);
}

/* More of it was collected than before. */
static bool look_late(struct scrollback *s, uint64_t before, struct adapter_edit *edit)
{
    const struct output_stream *streams = s->streams;
    bool all = streams[0].collected >= streams[0].joined.len && streams[1].collected >= streams[1].joined.len;

    if (!s->compared && all && !compare_late(s, edit))
        return false;
    if (!s->late)
        return true;
    if (collected(s) >= RING_LEN)
        return end_replay(s, false, edit);
    return !is_full(collected(s)) || is_full(before) || try_late(s, edit);
}

/* Both streams go on behind all that was delivered. */
static bool begins(const struct delivered_place places[2], const struct scrollback *s)
{
    for (unsigned i = 0; i < 2; i++)
        if (s->streams[i].joined.len && (!places[i].found || places[i].at != s->streams[i].joined.len))
            return false;
    return true;
}

/* The `04` of a worker whose ring cannot be all there is: the rest comes late. */
static bool end_or_wait(struct scrollback *s, uint64_t now, struct adapter_edit *edit)
{
    struct delivered_place places[2];
    bool full = is_full(collected(s));

    if (s->late)
        return true;
    s->said_at = now;
    s->had_nothing = had_nothing(s);
    if (!place_both(s, full, places))
        return false;
    bool gap = has_gap(s, full, places);
    if (!s->had_nothing && (full ? gap && s->settle : !begins(places, s))) {
        s->late = true;
        s->late_at = collected(s) ? now : 0;
        return true;
    }
    s->open = s->had_nothing && s->live && !collected(s) && !s->torn && !s->settle;
    if (!s->open)
        tell(s, gap, edit);
    return go_on(s, places, edit);
}

/* ---- a second snapshot of the same worker (spoa/relay/tunnel/settle.h) ---- */

/* A message of another kind that passes meanwhile is not cut. */
static bool is_inside_other(const struct scrollback *s)
{
    return s->inside && s->tag != TAG_OUTPUT && s->tag != TAG_ERRORS;
}

/* After the worker's own `04`: its live output is held from here on. */
static void hold_live(struct scrollback *s)
{
    struct settle *c = s->settle;
    bool full = is_full(collected(s));

    c->placed = !s->late;
    c->open = c->placed && s->had_nothing && s->live && !collected(s);
    for (unsigned i = 0; i < 2; i++) {
        c->first[i] = s->late ? s->streams[i].collected : 0;
        c->ahead[i] = s->late ? 0 : s->streams[i].skip;
        c->base[i] = !s->late             ? s->streams[i].delivered.end.len - c->ahead[i]
                     : full || s->rebased ? SETTLE_NOWHERE
                                          : s->streams[i].collected;
        s->streams[i].collected = c->first[i];
    }
}

/* The held output passes, from the places on, behind what is inserted already. Returns false if memory is short. */
static bool release_live(struct scrollback *s, const uint64_t at[2], struct adapter_edit *edit)
{
    struct delivered_place places[2];

    for (unsigned i = 0; i < 2; i++)
        places[i] = (struct delivered_place){true, s->settle->first[i] + at[i]};
    if (!put_rest(s, places))
        return false;
    edit->insert.limit = INSERT_MAX;
    bool put = buffer_put(&edit->insert, buffer_slice(&s->replay.memory));
    records_clear(&s->replay);
    s->replay = records_with_limit(REPLAY_MAX);
    s->collecting = s->late = false;
    return put;
}

/* The exit that was held comes last. */
static bool put_exit(struct scrollback *s, const struct settle *c, struct adapter_edit *edit)
{
    if (!c->exited || s->exited)
        return true;
    s->exited = true;
    edit->insert.limit = INSERT_MAX;
    return adapter_put_frame(&edit->insert, WS_BINARY, true, slice_of(c->exit, sizeof c->exit));
}

/* The outcome is known: nothing is held from here on. */
static bool end_settling(struct scrollback *s, struct adapter_edit *edit)
{
    struct settle *c = s->settle;

    s->settle = NULL;
    tell(s, c->gap, edit);
    bool put = put_exit(s, c, edit);
    settle_free(c);
    return put;
}

/* No snapshot continued what was delivered. The held output is judged as a late replay, as of a worker that is asked once. */
static bool judge_as_late(struct scrollback *s, struct adapter_edit *edit)
{
    struct settle *c = s->settle;
    bool fine = true;

    s->settle = NULL;
    s->torn = s->torn || c->gap;
    s->late = s->collecting = true;
    s->compared = s->tried = false;
    s->late_at = collected(s) ? c->since : 0;
    fine = look_late(s, 0, edit);
    if (fine && c->exited && s->collecting)
        fine = end_replay(s, false, edit);
    if (fine && c->exited)
        confirm(s, edit);
    fine = fine && put_exit(s, c, edit);
    settle_free(c);
    return fine;
}

/* What is held is believed, as of a worker that is asked once. */
static bool believe_live(struct scrollback *s, struct adapter_edit *edit)
{
    struct settle *c = s->settle;

    if (!c->placed)
        return judge_as_late(s, edit);
    s->open = c->open && !c->gap && !s->torn;
    bool open = s->open, fine = release_live(s, c->ahead, edit);
    if (!open)
        return fine && end_settling(s, edit);
    s->settle = NULL;
    fine = fine && put_exit(s, c, edit);
    settle_free(c);
    return fine;
}

/* No further check. What a snapshot had was delivered; what is held may be a repetition of it. */
static bool give_up_settling(struct scrollback *s, struct adapter_edit *edit)
{
    struct settle *c = s->settle;

    if (!c->judged || !c->placed)
        return believe_live(s, edit);
    c->gap = c->gap || c->live[0] || c->live[1];
    return release_live(s, c->live, edit) && end_settling(s, edit);
}

/* Finds the last bytes that were delivered in the snapshot, where they have to stand once. */
static bool place_tails(const struct scrollback *s, struct delivered_place places[2])
{
    bool found = true;

    for (uint8_t i = 0; i < 2 && found; i++) {
        struct slice bytes = records_join(&s->replay, TAG_OUTPUT + i, 0);
        places[i] = delivered_find_tail(&s->streams[i].joined, bytes);
        found = places[i].found || !s->streams[i].joined.len;
        free((void *)bytes.at);
    }
    return found;
}

/* The client and the snapshot differ in front of the places, which is declared once: from here on the snapshot is what the client
 * had, and only what it gets behind the places is compared. Returns false if memory is short. */
static bool rebase(struct scrollback *s, const struct delivered_place places[2])
{
    bool memory = true;

    for (uint8_t i = 0; i < 2 && memory; i++) {
        struct output_stream *stream = &s->streams[i];
        struct slice bytes = records_join(&s->replay, TAG_OUTPUT + i, 0);
        delivered_free(&stream->delivered);
        delivered_forget(&stream->joined);
        memory = slice_present(bytes) &&
                 delivered_put(&stream->delivered, slice_sub(bytes, 0, (size_t)places[i].at));
        delivered_note(&stream->delivered, &stream->joined);
        stream->since = stream->joined.len;
        free((void *)bytes.at);
    }
    s->settle->base[0] = s->settle->base[1] = SETTLE_NOWHERE;
    s->settle->gap = s->rebased = true;
    return memory;
}

/* Returns true if all that the client got since the gap that was declared last stands in front of the places. */
static bool agrees_since(const struct scrollback *s, const struct delivered_place places[2])
{
    bool same = s->rebased;

    for (uint8_t i = 0; i < 2 && same; i++) {
        const struct output_stream *stream = &s->streams[i];
        struct slice bytes = records_join(&s->replay, TAG_OUTPUT + i, 0);
        same = slice_present(bytes) &&
               (!stream->joined.len || delivered_agrees(&stream->delivered, &stream->joined, bytes,
                                                        (size_t)places[i].at, stream->since));
        free((void *)bytes.at);
    }
    return same;
}

/* Places by what the blocks of the snapshot say: rather too late than too early. Returns false if memory is short. */
static bool place_blocks(struct scrollback *s, bool full, struct delivered_place places[2])
{
    s->late = true;
    bool memory = place_both(s, full, places);
    s->late = false;
    if (memory)
        has_gap(s, full, places);
    return memory;
}

/* Finds where the snapshot in s->replay goes on. If the client has what the worker lacks, or the other way round, there is a gap.
 * Returns false if the ring may still be filling; believed: it is not. */
static bool continues(struct scrollback *s, bool full, bool believed, struct delivered_place places[2],
                      bool *memory)
{
    struct delivered_place tails[2] = {{false, 0}, {false, 0}};
    bool gap = has_gap(s, full, places);

    if (had_nothing(s)) {
        s->settle->gap = s->settle->gap || gap;
        return true;
    }
    if (full ? !gap : begins(places, s))
        return true;
    bool tailed = place_tails(s, tails);
    if (!tailed && !full && !believed)
        return false;
    for (unsigned i = 0; i < 2 && tailed; i++)
        places[i] = tails[i];
    if (tailed && agrees_since(s, places))
        return true;
    *memory = (tailed || place_blocks(s, full, places)) && rebase(s, places);
    return true;
}

/* Returns true if the live output of each stream continues the snapshot in s->replay. */
static bool align(struct scrollback *s, const struct records *live, const struct delivered_place places[2],
                  uint64_t at[2])
{
    struct settle *c = s->settle;
    bool aligned = true;

    for (uint8_t i = 0; i < 2 && aligned; i++) {
        uint64_t size = s->streams[i].collected, growth = size > places[i].at ? size - places[i].at : 0;
        uint64_t end = s->streams[i].delivered.end.len + growth;
        struct settle_view view = {.snapshot = records_join(&s->replay, TAG_OUTPUT + i, 0),
                                   .live = records_join(live, TAG_OUTPUT + i, c->first[i]),
                                   .before = c->before[i],
                                   .expected = end >= c->base[i] ? end - c->base[i] : UINT64_MAX,
                                   .growth = growth};
        aligned = slice_present(view.snapshot) && slice_present(view.live) && settle_align(&view, &at[i]);
        free((void *)view.snapshot.at);
        free((void *)view.live.at);
    }
    return aligned;
}

/* The snapshot is the replay, and the held output is in *live: what the streams collected is counted in *held. */
static bool swap_in(struct scrollback *s, struct records *live, uint64_t held[2])
{
    struct settle *c = s->settle;
    bool memory = true;

    *live = s->replay;
    s->replay = c->snapshot;
    c->snapshot = records_with_limit(SETTLE_MOST);
    s->late = false;
    for (unsigned i = 0; i < 2; i++) {
        struct output_stream *stream = &s->streams[i];
        held[i] = stream->collected;
        stream->collected = c->sizes[i];
        delivered_forget(&stream->joined);
        delivered_note(&stream->delivered, &stream->joined);
        memory = memory && (stream->joined.tail || !stream->joined.len);
    }
    return memory;
}

static void swap_out(struct scrollback *s, struct records *live, const uint64_t held[2])
{
    records_clear(&s->replay);
    s->replay = *live;
    for (unsigned i = 0; i < 2; i++)
        s->streams[i].collected = held[i];
}

/* Returns true if a snapshot did not grow since the last one, while the worker said nothing: it is all there is. */
static bool stands_still(const struct settle *c, uint64_t size)
{
    return c->checks > 1 && size == c->last && settle_was_quiet(c);
}

/* Returns true if a snapshot holds less than that worker has sent to the connection that serves: it never replays in front of
 * its `04`, so that a snapshot says nothing. */
static bool says_nothing(const struct settle *c)
{
    uint64_t size = c->sizes[0] + c->sizes[1];
    return size < c->first[0] + c->first[1] + c->before[0] + c->before[1] && !is_full(size);
}

/* The snapshot does not continue what was delivered. */
static bool judge_short(struct scrollback *s, struct records *live, const uint64_t held[2], uint64_t now,
                        struct adapter_edit *edit)
{
    struct settle *c = s->settle;
    uint64_t size = collected(s);

    swap_out(s, live, held);
    if (settle_is_over(c, now) || (stands_still(c, size) && !c->placed))
        return give_up_settling(s, edit);
    s->late = !c->placed;
    c->last = size;
    settle_pause(c, now);
    return true;
}

/* The snapshot of a check is complete. Returns false if memory is short. */
static bool judge_snapshot(struct scrollback *s, uint64_t now, struct adapter_edit *edit)
{
    struct settle *c = s->settle;
    struct delivered_place places[2];
    struct records live;
    uint64_t held[2], at[2];
    bool full = is_full(c->sizes[0] + c->sizes[1]);

    if (says_nothing(c))
        return believe_live(s, edit);
    c->judged = true;
    bool memory = swap_in(s, &live, held);
    memory = memory && place_both(s, full, places);
    uint64_t size = collected(s);
    bool still = stands_still(c, size) && size && size >= held[0] + held[1];
    if (memory && !continues(s, full, still || c->checks >= SETTLE_SHORT, places, &memory))
        return judge_short(s, &live, held, now, edit);
    bool aligned = memory && align(s, &live, places, at);
    s->said += collected(s);
    memory = memory && go_on(s, places, edit);
    swap_out(s, &live, held);
    if (!memory)
        return false;
    c->placed = true;
    s->late = false;
    if (aligned || c->exited_first)
        return release_live(s, aligned ? at : c->live, edit) && end_settling(s, edit);
    settle_pause(c, now);
    return true;
}

static uint64_t recheck_at(const void *state)
{
    const struct scrollback *s = state;
    return s->settle && !is_inside_other(s) ? settle_due(s->settle, s->said_at) : UINT64_MAX;
}

static enum adapter_verdict recheck(void *state, uint64_t now, struct adapter_edit *edit, bool *begin)
{
    struct scrollback *s = state;
    bool fine = true;

    *begin = false;
    if (now < recheck_at(s))
        return ADAPTER_DROP;
    if (s->settle->running)
        fine = judge_snapshot(s, now, edit);
    else if (settle_is_over(s->settle, now))
        fine = give_up_settling(s, edit);
    else
        *begin = true;
    if (*begin)
        settle_begin(s->settle);
    return fine ? ADAPTER_DROP : ADAPTER_NO_MEMORY;
}

static bool recheck_piece(void *state, const struct adapter_piece *piece)
{
    struct scrollback *s = state;
    struct settle *c = s->settle;
    struct slice bytes = piece->bytes;

    if (!c || !c->running || c->marked)
        return false;
    if (piece->first)
        c->tag = 0;
    if (!c->tag && bytes.len) {
        c->tag = bytes.at[0];
        bytes = slice_from(bytes, 1);
    }
    if (c->tag == TAG_LIVE && piece->last) {
        c->marked = true;
        c->due = piece->now + (c->exited_first ? 0 : SETTLE_CATCH_UP);
    }
    if (!stream_of(s, c->tag))
        return !c->marked;
    c->sizes[c->tag - TAG_OUTPUT] += bytes.len;
    return records_has_room(&c->snapshot, bytes, SETTLE_MOST) && records_put(&c->snapshot, c->tag, bytes);
}

static void recheck_ended(void *state, uint64_t now)
{
    struct scrollback *s = state;

    if (s->settle && s->settle->running && !s->settle->marked)
        settle_failed(s->settle, now);
}

static bool unsettled(const void *state)
{
    return ((const struct scrollback *)state)->settle != NULL;
}

/* Output of the connection that serves is held. *held: it was; else there was no room, and nothing is held any more. Returns
 * false if memory is short. */
static bool hold(struct scrollback *s, struct slice bytes, bool *held, struct adapter_edit *edit)
{
    *held = has_room_for(s, bytes);
    if (!*held)
        return give_up_settling(s, edit);
    s->settle->live[s->tag - TAG_OUTPUT] += bytes.len;
    return collect(s, s->tag, bytes);
}

/* The exit is held, too. Where an earlier connection had said it, and this one says nothing between its `04` and the exit, its own
 * snapshot had all. Returns false if it is to pass. */
static bool hold_exit(struct scrollback *s, const struct adapter_piece *piece)
{
    struct settle *c = s->settle;

    if (!piece->first || !piece->last || piece->bytes.len != sizeof c->exit)
        return false;
    memcpy(c->exit, piece->bytes.at, sizeof c->exit);
    c->exited = true;
    if (!c->running)
        c->due = 0;
    return !(c->after_exit && c->placed && !c->live[0] && !c->live[1]);
}

/* Nothing waits for more. */
static bool finish(struct scrollback *s, struct adapter_edit *edit)
{
    if (s->collecting && !end_replay(s, false, edit))
        return false;
    confirm(s, edit);
    return true;
}

static uint64_t due(const void *state)
{
    const struct scrollback *s = state;

    if (is_inside_other(s) || s->settle)
        return UINT64_MAX;
    if (s->open)
        return s->said_at + CONFIRM;
    if (!s->late || !s->late_at)
        return UINT64_MAX;
    uint64_t pause = s->said_at + (s->tried ? LATE_QUIET : LATE_PAUSE), most = s->late_at + LATE_MOST;
    return pause < most ? pause : most;
}

static enum adapter_verdict tick(void *state, uint64_t now, struct adapter_edit *edit)
{
    struct scrollback *s = state;
    bool fine = true;

    if (now == ADAPTER_NO_MORE && s->settle && !give_up_settling(s, edit))
        return ADAPTER_NO_MEMORY;
    if (now == ADAPTER_NO_MORE ||
        (now >= due(s) && (s->open || now >= s->said_at + LATE_QUIET || now >= s->late_at + LATE_MOST)))
        fine = finish(s, edit);
    else if (now >= due(s))
        fine = try_late(s, edit);
    return fine ? ADAPTER_DROP : ADAPTER_NO_MEMORY;
}

static bool empty(const void *state, bool *lacks)
{
    const struct scrollback *s = state;

    *lacks = s->late && !s->said;
    return s->marked && !s->said;
}

/* ---- messages ---- */
static bool may_end(const void *state)
{
    const struct scrollback *s = state;
    return s->tag == TAG_OUTPUT || s->tag == TAG_ERRORS;
}

/* The worker was lost before it was settled: the next one replays what was held. A gap that was not declared yet is declared
 * with the next outcome. */
static void drop_held(struct scrollback *s)
{
    s->after_exit = s->settle && s->settle->exited;
    s->torn = s->torn || (s->settle && s->settle->gap);
    settle_free(s->settle);
    s->settle = NULL;
}

static void joined(void *state, struct send_queue *kept, struct adapter_edit *edit)
{
    struct scrollback *s = state;

    (void)kept;
    confirm(s, edit);
    drop_held(s);
    records_clear(&s->replay);
    s->replay = records_with_limit(REPLAY_MAX);
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
    s->marked = s->late = s->compared = s->tried = s->had_nothing = false;
    s->said = s->late_at = s->doubt_at = 0;
    s->collecting = s->resumed;
    s->resumed = true;
}

/* The worker's own `04`. Returns false if memory is short. */
static bool end_snapshot(struct scrollback *s, uint64_t now, struct adapter_edit *edit)
{
    if (s->rechecks && !(s->settle = settle_new(now, s->after_exit)))
        return false;
    if (!end_or_wait(s, now, edit))
        return false;
    if (s->settle)
        hold_live(s);
    return true;
}

static enum adapter_verdict on_live(struct scrollback *s, const struct adapter_piece *piece,
                                    struct adapter_edit *edit)
{
    if (!piece->last)
        return ADAPTER_DROP;
    s->marked = true;
    if (s->collecting && !s->settle && !end_snapshot(s, piece->now, edit))
        return ADAPTER_NO_MEMORY;
    if (s->live)
        return ADAPTER_DROP;
    s->live = true;
    if (piece->first)
        return ADAPTER_PASS;
    /* its first fragments were dropped */
    return adapter_put_frame(&edit->insert, WS_BINARY, true, slice_of(&s->tag, 1)) ? ADAPTER_DROP
                                                                                   : ADAPTER_NO_MEMORY;
}

/* How many bytes the client has already. In doubt nothing is passed that may be the rest of the replay: but not for long, and no
 * further than it is the same. */
static size_t to_skip(struct scrollback *s, struct output_stream *stream, struct slice bytes, uint64_t now)
{
    size_t most = stream->skip < bytes.len ? (size_t)stream->skip : bytes.len, same = most;

    if (!stream->doubt || !most)
        return most;
    s->doubt_at = s->doubt_at ? s->doubt_at : now;
    if (now >= s->doubt_at + LATE_MOST)
        same = 0;
    else
        same = delivered_again(&stream->delivered, stream->skip, slice_sub(bytes, 0, most));
    if (same < most)
        stream->skip = same;
    return same;
}

/* Live output; of a message that the client has the beginning of, the rest passes behind a tag of its own. */
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
    return adapter_put_frame(&edit->insert, WS_BINARY, false, slice_of(&s->tag, 1)) ? ADAPTER_PASS
                                                                                    : ADAPTER_NO_MEMORY;
}

static enum adapter_verdict on_output(struct scrollback *s, struct slice bytes,
                                      const struct adapter_piece *piece, struct adapter_edit *edit)
{
    struct output_stream *stream = stream_of(s, s->tag);
    bool held = false;

    s->said += bytes.len;
    s->said_at = piece->now;
    if (s->settle && !hold(s, bytes, &held, edit))
        return ADAPTER_NO_MEMORY;
    if (held)
        return ADAPTER_DROP;
    bool has_room = s->collecting && has_room_for(s, bytes);
    if (has_room && !collect(s, s->tag, bytes))
        return ADAPTER_NO_MEMORY;
    if (has_room && s->late) {
        s->tried = false;
        s->late_at = s->late_at ? s->late_at : piece->now;
        return look_late(s, collected(s) - bytes.len, edit) ? ADAPTER_DROP : ADAPTER_NO_MEMORY;
    }
    if (has_room)
        return ADAPTER_DROP;
    if (s->collecting && !end_replay(s, true, edit))
        return ADAPTER_NO_MEMORY;
    if (s->open && is_full(s->said))
        confirm(s, edit);
    return pass_output(s, stream, bytes, piece, edit);
}

static enum adapter_verdict on_exit_code(struct scrollback *s, const struct adapter_piece *piece,
                                         struct adapter_edit *edit)
{
    if (s->settle && hold_exit(s, piece))
        return ADAPTER_DROP;
    if (s->settle && !give_up_settling(s, edit))
        return ADAPTER_NO_MEMORY;
    bool again = s->exited && piece->first && piece->last;
    s->exited = true;
    if (!finish(s, edit))
        return ADAPTER_NO_MEMORY;
    return again ? ADAPTER_DROP : ADAPTER_PASS;
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
        return ADAPTER_DROP; /* an empty fragment: what it begins is not known yet */
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

static size_t held(const void *state)
{
    const struct scrollback *s = state;
    size_t sum =
        s->replay.memory.size + (s->settle ? sizeof *s->settle + s->settle->snapshot.memory.size : 0);

    for (unsigned i = 0; i < 2; i++)
        sum += delivered_held(&s->streams[i].delivered) + (s->streams[i].asked.tail ? DELIVERED_TAIL : 0) +
               (s->streams[i].joined.tail ? DELIVERED_TAIL : 0);
    return sum;
}

static bool collects(const void *state)
{
    return ((const struct scrollback *)state)->collecting || unsettled(state);
}

static void image_stream(struct image *image, struct output_stream *s)
{
    delivered_image(image, &s->delivered);
    delivered_end_image(image, &s->asked);
    delivered_end_image(image, &s->joined);
    IMAGE_U64(image, s->since);
    IMAGE_U64(image, s->collected);
    IMAGE_U64(image, s->skip);
    IMAGE_BOOL(image, s->doubt);
    image_check(image, s->asked.len <= s->delivered.end.len && s->joined.len <= s->delivered.end.len);
    image_check(image, s->skip <= s->delivered.end.len);
}

static void image_settle(struct image *image, struct scrollback *s)
{
    bool settles = s->settle;

    IMAGE_BOOL(image, s->rechecks);
    IMAGE_BOOL(image, s->after_exit);
    IMAGE_BOOL(image, s->rebased);
    IMAGE_BOOL(image, settles);
    if (settles && !image->to && !image->failed)
        image_check(image, (s->settle = settle_new(0, false)) != NULL);
    if (s->settle)
        settle_image(image, s->settle);
}

static void image_state(struct image *image, void *state)
{
    struct scrollback *s = state;

    image_stream(image, &s->streams[0]);
    image_stream(image, &s->streams[1]);
    IMAGE_BOOL(image, s->resumed);
    IMAGE_BOOL(image, s->collecting);
    IMAGE_BOOL(image, s->marked);
    IMAGE_BOOL(image, s->late);
    IMAGE_BOOL(image, s->compared);
    IMAGE_BOOL(image, s->had_nothing);
    IMAGE_BOOL(image, s->tried);
    IMAGE_BOOL(image, s->open);
    IMAGE_BOOL(image, s->live);
    IMAGE_BOOL(image, s->exited);
    IMAGE_BOOL(image, s->torn);
    IMAGE_BOOL(image, s->inside);
    IMAGE_U64(image, s->said);
    IMAGE_U64(image, s->late_at);
    IMAGE_U64(image, s->said_at);
    IMAGE_U64(image, s->doubt_at);
    if (!image->to)
        s->replay = records_with_limit(REPLAY_MAX);
    records_image(image, &s->replay, TAG_ERRORS);
    image_settle(image, s);
    IMAGE(image, s->tag, UINT8_MAX);
    IMAGE_BOOL(image, s->begun);
}

static void end(void *state)
{
    struct scrollback *s = state;

    records_clear(&s->replay);
    settle_free(s->settle);
    for (unsigned i = 0; i < 2; i++) {
        delivered_free(&s->streams[i].delivered);
        delivered_forget(&s->streams[i].asked);
        delivered_forget(&s->streams[i].joined);
    }
}

const struct adapter adapter_scrollback = {
    .name = "scrollback",
    .overlap = true,
    .tagged = true,
    .insert_max = INSERT_MAX,
    .state_len = sizeof(struct scrollback),
    .image = image_state,
    .start = start,
    .request = request,
    .joined = joined,
    .from_worker = from_worker,
    .due = due,
    .tick = tick,
    .recheck_at = recheck_at,
    .recheck = recheck,
    .recheck_piece = recheck_piece,
    .recheck_ended = recheck_ended,
    .unsettled = unsettled,
    .empty = empty,
    .may_end = may_end,
    .collects = collects,
    .held = held,
    .end = end,
};
