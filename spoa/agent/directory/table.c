/* SPDX-License-Identifier: MIT */
#include "spoa/agent/directory/table.h"

#include <stdlib.h>

enum { BYTES_PER_RECORD = 4096, EMPTY_LEAST = 16, ASKED_LEAST = 128 };

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
        shared_record_release(e->box);
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
                                  .most_empty_asked = most_records / 4 + ASKED_LEAST,
                                  .most_records_asked = most_records - most_records / 4,
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

static enum directory_list list_of(const struct directory_entry *e)
{
    if (e->pins)
        return DIRECTORY_PINNED;
    if (e->box)
        return e->asked ? DIRECTORY_RECORDS_ASKED : DIRECTORY_RECORDS;
    return e->asked ? DIRECTORY_EMPTY_ASKED : DIRECTORY_EMPTY;
}

static void list_add(struct directory_table *t, struct directory_entry *e)
{
    e->list = list_of(e);
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

struct shared_record *directory_table_put(struct directory_table *t, struct directory_entry *e,
                                          struct shared_record *box)
{
    struct shared_record *old = e->box;
    t->bytes -= size_of(e);
    e->box = box;
    t->bytes += size_of(e);
    if (!old != !box)
        directory_table_touch(t, e);
    return old;
}

void directory_table_asked(struct directory_table *t, struct directory_entry *e, bool asked)
{
    e->asked = asked;
    if (list_of(e) != e->list)
        directory_table_touch(t, e);
}

static bool is_lost(const struct directory_entry *e, uint64_t lost)
{
    return e && e->asked_at <= lost;
}

bool directory_table_crowded(const struct directory_table *t, const struct directory_entry *e, uint64_t lost)
{
    enum directory_list list = e->box ? DIRECTORY_RECORDS_ASKED : DIRECTORY_EMPTY_ASKED;
    size_t most = e->box ? t->most_records_asked : t->most_empty_asked;
    return !e->pins && !e->asked && t->lists[list].count >= most && !is_lost(t->lists[list].oldest, lost);
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

/* A quarter is for what was just answered, however many look-ups are on their way: who waited has yet to read it. Of
 * large records one stays, whatever the others take that cannot be given up. */
static bool too_many_records(const struct directory_table *t)
{
    size_t asked = t->lists[DIRECTORY_RECORDS_ASKED].count, count = t->lists[DIRECTORY_RECORDS].count;
    return count + asked > t->most_records || (count > 1 && t->bytes > t->most_bytes);
}

static void take_out_lost(struct directory_table *t, enum directory_list list, size_t most, uint64_t lost,
                          struct directory_entry **out)
{
    while (t->lists[list].count > most && is_lost(t->lists[list].oldest, lost))
        take_out(t, t->lists[list].oldest, out);
}

struct directory_entry *directory_table_trim(struct directory_table *t, uint64_t lost)
{
    struct directory_entry *out = NULL;
    while (t->lists[DIRECTORY_EMPTY].count > t->most_empty)
        take_out(t, t->lists[DIRECTORY_EMPTY].oldest, &out);
    take_out_lost(t, DIRECTORY_EMPTY_ASKED, t->most_empty_asked, lost, &out);
    take_out_lost(t, DIRECTORY_RECORDS_ASKED, t->most_records_asked, lost, &out);
    while (t->lists[DIRECTORY_RECORDS_ASKED].count >
           t->most_records) /* they were watched when they were asked for */
        take_out(t, t->lists[DIRECTORY_RECORDS_ASKED].oldest, &out);
    while (t->lists[DIRECTORY_RECORDS].count > 0 && too_many_records(t))
        take_out(t, t->lists[DIRECTORY_RECORDS].oldest, &out);
    return out;
}
