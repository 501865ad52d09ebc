/* SPDX-License-Identifier: MIT */
/*
 * slice: borrowed bytes. A slice owns nothing, may hold NUL, and is valid as long as what it points into.
 * An absent value is { NULL, 0 }; an empty one has a pointer and no length.
 */
#ifndef CELLGATE_BASE_BYTES_SLICE_H
#define CELLGATE_BASE_BYTES_SLICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "spoa/base/bytes/must_check.h"

struct slice {
    const uint8_t *at;
    size_t len;
};

#define SLICE_LITERAL(text) ((struct slice)SLICE_STATIC(text))
/* To initialize a static one. */
#define SLICE_STATIC(text)                           \
    {                                                \
        (const uint8_t *)("" text), sizeof(text) - 1 \
    }

/* printf("%.*s", SLICE_PRINTF(s)): only for text that is known to hold no NUL and no control bytes. */
#define SLICE_PRINTF(s) (int)(s).len, (s).at ? (const char *)(s).at : ""

static inline struct slice slice_of(const void *at, size_t len)
{
    return (struct slice){at, len};
}

/* The bytes of a C string without its NUL; absent for NULL. */
static inline struct slice slice_text(const char *text)
{
    return text ? slice_of(text, strlen(text)) : (struct slice){NULL, 0};
}

static inline bool slice_present(struct slice s)
{
    return s.at != NULL;
}

/* Names and words are mostly this short: two overlapping loads are faster than a call of memcmp. */
static inline bool slice_equal_short(const uint8_t *a, const uint8_t *b, size_t len)
{
    uint64_t a1, a2, b1, b2;
    memcpy(&a1, a, 8);
    memcpy(&b1, b, 8);
    memcpy(&a2, a + len - 8, 8);
    memcpy(&b2, b + len - 8, 8);
    return ((a1 ^ b1) | (a2 ^ b2)) == 0;
}

static inline bool slice_equal(struct slice a, struct slice b)
{
    if (a.len != b.len)
        return false;
    if (a.len >= 8 && a.len <= 16)
        return slice_equal_short(a.at, b.at, a.len);
    return a.len == 0 || (a.at[0] == b.at[0] && memcmp(a.at, b.at, a.len) == 0);
}

/* Always inline: the length of a literal is known then. */
__attribute__((always_inline)) static inline bool slice_is(struct slice s, const char *text)
{
    return slice_equal(s, slice_text(text));
}

/* Bytes [from, from + len) of s, cut at its end. */
static inline struct slice slice_sub(struct slice s, size_t from, size_t len)
{
    if (from > s.len)
        from = s.len;
    if (len > s.len - from)
        len = s.len - from;
    return s.at ? slice_of(s.at + from, len) : (struct slice){NULL, 0};
}

static inline struct slice slice_from(struct slice s, size_t from)
{
    return slice_sub(s, from, s.len);
}

/* ASCII only, as header names are compared (RFC 9110 section 5.1). */
bool slice_same_letters(const uint8_t *a, const uint8_t *b, size_t len);
static inline bool slice_equal_nocase(struct slice a, struct slice b)
{
    return a.len == b.len && slice_same_letters(a.at, b.at, a.len);
}
bool slice_starts(struct slice s, const char *prefix);
/* Whether all are letters, digits, '-', '.', '_' and '~' (RFC 3986 section 2.3). */
bool slice_unreserved(struct slice s);
/* First position of a byte, or s.len. */
size_t slice_find(struct slice s, uint8_t byte);
/* Without spaces and tabs at both ends (RFC 9110 OWS). */
struct slice slice_trim(struct slice s);
/* Takes the part before the first `byte` off *rest; returns false when *rest was absent. After the last part
 * *rest is absent. "a,,b" split at ',' gives "a", "", "b". */
bool slice_split(struct slice *rest, uint8_t byte, struct slice *part);
/* Decimal digits only, no sign, no blank, at most max; false on anything else or an overflow. */
bool slice_u64(struct slice s, uint64_t max, uint64_t *value);
/* A malloc'd copy with a NUL behind it, or NULL when out of memory. The caller frees it. */
char *slice_dup(struct slice s);
/* In time that depends on the lengths alone; false when these differ. */
bool slice_equal_constant_time(struct slice a, struct slice b);

#endif
