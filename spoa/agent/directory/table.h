/* SPDX-License-Identifier: MIT */
/*
 * directory_table: the entries of one stripe of the cache (directory/cache.c). A table is a hash table whose entries are also members
 * of one of five lists, ordered by the time when they were last asked for. A table is bounded: directory_table_trim evicts what
 * exceeds the limits, from the old end of the lists. Pinned entries are never evicted. An entry with a look-up in flight is not
 * evicted either, because somebody waits for the answer and the cache would forget that it has asked; the exception is an entry
 * that was pinned when its look-up began, if such entries alone exceed the limit.
 *
 * A table is for one thread at a time: the stripe's lock guards it, and no function here allocates or calls back under the lock.
 */
#ifndef CELLGATE_AGENT_DIRECTORY_TABLE_H
#define CELLGATE_AGENT_DIRECTORY_TABLE_H

#include "spoa/agent/model/shared_record.h"

/* Entries that a watch uses; entries with a record; entries without one (absent or unknown). ASKED: with a look-up in flight. */
enum directory_list {
    DIRECTORY_PINNED,
    DIRECTORY_RECORDS,
    DIRECTORY_RECORDS_ASKED,
    DIRECTORY_EMPTY,
    DIRECTORY_EMPTY_ASKED,
    DIRECTORY_LISTS
};

/* The cache's knowledge about one key. Times are microseconds of the cache's clock. */
struct directory_entry {
    struct directory_entry *chain;         /* next entry of the bucket, or of a chain of evicted entries */
    struct directory_entry *newer, *older; /* neighbours in `list` */
    enum directory_list list;
    uint64_t hash;
    struct shared_record *box; /* the last good record, or NULL if there is none */
    int64_t epoch;             /* epoch of the last whole record (a bare state has none), or 0 */
    unsigned pins;             /* number of watches that use the entry; above 0 it is never evicted */
    uint64_t waiters;          /* bits of the callers to notify when the look-up is answered */
    uint64_t watchers;    /* bits of the callers that have pinned the entry, until its last pin is gone */
    bool absent;          /* the directory said that there is no record */
    bool asked;           /* a look-up is in flight; written by directory_table_asked only */
    bool unavailable;     /* the last look-up had no answer */
    bool outdated;        /* the directory announced a change that was not looked up yet */
    bool announced;       /* the directory named this key: the next answer is believed, even absence */
    bool again;           /* announced while a look-up was in flight, whose answer may be older */
    bool unproven;        /* an unauthenticated client waits for this look-up */
    bool overtaken;       /* content was pushed while a look-up was in flight, whose answer is older */
    uint64_t asked_at;    /* start of the look-up in flight */
    uint64_t retry_at;    /* no look-up begins before this time */
    uint64_t learned;     /* last time when the directory confirmed the entry */
    uint64_t shown;       /* start of the last look-up that an unauthenticated client waited for, or 0 */
    uint64_t good_for;    /* lifetime of the record from `learned` on, or 0 for the configured one */
    uint64_t doubt_since; /* first time that the directory denied a known record, or 0 */
    uint64_t doubted;     /* last time that it did */
    uint64_t woken;       /* last time that a wake was requested, or 0 */
    uint8_t slot;         /* refresh slot of the look-up in flight (cache_look_ups.c), or 0 */
    uint8_t key_len;      /* length of `key` [bytes] */
    uint8_t key[];
};

struct directory_table {
    struct directory_entry **buckets;
    size_t mask; /* number of buckets less one */
    struct {
        struct directory_entry *newest, *oldest;
        size_t count;
    } lists[DIRECTORY_LISTS];
    size_t max_records, max_records_asked; /* entries with a record: in all; with a look-up in flight */
    size_t max_empty, max_empty_asked;     /* entries without a record: at rest; with a look-up in flight */
    size_t max_bytes;                      /* memory of all entries; beyond it records are evicted */
    size_t bytes;                          /* of all entries */
};

/* Returns a new, empty entry for `key` (at most 255 bytes), or NULL if memory is short. */
struct directory_entry *directory_entry_new(uint64_t hash, struct slice key) MUST_CHECK;
/* Frees a chain of entries; NULL is fine. */
void directory_entry_free(struct directory_entry *entry);

/* Prepares a table for `max_records` records and a quarter as many empty entries. Returns false if memory is short. */
bool directory_table_init(struct directory_table *table, size_t max_records) MUST_CHECK;
/* Frees all entries and the table's memory. */
void directory_table_clear(struct directory_table *table);
/* Returns the entry of `key`, or NULL. `hash` is the keyed hash of `key`. */
struct directory_entry *directory_table_find(const struct directory_table *table, uint64_t hash,
                                             struct slice key);
/* Adds an entry whose key is not in the table; the table owns it until directory_table_trim returns it. */
void directory_table_insert(struct directory_table *table, struct directory_entry *entry);
/* Moves the entry to the new end of the list that fits its state. */
void directory_table_touch(struct directory_table *table, struct directory_entry *entry);
/* Replaces the entry's record. Takes over the caller's reference to `box` (may be NULL), and returns the old record for the caller to
 * release. */
struct shared_record *directory_table_put(struct directory_table *table, struct directory_entry *entry,
                                          struct shared_record *box);
/* Sets or clears `asked`, and moves the entry to the list that fits. */
void directory_table_asked(struct directory_table *table, struct directory_entry *entry, bool asked);
/* Returns whether a look-up of `entry` has to wait for others to end. A pinned entry never has to. Look-ups that began at `lost` or
 * before will have no answer, and do not count; directory_table_trim evicts their entries first. */
bool directory_table_crowded(const struct directory_table *table, const struct directory_entry *entry,
                             uint64_t lost);
/* Removes the entries that exceed the limits, and returns them as a chain for directory_entry_free. */
struct directory_entry *directory_table_trim(struct directory_table *table, uint64_t lost);

#endif
