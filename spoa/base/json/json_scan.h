/* SPDX-License-Identifier: MIT */
/*
 * json_scan: the strict RFC 8259 scan below json.h. It builds nothing: it says whether the text is good, and
 * on demand where each value begins. Only json.c and its tests use it.
 *
 * A scan borrows its text. After a failure `what` names the first thing found wrong and `what_at` is its
 * offset. What the scan allocated is freed with json_scan_free.
 *
 * Refused beyond the grammar: duplicate keys, what json_string.h refuses, a byte-order mark, numbers of more
 * than 63 characters (cJSON's limit), more depth than allowed. A duplicate is found when its object ends, so
 * a fault further inside that object is reported first.
 */
#ifndef CELLGATE_BASE_JSON_JSON_SCAN_H
#define CELLGATE_BASE_JSON_JSON_SCAN_H

#include "spoa/base/bytes/slice.h"

enum {
    JSON_NUMBER_MAX = 63,
    JSON_DEPTH_MAX = 500
}; /* the scan and cJSON recurse: no limit asked for goes beyond */

struct json_place { /* offsets of a value and, if it is an object's member, of its key's quote */
    size_t key, value;
};

struct json_scan {
    struct slice text;
    size_t at;
    bool comments; /* // and block comments are allowed between tokens */
    unsigned depth_left;
    bool record; /* set by the caller: keep places */
    char *blank; /* set by the caller: a copy of the text, in which comments become spaces; or NULL */
    const char *what;
    size_t what_at;
    struct slice *keys; /* raw, of all objects that are open, those of the innermost last */
    size_t keys_len, keys_size;
    struct json_place *places; /* of every value, in preorder */
    size_t places_len, places_size;
};

struct json_scan json_scan_of(struct slice text, bool comments, unsigned depth);
void json_scan_free(struct json_scan *scan);

/* One value, and nothing but space around it. */
bool json_scan_document(struct json_scan *scan);

/* ---- the parts, for json_stream_object ---- */
/* Each part skips the space (and, if allowed, comments)
 * behind it; this the space in front of the document. */
bool json_scan_begin(struct json_scan *scan);
/* `key` is the offset of the key's quote, if any. */
bool json_scan_value(struct json_scan *scan, size_t key);
/* An object, `{` and `}` included. `member` is called behind each colon and must scan the value. */
typedef bool json_scan_member(struct json_scan *scan, struct slice key, void *context);
enum json_duplicates { JSON_DUPLICATES_REFUSED, JSON_DUPLICATES_UNSEEN };
bool json_scan_object(struct json_scan *scan, enum json_duplicates duplicates, json_scan_member *member,
                      void *context);
/* Nothing may be left. */
bool json_scan_end(struct json_scan *scan);
bool json_scan_fail(struct json_scan *scan, size_t at, const char *what);

#endif
