/* SPDX-License-Identifier: MIT */
/*
 * json_feed: checks one JSON document while its bytes arrive, in pieces of any size, with constant memory and a bounded number of
 * steps for each byte. The result does not depend on where the pieces are cut. json_feed builds nothing and remembers no keys, so it
 * accepts duplicate keys; in everything else it accepts exactly what json_check does.
 *
 * If the document is an object, json_feed also reports where its members stand, as offsets from the first byte fed.
 */
#ifndef CELLGATE_BASE_JSON_JSON_FEED_H
#define CELLGATE_BASE_JSON_JSON_FEED_H

#include "spoa/base/bytes/slice.h"

enum { JSON_FEED_DEPTH_MAX = 64 }; /* bits of json_feed.arrays */

struct json_feed {
    size_t at;               /* bytes fed so far */
    size_t key, key_len;     /* the last key of the outermost object, still escaped, without its quotes */
    size_t value, value_len; /* the value of that key; value_len is set with JSON_FEED_VALUE */
    bool object;             /* the document is an object */

    /* private: json_feed.c says in which states each is used */
    uint64_t arrays; /* one bit for each open level: 1 for an array, 0 for an object */
    unsigned depth, depth_most;
    uint8_t state, next, low, high;
    uint16_t unit, number;
    const char *word;
    bool is_key, in_value;
};

enum json_feed_event {
    JSON_FEED_MORE,  /* no event yet; more bytes are needed */
    JSON_FEED_KEY,   /* a key of the outermost object has ended */
    JSON_FEED_VALUE, /* the value of that key has ended */
    JSON_FEED_BAD    /* the document is not valid; every further call returns this */
};

/* Starts a document that nests at most `depth` levels (at most JSON_FEED_DEPTH_MAX); [[1]] has depth 2. */
struct json_feed json_feed_of(unsigned depth);
/* Takes bytes off *bytes until there is an event or *bytes is empty. */
enum json_feed_event json_feed(struct json_feed *feed, struct slice *bytes) MUST_CHECK;
/* Returns true if the bytes fed are one whole document. A number at the outermost level may still go on. */
bool json_feed_is_whole(const struct json_feed *feed);

#endif
