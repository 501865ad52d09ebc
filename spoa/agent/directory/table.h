/* SPDX-License-Identifier: MIT */
/*
 * directory_table: the entries of one stripe of the cache (directory/cache.c): a hash table whose entries also
 * stand in one of five lists, by when they were last asked for. Bounded: what is over the limits is given
 * back to the caller, from the end of the lists. Pinned entries are never given up. Those with a look-up on its way are
 * not either, unless they were pinned when it began and would be more than all: somebody waits for its answer, and
 * with the entry would be forgotten that it is asked for.
 *
 * For one thread at a time: the cache's stripe has a lock, under which this does nothing but move pointers.
 */
#ifndef CELLGATE_AGENT_DIRECTORY_TABLE_H
#define CELLGATE_AGENT_DIRECTORY_TABLE_H

#include "spoa/agent/model/shared_record.h"

/* Entries that a watch uses; that have a record; that have none (absent, unknown). ASKED: with a look-up on its way. */
enum directory_list {
    DIRECTORY_PINNED,
    DIRECTORY_RECORDS,
    DIRECTORY_RECORDS_ASKED,
    DIRECTORY_EMPTY,
    DIRECTORY_EMPTY_ASKED,
    DIRECTORY_LISTS
};

/* What is known of one key; times are microseconds. */
struct directory_entry {
    struct directory_entry *chain;         /* next of the bucket, or of what was given up */
    struct directory_entry *newer, *older; /* in its list */
    enum directory_list list;
    uint64_t hash;
    struct shared_record *box; /* the last good record; NULL: there is none */
    int64_t epoch;             /* of the last whole record, as a state alone has none; 0: there was none */
    unsigned pins;
    uint64_t waiters;  /* bits of who wants to hear when it is answered */
    uint64_t watchers; /* bits of who has pinned it, until nobody has */
    bool absent;       /* the directory says that there is none */
    bool asked;        /* a look-up is on its way; directory_table_asked sets it */
    bool unavailable;  /* the last look-up had no answer */
    bool outdated;     /* the directory announced a change that was not looked up yet */
    bool announced;    /* by its key: the next answer is the directory's word, absence too */
    bool again;        /* announced while a look-up was on its way, which may have missed it */
    bool strangers;    /* such a one asks, too */
    bool overtaken;    /* pushed with content while a look-up was on its way, which is older */
    uint64_t asked_at, retry_at;
    uint64_t learned;     /* when the directory last confirmed what is known */
    uint64_t shown;       /* when it last did to somebody who has yet to prove that he may know; 0: never */
    uint64_t good_for;    /* from then; 0: as configured */
    uint64_t doubt_since; /* when it first said that there is none though there is a record; 0: it did not */
    uint64_t doubted;     /* when it last said so */
    uint64_t woken;       /* when its waking was last asked for; 0: never */
    uint8_t turn;         /* of the look-up on its way, if it is a refresh (directory/cache.c); 0: none */
    uint8_t key_len;
    uint8_t key[];
};

struct directory_table {
    struct directory_entry **buckets;
    size_t mask; /* number of buckets less one */
    struct {
        struct directory_entry *newest, *oldest;
        size_t count;
    } lists[DIRECTORY_LISTS];
    size_t most_records, most_records_asked, most_empty, most_empty_asked, most_bytes;
    size_t bytes;
};

/* NULL when out of memory. key: at most 255 bytes. */
struct directory_entry *directory_entry_new(uint64_t hash, struct slice key);
void directory_entry_free(struct directory_entry *entry); /* a chain of them; NULL is fine */

bool directory_table_init(struct directory_table *table, size_t most_records); /* false: out of memory */
void directory_table_clear(struct directory_table *table);                     /* frees all */
struct directory_entry *directory_table_find(const struct directory_table *table, uint64_t hash,
                                             struct slice key);
void directory_table_insert(struct directory_table *table, struct directory_entry *entry);
/* It was asked for just now, or belongs into another list. */
void directory_table_touch(struct directory_table *table, struct directory_entry *entry);
/* Takes over the caller's reference of box (may be NULL); returns the old one, for the caller to release. */
struct shared_record *directory_table_put(struct directory_table *table, struct directory_entry *entry,
                                          struct shared_record *box);
/* A look-up is on its way, or is not any more. */
void directory_table_asked(struct directory_table *table, struct directory_entry *entry, bool asked);
/* Whether there is no room for a look-up of this one. There always is for what is watched. Those that began at `lost` or
 * before will have no answer: here and in directory_table_trim they have to make room. */
bool directory_table_crowded(const struct directory_table *table, const struct directory_entry *entry,
                             uint64_t lost);
/* Takes out what is over the limits: a chain for directory_entry_free. */
struct directory_entry *directory_table_trim(struct directory_table *table, uint64_t lost);

#endif
