/* SPDX-License-Identifier: MIT */
/*
 * spop_value: the typed data of HAProxy's Stream Processing Offload Protocol 2.0 (SPOE.txt, section 3.1) and
 * the variable-length integers it is made of. Text and binary values point into what they were read from.
 */
#ifndef CELLGATE_SPOP_VALUE_H
#define CELLGATE_SPOP_VALUE_H

#include "spoa/base/bytes/reader.h"
#include "spoa/base/bytes/writer.h"

enum spop_kind {            /* the numbers on the wire */
                 SPOP_NULL, /* also what HAProxy sends for a fetch that found nothing */
                 SPOP_BOOL,
                 SPOP_INT32,
                 SPOP_UINT32,
                 SPOP_INT64, /* every integer that HAProxy sends in a NOTIFY */
                 SPOP_UINT64,
                 SPOP_IPV4,
                 SPOP_IPV6,
                 SPOP_TEXT,
                 SPOP_BINARY
};

struct spop_value {
    enum spop_kind kind;
    bool truth;         /* SPOP_BOOL */
    int64_t number;     /* integers; SPOP_UINT64: the same 64 bits */
    struct slice bytes; /* SPOP_TEXT, SPOP_BINARY; 4 or 16 bytes of an address */
};

enum { SPOP_VARINT_ONE_BYTE = 240 }; /* values below are a byte of their own */

/* At most 10 bytes and 64 bits: anything longer fails the reader. */
uint64_t spop_varint_read(struct reader *r);
void spop_varint_write(struct writer *w, uint64_t value);

/* A name or text: varint length and bytes. */
struct slice spop_text_read(struct reader *r);
void spop_text_write(struct writer *w, struct slice text);

/* False, and the reader failed, on an unknown type or a short value. */
bool spop_value_read(struct reader *r, struct spop_value *value);
void spop_value_write(struct writer *w, struct spop_value value);

/* A name and a value, as in a NOTIFY or a hello. */
bool spop_item_read(struct reader *r, struct slice *name, struct spop_value *value);
void spop_item_write(struct writer *w, struct slice name, struct spop_value value);
/* Steps over one, as reading it would: all of a NOTIFY is checked before any of it is handled. */
bool spop_item_skip(struct reader *r);

/* Whether value is an integer of any width that is not negative, and which one. */
bool spop_value_unsigned(struct spop_value value, uint64_t *number);

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

/* bytes: 4 of an IPv4 or 16 of an IPv6 address, in network order. */
static inline struct spop_value spop_address(struct slice bytes)
{
    return (struct spop_value){.kind = bytes.len == 4 ? SPOP_IPV4 : SPOP_IPV6, .bytes = bytes};
}

#endif
