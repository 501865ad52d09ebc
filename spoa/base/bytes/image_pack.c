/* SPDX-License-Identifier: MIT */
#include "spoa/base/bytes/image_pack.h"

#include <stdlib.h>
#include <string.h>

#include "spoa/base/bytes/reader.h"

/* Format: packed text is a sequence of runs, each of which begins with a byte. A byte below SAME begins a literal run of (byte + 1) bytes,
 * which follow. Any other byte begins a reference to (byte - SAME + GRAM) bytes; their position follows in two bytes, big-endian. A
 * position below IMAGE_WORDS_MAX is in the dictionary, and a larger one is IMAGE_WORDS_MAX + a position in the text itself. */
enum { SAME = 128, GRAM = 4, RUN_MAX = 128, SAME_MAX = 255 - SAME + GRAM };
enum { BUCKETS = 4096, OWN_BUCKETS = 512, NONE = 0 };

struct image_words {
    size_t len;
    uint16_t places[BUCKETS]; /* by the hash of GRAM bytes: 1 + their first position in `bytes`, or NONE */
    uint8_t bytes[IMAGE_WORDS_MAX];
};

/* ---- finding repetitions ---- */
/* Returns a hash of the GRAM bytes at `at`. The hash has no secret: a client that makes hashes collide only makes its own text longer. */
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

static size_t known(const struct image_words *words, struct slice rest, size_t *place)
{
    size_t behind = rest.len < GRAM ? NONE : words->places[gram_at(rest.at) % BUCKETS];
    if (behind == NONE)
        return 0;
    *place = behind - 1;
    return same(words->bytes + *place, words->len - *place, rest.at, rest.len);
}

/* ---- the dictionary ---- */
struct image_words *image_words_new(struct slice text)
{
    struct image_words *words = text.len <= IMAGE_WORDS_MAX ? calloc(1, sizeof *words) : NULL;

    if (!words || !text.len)
        return words;
    memcpy(words->bytes, text.at, text.len);
    words->len = text.len;
    for (size_t at = 0; at + GRAM <= text.len; at++) {
        uint16_t *place = &words->places[gram_at(text.at + at) % BUCKETS];
        if (*place == NONE)
            *place = (uint16_t)(at + 1);
    }
    return words;
}

void image_words_free(struct image_words *words)
{
    free(words);
}

/* ---- packing ---- */
static void put_run(struct writer *w, struct slice run)
{
    while (run.len) {
        struct slice part = slice_sub(run, 0, RUN_MAX);
        writer_u8(w, (uint8_t)(part.len - 1));
        writer_put(w, part);
        run = slice_from(run, part.len);
    }
}

/* Finds the longer of two repetitions of the bytes from `at` on: in the dictionary, and in the text before `at`. Returns its length; less
 * than GRAM if neither is worth a reference. */
static size_t find(const struct image_words *words, const uint16_t *own, struct slice bytes, size_t at,
                   size_t *place)
{
    struct slice rest = slice_sub(bytes, at, SAME_MAX);
    size_t len = known(words, rest, place), behind = own[gram_at(rest.at) % OWN_BUCKETS];

    if (behind != NONE) {
        size_t from = behind - 1, here = same(bytes.at + from, bytes.len - from, rest.at, rest.len);
        if (here > len) {
            *place = IMAGE_WORDS_MAX + from;
            len = here;
        }
    }
    return len;
}

void image_pack(const struct image_words *words, struct slice bytes, struct writer *w)
{
    uint16_t own[OWN_BUCKETS] = {0};
    size_t run = 0, at = 0, place = 0;

    while (at + GRAM <= bytes.len) {
        size_t len = find(words, own, bytes, at, &place);
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

/* Appends unpacked text once more, byte by byte, because a reference may overlap its own result (a run of equal bytes does). Returns false
 * if `from` is after the text that is unpacked so far. */
static bool repeat(struct writer *w, size_t from, size_t len)
{
    if (from >= w->len)
        return false;
    for (size_t i = 0; i < len && !w->full; i++)
        writer_u8(w, w->at[from + i]);
    return true;
}

bool image_unpack(const struct image_words *words, struct slice packed, struct writer *w)
{
    struct reader r = reader_of(packed);
    bool known = true;

    while (known && r.rest.len && !r.failed && !w->full) {
        size_t code = reader_u8(&r);
        if (code < SAME) {
            writer_put(w, reader_take(&r, code + 1));
            continue;
        }
        size_t place = reader_be(&r, 2), len = code - SAME + GRAM;
        if (r.failed)
            break;
        if (place >= IMAGE_WORDS_MAX) {
            known = repeat(w, place - IMAGE_WORDS_MAX, len);
        } else {
            known = place + len <= words->len;
            if (known)
                writer_put(w, slice_of(words->bytes + place, len));
        }
    }
    return known && !r.failed && !w->full && w->len == w->size;
}
