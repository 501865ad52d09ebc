/* SPDX-License-Identifier: MIT */
#include "spoa/base/bytes/image.h"

#include "spoa/base/bytes/writer.h"

#define ABSENT UINT64_MAX /* length of a text that is not there */

struct image image_to(struct buffer *to)
{
    return (struct image){.to = to};
}

struct image image_from(struct slice bytes)
{
    return (struct image){.from = reader_of(bytes)};
}

bool image_done(const struct image *image)
{
    return !image->failed && (image->to || reader_done(&image->from));
}

void image_check(struct image *image, bool holds)
{
    image->failed = image->failed || !holds;
}

static void put(struct image *image, struct slice bytes)
{
    image_check(image, image->failed || buffer_put(image->to, bytes));
}

void image_number(struct image *image, uint64_t *number, uint64_t most)
{
    uint8_t bytes[8];
    struct writer w = writer_of(bytes, sizeof bytes);

    if (image->to) {
        writer_be(&w, *number, 8);
        put(image, writer_slice(&w));
        return;
    }
    uint64_t read = reader_be(&image->from, 8);
    image_check(image, !image->from.failed && read <= most);
    if (!image->failed)
        *number = read;
}

void image_bytes(struct image *image, void *bytes, size_t len)
{
    if (image->to) {
        put(image, slice_of(bytes, len));
        return;
    }
    struct slice read = reader_take(&image->from, len);
    image_check(image, !image->from.failed);
    if (!image->failed && len)
        memcpy(bytes, read.at, len);
}

void image_text(struct image *image, struct slice *text)
{
    uint64_t len = slice_present(*text) ? text->len : ABSENT;

    image_number(image, &len, ABSENT);
    if (image->failed || len == ABSENT) {
        if (!image->to)
            *text = slice_text(NULL);
        return;
    }
    if (image->to) {
        put(image, *text);
        return;
    }
    *text = reader_take(&image->from, len);
    image_check(image, !image->from.failed);
}

void image_buffer(struct image *image, struct buffer *buffer)
{
    struct slice held = buffer_slice(buffer);
    uint64_t len = held.len;

    image_number(image, &len, buffer->limit);
    if (image->failed)
        return;
    if (image->to) {
        put(image, held);
        return;
    }
    struct slice read = reader_take(&image->from, len);
    image_check(image, !image->from.failed && (!read.len || buffer_put(buffer, read)));
}
