/* SPDX-License-Identifier: MIT */
/*
 * json_scan: the strict RFC 8259 scan below json.h. The scan builds no tree: it decides whether the text is valid and, on demand,
 * records where each value begins. Only json.c and its tests use it.
 *
 * Refused beyond the grammar: duplicate keys, everything that json_string.h refuses, a byte-order mark, numbers of more than 63
 * characters (the limit of cJSON), and more depth than allowed. A duplicate is found when its object ends, so an error further
 * inside that object is reported first.
 *
 * A scan borrows its text. Functions that return bool return false on the first error; `what` then describes it and `what_at` is
 * its offset. The scan's own memory is freed with json_scan_free.
 */
#ifndef CELLGATE_BASE_JSON_JSON_SCAN_H
#define CELLGATE_BASE_JSON_JSON_SCAN_H

#include "spoa/base/bytes/slice.h"

enum {
    JSON_NUMBER_MAX = 63, /* characters */
    JSON_DEPTH_MAX = 500  /* levels; the scan and cJSON recurse, so a larger limit is lowered to this */
};

/* The offsets of a value and, for a member of an object, of the quote that opens its key (else 0). */
struct json_place {
    size_t key, value;
};

struct json_scan {
    struct slice text;
    size_t at;           /* offset of the next byte */
    bool comments;       /* allow // and block comments between tokens */
    unsigned depth_left; /* levels that may still be opened */
    bool record;         /* set by the caller: record places */
    char *blank;         /* set by the caller: a copy of the text, in which comments become spaces, or NULL */
    const char *what;    /* the first error; a constant */
    size_t what_at;
    struct slice *keys; /* still escaped keys of all open objects, those of the innermost last */
    size_t keys_len, keys_size;
    struct json_place *places; /* one for each value, in preorder */
    size_t places_len, places_size;
};

/* Starts a scan at the beginning of text. */
struct json_scan json_scan_of(struct slice text, bool comments, unsigned depth);
void json_scan_free(struct json_scan *scan);

/* Scans one value with nothing but space around it. */
bool json_scan_document(struct json_scan *scan) MUST_CHECK;

/* ---- the parts of json_scan_document, for json_stream_object; each also skips the space and comments that follow it ---- */
/* Skips the space in front of the document. */
bool json_scan_begin(struct json_scan *scan) MUST_CHECK;
/* Scans a value. `key` is the offset of the quote that opens its key, 0 if it has none. */
bool json_scan_value(struct json_scan *scan, size_t key) MUST_CHECK;
/* Called after the colon of each member, with the escaped key. Must scan the value, and returns false on an error. */
typedef bool json_scan_member(struct json_scan *scan, struct slice key, void *context);
enum json_duplicates {
    JSON_DUPLICATES_REFUSED, /* remember the object's keys and refuse duplicates */
    JSON_DUPLICATES_UNSEEN   /* remember no keys */
};
/* Scans an object from `{` to `}`. */
bool json_scan_object(struct json_scan *scan, enum json_duplicates duplicates, json_scan_member *member,
                      void *context) MUST_CHECK;
/* Fails unless the scan has reached the end of the text. */
bool json_scan_end(struct json_scan *scan) MUST_CHECK;
/* Records an error. Always returns false. */
bool json_scan_fail(struct json_scan *scan, size_t at, const char *what);

#endif
