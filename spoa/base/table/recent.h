/* SPDX-License-Identifier: MIT */
/*
 * recent: a cache of recently used items, bounded in entries and in bytes. Hashes must be keyed (hash.h). Each hash has a set of four
 * slots; an item that finds all four taken evicts the least recently used of them. An item whose bytes exceed the bound evicts the
 * least recently used items of a moving part of the table. Finding and putting allocate nothing. For one thread at a time.
 */
#ifndef CELLGATE_BASE_TABLE_RECENT_H
#define CELLGATE_BASE_TABLE_RECENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "spoa/base/bytes/must_check.h"

struct recent_slot {
    uint64_t hash;
    uint64_t used; /* value of recent.uses at the item's last use */
    size_t bytes;  /* size that the caller gave for the item */
    void *item;    /* NULL if the slot is free */
};

struct recent {
    /* Called with each item that is evicted or dropped; the owner sets both before the first item is put. */
    void (*gone)(void *context, void *item);
    void *context;

    /* private */
    struct recent_slot *slot;
    size_t slots;       /* a power of two */
    size_t bytes, most; /* bytes of all items; their bound */
    size_t hand;        /* slot at which the next eviction for bytes begins */
    uint64_t uses;
};

/* Makes an empty table. `entries` is rounded up to a power of two of at least 4; `most` bounds the bytes of all items together.
 * Returns false if memory is short. */
bool recent_init(struct recent *r, size_t entries, size_t most) MUST_CHECK;
/* Drops every item and frees the table. A zeroed table is fine. */
void recent_free(struct recent *r);
/* Drops every item. */
void recent_clear(struct recent *r);
/* Returns the slot of the item that has this hash and for which same(item, key) is true, or NULL. This counts as a use of the item.
 * The slot is valid until the table next changes. */
struct recent_slot *recent_find(struct recent *r, uint64_t hash,
                                bool (*same)(const void *item, const void *key), const void *key);
/* Puts an item of at most `most` bytes, and evicts others if need be. The caller drops an older item with an equal key first. */
void recent_put(struct recent *r, uint64_t hash, void *item, size_t bytes);
/* Drops the item of a slot that recent_find has returned. */
void recent_drop(struct recent *r, struct recent_slot *slot);

#endif
