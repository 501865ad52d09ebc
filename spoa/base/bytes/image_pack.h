/* SPDX-License-Identifier: MIT */
/*
 * image_pack: text in an image that is much like other text, in fewer bytes. Where it repeats a dictionary, or itself further in front, a
 * reference stands instead. The dictionary never changes, and nothing of what is packed gets into it: nobody can fill it, it holds
 * nobody's secrets, and another process of the same version unpacks by the same one. For any thread.
 */
#ifndef CELLGATE_BASE_IMAGE_PACK_H
#define CELLGATE_BASE_IMAGE_PACK_H

#include "spoa/base/bytes/slice.h"
#include "spoa/base/bytes/writer.h"

#define IMAGE_WORDS_MAX 16384 /* bytes of a dictionary */
#define IMAGE_PACK_MAX  32768 /* bytes; longer text cannot be packed */

struct image_words;

/* Returns a dictionary, which is a copy of `words`, at most IMAGE_WORDS_MAX bytes; NULL if memory is short. */
struct image_words *image_words_new(struct slice words);
void image_words_free(struct image_words *words);

/* Appends the packed text. It fits in len + len / 128 + 1 bytes; w->full if there is no room for it. */
void image_pack(const struct image_words *words, struct slice text, struct writer *w);
/* Unpacks all of `packed` to `w`, which has room for exactly the text. Returns false if `packed` is not what image_pack writes of so much
 * text: it may be anything. */
bool image_unpack(const struct image_words *words, struct slice packed, struct writer *w)
    __attribute__((warn_unused_result));

#endif
