/* SPDX-License-Identifier: MIT */
#include "spoa/base/fold.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* Packed: a bit for each word that differs, then for each of these words a bit for each byte that does, and those bytes. */
enum { WORD = 8 };

static uint64_t word_of(const void *object, size_t i)
{
    uint64_t word;
    memcpy(&word, (const uint8_t *)object + i * WORD, WORD);
    return word;
}

/* An object may hold padding that nobody ever wrote: valgrind is told by these two names that comparing it is fine
 * (tests/valgrind.supp). */
#define COMPARES __attribute__((noinline))

COMPARES static uint8_t *fold_word(uint8_t *to, uint64_t differs)
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

static const uint8_t *take_word(const uint8_t *from, uint64_t *differs)
{
    uint8_t bytes = *from++;

    *differs = 0;
    for (unsigned i = 0; i < WORD; i++)
        if (bytes & 1u << i)
            *differs |= (uint64_t)*from++ << 8 * i;
    return from;
}

COMPARES static size_t fold_words(const struct fold *fold, const void *object, uint8_t *to)
{
    size_t words = fold->size / WORD;
    uint8_t *at = to + (words + 7) / 8;

    memset(to, 0, (words + 7) / 8);
    for (size_t i = 0; i < words; i++) {
        uint64_t differs = word_of(object, i) ^ word_of(fold->first, i);
        if (!differs)
            continue;
        to[i / 8] |= (uint8_t)(1u << i % 8);
        at = fold_word(at, differs);
    }
    return (size_t)(at - to);
}

size_t fold_pack(struct fold *fold, const void *object, uint8_t to[static FOLD_PACKED_MOST])
{
    assert(fold->size % WORD == 0 && fold->size <= FOLD_SIZE_MOST);
    if (!fold->first) {
        fold->first = malloc(fold->size);
        if (!fold->first)
            return 0;
        memcpy(fold->first, object, fold->size);
    }
    return fold_words(fold, object, to);
}

void fold_unpack(const struct fold *fold, const uint8_t *packed, void *object)
{
    size_t words = fold->size / WORD;
    const uint8_t *at = packed + (words + 7) / 8;

    memcpy(object, fold->first, fold->size);
    for (size_t i = 0; i < words; i++) {
        uint64_t differs;
        if (!(packed[i / 8] & 1u << i % 8))
            continue;
        at = take_word(at, &differs);
        differs ^= word_of(object, i);
        memcpy((uint8_t *)object + i * WORD, &differs, WORD);
    }
}

void fold_free(struct fold *fold)
{
    free(fold->first);
    fold->first = NULL;
}
