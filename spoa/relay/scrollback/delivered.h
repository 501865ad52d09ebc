/* SPDX-License-Identifier: MIT */
/*
 * delivered: what a client has got of a stream: how much, the first and last bytes of it, and a mark (a hash) of each block of
 * the last MiB. It tells where a replay of that stream goes on, which nobody says. Memory is bounded.
 */
#ifndef CELLGATE_RELAY_SCROLLBACK_DELIVERED_H
#define CELLGATE_RELAY_SCROLLBACK_DELIVERED_H

#include <stdbool.h>

#include "spoa/base/bytes/image.h"
#include "spoa/base/bytes/slice.h"

#define DELIVERED_TAIL 1024 /* bytes */
#define DELIVERED_HEAD 512

struct delivered_end {
    uint64_t len;  /* bytes */
    uint8_t *tail; /* the last DELIVERED_TAIL of them, a ring; NULL: none yet */
};

struct delivered_mark {
    uint64_t sum; /* of whole words */
    uint32_t word;
};

struct delivered_again {
    uint64_t at; /* up to there */
    struct delivered_mark mark;
};

struct delivered {
    struct delivered_end end;
    uint64_t key[4]; /* a secret and its powers; 0: none yet */
    uint8_t *head;   /* the first DELIVERED_HEAD bytes */
    uint64_t *marks; /* of block k at k % marks_size, which is 0 or a power of two */
    size_t marks_size;
    struct delivered_mark mark;   /* of the block that is not whole yet */
    struct delivered_again again; /* of one that may come again */
    bool watches, recurs;
    uint64_t watched, last; /* marks: of the tail that is watched for, of the last bytes */
};

/* Where a replay goes on. */
struct delivered_place {
    bool found;  /* without a doubt */
    uint64_t at; /* bytes of it that are not passed on; it may be shorter than that */
};

/* False: out of memory, or of random numbers. */
bool delivered_put(struct delivered *d, struct slice bytes) __attribute__((warn_unused_result));
size_t delivered_held(const struct delivered *d);
void delivered_free(struct delivered *d);

/* How far it is now, for a replay that is asked for now; without memory its tail is absent. */
void delivered_note(const struct delivered *d, struct delivered_end *to);
void delivered_forget(struct delivered_end *end);

struct delivered_replay {
    struct slice bytes; /* the caller's to change, and lost in delivered_find */
    bool full;          /* of a ring that was */
    bool holed;         /* some of it may have been dropped on the way, or not have come yet */
};

/* Whether it begins with all that was delivered by then, as far as the marks know. */
bool delivered_begins(const struct delivered *d, const struct delivered_end *then, struct slice replay);
/* Where a replay goes on that begins anywhere. One of a full ring behind the tail, if that occurs once; one of another
 * ring, of which some must be missing, where marks and tail agree. Where in doubt, rather too late than too early. */
struct delivered_place delivered_find(const struct delivered *d, const struct delivered_end *then,
                                      const struct delivered_replay *replay);
/* Where the last bytes that were delivered by then end, if all of them, DELIVERED_TAIL, stand in these bytes once. */
struct delivered_place delivered_find_tail(const struct delivered_end *then, struct slice bytes);
/* Returns true if what stands in front of that place is what was delivered by then, from position `since` of the stream on, as far
 * as both are known. */
bool delivered_agrees(const struct delivered *d, const struct delivered_end *then, struct slice replay,
                      size_t place, uint64_t since);
/* How many of these bytes are again what was delivered, of which the last `back` bytes may come again: as far as that is known. */
size_t delivered_again(struct delivered *d, uint64_t back, struct slice bytes);
/* The replay begins with all that was delivered by then. From now on d->recurs says whether its end occurs elsewhere in
 * it, or in what is delivered next; then it may have been another part of the stream. */
void delivered_watch(struct delivered *d, const struct delivered_end *then, struct slice replay);

extern const struct image_table delivered_table, delivered_end_table;

#endif
