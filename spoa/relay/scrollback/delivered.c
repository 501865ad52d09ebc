/* SPDX-License-Identifier: MIT */
#include "spoa/relay/scrollback/delivered.h"

#include <endian.h>
#include <stdlib.h>

#include "spoa/base/table/hash.h"

#define BLOCK_LEN   512                      /* bytes of a block, which has one mark */
#define MARKS_LEAST 64                       /* first size of the array of marks */
#define MARKS_MOST  2048                     /* largest size: the marks of a MiB */
#define MARKED_MOST (MARKS_MOST * BLOCK_LEN) /* bytes of the stream that have marks at most */
#define MARK_BITS   61
#define PRIME       ((UINT64_C(1) << MARK_BITS) - 1)
#define PIECE       64 /* shortest end of a tail, in bytes, that identifies a place if the whole tail is missing */
/* Largest distance from a known block to the next, in bytes; more unknown bytes were never delivered, even if chunks are missing. */
#define STRANGE_MOST (16 * BLOCK_LEN)
#define BUCKETS_BITS 12
#define BUCKETS      (1 << BUCKETS_BITS)
#define BUCKET_MOST \
    8 /* longest chain of the index: bounds the work per byte, because the session chooses the bytes */

/* ---- marks ---- */
/* A mark is a polynomial of the block's words, so that it can roll over a replay. It is taken modulo a prime and at a secret point, so
 * that no program can write different blocks with the same mark. */
__extension__ typedef unsigned __int128 wide;

static uint64_t reduce(wide x)
{
    uint64_t sum = ((uint64_t)x & PRIME) + (uint64_t)(x >> MARK_BITS);

    sum = (sum & PRIME) + (sum >> MARK_BITS);
    return sum < PRIME ? sum : sum - PRIME;
}

static uint64_t times(uint64_t a, uint64_t b)
{
    return reduce((wide)a * b);
}

static bool set_key(struct delivered *d)
{
    struct hash_secret secret;

    if (!hash_secret_init(&secret))
        return false;
    d->key[0] = secret.k0 % (PRIME - 2) + 2;
    for (unsigned i = 1; i < 4; i++)
        d->key[i] = times(d->key[i - 1], d->key[0]);
    return true;
}

static uint64_t key_power(const struct delivered *d, unsigned power)
{
    uint64_t square = d->key[0], product = 1;

    for (; power; power >>= 1, square = times(square, square))
        if (power & 1)
            product = times(product, square);
    return product;
}

static uint32_t word_at(const uint8_t *at)
{
    uint32_t word;

    memcpy(&word, at, 4);
    return le32toh(word);
}

/* Returns the mark after appending `bytes`, whose length is a multiple of 4. */
static uint64_t mark_words(const struct delivered *d, uint64_t mark, struct slice bytes)
{
    const uint64_t *key = d->key;
    size_t i = 0;

    for (; i + 16 <= bytes.len; i += 16)
        mark = reduce((wide)mark * key[3] + (wide)word_at(bytes.at + i) * key[2] +
                      (wide)word_at(bytes.at + i + 4) * key[1] + (wide)word_at(bytes.at + i + 8) * key[0] +
                      word_at(bytes.at + i + 12));
    for (; i < bytes.len; i += 4)
        mark = reduce((wide)mark * key[0] + word_at(bytes.at + i));
    return mark;
}

static uint64_t block_mark(const struct delivered *d, struct slice bytes, size_t at)
{
    return mark_words(d, 0, slice_sub(bytes, at, BLOCK_LEN));
}

/* Appends the byte at position `at` of the stream; the mark changes with every fourth byte. */
static void mark_byte(const struct delivered *d, struct delivered_mark *mark, uint64_t at, uint8_t byte)
{
    mark->word |= (uint32_t)byte << 8 * (at % 4);
    if (at % 4 < 3)
        return;
    mark->sum = reduce((wide)mark->sum * d->key[0] + mark->word);
    mark->word = 0;
}

/* Appends the bytes at position `at` of the stream, which must belong to one block. */
static void mark_on(const struct delivered *d, struct delivered_mark *mark, uint64_t at, struct slice bytes)
{
    for (; at % 4 && bytes.len; at++, bytes = slice_from(bytes, 1))
        mark_byte(d, mark, at, bytes.at[0]);
    struct slice words = slice_sub(bytes, 0, bytes.len / 4 * 4);
    if (words.len)
        mark->sum = mark_words(d, mark->sum, words);
    for (size_t i = words.len; i < bytes.len; i++)
        mark_byte(d, mark, at + i, bytes.at[i]);
}

/* Makes room for the mark of a block. The array doubles until MARKS_MOST; beyond that, new marks replace the oldest. Returns false if
 * memory is short. */
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
        mark_on(d, &d->mark, at, part);
        at += part.len;
        bytes = slice_from(bytes, part.len);
        if (at % BLOCK_LEN)
            continue;
        uint64_t block = at / BLOCK_LEN - 1;
        if (!make_room(d, block))
            return false;
        d->marks[block % d->marks_size] = d->mark.sum;
        d->mark = (struct delivered_mark){0, 0};
    }
    return true;
}

/* Returns the end of the range of blocks that were complete at `then` and still have marks; *oldest is the first block of the range. */
static uint64_t marked(const struct delivered *d, const struct delivered_end *then, uint64_t *oldest)
{
    uint64_t whole = d->end.len / BLOCK_LEN, count = then->len / BLOCK_LEN;

    *oldest = whole > d->marks_size ? whole - d->marks_size : 0;
    return count > *oldest ? count : *oldest;
}

static uint64_t mark_of(const struct delivered *d, uint64_t block)
{
    return d->marks[block % d->marks_size];
}

/* ---- the delivered output ---- */
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

/* Returns the hash after one more byte. This hash of single bytes only serves delivered_watch. */
static uint64_t roll(const struct delivered *d, uint64_t mark, uint8_t byte)
{
    return reduce((wide)mark * d->key[0] + byte);
}

/* Sets d->recurs if the stream's tail, after any of the new bytes, equals the tail of the time when the watch began. */
static void watch(struct delivered *d, struct slice bytes)
{
    uint64_t weight = PRIME - key_power(d, DELIVERED_TAIL);

    for (size_t i = 0; i < bytes.len && !d->recurs; i++) {
        size_t at = (size_t)((d->end.len + i) % DELIVERED_TAIL);
        uint8_t oldest = i < DELIVERED_TAIL ? d->end.tail[at] : bytes.at[i - DELIVERED_TAIL];
        d->last = reduce((wide)d->last * d->key[0] + bytes.at[i] + (wide)oldest * weight);
        d->recurs = d->last == d->watched;
    }
}

static bool begin_stream(struct delivered *d)
{
    d->head = d->head ? d->head : malloc(DELIVERED_HEAD);
    d->end.tail = d->end.tail ? d->end.tail : malloc(DELIVERED_TAIL);
    return d->head && d->end.tail && set_key(d);
}

bool delivered_put(struct delivered *d, struct slice bytes)
{
    if (bytes.len && !d->end.len && !begin_stream(d))
        return false;
    if (!put_marks(d, bytes))
        return false;
    if (d->watches)
        watch(d, bytes);
    if (d->end.len < DELIVERED_HEAD) {
        struct slice part = slice_sub(bytes, 0, DELIVERED_HEAD - (size_t)d->end.len);
        if (part.len)
            memcpy(d->head + d->end.len, part.at, part.len);
    }
    put_tail(&d->end, bytes);
    d->end.len += bytes.len;
    return true;
}

size_t delivered_held(const struct delivered *d)
{
    return d->marks_size * sizeof *d->marks + (d->end.tail ? (size_t)DELIVERED_TAIL : 0) +
           (d->head ? (size_t)DELIVERED_HEAD : 0);
}

void delivered_note(const struct delivered *d, struct delivered_end *to)
{
    to->len = d->end.len;
    if (!d->end.tail) {
        free(to->tail);
        to->tail = NULL;
        return;
    }
    if (!to->tail)
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
    free(d->head);
    delivered_forget(&d->end);
    *d = (struct delivered){0};
}

/* ---- the place where a replay continues ---- */

/* Returns the last bytes delivered until `then` in order, copied to `tail`. */
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
        if (block_mark(d, replay, (size_t)block * BLOCK_LEN) != mark_of(d, block))
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

/* Returns the position after the last occurrence of `wanted`, which must occur. Both slices are reversed for that, and stay reversed:
 * one search from the end is linear whatever the bytes are. */
static size_t behind_last(struct slice in, struct slice wanted)
{
    turn_round(in);
    turn_round(wanted);
    return in.len - (size_t)(find(in, 0, wanted) - in.at);
}

/* Finds blocks by their marks. An entry is 1 + (block - oldest block), or 0 for none. */
struct index {
    uint16_t first[BUCKETS], next[MARKS_MOST];
    bool alike[MARKS_MOST]; /* another block has the same mark, so the mark does not identify the block */
};

static size_t bucket_of(uint64_t mark)
{
    return mark >> (MARK_BITS - BUCKETS_BITS);
}

/* Returns the entry of the block with this mark, or 0 if there is none. */
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

/* Returns an index of the blocks from `oldest` until `end`, which the thread's next call overwrites. */
static struct index *index_of(const struct delivered *d, uint64_t oldest, uint64_t end)
{
    static _Thread_local struct index index;

    memset(&index, 0, sizeof index);
    for (uint64_t block = oldest; block < end; block++)
        add_to(&index, d, oldest, block);
    return &index;
}

/* The places that the known blocks of a replay suggest: each known block, by its position in the stream and in the replay, gives the
 * position at which the delivered output ends in the replay. If several blocks have the same mark, the oldest one counts, because it
 * gives the latest place. */
struct places {
    uint64_t last, most; /* last and largest place from blocks with a unique mark; 0 if there is none */
    uint64_t alike;      /* largest place from blocks whose mark is not unique */
    size_t end;          /* position in the replay after the last known block */
    bool mixed;          /* a later block gave a larger place, which missing chunks cannot explain */
    /* the bytes between two known blocks are more than the parts of two blocks, so they were never delivered */
    bool strange;
};

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static void note_place(struct places *places, size_t end, uint64_t place, bool alike)
{
    places->strange = places->strange || end - BLOCK_LEN > places->end + 2 * (BLOCK_LEN - 1);
    places->end = end;
    if (alike) {
        places->alike = larger(places->alike, place);
        return;
    }
    places->mixed = places->mixed || (places->last && place > places->last);
    places->most = larger(places->most, place);
    places->last = place;
}

static struct places places_by_blocks(const struct delivered *d, const struct delivered_end *then,
                                      struct slice replay, const struct index *index)
{
    uint64_t oldest, end = marked(d, then, &oldest), weight = PRIME - key_power(d, BLOCK_LEN / 4), marks[4];
    struct places places = {.last = 0};

    if (end == oldest)
        return places;
    for (size_t at = BLOCK_LEN; at <= replay.len; at++) {
        const uint8_t *behind = replay.at + at;
        uint64_t *mark = &marks[at % 4];
        if (at < BLOCK_LEN + 4)
            *mark = block_mark(d, replay, at - BLOCK_LEN);
        else
            *mark = reduce((wide)*mark * d->key[0] + word_at(behind - 4) +
                           (wide)word_at(behind - 4 - BLOCK_LEN) * weight);
        uint16_t known = look_up(index, d, oldest, *mark);
        if (known)
            note_place(&places, at, at + then->len - (oldest + known) * BLOCK_LEN, index->alike[known - 1]);
    }
    return places;
}

/* Returns true if the tail may also occur elsewhere in the delivered output that a ring can still hold. Wherever it occurs, it covers a
 * whole block, because DELIVERED_TAIL is two blocks long. */
static bool tail_recurs(const struct delivered *d, const struct delivered_end *then, struct slice tail,
                        const struct index *index)
{
    uint64_t oldest, first = then->len - tail.len;

    marked(d, then, &oldest);
    for (size_t at = 0; at + BLOCK_LEN <= tail.len; at++) {
        uint16_t known = look_up(index, d, oldest, block_mark(d, tail, at));
        if (known && (index->alike[known - 1] || (oldest + known - 1) * BLOCK_LEN != first + at))
            return true;
    }
    return false;
}

/* Returns true if all output delivered until `then` that a ring can still hold has marks. */
static bool is_all_marked(const struct delivered *d, const struct delivered_end *then)
{
    uint64_t oldest;

    marked(d, then, &oldest);
    return !oldest || oldest * BLOCK_LEN + MARKED_MOST <= then->len;
}

/* Returns true if the bytes begin like the delivered output, as far as that is known. A ring cannot hold the beginning of a longer
 * stream. */
static bool begins_alike(const struct delivered *d, const struct delivered_end *then, struct slice bytes)
{
    struct slice head = slice_of(d->head, then->len < DELIVERED_HEAD ? (size_t)then->len : DELIVERED_HEAD);
    size_t len = bytes.len < head.len ? bytes.len : head.len;

    return len && then->len <= MARKED_MOST && slice_equal(slice_sub(bytes, 0, len), slice_sub(head, 0, len));
}

static uint64_t smaller(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* Returns the latest place that is possible, for a replay whose place is not certain. A replay that begins like the session may hold all
 * delivered output. A ring holds MARKED_MOST bytes at most. After many unknown bytes no delivered output follows. */
static uint64_t latest(const struct delivered_end *then, struct slice bytes, const struct places *places,
                       bool begins)
{
    uint64_t most = larger(places->most, begins ? then->len : 0);

    most = smaller(smaller(most ? most : places->alike, then->len), MARKED_MOST);
    if (places->end && bytes.len - places->end > STRANGE_MOST)
        most = smaller(most, places->end + BLOCK_LEN - 1);
    return most;
}

/* Finds the place in a replay of which some is missing: after the tail, if the blocks before the tail agree and the tail is unique.
 * Otherwise the place is not certain, and as late as the replay may hold delivered output. */
static struct delivered_place find_in_part(const struct delivered *d, const struct delivered_end *then,
                                           struct slice bytes, struct slice tail)
{
    uint64_t oldest, end = marked(d, then, &oldest);
    const struct index *index = index_of(d, oldest, end);
    struct places places = places_by_blocks(d, then, bytes, index);
    const uint8_t *first = tail.len == DELIVERED_TAIL ? find(bytes, 0, tail) : NULL;
    uint64_t behind = first ? (uint64_t)(first - bytes.at) + tail.len : 0;

    if (places.last && !places.mixed && !places.strange && places.last == behind && is_all_marked(d, then) &&
        !tail_recurs(d, then, tail, index))
        return (struct delivered_place){true, behind};
    uint64_t late = latest(then, bytes, &places, begins_alike(d, then, bytes));
    if (late || first)
        return (struct delivered_place){false, late ? late : smaller(then->len, MARKED_MOST)};
    if (tail.len < PIECE || !find(bytes, 0, slice_from(tail, tail.len - PIECE)))
        return (struct delivered_place){false, 0};
    return (struct delivered_place){false, behind_last(bytes, slice_from(tail, tail.len - PIECE))};
}

bool delivered_agrees(const struct delivered *d, const struct delivered_end *then, struct slice replay,
                      size_t place, uint64_t since)
{
    uint64_t oldest, end = marked(d, then, &oldest);

    for (uint64_t block = larger(oldest, (since + BLOCK_LEN - 1) / BLOCK_LEN); block < end; block++) {
        uint64_t back = then->len - block * BLOCK_LEN;
        if (back <= place && block_mark(d, replay, place - (size_t)back) != mark_of(d, block))
            return false;
    }
    return true;
}

/* Returns the length of the end of the tail with which the bytes begin: a ring may have dropped the tail's beginning. */
static size_t overlap(struct slice bytes, struct slice tail)
{
    for (size_t from = 1; from + PIECE <= tail.len; from++) {
        struct slice end = slice_from(tail, from);
        if (slice_equal(slice_sub(bytes, 0, end.len), end))
            return end.len;
    }
    return 0;
}

/* Judges `place`, after the only occurrence of the whole tail in the replay of a full ring. */
static struct delivered_place judge(const struct delivered *d, const struct delivered_end *then,
                                    const struct delivered_replay *replay, struct slice tail, size_t place)
{
    uint64_t oldest, end = marked(d, then, &oldest);
    bool same = delivered_agrees(d, then, replay->bytes, place, 0);

    if (!replay->holed)
        return (struct delivered_place){same, same ? place : overlap(replay->bytes, tail)};
    return (struct delivered_place){same && !tail_recurs(d, then, tail, index_of(d, oldest, end)), place};
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
    if (!first && replay->holed)
        return (struct delivered_place){false, find_in_part(d, then, bytes, tail).at};
    if (!first)
        return (struct delivered_place){false, overlap(bytes, tail)};
    size_t at = (size_t)(first - bytes.at);
    if (!find(bytes, at + 1, tail))
        return judge(d, then, replay, tail, at + tail.len);
    return (struct delivered_place){false, behind_last(bytes, tail)};
}

struct delivered_place delivered_find_tail(const struct delivered_end *then, struct slice bytes)
{
    uint8_t memory[DELIVERED_TAIL];
    struct slice tail = tail_of(then, memory);
    const uint8_t *first = tail.len == DELIVERED_TAIL ? find(bytes, 0, tail) : NULL;

    if (!first || find(bytes, (size_t)(first - bytes.at) + 1, tail))
        return (struct delivered_place){false, 0};
    return (struct delivered_place){true, (uint64_t)(first - bytes.at) + tail.len};
}

/* ---- output that may come again ---- */

/* Returns the number of leading bytes that equal those at `there`. */
static size_t same(const uint8_t *there, struct slice bytes)
{
    size_t i = 0;

    while (i < bytes.len && there[i] == bytes.at[i])
        i++;
    return i;
}

/* Returns the number of leading bytes that equal the stream's tail from position `at` on. */
static size_t same_in_tail(const struct delivered *d, uint64_t at, struct slice bytes)
{
    size_t i = 0;

    while (i < bytes.len && d->end.tail[(at + i) % DELIVERED_TAIL] == bytes.at[i])
        i++;
    return i;
}

/* Adds the next bytes of a block that may be coming again. Returns false if the block is complete and differs from the delivered one. */
static bool is_same_block(struct delivered *d, uint64_t at, struct slice bytes)
{
    uint64_t block = at / BLOCK_LEN, oldest;

    if (at % BLOCK_LEN == 0)
        d->again = (struct delivered_again){.at = at};
    if (d->again.at != at)
        return true; /* the repetition began within this block, so it has no mark to compare */
    mark_on(d, &d->again.mark, at, bytes);
    d->again.at += bytes.len;
    marked(d, &d->end, &oldest);
    return d->again.at % BLOCK_LEN || block < oldest || d->again.mark.sum == mark_of(d, block);
}

size_t delivered_again(struct delivered *d, uint64_t back, struct slice bytes)
{
    size_t done = 0, block = 0;

    while (done < bytes.len && back > done) {
        uint64_t left = back - done, at = d->end.len - left;
        struct slice part = slice_sub(bytes, done, (size_t)smaller(left, bytes.len));
        if (left <= DELIVERED_TAIL)
            return done + same_in_tail(d, at, part);
        part = slice_sub(part, 0, (size_t)smaller(BLOCK_LEN - at % BLOCK_LEN, left - DELIVERED_TAIL));
        size_t alike = at < DELIVERED_HEAD ? same(d->head + at, part) : part.len;
        block = at % BLOCK_LEN ? block : done;
        if (alike < part.len)
            return done + alike;
        if (!is_same_block(d, at, part))
            return block;
        done += part.len;
    }
    return done;
}

/* ---- a tail that recurs ---- */

/* Returns true if the tail of `then` is long enough, and occurs only once in the replay, which ends with it. */
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
    struct slice tail = tail_of(&d->end, memory);
    d->last = 0;
    for (size_t i = 0; i < tail.len && d->watches; i++)
        d->last = roll(d, d->last, tail.at[i]);
    d->watched = d->last;
}

/* ---- as an image ---- */

/* Writes or reads the tail: memory of DELIVERED_TAIL bytes, of which the first `len` are in use. */
static void image_tail(struct image *image, void *object)
{
    struct delivered_end *end = object;
    void *tail = end->tail;

    image_memory(image, &tail, DELIVERED_TAIL, smaller(end->len, DELIVERED_TAIL));
    end->tail = tail;
}

static const struct image_field end_fields[] = {
    IMAGE_NUMBER(struct delivered_end, len, INT64_MAX), /* leaves room to grow: the length never wraps */
    IMAGE_BY(struct delivered_end, tail, image_tail),
};
IMAGE_TABLE(delivered_end_table, struct delivered_end, end_fields);

static const struct image_field mark_fields[] = {
    IMAGE_NUMBER(struct delivered_mark, sum, PRIME),
    IMAGE_ANY(struct delivered_mark, word),
};
static IMAGE_TABLE(mark_table, struct delivered_mark, mark_fields);

static const struct image_field again_fields[] = {
    IMAGE_ANY(struct delivered_again, at),
    IMAGE_PART(struct delivered_again, mark, &mark_table),
};
static IMAGE_TABLE(again_table, struct delivered_again, again_fields);

static void image_first(struct image *image, void *object)
{
    struct delivered *d = object;
    void *head = d->head;

    image_memory(image, &head, DELIVERED_HEAD, smaller(d->end.len, DELIVERED_HEAD));
    d->head = head;
}

static void image_marks(struct image *image, void *object)
{
    struct delivered *d = object;
    void *marks = d->marks;
    uint64_t size = d->marks_size;

    image_number(image, &size, MARKS_MOST);
    image_check(image, !size || (size >= MARKS_LEAST && !(size & (size - 1))));
    if (image->failed)
        return;
    image_memory(image, &marks, size * sizeof *d->marks,
                 smaller(size, d->end.len / BLOCK_LEN) * sizeof *d->marks);
    image_check(image, (marks != NULL) == (size > 0));
    d->marks = marks;
    d->marks_size = marks ? size : 0;
}

/* Returns true if a stream that is not empty has its tail and head, and all the marks that it must have. */
static bool holds(const void *object)
{
    const struct delivered *d = object;

    for (size_t i = 0; i < d->marks_size && i < d->end.len / BLOCK_LEN; i++)
        if (d->marks[i] >= PRIME)
            return false;
    return (!d->end.len || (d->end.tail && d->head)) && (d->end.len < BLOCK_LEN || d->marks_size) &&
           (d->end.len / BLOCK_LEN <= d->marks_size || d->marks_size == MARKS_MOST);
}

static const struct image_field fields[] = {
    IMAGE_PART(struct delivered, end, &delivered_end_table),
    IMAGE_NUMBERS(struct delivered, key, PRIME),
    IMAGE_BY(struct delivered, head, image_first),
    IMAGE_BY(struct delivered, marks, image_marks),
    IMAGE_DERIVED(struct delivered, marks_size), /* by image_marks */
    IMAGE_PART(struct delivered, mark, &mark_table),
    IMAGE_PART(struct delivered, again, &again_table),
    IMAGE_FLAG(struct delivered, watches),
    IMAGE_FLAG(struct delivered, recurs),
    IMAGE_NUMBER(struct delivered, watched, PRIME),
    IMAGE_NUMBER(struct delivered, last, PRIME),
};
IMAGE_TABLE(delivered_table, struct delivered, fields, .holds = holds);
