/* SPDX-License-Identifier: MIT */
/*
 * reader: takes bytes off the front of a slice, never past its end. After the first failure every read fails and returns zeros,
 * so a parser may read a whole structure and check reader.failed once.
 */
#ifndef CELLGATE_BASE_BYTES_READER_H
#define CELLGATE_BASE_BYTES_READER_H

#include "spoa/base/bytes/slice.h"

struct reader {
    struct slice rest; /* bytes that have not been read */
    /* a read asked for more than there was, or the caller found the bytes wrong; stays set */
    bool failed;
};

static inline struct reader reader_of(struct slice s)
{
    return (struct reader){s, false};
}

/* Returns true if every read succeeded and the end is reached. */
static inline bool reader_done(const struct reader *r)
{
    return !r->failed && r->rest.len == 0;
}

/* Returns the next len bytes; absent if there are fewer, and the reader has then failed. `len` may come straight from a peer. */
static inline struct slice reader_take(struct reader *r, uint64_t len)
{
    if (r->failed || len > r->rest.len) {
        r->failed = true;
        return (struct slice){NULL, 0};
    }
    struct slice taken = slice_of(r->rest.at, (size_t)len);
    r->rest = r->rest.at ? slice_of(r->rest.at + len, r->rest.len - (size_t)len) : r->rest;
    return taken;
}

/* Returns an unsigned big-endian number of 1 to 8 bytes. */
static inline uint64_t reader_be(struct reader *r, size_t bytes)
{
    const uint8_t *at = reader_take(r, bytes).at;
    uint64_t v = 0;
#pragma GCC unroll 8
    for (size_t i = 0; at && i < bytes; i++)
        v = v << 8 | at[i];
    return v;
}

static inline uint8_t reader_u8(struct reader *r)
{
    return (uint8_t)reader_be(r, 1);
}

static inline uint32_t reader_u32(struct reader *r)
{
    return (uint32_t)reader_be(r, 4);
}

#endif
