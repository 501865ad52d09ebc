/* SPDX-License-Identifier: MIT */
#include "spoa/agent/directory_table.h"

#include <stdlib.h>

enum { BYTES_PER_RECORD = 4096, EMPTY_LEAST = 16, LOOK_BACK = 8 };

struct directory_entry *directory_entry_new(uint64_t hash, struct slice key)
{
    struct directory_entry *e = malloc(sizeof *e + key.len);
    if (!e)
        return NULL;
    *e = (struct directory_entry){.list = DIRECTORY_EMPTY, .hash = hash, .key_len = (uint8_t)key.len};
    memcpy(e->key, key.at, key.len);
    return e;
}

void directory_entry_free(struct directory_entry *e)
{
    while (e) {
        struct directory_entry *next = e->chain;
        record_box_release(e->box);
        free(e);
        e = next;
    }
}

bool directory_table_init(struct directory_table *t, size_t most_records)
{
    size_t buckets = 16;
    while (buckets < most_records)
        buckets *= 2;
    *t = (struct directory_table){.buckets = calloc(buckets, sizeof(struct directory_entry *)),
                                  .mask = buckets - 1,
                                  .most_records = most_records,
                                  .most_empty = most_records / 4 + EMPTY_LEAST,
                                  .most_bytes = most_records * BYTES_PER_RECORD};
    return t->buckets;
}

void directory_table_clear(struct directory_table *t)
{
    for (size_t i = 0; t->buckets && i <= t->mask; i++)
        directory_entry_free(t->buckets[i]);
    free(t->buckets);
    *t = (struct directory_table){.buckets = NULL};
}

struct directory_entry *directory_table_find(const struct directory_table *t, uint64_t hash, struct slice key)
{
    struct directory_entry *e = t->buckets[hash & t->mask];
    while (e && (e->hash != hash || !slice_equal(slice_of(e->key, e->key_len), key)))
        e = e->chain;
    return e;
}

static size_t size_of(const struct directory_entry *e)
{
    return sizeof *e + e->key_len + (e->box ? e->box->bytes : 0);
}

static void list_add(struct directory_table *t, struct directory_entry *e)
{
    e->list = e->pins ? DIRECTORY_PINNED : e->box ? DIRECTORY_RECORDS : DIRECTORY_EMPTY;
    e->newer = NULL;
    e->older = t->lists[e->list].newest;
    *(e->older ? &e->older->newer : &t->lists[e->list].oldest) = e;
    t->lists[e->list].newest = e;
    t->lists[e->list].count++;
}

static void list_remove(struct directory_table *t, struct directory_entry *e)
{
    *(e->newer ? &e->newer->older : &t->lists[e->list].newest) = e->older;
    *(e->older ? &e->older->newer : &t->lists[e->list].oldest) = e->newer;
    t->lists[e->list].count--;
}

void directory_table_insert(struct directory_table *t, struct directory_entry *e)
{
    struct directory_entry **bucket = &t->buckets[e->hash & t->mask];
    e->chain = *bucket;
    *bucket = e;
    t->bytes += size_of(e);
    list_add(t, e);
}

void directory_table_touch(struct directory_table *t, struct directory_entry *e)
{
    list_remove(t, e);
    list_add(t, e);
}

struct record_box *directory_table_put(struct directory_table *t, struct directory_entry *e,
                                       struct record_box *box)
{
    struct record_box *old = e->box;
    t->bytes -= size_of(e);
    e->box = box;
    t->bytes += size_of(e);
    if (!old != !box)
        directory_table_touch(t, e);
    return old;
}

/* The oldest of a list; one that was asked for just now is passed over if others are near. */
static struct directory_entry *victim(const struct directory_table *t, enum directory_list list)
{
    struct directory_entry *e = t->lists[list].oldest;
    for (int i = 0; e && e->asked && i < LOOK_BACK; i++)
        e = e->newer;
    return e ? e : t->lists[list].oldest;
}

static void take_out(struct directory_table *t, struct directory_entry *e, struct directory_entry **out)
{
    struct directory_entry **at = &t->buckets[e->hash & t->mask];
    while (*at != e)
        at = &(*at)->chain;
    *at = e->chain;
    list_remove(t, e);
    t->bytes -= size_of(e);
    e->chain = *out;
    *out = e;
}

struct directory_entry *directory_table_trim(struct directory_table *t)
{
    struct directory_entry *out = NULL;
    while (t->lists[DIRECTORY_EMPTY].count > t->most_empty)
        take_out(t, victim(t, DIRECTORY_EMPTY), &out);
    while (t->lists[DIRECTORY_RECORDS].count > 0 &&
           (t->lists[DIRECTORY_RECORDS].count > t->most_records || t->bytes > t->most_bytes))
        take_out(t, victim(t, DIRECTORY_RECORDS), &out);
    return out;
}
