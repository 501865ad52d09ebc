/* SPDX-License-Identifier: MIT */
#include "spoa/base/table/recent.h"

#include <assert.h>
#include <stdlib.h>

enum { WAYS = 4, WINDOW = 64 /* slots that are looked at for bytes */ };

static size_t power_of_two(size_t entries)
{
    size_t n = WAYS;
    while (n < entries && n < (SIZE_MAX >> 1))
        n *= 2;
    return n;
}

bool recent_init(struct recent *r, size_t entries, size_t most)
{
    r->slots = power_of_two(entries);
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

static struct recent_slot *oldest_of(struct recent_slot *slots, size_t count)
{
    struct recent_slot *oldest = NULL;
    for (size_t i = 0; i < count; i++)
        if (slots[i].item && (!oldest || slots[i].used < oldest->used))
            oldest = &slots[i];
    return oldest;
}

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

/* Some item leaves; the next time another part of the table is looked at. */
static void give_up_one(struct recent *r)
{
    size_t count = r->slots < WINDOW ? r->slots : WINDOW;
    struct recent_slot *oldest = oldest_of(&r->slot[r->hand], count);
    r->hand = (r->hand + count) % r->slots;
    if (oldest)
        recent_drop(r, oldest);
}

void recent_put(struct recent *r, uint64_t hash, void *item, size_t bytes)
{
    assert(bytes <= r->most);
    struct recent_slot *slot = make_room(r, hash);
    while (r->bytes > r->most - bytes)
        give_up_one(r);
    r->bytes += bytes;
    *slot = (struct recent_slot){.hash = hash, .used = ++r->uses, .bytes = bytes, .item = item};
}
