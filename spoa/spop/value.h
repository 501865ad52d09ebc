/* SPDX-License-Identifier: MIT */
/*
 * spop_value: the typed data of HAProxy's Stream Processing Offload Protocol 2.0 (SPOE.txt section 3.1), and the variable-length
 * integers that it consists of. Text and binary values point into the bytes that were read.
 *
 * Readers fail as base/bytes/reader.h describes: a failed reader stays failed and returns zeros. Writers set writer.full.
 */
#ifndef CELLGATE_SPOP_VALUE_H
#define CELLGATE_SPOP_VALUE_H

#include "spoa/base/bytes/reader.h"
#include "spoa/base/bytes/writer.h"

/* The numbers are those on the wire. */
enum spop_kind {
    SPOP_NULL, /* no value; HAProxy sends it for a sample fetch that found nothing */
    SPOP_BOOL,
    SPOP_INT32,
    SPOP_UINT32,
    SPOP_INT64, /* every integer in a NOTIFY of HAProxy */
    SPOP_UINT64,
    SPOP_IPV4,
    SPOP_IPV6,
    SPOP_TEXT,
    SPOP_BINARY
};

struct spop_value {
    enum spop_kind kind;
    bool truth;     /* value of SPOP_BOOL */
    int64_t number; /* value of an integer; the same 64 bits for SPOP_UINT64 */
    /* value of SPOP_TEXT and SPOP_BINARY; the 4 or 16 bytes of an address, in network order */
    struct slice bytes;
};

enum { SPOP_VARINT_ONE_BYTE = 240 }; /* an integer below this takes one byte */

/* Reads an integer of at most 64 bits, in at most 10 bytes. A longer one fails the reader. */
uint64_t spop_varint_read(struct reader *r);
void spop_varint_write(struct writer *w, uint64_t value);

/* Reads a name or a text: its length as a varint, and its bytes. */
struct slice spop_text_read(struct reader *r);
void spop_text_write(struct writer *w, struct slice text);

/* Reads a value. Returns false, and the reader has failed, if the kind is unknown or bytes are missing. */
bool spop_value_read(struct reader *r, struct spop_value *value) MUST_CHECK;
void spop_value_write(struct writer *w, struct spop_value value);

/* Reads a name and a value, as a NOTIFY and a hello have them. Returns false if the reader has failed. */
bool spop_item_read(struct reader *r, struct slice *name, struct spop_value *value) MUST_CHECK;
void spop_item_write(struct writer *w, struct slice name, struct spop_value value);
/* Checks and skips a name and a value. All items of a NOTIFY are checked in this way before one of them is handled. */
bool spop_item_skip(struct reader *r);

/* Returns true and sets *number if value is an integer of any width that is not negative. */
bool spop_value_unsigned(struct spop_value value, uint64_t *number) MUST_CHECK;

static inline struct spop_value spop_null(void)
{
    return (struct spop_value){.kind = SPOP_NULL};
}

static inline struct spop_value spop_bool(bool truth)
{
    return (struct spop_value){.kind = SPOP_BOOL, .truth = truth};
}

static inline struct spop_value spop_int(int64_t number)
{
    return (struct spop_value){.kind = SPOP_INT64, .number = number};
}

static inline struct spop_value spop_text(struct slice text)
{
    return (struct spop_value){.kind = SPOP_TEXT, .bytes = text};
}

static inline struct spop_value spop_binary(struct slice bytes)
{
    return (struct spop_value){.kind = SPOP_BINARY, .bytes = bytes};
}

/* Makes an address of its bytes in network order: 4 for IPv4, 16 for IPv6. */
static inline struct spop_value spop_address(struct slice bytes)
{
    return (struct spop_value){.kind = bytes.len == 4 ? SPOP_IPV4 : SPOP_IPV6, .bytes = bytes};
}

#endif
