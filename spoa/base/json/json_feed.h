/* SPDX-License-Identifier: MIT */
/*
 * json_feed: checks one JSON document while its bytes arrive, in whatever pieces, with constant memory and a bounded
 * number of steps for each byte. It builds nothing and remembers no keys: what it calls good may have duplicate keys,
 * and is good for json_check in everything else. The same document is good or not wherever it is cut.
 *
 * Of an object it also tells where the members of the outermost level stand, as offsets from the first byte fed.
 */
#ifndef CELLGATE_BASE_JSON_JSON_FEED_H
#define CELLGATE_BASE_JSON_JSON_FEED_H

#include "spoa/base/bytes/slice.h"

enum { JSON_FEED_DEPTH_MAX = 64 };

struct json_feed {
    size_t at;               /* bytes that were fed */
    size_t key, key_len;     /* the last key of the outermost object, as it stands between its quotes */
    size_t value, value_len; /* that key's value; value_len: after JSON_FEED_VALUE */
    bool object;             /* the document is one */

    /* private */
    uint64_t arrays; /* a bit for each level that is open: an array; else an object */
    unsigned depth, depth_most;
    uint8_t state, next, low, high;
    uint16_t unit, number;
    const char *word;
    bool is_key, in_value;
};

enum json_feed_event {
    JSON_FEED_MORE,
    JSON_FEED_KEY,   /* a key of the outermost object has ended */
    JSON_FEED_VALUE, /* its value has ended */
    JSON_FEED_BAD    /* for good */
};

/* depth: of at most JSON_FEED_DEPTH_MAX; [[1]] has depth 2. */
struct json_feed json_feed_of(unsigned depth);
/* Takes bytes off *bytes until something is to be told, or until there are no more: JSON_FEED_MORE. */
enum json_feed_event json_feed(struct json_feed *feed, struct slice *bytes);
/* Returns whether what was fed is one whole document. */
bool json_feed_is_whole(const struct json_feed *feed);

#endif
