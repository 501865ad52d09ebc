/* SPDX-License-Identifier: MIT */
#include "spoa/base/table/recent.h"

#include <assert.h>
#include <stdlib.h>

enum {
    WAYS = 4,   /* slots of a set */
    WINDOW = 64 /* slots among which one eviction for bytes chooses */
};

bool recent_init(struct recent *r, size_t entries, size_t most)
{
    for (r->slots = WAYS; r->slots < entries && r->slots < (SIZE_MAX >> 1);)
        r->slots *= 2;
    r->slot = calloc(r->slots, sizeof *r->slot);
    r->bytes = r->hand = 0;
    r->most = most;
    r->uses = 0;
    return r->slot;
}

void recent_drop(struct recent *r, struct recent_slot *slot)
{
    void *item = slot->item;
    r->bytes -= slot->bytes;
    *slot = (struct recent_slot){.item = NULL};
    r->gone(r->context, item);
}

void recent_clear(struct recent *r)
{
    for (size_t i = 0; r->slot && i < r->slots; i++)
        if (r->slot[i].item)
            recent_drop(r, &r->slot[i]);
}

void recent_free(struct recent *r)
{
    recent_clear(r);
    free(r->slot);
    r->slot = NULL;
}

/* Returns the first slot of a hash's set. */
static struct recent_slot *ways(const struct recent *r, uint64_t hash)
{
    return &r->slot[hash & (r->slots - 1) & ~(uint64_t)(WAYS - 1)];
}

struct recent_slot *recent_find(struct recent *r, uint64_t hash,
                                bool (*same)(const void *item, const void *key), const void *key)
{
    struct recent_slot *set = ways(r, hash);
    for (size_t i = 0; i < WAYS; i++)
        if (set[i].item && set[i].hash == hash && same(set[i].item, key)) {
            set[i].used = ++r->uses;
            return &set[i];
        }
    return NULL;
}

/* Returns the slot of the least recently used item, or NULL if all are free. */
static struct recent_slot *oldest_of(struct recent_slot *slots, size_t count)
{
    struct recent_slot *oldest = NULL;
    for (size_t i = 0; i < count; i++)
        if (slots[i].item && (!oldest || slots[i].used < oldest->used))
            oldest = &slots[i];
    return oldest;
}

/* Returns a free slot of a hash's set, after an eviction if there is none. */
static struct recent_slot *make_room(struct recent *r, uint64_t hash)
{
    struct recent_slot *set = ways(r, hash);
    for (size_t i = 0; i < WAYS; i++)
        if (!set[i].item)
            return &set[i];
    struct recent_slot *oldest = oldest_of(set, WAYS);
    recent_drop(r, oldest);
    return oldest;
}

void recent_put(struct recent *r, uint64_t hash, void *item, size_t bytes)
{
    assert(bytes <= r->most);
    struct recent_slot *slot = make_room(r, hash);
    size_t window = r->slots < WINDOW ? r->slots : WINDOW;
    while (r->bytes > r->most - bytes) {
        /* the hand moves on, so every part of the table loses items in turn */
        struct recent_slot *oldest = oldest_of(&r->slot[r->hand], window);
        r->hand = (r->hand + window) % r->slots;
        if (oldest)
            recent_drop(r, oldest);
    }
    r->bytes += bytes;
    *slot = (struct recent_slot){.hash = hash, .used = ++r->uses, .bytes = bytes, .item = item};
}
