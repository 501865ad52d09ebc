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

/* ---- what is collected ---- */
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

void scrollback_image(struct image *image, struct scrollback *s)
{
    image_stream(image, &s->streams[0]);
    image_stream(image, &s->streams[1]);
    IMAGE(image, s->phase, SCROLLBACK_OPEN);
    IMAGE_BOOL(image, s->resumed);
    IMAGE_BOOL(image, s->marked);
    IMAGE_BOOL(image, s->compared);
    IMAGE_BOOL(image, s->had_nothing);
    IMAGE_BOOL(image, s->tried);
    IMAGE_BOOL(image, s->live);
    IMAGE_BOOL(image, s->exited);
    IMAGE_BOOL(image, s->torn);
    IMAGE_BOOL(image, s->inside);
    IMAGE_BOOL(image, s->begun);
    IMAGE(image, s->tag, UINT8_MAX);
    IMAGE_U64(image, s->said);
    IMAGE_U64(image, s->late_at);
    IMAGE_U64(image, s->said_at);
    IMAGE_U64(image, s->doubt_at);
    if (!image->to)
        s->replay = records_with_limit(SCROLLBACK_REPLAY);
    records_image(image, &s->replay, TAG_ERRORS);
    image_settle(image, s);
}

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
