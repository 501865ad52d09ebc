/* SPDX-License-Identifier: MIT */
/*
 * slice: borrowed bytes. A slice owns nothing, may hold NUL, and is valid as long as the memory that it points into.
 * An absent value is { NULL, 0 }; an empty one has a pointer and no length. Functions return slices by value.
 */
#ifndef CELLGATE_BASE_BYTES_SLICE_H
#define CELLGATE_BASE_BYTES_SLICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "spoa/base/bytes/must_check.h"

struct slice {
    const uint8_t *at; /* NULL: absent */
    size_t len;
};

#define SLICE_LITERAL(text) ((struct slice)SLICE_STATIC(text))
/* The initializer of a static slice, where C wants a constant. */
#define SLICE_STATIC(text)                           \
    {                                                \
        (const uint8_t *)("" text), sizeof(text) - 1 \
    }

/* The arguments of "%.*s": printf("%.*s", SLICE_PRINTF(s)). The text must hold no NUL and no control bytes, which would reach a
 * log or a terminal. */
#define SLICE_PRINTF(s) (int)(s).len, (s).at ? (const char *)(s).at : ""

static inline struct slice slice_of(const void *at, size_t len)
{
    return (struct slice){at, len};
}

/* Returns the bytes of a C string without its NUL; absent for NULL. */
static inline struct slice slice_text(const char *text)
{
    return text ? slice_of(text, strlen(text)) : (struct slice){NULL, 0};
}

static inline bool slice_present(struct slice s)
{
    return s.at != NULL;
}

/* Compares 8 to 16 bytes. Most names and words are this short, and two overlapping loads are faster than a call of memcmp. */
static inline bool slice_equal_short(const uint8_t *a, const uint8_t *b, size_t len)
{
    uint64_t a1, a2, b1, b2;
    memcpy(&a1, a, 8);
    memcpy(&b1, b, 8);
    memcpy(&a2, a + len - 8, 8);
    memcpy(&b2, b + len - 8, 8);
    return ((a1 ^ b1) | (a2 ^ b2)) == 0;
}

/* Compares bytes. An absent slice equals an empty one. The time depends on the content: for secrets there is
 * slice_equal_constant_time. */
static inline bool slice_equal(struct slice a, struct slice b)
{
    if (a.len != b.len)
        return false;
    if (a.len >= 8 && a.len <= 16)
        return slice_equal_short(a.at, b.at, a.len);
    return a.len == 0 || (a.at[0] == b.at[0] && memcmp(a.at, b.at, a.len) == 0);
}

/* Compares with a C string. Inlining makes the length of a literal a constant. */
__attribute__((always_inline)) static inline bool slice_is(struct slice s, const char *text)
{
    return slice_equal(s, slice_text(text));
}

/* Returns bytes [from, from + len) of s, cut at the end of s. */
static inline struct slice slice_sub(struct slice s, size_t from, size_t len)
{
    if (from > s.len)
        from = s.len;
    if (len > s.len - from)
        len = s.len - from;
    return s.at ? slice_of(s.at + from, len) : (struct slice){NULL, 0};
}

/* Returns s without its first `from` bytes; empty if s has no more. */
static inline struct slice slice_from(struct slice s, size_t from)
{
    return slice_sub(s, from, s.len);
}

/* Compares without regard to the case of ASCII letters, as HTTP compares field names (RFC 9110 section 5.1). */
bool slice_same_letters(const uint8_t *a, const uint8_t *b, size_t len);
static inline bool slice_equal_nocase(struct slice a, struct slice b)
{
    return a.len == b.len && slice_same_letters(a.at, b.at, a.len);
}
/* Returns true if s begins with prefix. */
bool slice_starts(struct slice s, const char *prefix);
/* Returns true if every byte is an unreserved character of a URI: a letter, a digit, '-', '.', '_' or '~' (RFC 3986
 * section 2.3). */
bool slice_unreserved(struct slice s);
/* Returns the first position of a byte, or s.len if s does not have it. */
size_t slice_find(struct slice s, uint8_t byte);
/* Returns s without the spaces and tabs at both ends (OWS, RFC 9110 section 5.6.3). */
struct slice slice_trim(struct slice s);
/* Returns s without white space at both ends: spaces, tabs, line ends, vertical tabs and form feeds. */
struct slice slice_trim_space(struct slice s);
/* Takes the part before the first `byte` off *rest. Returns false if *rest is absent; after the last part *rest becomes absent.
 * "a,,b" split at ',' gives "a", "", "b", and "" gives one empty part. */
bool slice_split(struct slice *rest, uint8_t byte, struct slice *part);
/* Reads decimal digits, without a sign or blanks. Returns false if s holds anything else or a number above max; *value is then
 * unchanged. */
bool slice_u64(struct slice s, uint64_t max, uint64_t *value) MUST_CHECK;
/* Returns a malloc'd copy that ends with a NUL, which the caller frees, or NULL if memory is short. */
char *slice_dup(struct slice s) MUST_CHECK;
/* Compares in a time that depends on the lengths alone, for secrets. Returns false if the lengths differ. */
bool slice_equal_constant_time(struct slice a, struct slice b) MUST_CHECK;

#endif
