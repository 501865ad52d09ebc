/* SPDX-License-Identifier: MIT */
#include "spoa/relay/scrollback/compare.h"

#include <stdlib.h>

static bool compare_stream(const struct scrollback *s, uint8_t tag, bool full, bool holed,
                           struct delivered_place *place)
{
    const struct output_stream *stream = &s->streams[tag - TAG_OUTPUT];

    *place = (struct delivered_place){false, 0};
    if (!stream->joined.len)
        return true;
    if (!stream->joined.tail)
        return false;
    struct delivered_replay replay = {records_join(&s->replay, tag, 0), full, holed};
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

bool compare_replay(const struct scrollback *s, bool full, bool holed, struct delivered_place places[2])
{
    return compare_stream(s, TAG_OUTPUT, full, holed, &places[0]) &&
           compare_stream(s, TAG_ERRORS, full, holed, &places[1]);
}

/* Returns the number of bytes of stream `of` that were collected before position `place` of the other stream. */
static uint64_t bytes_before(const struct scrollback *s, uint8_t of, uint64_t place)
{
    struct slice rest = buffer_slice(&s->replay.memory), bytes;
    uint64_t mine = 0, others = 0;
    uint8_t tag;

    while (others < place && records_take(&rest, &tag, &bytes))
        *(tag == of ? &mine : &others) += bytes.len;
    return mine;
}

bool compare_gap(const struct scrollback *s, bool full, struct delivered_place places[2])
{
    bool gap = false;

    /* A client that had read an empty ring to its end lacks the chunks that the ring has dropped since. */
    if (scrollback_had_nothing(s))
        return s->live && full;
    for (uint8_t i = 0; i < 2; i++) {
        if (places[i].found)
            continue;
        if (!places[1 - i].found) {
            gap = true;
        } else if (s->streams[i].joined.len) {
            gap = true;
            uint64_t least = bytes_before(s, TAG_OUTPUT + i, places[1 - i].at);
            places[i].at = places[i].at > least ? places[i].at : least;
        }
    }
    return gap;
}

bool compare_begins(const struct scrollback *s, const struct delivered_place places[2])
{
    for (unsigned i = 0; i < 2; i++)
        if (s->streams[i].joined.len && (!places[i].found || places[i].at != s->streams[i].joined.len))
            return false;
    return true;
}
