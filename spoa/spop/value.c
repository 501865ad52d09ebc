/* SPDX-License-Identifier: MIT */
#include "spoa/spop/value.h"

/*
 * ---- reading ----
 * A NOTIFY has a hundred small items, nearly all with lengths of one byte, and reading them is most of a server's work. Each function
 * below takes a position and returns the position after the item, or NULL if the item is malformed; all are inlined into each other.
 */
#define TAKES static inline __attribute__((always_inline)) const uint8_t *

/* The form of an integer (SPOE.txt section 3.1). A value below 240 is the first byte. Otherwise the low 4 bits of the first byte come
 * from the value, and each further byte is added, not or-ed, with 7 bits more; its high bit is set if another byte follows. */
#define VARINT_MORE 128

static const uint8_t *take_long_varint(const uint8_t *at, const uint8_t *end, uint64_t *value)
{
    *value = *at++;
    for (unsigned shift = 4; at < end && shift < 64; shift += 7) {
        uint64_t byte = *at++;
        if (byte > UINT64_MAX >> shift || __builtin_add_overflow(*value, byte << shift, value))
            return NULL;
        if (byte < VARINT_MORE)
            return at;
    }
    return NULL;
}

TAKES take_varint(const uint8_t *at, const uint8_t *end, uint64_t *value)
{
    if (at == end)
        return NULL;
    if (*at >= SPOP_VARINT_ONE_BYTE)
        return take_long_varint(at, end, value);
    *value = *at;
    return at + 1;
}

TAKES take_bytes(const uint8_t *at, const uint8_t *end, uint64_t len, struct slice *bytes)
{
    if (!at || len > (size_t)(end - at))
        return NULL;
    *bytes = slice_of(at, (size_t)len);
    return at + len;
}

TAKES take_text(const uint8_t *at, const uint8_t *end, struct slice *text)
{
    uint64_t len = 0;
    at = take_varint(at, end, &len);
    return take_bytes(at, end, len, text);
}

/* The first byte of a value has the type in its low four bits and flags in its high ones. */
#define TYPE_MASK 0x0f
#define FLAG_TRUE 0x10

TAKES take_value(const uint8_t *at, const uint8_t *end, struct spop_value *value)
{
    if (at == end)
        return NULL;
    uint8_t head = *at++;
    uint64_t number = 0;
    *value = (struct spop_value){.kind = head & TYPE_MASK};
    switch (head & TYPE_MASK) {
    case SPOP_NULL:
        return at;
    case SPOP_BOOL:
        value->truth = head & FLAG_TRUE;
        return at;
    case SPOP_INT32:
    case SPOP_UINT32:
    case SPOP_INT64:
    case SPOP_UINT64:
        at = take_varint(at, end, &number);
        value->number = (int64_t)number;
        return at;
    case SPOP_IPV4:
        return take_bytes(at, end, 4, &value->bytes);
    case SPOP_IPV6:
        return take_bytes(at, end, 16, &value->bytes);
    case SPOP_TEXT:
    case SPOP_BINARY:
        return take_text(at, end, &value->bytes);
    default:
        return NULL;
    }
}

TAKES take_item(const uint8_t *at, const uint8_t *end, struct slice *name, struct spop_value *value)
{
    at = take_text(at, end, name);
    return at ? take_value(at, end, value) : NULL;
}

static inline const uint8_t *end_of(const struct reader *r)
{
    return r->rest.len ? r->rest.at + r->rest.len : r->rest.at;
}

/* Moves the reader to `at`. NULL makes it fail. */
static inline bool move_to(struct reader *r, const uint8_t *at)
{
    if (at && !r->failed)
        r->rest = slice_of(at, (size_t)(end_of(r) - at));
    else
        r->failed = true;
    return !r->failed;
}

uint64_t spop_varint_read(struct reader *r)
{
    uint64_t value = 0;
    return move_to(r, take_varint(r->rest.at, end_of(r), &value)) ? value : 0;
}

struct slice spop_text_read(struct reader *r)
{
    struct slice text = {NULL, 0};
    return move_to(r, take_text(r->rest.at, end_of(r), &text)) ? text : slice_of(NULL, 0);
}

bool spop_value_read(struct reader *r, struct spop_value *value)
{
    *value = spop_null();
    return move_to(r, take_value(r->rest.at, end_of(r), value));
}

bool spop_item_read(struct reader *r, struct slice *name, struct spop_value *value)
{
    return move_to(r, take_item(r->rest.at, end_of(r), name, value));
}

bool spop_item_skip(struct reader *r)
{
    struct slice name;
    struct spop_value value;
    return move_to(r, take_item(r->rest.at, end_of(r), &name, &value));
}

/* ---- writing ---- */
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

void spop_item_write(struct writer *w, struct slice name, struct spop_value value)
{
    spop_text_write(w, name);
    spop_value_write(w, value);
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
