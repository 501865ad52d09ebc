/* SPDX-License-Identifier: MIT */
/*
 * recent: a table of what was used recently, bounded in entries and in bytes. Hashes are keyed ones (hash.h). An item may
 * be in one of four slots; when it is put and these are taken, the least recently used of them gives way, and when its
 * bytes find no room, the least recently used of some more. Finding and putting allocate nothing, and no lock is taken.
 */
#ifndef CELLGATE_BASE_TABLE_RECENT_H
#define CELLGATE_BASE_TABLE_RECENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct recent_slot {
    uint64_t hash, used; /* the table's count of uses at the last one */
    size_t bytes;
    void *item; /* NULL: the slot is free */
};

struct recent {
    /* Called with each item that leaves the table. */
    void (*gone)(void *context, void *item);
    void *context;
    struct recent_slot *slot; /* this and what follows is its own */
    size_t slots, bytes, most, hand;
    uint64_t uses;
};

/* entries: rounded up to a power of two of at least 4; most: bytes of all items together. False when out of memory.
 * `gone` and `context` are set by the owner. */
bool recent_init(struct recent *r, size_t entries, size_t most) __attribute__((warn_unused_result));
void recent_free(struct recent *r); /* every item leaves; zeroed is fine */
void recent_clear(struct recent *r);
/* Which of them is looked for `same` says, of items of this hash. NULL: none. It counts as used. */
struct recent_slot *recent_find(struct recent *r, uint64_t hash,
                                bool (*same)(const void *item, const void *key), const void *key);
/* bytes: at most `most`. An item that is the same should have been dropped before. */
void recent_put(struct recent *r, uint64_t hash, void *item, size_t bytes);
void recent_drop(struct recent *r, struct recent_slot *slot);

#endif
