/* SPDX-License-Identifier: MIT */
#include "spoa/base/table/hash_table.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum { BUCKETS_MIN = 16 };

/* Returns the head of the chain of a hash. A bucket that linear hashing has not split off yet shares that of half its index. */
static struct hash_node **bucket_of(const struct hash_table *t, uint64_t hash)
{
    uint64_t at = hash & t->mask;
    return &t->buckets[at < t->used ? at : at & t->mask >> 1];
}

static bool set_room(struct hash_table *t, size_t room)
{
    struct hash_node **buckets = realloc(t->buckets, room * sizeof *buckets);
    if (!buckets)
        return false;
    t->buckets = buckets;
    t->room = room;
    return true;
}

/* Adds a bucket at the end and moves its nodes there from the bucket that it is split from. Without memory nothing changes. */
static void grow(struct hash_table *t)
{
    if (t->used == t->room && !set_room(t, t->room * 2))
        return;
    size_t fresh = t->used++;
    if (fresh > t->mask)
        t->mask = t->mask * 2 + 1;
    struct hash_node **from = &t->buckets[fresh & t->mask >> 1], **to = &t->buckets[fresh];
    *to = NULL;
    for (struct hash_node *node; (node = *from);) {
        if ((node->hash & t->mask) != fresh) {
            from = &node->next;
            continue;
        }
        *from = node->next;
        node->next = *to;
        *to = node;
    }
}

/* Removes the last bucket and appends its chain to the bucket that it was split from. */
static void shrink(struct hash_table *t)
{
    size_t last = --t->used;
    struct hash_node **to = &t->buckets[last & t->mask >> 1];
    while (*to)
        to = &(*to)->next;
    *to = t->buckets[last];
    if (t->used - 1 <= t->mask >> 1)
        t->mask >>= 1;
    if (t->used <= t->room / 4)
        (void)set_room(t, t->room / 2); /* if realloc fails, the larger array stays in use */
}

bool hash_table_insert(struct hash_table *t, struct hash_node *node, uint64_t hash)
{
    if (!t->buckets) {
        if (!set_room(t, BUCKETS_MIN))
            return false;
        memset(t->buckets, 0, BUCKETS_MIN * sizeof(struct hash_node *));
        t->used = BUCKETS_MIN;
        t->mask = BUCKETS_MIN - 1;
    }
    if (t->count >= t->used)
        grow(t);
    struct hash_node **bucket = bucket_of(t, hash);
    node->hash = hash;
    node->next = *bucket;
    *bucket = node;
    t->count++;
    return true;
}

static struct hash_node *of_hash(struct hash_node *node, uint64_t hash)
{
    while (node && node->hash != hash)
        node = node->next;
    return node;
}

struct hash_node *hash_table_find(const struct hash_table *t, uint64_t hash)
{
    return t->buckets ? of_hash(*bucket_of(t, hash), hash) : NULL;
}

struct hash_node *hash_table_next(const struct hash_node *node)
{
    return of_hash(node->next, node->hash);
}

void hash_table_remove(struct hash_table *t, struct hash_node *node)
{
    struct hash_node **link = bucket_of(t, node->hash);
    while (*link != node) {
        assert(*link);
        link = &(*link)->next;
    }
    *link = node->next;
    t->count--;
    /* twice, so that the table shrinks faster than it empties and the buckets do not outlast the nodes */
    for (int i = 0; i < 2 && t->used > BUCKETS_MIN && t->count < t->used / 2; i++)
        shrink(t);
}

void hash_table_free(struct hash_table *t)
{
    free(t->buckets);
    *t = (struct hash_table){.count = 0};
}
