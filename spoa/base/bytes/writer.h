/* SPDX-License-Identifier: MIT */
/*
 * writer: puts bytes into the caller's memory, never past its end. After the first write that does not fit, nothing more is
 * written and writer.full stays set, so an encoder may write a whole structure and check writer.full once.
 */
#ifndef CELLGATE_BASE_BYTES_WRITER_H
#define CELLGATE_BASE_BYTES_WRITER_H

#include "spoa/base/bytes/slice.h"

struct writer {
    uint8_t *at;
    size_t len, size; /* bytes written, bytes of memory; len <= size */
    bool full;        /* a write did not fit: the bytes written are an incomplete structure */
};

static inline struct writer writer_of(void *memory, size_t size)
{
    return (struct writer){memory, 0, size, false};
}

static inline struct slice writer_slice(const struct writer *w)
{
    return slice_of(w->at, w->len);
}

static inline void writer_put(struct writer *w, struct slice s)
{
    if (w->full || s.len > w->size - w->len) {
        w->full = true;
        return;
    }
    if (s.len)
        memcpy(w->at + w->len, s.at, s.len);
    w->len += s.len;
}

static inline void writer_u8(struct writer *w, uint8_t v)
{
    if (w->full || w->len == w->size) {
        w->full = true;
        return;
    }
    w->at[w->len++] = v;
}

/* Writes an unsigned big-endian number of 1 to 8 bytes. */
static inline void writer_be(struct writer *w, uint64_t v, size_t bytes)
{
    if (w->full || bytes > w->size - w->len) {
        w->full = true;
        return;
    }
#pragma GCC unroll 8
    for (size_t i = bytes; i-- > 0; v >>= 8)
        w->at[w->len + i] = (uint8_t)v;
    w->len += bytes;
}

static inline void writer_text(struct writer *w, const char *text)
{
    writer_put(w, slice_text(text));
}

/* Writes a number in decimal digits, faster than writer_printf does. */
void writer_decimal(struct writer *w, uint64_t v);
/* Writes an IPv4 address, given in network order, as "127.0.0.1". */
void writer_ip4(struct writer *w, const uint8_t bytes[static 4]);
/* Formats like printf. Needs room for one byte more than the text, as vsnprintf ends it with a NUL. */
__attribute__((format(printf, 2, 3))) void writer_printf(struct writer *w, const char *format, ...);

#endif
