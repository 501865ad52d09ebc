/* SPDX-License-Identifier: MIT */
#include "spoa/relay/scrollback/records.h"

#include <stdlib.h>

#include "spoa/base/bytes/reader.h"
#include "spoa/base/bytes/writer.h"

struct records records_with_limit(size_t limit)
{
    return (struct records){.memory = buffer_with_limit(limit)};
}

void records_clear(struct records *records)
{
    buffer_free(&records->memory);
    records->last = 0;
}

bool records_take(struct slice *rest, uint8_t *tag, struct slice *bytes)
{
    struct reader r = reader_of(*rest);

    *tag = reader_u8(&r);
    *bytes = reader_take(&r, reader_u32(&r));
    *rest = r.rest;
    return !r.failed;
}

static void set_length(struct records *records, size_t len)
{
    struct writer w = writer_of(records->memory.memory + records->memory.start + records->last + 1, 4);
    writer_be(&w, len, 4);
}

/* Returns the number of bytes that the last record can still take, or 0 if the record belongs to the other stream. */
static size_t room_in_last(const struct records *records, uint8_t tag)
{
    struct slice record = slice_from(buffer_slice(&records->memory), records->last);
    return record.len && record.at[0] == tag ? RECORD_MAX + RECORD_HEAD - record.len : 0;
}

static bool begin_record(struct records *records, uint8_t tag)
{
    uint8_t head[RECORD_HEAD] = {tag};

    records->last = buffer_len(&records->memory);
    return buffer_put(&records->memory, slice_of(head, sizeof head));
}

bool records_has_room(const struct records *records, struct slice bytes, size_t most)
{
    size_t heads = (bytes.len / RECORD_MAX + 1) * RECORD_HEAD;
    return bytes.len <= most && buffer_len(&records->memory) + heads + bytes.len <= most;
}

bool records_put(struct records *records, uint8_t tag, struct slice bytes)
{
    while (bytes.len) {
        size_t room = room_in_last(records, tag);
        struct slice part = slice_sub(bytes, 0, room ? room : RECORD_MAX);
        if ((!room && !begin_record(records, tag)) || !buffer_put(&records->memory, part))
            return false;
        set_length(records, buffer_len(&records->memory) - records->last - RECORD_HEAD);
        bytes = slice_from(bytes, part.len);
    }
    return true;
}

struct slice records_join(const struct records *records, uint8_t wanted, uint64_t skip)
{
    struct slice rest = buffer_slice(&records->memory), bytes;
    uint8_t *memory = malloc(rest.len + 1), tag;
    size_t len = 0;

    while (memory && records_take(&rest, &tag, &bytes)) {
        if (tag != wanted)
            continue;
        size_t skipped = skip < bytes.len ? (size_t)skip : bytes.len;
        skip -= skipped;
        bytes = slice_from(bytes, skipped);
        memcpy(memory + len, bytes.at, bytes.len);
        len += bytes.len;
    }
    return slice_of(memory, len);
}

/* ---- as an image ---- */
enum { TAG_MAX = 2 };

static bool is_valid(const void *object)
{
    const struct records *records = object;
    struct slice rest = buffer_slice(&records->memory), bytes;
    size_t last = 0;
    uint8_t tag;

    while (rest.len) {
        last = buffer_len(&records->memory) - rest.len;
        if (!records_take(&rest, &tag, &bytes) || !tag || tag > TAG_MAX || bytes.len > RECORD_MAX)
            return false;
    }
    return records->last == last;
}

static const struct image_field fields[] = {
    IMAGE_BUFFER(struct records, memory, 0),
    IMAGE_NUMBER(struct records, last, UINT32_MAX),
};
IMAGE_TABLE(records_table, struct records, fields, .holds = is_valid);
