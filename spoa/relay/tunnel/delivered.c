/* SPDX-License-Identifier: MIT */
#include "spoa/relay/tunnel/delivered.h"

#include <stdlib.h>

#define BLOCK_LEN    512  /* bytes that a mark stands for */
#define MARKS_LEAST  64   /* of them at first */
#define MARKS_MOST   2048 /* a MiB */
#define FACTOR       UINT64_C(0x9e3779b97f4a7c15)
#define PIECE        64 /* bytes of a tail that are looked for when the whole of it is not there */
#define BUCKETS_BITS 12
#define BUCKETS      (1 << BUCKETS_BITS)
#define BUCKET_MOST  8 /* marks that are looked at for each byte of a replay, whatever the session says */

/* ---- marks ---- */
/* A polynomial, so that it can roll. */
static uint64_t mark_on(uint64_t mark, struct slice bytes)
{
    const uint64_t two = FACTOR * FACTOR, three = two * FACTOR, four = two * two;
    size_t i = 0;

    for (; i + 4 <= bytes.len; i += 4)
        mark = mark * four + (bytes.at[i] + UINT64_C(1)) * three + (bytes.at[i + 1] + UINT64_C(1)) * two +
               (bytes.at[i + 2] + UINT64_C(1)) * FACTOR + (bytes.at[i + 3] + UINT64_C(1));
    for (; i < bytes.len; i++)
        mark = mark * FACTOR + bytes.at[i] + 1;
    return mark;
}

/* Room for the mark of that block; it grows while none has been dropped. */
static bool make_room(struct delivered *d, uint64_t block)
{
    size_t size = d->marks_size ? 2 * d->marks_size : MARKS_LEAST;

    if (block < d->marks_size || d->marks_size == MARKS_MOST)
        return true;
    uint64_t *grown = realloc(d->marks, size * sizeof *grown);
    if (!grown)
        return false;
    d->marks = grown;
    d->marks_size = size;
    return true;
}

static bool put_marks(struct delivered *d, struct slice bytes)
{
    uint64_t at = d->end.len;

    while (bytes.len) {
        struct slice part = slice_sub(bytes, 0, BLOCK_LEN - (size_t)(at % BLOCK_LEN));
        d->mark = mark_on(d->mark, part);
        at += part.len;
        bytes = slice_from(bytes, part.len);
        if (at % BLOCK_LEN)
            continue;
        uint64_t block = at / BLOCK_LEN - 1;
        if (!make_room(d, block))
            return false;
        d->marks[block % d->marks_size] = d->mark;
        d->mark = 0;
    }
    return true;
}

/* The blocks whose marks are there: from *oldest to before the result. */
static uint64_t marked(const struct delivered *d, const struct delivered_end *then, uint64_t *oldest)
{
    uint64_t whole = d->end.len / BLOCK_LEN, count = then->len / BLOCK_LEN;

    *oldest = whole > d->marks_size ? whole - d->marks_size : 0;
    return count > *oldest ? count : *oldest;
}

/* ---- what was delivered ---- */
static void put_tail(struct delivered_end *to, struct slice bytes)
{
    uint64_t at = to->len;

    if (bytes.len > DELIVERED_TAIL) {
        at += bytes.len - DELIVERED_TAIL;
        bytes = slice_from(bytes, bytes.len - DELIVERED_TAIL);
    }
    size_t start = (size_t)(at % DELIVERED_TAIL);
    struct slice behind = slice_from(bytes, DELIVERED_TAIL - start);
    if (bytes.len)
        memcpy(to->tail + start, bytes.at, bytes.len - behind.len);
    if (behind.len)
        memcpy(to->tail, behind.at, behind.len);
}

/* What a byte has added to the mark of the `len` bytes behind it. */
static uint64_t mark_weight(size_t len)
{
    uint64_t weight = 1;

    while (len--)
        weight *= FACTOR;
    return weight;
}

/* Whether the last bytes of all are those that were the last when it began. */
static void watch(struct delivered *d, struct slice bytes)
{
    uint64_t weight = mark_weight(DELIVERED_TAIL);

    for (size_t i = 0; i < bytes.len && !d->recurs; i++) {
        size_t at = (size_t)((d->end.len + i) % DELIVERED_TAIL);
        uint8_t oldest = i < DELIVERED_TAIL ? d->end.tail[at] : bytes.at[i - DELIVERED_TAIL];
        d->last = d->last * FACTOR + bytes.at[i] + 1 - weight * (oldest + UINT64_C(1));
        d->recurs = d->last == d->watched;
    }
}

bool delivered_put(struct delivered *d, struct slice bytes)
{
    if (bytes.len && !d->end.tail && !(d->end.tail = malloc(DELIVERED_TAIL)))
        return false;
    if (!put_marks(d, bytes))
        return false;
    if (d->watches)
        watch(d, bytes);
    put_tail(&d->end, bytes);
    d->end.len += bytes.len;
    return true;
}

size_t delivered_held(const struct delivered *d)
{
    return d->marks_size * sizeof *d->marks + (d->end.tail ? (size_t)DELIVERED_TAIL : 0);
}

void delivered_note(const struct delivered *d, struct delivered_end *to)
{
    to->len = d->end.len;
    if (d->end.tail && !to->tail)
        to->tail = malloc(DELIVERED_TAIL);
    if (to->tail)
        memcpy(to->tail, d->end.tail, DELIVERED_TAIL);
}

void delivered_forget(struct delivered_end *end)
{
    free(end->tail);
    *end = (struct delivered_end){0};
}

void delivered_free(struct delivered *d)
{
    free(d->marks);
    delivered_forget(&d->end);
    *d = (struct delivered){0};
}

/* ---- where a replay goes on ---- */

/* The last bytes that were delivered then, in their order. */
static struct slice tail_of(const struct delivered_end *then, uint8_t tail[DELIVERED_TAIL])
{
    size_t len = then->len < DELIVERED_TAIL ? (size_t)then->len : DELIVERED_TAIL;
    size_t start = len < DELIVERED_TAIL ? 0 : (size_t)(then->len % DELIVERED_TAIL);

    if (len) {
        memcpy(tail, then->tail + start, len - start);
        memcpy(tail + len - start, then->tail, start);
    }
    return slice_of(tail, len);
}

bool delivered_begins(const struct delivered *d, const struct delivered_end *then, struct slice replay)
{
    uint8_t memory[DELIVERED_TAIL];
    uint64_t oldest, end = marked(d, then, &oldest);

    if (then->len > replay.len)
        return false;
    struct slice tail = tail_of(then, memory);
    if (!slice_equal(slice_sub(replay, (size_t)then->len - tail.len, tail.len), tail))
        return false;
    for (uint64_t block = oldest; block < end; block++)
        if (mark_on(0, slice_sub(replay, (size_t)block * BLOCK_LEN, BLOCK_LEN)) !=
            d->marks[block % d->marks_size])
            return false;
    return true;
}

static const uint8_t *find(struct slice in, size_t from, struct slice wanted)
{
    struct slice rest = slice_from(in, from);
    return memmem(rest.at, rest.len, wanted.at, wanted.len);
}

static void turn_round(struct slice bytes)
{
    uint8_t *first = (uint8_t *)bytes.at, *last = first + bytes.len;

    while (first + 1 < last) {
        uint8_t byte = *first;
        *first++ = *--last;
        *last = byte;
    }
}

/* Behind the last occurrence, of which there is one: the first one from the end, whatever the bytes are, in one pass. Both are
 * turned round. */
static size_t behind_last(struct slice in, struct slice wanted)
{
    turn_round(in);
    turn_round(wanted);
    return in.len - (size_t)(find(in, 0, wanted) - in.at);
}

/* The blocks by their marks. Of blocks that are alike nobody knows which one it is. */
struct index {
    uint16_t first[BUCKETS], next[MARKS_MOST]; /* 1 + a block's place behind the oldest; 0: none */
    bool alike[MARKS_MOST];
};

static size_t bucket_of(uint64_t mark)
{
    return mark >> (64 - BUCKETS_BITS);
}

static uint64_t mark_of(const struct delivered *d, uint64_t block)
{
    return d->marks[block % d->marks_size];
}

/* The place behind the oldest of a block with that mark, and one more; 0: there is none. */
static uint16_t look_up(const struct index *index, const struct delivered *d, uint64_t oldest, uint64_t mark)
{
    uint16_t at = index->first[bucket_of(mark)];

    while (at && mark_of(d, oldest + at - 1u) != mark)
        at = index->next[at - 1];
    return at;
}

static void add_to(struct index *index, const struct delivered *d, uint64_t oldest, uint64_t block)
{
    uint64_t mark = mark_of(d, block);
    uint16_t *link = &index->first[bucket_of(mark)], known = look_up(index, d, oldest, mark);
    unsigned many = 0;

    if (known)
        index->alike[known - 1] = true;
    for (; !known && *link && many < BUCKET_MOST; many++)
        link = &index->next[*link - 1];
    if (!known && many < BUCKET_MOST)
        *link = (uint16_t)(block - oldest + 1);
}

/* The places that blocks of the replay speak for which were delivered, and are like no other. */
struct places {
    uint64_t last, most; /* 0: none */
    bool mixed;          /* what was missing makes them smaller, never larger */
};

static void note_place(struct places *places, uint64_t place)
{
    places->mixed = places->mixed || (places->last && place > places->last);
    places->last = place;
    if (place > places->most)
        places->most = place;
}

static struct places places_by_blocks(const struct delivered *d, const struct delivered_end *then,
                                      struct slice replay)
{
    static _Thread_local struct index index;
    uint64_t oldest, end = marked(d, then, &oldest), weight = mark_weight(BLOCK_LEN);
    struct places places = {0, 0, false};

    if (replay.len < BLOCK_LEN || end == oldest)
        return places;
    memset(&index, 0, sizeof index);
    for (uint64_t block = oldest; block < end; block++)
        add_to(&index, d, oldest, block);
    uint64_t mark = mark_on(0, slice_sub(replay, 0, BLOCK_LEN));
    for (size_t at = BLOCK_LEN;; at++) {
        uint16_t known = look_up(&index, d, oldest, mark);
        if (known && !index.alike[known - 1])
            note_place(&places, at + then->len - (oldest + known) * BLOCK_LEN);
        if (at == replay.len)
            return places;
        mark = mark * FACTOR + replay.at[at] + 1 - weight * (replay.at[at - BLOCK_LEN] + UINT64_C(1));
    }
}

/* Whether the bytes begin as what was delivered. */
static bool begins_alike(const struct delivered *d, const struct delivered_end *then, struct slice bytes,
                         struct slice tail)
{
    uint64_t oldest, end = marked(d, then, &oldest);

    if (bytes.len < BLOCK_LEN || then->len < BLOCK_LEN)
        return bytes.len && then->len <= tail.len && slice_equal(slice_sub(tail, 0, bytes.len), bytes);
    return !oldest && end && mark_on(0, slice_sub(bytes, 0, BLOCK_LEN)) == mark_of(d, 0);
}

/* In a replay of which some is missing. Where the tail is not like that of any other part, as the blocks in front of it
 * say, it goes on there; else not before there has been all that was delivered. */
static struct delivered_place find_in_part(const struct delivered *d, const struct delivered_end *then,
                                           struct slice bytes, struct slice tail)
{
    struct places places = places_by_blocks(d, then, bytes);
    const uint8_t *first = tail.len == DELIVERED_TAIL ? find(bytes, 0, tail) : NULL;
    uint64_t behind = first ? (uint64_t)(first - bytes.at) + tail.len : 0;

    if (places.last && !places.mixed && places.last == behind)
        return (struct delivered_place){true, behind};
    if (places.most)
        return (struct delivered_place){false, places.most};
    if (first || begins_alike(d, then, bytes, tail))
        return (struct delivered_place){false, then->len};
    if (tail.len < PIECE || !find(bytes, 0, slice_from(tail, tail.len - PIECE)))
        return (struct delivered_place){false, 0};
    return (struct delivered_place){false, behind_last(bytes, slice_from(tail, tail.len - PIECE))};
}

struct delivered_place delivered_find(const struct delivered *d, const struct delivered_end *then,
                                      const struct delivered_replay *replay)
{
    uint8_t memory[DELIVERED_TAIL];
    struct slice tail = tail_of(then, memory), bytes = replay->bytes;

    if (!tail.len)
        return (struct delivered_place){false, 0};
    if (!replay->full)
        return find_in_part(d, then, bytes, tail);
    const uint8_t *first = find(bytes, 0, tail);
    if (!first)
        return (struct delivered_place){false, replay->holed ? find_in_part(d, then, bytes, tail).at : 0};
    size_t at = (size_t)(first - bytes.at);
    if (!find(bytes, at + 1, tail))
        return (struct delivered_place){true, at + tail.len};
    return (struct delivered_place){false, behind_last(bytes, tail)};
}

/* ---- whether it recurs ---- */

/* The tail of what was delivered then occurs once in a replay that ends with it, and is long enough to tell. */
static bool is_unlike(const struct delivered_end *then, struct slice replay)
{
    uint8_t memory[DELIVERED_TAIL];
    struct slice tail = tail_of(then, memory);

    return tail.len == DELIVERED_TAIL && find(replay, 0, tail) == replay.at + replay.len - tail.len;
}

void delivered_watch(struct delivered *d, const struct delivered_end *then, struct slice replay)
{
    uint8_t memory[DELIVERED_TAIL];

    d->recurs = !is_unlike(then, slice_sub(replay, 0, (size_t)then->len));
    d->watches = !d->recurs;
    if (d->watches)
        d->last = d->watched = mark_on(0, tail_of(&d->end, memory));
}
