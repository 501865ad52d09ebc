/* SPDX-License-Identifier: MIT */
#include "spoa/base/bytes/fold.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/*
 * Packed: for each word that differs a byte, and what follows it. Its upper three bits say what the word is, the lower ones how
 * many words in front of it do not differ; so many as there is no number for have a byte of their own, SKIP. Many words are
 * times, and all times of an object are about as much later than those of the first one. So what counts is by how much a word is
 * larger than that of the first one, and both sides keep the last two of these differences (`recent`).
 */
enum { WORD = 8, GAP_BITS = 5, GAP_MOST = (1 << GAP_BITS) - 1 };
enum code {
    CODE_BYTES,  /* a bit for each byte that differs, and by XOR those bytes */
    CODE_SAME,   /* as much larger as one of recent ... */
    CODE_SAME_2, /* ... the second */
    CODE_NEAR,   /* the same, and so much more: a signed byte */
    CODE_NEAR_2,
    CODE_ABOUT, /* two of them, the lower one first */
    CODE_ABOUT_2,
    CODE_SKIP, /* GAP_MOST words and one do not differ */
};

static uint64_t word_of(const void *object, size_t i)
{
    uint64_t word;
    memcpy(&word, (const uint8_t *)object + i * WORD, WORD);
    return word;
}

static void note(uint64_t recent[2], bool second, uint64_t more)
{
    if (second)
        recent[1] = recent[0];
    recent[0] = more;
}

/* ---- packing ---- */
static uint8_t *put_bytes(uint8_t *to, uint64_t differs)
{
    uint8_t *bytes = to++;

    *bytes = 0;
    for (unsigned i = 0; i < WORD; i++) {
        uint8_t byte = (uint8_t)(differs >> 8 * i);
        if (!byte)
            continue;
        *bytes |= (uint8_t)(1u << i);
        *to++ = byte;
    }
    return to;
}

/* Bytes in which it can be said, none to two; 3: it is not near. */
static unsigned distance(uint64_t more, uint64_t recent)
{
    int64_t by = (int64_t)(more - recent);

    return by == 0 ? 0 : by >= INT8_MIN && by <= INT8_MAX ? 1 : by >= INT16_MIN && by <= INT16_MAX ? 2 : 3;
}

static uint8_t *fold_word(uint8_t *to, uint64_t word, uint64_t first, uint64_t recent[2], size_t gap)
{
    uint64_t more = word - first;
    unsigned here = distance(more, recent[0]), there = distance(more, recent[1]);
    bool second = there < here;
    unsigned bytes = second ? there : here;
    uint64_t by = more - recent[second];

    *to++ = (uint8_t)((bytes > 2 ? CODE_BYTES : CODE_SAME + 2 * bytes + second) << GAP_BITS | gap);
    if (bytes > 2)
        to = put_bytes(to, word ^ first);
    else
        for (unsigned i = 0; i < bytes; i++)
            *to++ = (uint8_t)(by >> 8 * i);
    note(recent, second || bytes > 2, more);
    return to;
}

/* An object may hold padding that nobody ever wrote: valgrind is told by this name that comparing it is fine
 * (tests/valgrind.supp). */
__attribute__((noinline)) static size_t fold_words(const struct fold *fold, const void *object, uint8_t *to)
{
    uint64_t recent[2] = {0};
    uint8_t *at = to;
    size_t gap = 0;

    for (size_t i = 0; i < fold->size / WORD; i++) {
        uint64_t word = word_of(object, i), first = word_of(fold->first, i);
        if (word == first) {
            gap++;
            continue;
        }
        for (; gap > GAP_MOST; gap -= GAP_MOST + 1)
            *at++ = CODE_SKIP << GAP_BITS;
        at = fold_word(at, word, first, recent, gap);
        gap = 0;
    }
    return (size_t)(at - to);
}

size_t fold_pack(struct fold *fold, const void *object, uint8_t to[static FOLD_PACKED_MOST])
{
    assert(fold->size % WORD == 0 && fold->size <= FOLD_SIZE_MOST);
    if (!fold->first) {
        fold->first = malloc(fold->size);
        if (!fold->first)
            return FOLD_NO_MEMORY;
        memcpy(fold->first, object, fold->size);
    }
    return fold_words(fold, object, to);
}

/* ---- and back ---- */
static const uint8_t *take_bytes(const uint8_t *from, uint64_t *differs)
{
    uint8_t bytes = *from++;

    *differs = 0;
    for (unsigned i = 0; i < WORD; i++)
        if (bytes & 1u << i)
            *differs |= (uint64_t)*from++ << 8 * i;
    return from;
}

static uint64_t signed_of(const uint8_t *from, unsigned bytes)
{
    return bytes == 0   ? 0
           : bytes == 1 ? (uint64_t)(int64_t)(int8_t)from[0]
                        : (uint64_t)(int64_t)(int16_t)(uint16_t)(from[0] | from[1] << 8);
}

static const uint8_t *unfold_word(const uint8_t *from, unsigned code, uint64_t first, uint64_t recent[2],
                                  uint64_t *word)
{
    if (code == CODE_BYTES) {
        from = take_bytes(from, word);
        *word ^= first;
        note(recent, true, *word - first);
        return from;
    }
    bool second = (code - CODE_SAME) % 2;
    unsigned bytes = (code - CODE_SAME) / 2;
    uint64_t more = recent[second] + signed_of(from, bytes);
    *word = first + more;
    note(recent, second, more);
    return from + bytes;
}

void fold_unpack(const struct fold *fold, struct slice packed, void *object)
{
    const uint8_t *at = packed.at, *end = packed.at + packed.len;
    uint64_t recent[2] = {0};
    size_t place = 0;

    memcpy(object, fold->first, fold->size);
    while (at < end) {
        unsigned code = *at >> GAP_BITS;
        place += *at++ & GAP_MOST;
        if (code == CODE_SKIP) {
            place += GAP_MOST + 1;
            continue;
        }
        uint64_t word;
        at = unfold_word(at, code, word_of(fold->first, place), recent, &word);
        memcpy((uint8_t *)object + place++ * WORD, &word, WORD);
    }
}

void fold_free(struct fold *fold)
{
    free(fold->first);
    fold->first = NULL;
}
