/* SPDX-License-Identifier: MIT */
/*
 * delivered: remembers what a client has received of a stream (length, first and last bytes, and a mark of each block of the last MiB),
 * to find where a worker's unnumbered replay continues. A mark is a hash of one block. Memory is bounded.
 *
 * `then` is the end of the delivered output at an earlier time: when the relay dialled the worker whose replay is compared.
 */
#ifndef CELLGATE_RELAY_SCROLLBACK_DELIVERED_H
#define CELLGATE_RELAY_SCROLLBACK_DELIVERED_H

#include <stdbool.h>

#include "spoa/base/bytes/image.h"
#include "spoa/base/bytes/slice.h"

#define DELIVERED_TAIL 1024 /* number of last bytes that are kept */
#define DELIVERED_HEAD 512  /* number of first bytes that are kept */

/* The end of a stream at some time. */
struct delivered_end {
    uint64_t len;  /* bytes of the stream until its end */
    uint8_t *tail; /* last DELIVERED_TAIL bytes, as a ring; NULL if the stream is empty or memory was short */
};

/* The hash of a block, while its bytes arrive. */
struct delivered_mark {
    uint64_t sum;  /* hash of the block's whole words */
    uint32_t word; /* bytes of the next word so far */
};

/* A block that a worker may be sending again (delivered_again). */
struct delivered_again {
    uint64_t at; /* position in the stream up to which `mark` counts */
    struct delivered_mark mark;
};

struct delivered {
    struct delivered_end end;
    uint64_t key[4];              /* secret point of the hash and its powers; 0 before the first byte */
    uint8_t *head;                /* first DELIVERED_HEAD bytes of the stream */
    uint64_t *marks;              /* mark of block k, at index k % marks_size */
    size_t marks_size;            /* 0 or a power of two */
    struct delivered_mark mark;   /* mark of the last block, which is not complete yet */
    struct delivered_again again; /* block that may be coming again */
    bool watches, recurs;         /* delivered_watch was called; the tail has occurred again */
    uint64_t watched, last;       /* hash of the tail when delivered_watch was called, and of the tail now */
};

/* The place where a replay continues the delivered output. */
struct delivered_place {
    bool found;  /* the place is certain */
    uint64_t at; /* number of leading bytes that the client already has; may exceed the replay's length */
};

/* Appends bytes that the client received. Returns false if memory is short, or the system has no random numbers. */
bool delivered_put(struct delivered *d, struct slice bytes) __attribute__((warn_unused_result));
/* Returns the number of bytes of memory in use beside *d. */
size_t delivered_held(const struct delivered *d);
/* Frees the memory and zeroes *d. */
void delivered_free(struct delivered *d);

/* Copies the stream's end to *to, for a replay that is requested now. If memory is short, to->tail is NULL. */
void delivered_note(const struct delivered *d, struct delivered_end *to);
/* Frees the tail and zeroes *end. */
void delivered_forget(struct delivered_end *end);

struct delivered_replay {
    struct slice bytes; /* memory of the caller, which delivered_find may overwrite */
    bool full;          /* the ring was full: its beginning may be missing */
    bool holed;         /* the worker may have dropped chunks of the replay, or not have sent them yet */
};

/* Returns true if the replay begins with all output delivered until `then`, as far as the marks know. */
bool delivered_begins(const struct delivered *d, const struct delivered_end *then, struct slice replay);
/* Finds the place in a replay that begins anywhere. In the replay of a full ring, the place is after the tail, if the tail occurs once.
 * In any other replay some output must be missing, and the place is where marks and tail agree. In doubt the place is too late, not too
 * early, so that the client gets no byte twice. */
struct delivered_place delivered_find(const struct delivered *d, const struct delivered_end *then,
                                      const struct delivered_replay *replay);
/* Finds the place after the tail of `then` in `bytes`. The place is found if the tail has DELIVERED_TAIL bytes and occurs once. */
struct delivered_place delivered_find_tail(const struct delivered_end *then, struct slice bytes);
/* Returns true if the bytes before `place` of the replay equal the output delivered until `then`, from position `since` of the stream
 * on, as far as both are known. */
bool delivered_agrees(const struct delivered *d, const struct delivered_end *then, struct slice replay,
                      size_t place, uint64_t since);
/* Returns the number of leading bytes that repeat delivered output, as far as that is known. The repetition may begin `back` bytes
 * before the end of the delivered output. */
size_t delivered_again(struct delivered *d, uint64_t back, struct slice bytes);
/* Begins to watch for a repetition. The replay must begin with all output delivered until `then`. From now on d->recurs is true if the
 * tail of that output occurs elsewhere in the replay, or occurs again in output that is delivered later: the replay may then have begun
 * at another part of the stream. */
void delivered_watch(struct delivered *d, const struct delivered_end *then, struct slice replay);

extern const struct image_table delivered_table, delivered_end_table;

#endif
