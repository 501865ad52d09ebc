/* SPDX-License-Identifier: MIT */
/*
 * image_pack: compresses text of an image, such as a request's head, against a fixed dictionary. Bytes that repeat the dictionary, or the
 * text itself, are replaced by a reference. The dictionary never changes, and packed text is not added to it: so no client can fill the
 * dictionary, it holds no secrets, and another process of the same version can unpack the text. Any thread may call these functions.
 */
#ifndef CELLGATE_BASE_IMAGE_PACK_H
#define CELLGATE_BASE_IMAGE_PACK_H

#include "spoa/base/bytes/slice.h"
#include "spoa/base/bytes/writer.h"

#define IMAGE_WORDS_MAX 16384 /* largest dictionary, in bytes */
#define IMAGE_PACK_MAX  32768 /* longest text that can be packed, in bytes */

struct image_words;

/* Returns a dictionary with a copy of `words`. Returns NULL if memory is short, or `words` has more than IMAGE_WORDS_MAX bytes. */
struct image_words *image_words_new(struct slice words);
void image_words_free(struct image_words *words);

/* Appends the packed text, which takes at most len + len / 128 + 1 bytes. Sets w->full if there is no room for it. */
void image_pack(const struct image_words *words, struct slice text, struct writer *w);
/* Unpacks all of `packed` to `w`, which must have room for exactly the text. Returns false if `packed`, which may hold any bytes, does not
 * unpack to a text of that length. */
bool image_unpack(const struct image_words *words, struct slice packed, struct writer *w)
    __attribute__((warn_unused_result));

#endif
