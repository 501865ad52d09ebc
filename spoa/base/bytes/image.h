/* SPDX-License-Identifier: MIT */
/*
 * image: state as bytes, so that another process can go on with it. One function per structure names its fields once, and
 * serves both ways: it writes them, or reads them back into a structure that was set up as if it were new.
 *
 * An image is read by the program that wrote it or by a newer one, from a process of the same user; what it says is checked all
 * the same: numbers against their limits, lengths against what is there. A failed image stays failed, and what was read of it
 * is not to be used, but may be freed.
 */
#ifndef CELLGATE_BASE_BYTES_IMAGE_H
#define CELLGATE_BASE_BYTES_IMAGE_H

#include "spoa/base/bytes/buffer.h"
#include "spoa/base/bytes/reader.h"

struct image {
    struct buffer *to; /* writes; NULL: reads */
    struct reader from;
    bool failed; /* out of memory, over the buffer's limit, or what was read cannot be */
};

struct image image_to(struct buffer *to);
struct image image_from(struct slice bytes);
/* All was read, and all could be. */
bool image_done(const struct image *image);

/* A number of up to `most`. */
void image_number(struct image *image, uint64_t *number, uint64_t most);
/* So many bytes. */
void image_bytes(struct image *image, void *bytes, size_t len);
/* What a buffer holds, up to its limit. */
void image_buffer(struct image *image, struct buffer *buffer);
/* Bytes that may be absent; those that were read lie in the image. */
void image_text(struct image *image, struct slice *text);
/* Of what was read: what must hold. */
void image_check(struct image *image, bool holds);

/* Any field that is a whole number, a bool or an enumeration. */
#define IMAGE(image, field, most)                                \
    do {                                                         \
        uint64_t image_number_ = (uint64_t)(field);              \
        image_number((image), &image_number_, (uint64_t)(most)); \
        (field) = (__typeof__(field))image_number_;              \
    } while (0)
#define IMAGE_U64(image, field)  IMAGE(image, field, UINT64_MAX)
#define IMAGE_BOOL(image, field) IMAGE(image, field, 1)

#endif
