/* SPDX-License-Identifier: MIT */
#include "spoa/lib/spop_value.h"

#define VARINT_MORE 128

uint64_t spop_varint_read_long(struct reader *r)
{
    struct slice in = r->rest;
    uint64_t value = !r->failed && in.len ? in.at[0] : 0;
    unsigned shift = 4;
    for (size_t i = 1; !r->failed && i < in.len && shift < 64; i++, shift += 7) {
        uint64_t byte = in.at[i];
        if (byte > UINT64_MAX >> shift || __builtin_add_overflow(value, byte << shift, &value))
            break;
        if (byte < VARINT_MORE) {
            r->rest = slice_from(in, i + 1);
            return value;
        }
    }
    r->failed = true;
    return 0;
}

void spop_varint_write(struct writer *w, uint64_t value)
{
    if (value < SPOP_VARINT_ONE_BYTE) {
        writer_u8(w, (uint8_t)value);
        return;
    }
    writer_u8(w, (uint8_t)(value | SPOP_VARINT_ONE_BYTE));
    value = (value - SPOP_VARINT_ONE_BYTE) >> 4;
    while (value >= VARINT_MORE) {
        writer_u8(w, (uint8_t)(value | VARINT_MORE));
        value = (value - VARINT_MORE) >> 7;
    }
    writer_u8(w, (uint8_t)value);
}

void spop_text_write(struct writer *w, struct slice text)
{
    spop_varint_write(w, text.len);
    writer_put(w, text);
}

/* ---- typed data: a type in the low nibble, flags in the high one ---- */
#define TYPE_MASK 0x0f
#define FLAG_TRUE 0x10

bool spop_value_read(struct reader *r, struct spop_value *value)
{
    uint8_t head = reader_u8(r);
    *value = (struct spop_value){.kind = head & TYPE_MASK};
    switch (value->kind) {
    case SPOP_NULL:
        break;
    case SPOP_BOOL:
        value->truth = head & FLAG_TRUE;
        break;
    case SPOP_INT32:
    case SPOP_UINT32:
    case SPOP_INT64:
    case SPOP_UINT64:
        value->number = (int64_t)spop_varint_read(r);
        break;
    case SPOP_IPV4:
        value->bytes = reader_take(r, 4);
        break;
    case SPOP_IPV6:
        value->bytes = reader_take(r, 16);
        break;
    case SPOP_TEXT:
    case SPOP_BINARY:
        value->bytes = spop_text_read(r);
        break;
    default:
        r->failed = true;
    }
    return !r->failed;
}

void spop_value_write(struct writer *w, struct spop_value value)
{
    uint8_t flags = value.kind == SPOP_BOOL && value.truth ? FLAG_TRUE : 0;
    writer_u8(w, (uint8_t)(value.kind | flags));
    switch (value.kind) {
    case SPOP_NULL:
    case SPOP_BOOL:
        break;
    case SPOP_INT32:
    case SPOP_UINT32:
    case SPOP_INT64:
    case SPOP_UINT64:
        spop_varint_write(w, (uint64_t)value.number);
        break;
    case SPOP_IPV4:
    case SPOP_IPV6:
        writer_put(w, value.bytes);
        break;
    case SPOP_TEXT:
    case SPOP_BINARY:
        spop_text_write(w, value.bytes);
        break;
    }
}

bool spop_value_unsigned(struct spop_value value, uint64_t *number)
{
    switch (value.kind) {
    case SPOP_INT32:
    case SPOP_UINT32:
    case SPOP_INT64:
        if (value.number < 0)
            return false;
        break;
    case SPOP_UINT64:
        break;
    default:
        return false;
    }
    *number = (uint64_t)value.number;
    return true;
}
