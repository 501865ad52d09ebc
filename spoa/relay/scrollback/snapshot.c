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

/* ---- compared with the delivered output ---- */

/* Finds the last delivered bytes in the snapshot. Returns true if these occur there exactly once in each stream. */
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

/* Finds the places of both streams by blocks of the delivered output. In doubt a place is too late, not too early, so that the client
 * gets no byte twice. Returns false if memory is short. */
static bool place_blocks(const struct scrollback *s, bool full, struct delivered_place places[2])
{
    if (!compare_replay(s, full, true, places))
        return false;
    compare_gap(s, full, places); /* fills in the place of a stream whose own place was not found */
    return true;
}

/* Returns true if the snapshot has, before the places, all output that the client received after the last declared gap. */
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

/* Handles a difference of client and snapshot before the places. A gap is declared once; from now on the snapshot counts as delivered,
 * and only output after the places is compared. Returns false if memory is short. */
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

/* ---- compared with the live output ---- */
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
