/* SPDX-License-Identifier: MIT */
#include "spoa/relay/scrollback/snapshot.h"

#include <stdlib.h>

#include "spoa/relay/scrollback/compare.h"

bool snapshot_swap_in(struct scrollback *s, struct snapshot_held *held)
{
    bool memory = true;

    held->records = s->replay;
    s->replay = s->settle->snapshot;
    s->settle->snapshot = records_with_limit(SETTLE_MOST);
    for (unsigned i = 0; i < 2; i++) {
        struct output_stream *stream = &s->streams[i];
        held->collected[i] = stream->collected;
        stream->collected = s->settle->sizes[i];
        delivered_forget(&stream->joined);
        delivered_note(&stream->delivered, &stream->joined);
        memory = memory && (stream->joined.tail || !stream->joined.len);
    }
    return memory;
}

void snapshot_swap_out(struct scrollback *s, const struct snapshot_held *held)
{
    records_clear(&s->replay);
    s->replay = held->records;
    for (unsigned i = 0; i < 2; i++)
        s->streams[i].collected = held->collected[i];
}

/* ---- beside what was delivered ---- */

/* Finds the last bytes that were delivered in the snapshot. Returns true if they stand there once. */
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

/* Places both streams by blocks of what was delivered, rather too late than too early. Returns false if memory is short. */
static bool place_blocks(const struct scrollback *s, bool full, struct delivered_place places[2])
{
    if (!compare_replay(s, full, true, places))
        return false;
    compare_gap(s, full, places); /* a stream without a place takes the other one's */
    return true;
}

/* Returns true if everything that the client got since the last declared gap stands before the places. */
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

/* The client and the snapshot differ before the places, and a gap is declared for that once: from now on the snapshot counts as what
 * the client had, and only what it gets after the places is compared. Returns false if memory is short. */
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

bool snapshot_continues(struct scrollback *s, bool full, bool believed, struct delivered_place places[2],
                        bool *memory)
{
    struct delivered_place tails[2] = {{false, 0}, {false, 0}};
    bool gap = compare_gap(s, full, places);

    if (scrollback_had_nothing(s)) {
        s->settle->gap = s->settle->gap || gap;
        return true;
    }
    if (full ? !gap : compare_begins(s, places))
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

/* ---- beside the live output ---- */
bool snapshot_align(const struct scrollback *s, const struct records *live,
                    const struct delivered_place places[2], uint64_t at[2])
{
    const struct settle *c = s->settle;
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
