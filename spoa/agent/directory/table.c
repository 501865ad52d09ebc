/* SPDX-License-Identifier: MIT */
#include "spoa/agent/directory/table.h"

#include <stdlib.h>

enum {
    BYTES_PER_RECORD = 4096,
    EMPTY_MIN = 16,  /* room for empty entries in the smallest table */
    ASKED_MIN = 128, /* room for look-ups in flight in the smallest table */
};

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

bool directory_table_init(struct directory_table *t, size_t max_records)
{
    size_t buckets = 16;
    while (buckets < max_records)
        buckets *= 2;
    *t = (struct directory_table){.buckets = calloc(buckets, sizeof(struct directory_entry *)),
                                  .mask = buckets - 1,
                                  .max_records = max_records,
                                  .max_empty = max_records / 4 + EMPTY_MIN,
                                  .max_empty_asked = max_records / 4 + ASKED_MIN,
                                  .max_records_asked = max_records - max_records / 4,
                                  .max_bytes = max_records * BYTES_PER_RECORD};
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

/* Returns the memory that the entry takes [bytes]. */
static size_t size_of(const struct directory_entry *e)
{
    return sizeof *e + e->key_len + (e->box ? e->box->bytes : 0);
}

/* Returns the list that fits the entry's state. */
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
    if (!old != !box) /* another list fits */
        directory_table_touch(t, e);
    return old;
}

void directory_table_asked(struct directory_table *t, struct directory_entry *e, bool asked)
{
    e->asked = asked;
    if (list_of(e) != e->list)
        directory_table_touch(t, e);
}

/* Returns whether the look-up of `e` will have no answer. `e` may be NULL. */
static bool is_lost(const struct directory_entry *e, uint64_t lost)
{
    return e && e->asked_at <= lost;
}

bool directory_table_crowded(const struct directory_table *t, const struct directory_entry *e, uint64_t lost)
{
    enum directory_list list = e->box ? DIRECTORY_RECORDS_ASKED : DIRECTORY_EMPTY_ASKED;
    size_t max = e->box ? t->max_records_asked : t->max_empty_asked;
    return !e->pins && !e->asked && t->lists[list].count >= max && !is_lost(t->lists[list].oldest, lost);
}

/* Moves an entry from the table to the chain *out. */
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

/* Evicts entries of one list beyond `max`, as long as the oldest one's look-up is lost. */
static void take_out_lost(struct directory_table *t, enum directory_list list, size_t max, uint64_t lost,
                          struct directory_entry **out)
{
    while (t->lists[list].count > max && is_lost(t->lists[list].oldest, lost))
        take_out(t, t->lists[list].oldest, out);
}

struct directory_entry *directory_table_trim(struct directory_table *t, uint64_t lost)
{
    struct directory_entry *out = NULL;
    size_t *records_asked = &t->lists[DIRECTORY_RECORDS_ASKED].count,
           *records = &t->lists[DIRECTORY_RECORDS].count;
    while (t->lists[DIRECTORY_EMPTY].count > t->max_empty)
        take_out(t, t->lists[DIRECTORY_EMPTY].oldest, &out);
    take_out_lost(t, DIRECTORY_EMPTY_ASKED, t->max_empty_asked, lost, &out);
    take_out_lost(t, DIRECTORY_RECORDS_ASKED, t->max_records_asked, lost, &out);
    while (*records_asked > t->max_records) /* their entries were pinned when the look-ups began */
        take_out(t, t->lists[DIRECTORY_RECORDS_ASKED].oldest, &out);
    /* A quarter of the table is for records just received, however many look-ups are in flight: whoever waited has yet to read it.
     * One large record always stays, whatever memory the entries take that cannot be evicted. */
    while (*records > 0 &&
           (*records + *records_asked > t->max_records || (*records > 1 && t->bytes > t->max_bytes)))
        take_out(t, t->lists[DIRECTORY_RECORDS].oldest, &out);
    return out;
}
