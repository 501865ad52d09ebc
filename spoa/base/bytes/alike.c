/* SPDX-License-Identifier: MIT */
#include "spoa/base/bytes/alike.h"

#include <stdlib.h>
#include <string.h>

/* Packed: runs, each behind a byte. Below SAME it is one less than a number of bytes that follow; else they are the same as
 * (byte - SAME + GRAM) bytes at a place of two bytes: in the dictionary, or, from ALIKE_DICTIONARY on, in what was unpacked so
 * far. */
enum { SAME = 128, GRAM = 4, RUN_MOST = 128, SAME_MOST = 255 - SAME + GRAM };
enum { BUCKETS = 4096, OWN_BUCKETS = 512, NONE = 0 };

struct alike {
    size_t len;
    uint16_t places[BUCKETS]; /* one behind where these bytes stand; NONE: nowhere */
    uint8_t bytes[ALIKE_DICTIONARY];
};

/* ---- places ---- */
/* Whoever chooses bytes that fall together makes only their own ones longer. */
static uint32_t gram_at(const uint8_t *at)
{
    uint32_t gram;
    memcpy(&gram, at, sizeof gram);
    return gram * 2654435761u >> 20;
}

static size_t same(const uint8_t *a, size_t a_len, const uint8_t *b, size_t b_len)
{
    size_t most = a_len < b_len ? a_len : b_len, len = 0;
    while (len < most && a[len] == b[len])
        len++;
    return len;
}

static size_t known(const struct alike *alike, struct slice rest, size_t *place)
{
    size_t behind = rest.len < GRAM ? NONE : alike->places[gram_at(rest.at) % BUCKETS];
    if (behind == NONE)
        return 0;
    *place = behind - 1;
    return same(alike->bytes + *place, alike->len - *place, rest.at, rest.len);
}

/* ---- the dictionary ---- */
struct alike *alike_new(struct slice words)
{
    struct alike *alike = words.len <= ALIKE_DICTIONARY ? calloc(1, sizeof *alike) : NULL;

    if (!alike || !words.len)
        return alike;
    memcpy(alike->bytes, words.at, words.len);
    alike->len = words.len;
    for (size_t at = 0; at + GRAM <= words.len; at++) {
        uint16_t *place = &alike->places[gram_at(words.at + at) % BUCKETS];
        if (*place == NONE)
            *place = (uint16_t)(at + 1);
    }
    return alike;
}

void alike_free(struct alike *alike)
{
    free(alike);
}

/* ---- packing ---- */
static void put_run(struct writer *w, struct slice run)
{
    while (run.len) {
        struct slice part = slice_sub(run, 0, RUN_MOST);
        writer_u8(w, (uint8_t)(part.len - 1));
        writer_put(w, part);
        run = slice_from(run, part.len);
    }
}

/* The longer one of the two; fewer than GRAM: none. */
static size_t find(const struct alike *alike, const uint16_t *own, struct slice bytes, size_t at,
                   size_t *place)
{
    struct slice rest = slice_sub(bytes, at, SAME_MOST);
    size_t len = known(alike, rest, place), behind = own[gram_at(rest.at) % OWN_BUCKETS];

    if (behind != NONE) {
        size_t from = behind - 1, here = same(bytes.at + from, bytes.len - from, rest.at, rest.len);
        if (here > len) {
            *place = ALIKE_DICTIONARY + from;
            len = here;
        }
    }
    return len;
}

void alike_pack(const struct alike *alike, struct slice bytes, struct writer *w)
{
    uint16_t own[OWN_BUCKETS] = {0};
    size_t run = 0, at = 0, place = 0;

    while (at + GRAM <= bytes.len) {
        size_t len = find(alike, own, bytes, at, &place);
        own[gram_at(bytes.at + at) % OWN_BUCKETS] = (uint16_t)(at + 1);
        if (len < GRAM) {
            at++;
            continue;
        }
        put_run(w, slice_sub(bytes, run, at - run));
        writer_u8(w, (uint8_t)(len - GRAM + SAME));
        writer_be(w, place, 2);
        at += len;
        run = at;
    }
    put_run(w, slice_from(bytes, run));
}

/* Appends bytes that were unpacked before. Byte by byte: the last of them may be what is appended here, of a run of equal bytes. */
static void again(struct writer *w, size_t from, size_t len)
{
    for (size_t i = 0; i < len && !w->full; i++)
        writer_u8(w, w->at[from + i]);
}

void alike_unpack(const struct alike *alike, struct slice packed, struct writer *w)
{
    while (packed.len) {
        size_t code = packed.at[0];
        if (code < SAME) {
            writer_put(w, slice_of(packed.at + 1, code + 1));
            packed = slice_from(packed, code + 2);
            continue;
        }
        size_t place = (size_t)packed.at[1] << 8 | packed.at[2];
        size_t len = code - SAME + GRAM;
        if (place < ALIKE_DICTIONARY)
            writer_put(w, slice_of(alike->bytes + place, len));
        else
            again(w, place - ALIKE_DICTIONARY, len);
        packed = slice_from(packed, 3);
    }
}
