/* SPDX-License-Identifier: MIT */
#include "spoa/relay/scrollback/state.h"

struct output_stream *scrollback_stream(struct scrollback *s, uint8_t tag)
{
    return tag == TAG_OUTPUT || tag == TAG_ERRORS ? &s->streams[tag - TAG_OUTPUT] : NULL;
}

bool scrollback_is_collecting(const struct scrollback *s)
{
    return s->phase == SCROLLBACK_REPLAYING || s->phase == SCROLLBACK_LATE;
}

bool scrollback_is_full(uint64_t len)
{
    return len + RECORD_MAX >= SCROLLBACK_RING;
}

bool scrollback_had_nothing(const struct scrollback *s)
{
    return !s->streams[0].joined.len && !s->streams[1].joined.len;
}

bool scrollback_is_inside_other(const struct scrollback *s)
{
    return s->inside && s->tag != TAG_OUTPUT && s->tag != TAG_ERRORS;
}

/* ---- the collected replay ---- */
uint64_t scrollback_collected(const struct scrollback *s)
{
    return s->streams[0].collected + s->streams[1].collected;
}

bool scrollback_has_room(const struct scrollback *s, struct slice bytes)
{
    return records_has_room(&s->replay, bytes, s->settle ? SETTLE_MOST : SCROLLBACK_REPLAY);
}

bool scrollback_collect(struct scrollback *s, uint8_t tag, struct slice bytes)
{
    s->streams[tag - TAG_OUTPUT].collected += bytes.len;
    return records_put(&s->replay, tag, bytes);
}

void scrollback_clear_replay(struct scrollback *s)
{
    records_clear(&s->replay);
    s->replay = records_with_limit(SCROLLBACK_REPLAY);
}

/* ---- as an image, and its memory ---- */
/* Returns true if no position of the stream is beyond the delivered output: an image may come from a damaged file. */
static bool stream_holds(const void *object)
{
    const struct output_stream *s = object;
    uint64_t len = s->delivered.end.len;

    return s->asked.len <= len && s->joined.len <= len && s->skip <= len;
}

static const struct image_field stream_fields[] = {
    IMAGE_PART(struct output_stream, delivered, &delivered_table),
    IMAGE_PART(struct output_stream, asked, &delivered_end_table),
    IMAGE_PART(struct output_stream, joined, &delivered_end_table),
    IMAGE_ANY(struct output_stream, since),
    IMAGE_ANY(struct output_stream, collected),
    IMAGE_ANY(struct output_stream, skip),
    IMAGE_FLAG(struct output_stream, doubt),
};
static IMAGE_TABLE(stream_table, struct output_stream, stream_fields, .holds = stream_holds);

static const struct image_field fields[] = {
    IMAGE_PARTS(struct scrollback, streams, &stream_table),
    IMAGE_NUMBER(struct scrollback, phase, SCROLLBACK_OPEN),
    IMAGE_FLAG(struct scrollback, resumed),
    IMAGE_FLAG(struct scrollback, marked),
    IMAGE_FLAG(struct scrollback, compared),
    IMAGE_FLAG(struct scrollback, had_nothing),
    IMAGE_FLAG(struct scrollback, tried),
    IMAGE_FLAG(struct scrollback, live),
    IMAGE_FLAG(struct scrollback, exited),
    IMAGE_FLAG(struct scrollback, torn),
    IMAGE_FLAG(struct scrollback, inside),
    IMAGE_FLAG(struct scrollback, begun),
    IMAGE_FLAG(struct scrollback, rebased),
    IMAGE_FLAG(struct scrollback, after_exit),
    IMAGE_FLAG(struct scrollback, rechecks),
    IMAGE_ANY(struct scrollback, tag),
    IMAGE_ANY(struct scrollback, said),
    IMAGE_TIME(struct scrollback, late_at),
    IMAGE_TIME(struct scrollback, said_at),
    IMAGE_TIME(struct scrollback, doubt_at),
    IMAGE_PART(struct scrollback, replay, &records_table),
    IMAGE_OWNED(struct scrollback, settle, &settle_table),
};
IMAGE_TABLE(scrollback_table, struct scrollback, fields);

size_t scrollback_held(const struct scrollback *s)
{
    size_t sum =
        s->replay.memory.size + (s->settle ? sizeof *s->settle + s->settle->snapshot.memory.size : 0);

    for (unsigned i = 0; i < 2; i++)
        sum += delivered_held(&s->streams[i].delivered) + (s->streams[i].asked.tail ? DELIVERED_TAIL : 0) +
               (s->streams[i].joined.tail ? DELIVERED_TAIL : 0);
    return sum;
}

void scrollback_free(struct scrollback *s)
{
    records_clear(&s->replay);
    settle_free(s->settle);
    for (unsigned i = 0; i < 2; i++) {
        delivered_free(&s->streams[i].delivered);
        delivered_forget(&s->streams[i].asked);
        delivered_forget(&s->streams[i].joined);
    }
}
