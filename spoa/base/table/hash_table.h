/* SPDX-License-Identifier: MIT */
/*
 * hash_table: a chained hash table of nodes that are members of the caller's objects. The table grows and shrinks by one bucket at
 * a time (Litwin, "Linear hashing", 1980), so no single insertion or removal stalls while the whole table is rebuilt. The caller
 * computes the hashes; they must be keyed (hash.h) wherever somebody outside chooses the keys. For one thread at a time.
 */
#ifndef CELLGATE_BASE_TABLE_HASH_TABLE_H
#define CELLGATE_BASE_TABLE_HASH_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "spoa/base/bytes/must_check.h"

/* A member of each object. The table owns its fields while the node is in the table. */
struct hash_node {
    struct hash_node *next; /* in the chain of its bucket */
    uint64_t hash;
};

/* Zero bytes are an empty table. Callers read the fields and do not change them. */
struct hash_table {
    struct hash_node **buckets; /* NULL until the first insertion */
    size_t count;               /* nodes */
    size_t used, room;          /* buckets in use, buckets allocated */
    uint64_t mask;              /* the smallest 2^n - 1 that is at least used - 1 */
};

/* Inserts a node, which must not be in a table. Returns false if there is no memory for the first node. Later insertions always
 * succeed: without memory for another bucket, chains become longer. */
bool hash_table_insert(struct hash_table *table, struct hash_node *node, uint64_t hash) MUST_CHECK;
/* Returns the first node with this hash, or NULL. The caller compares keys, because different keys can have equal hashes. */
struct hash_node *hash_table_find(const struct hash_table *table, uint64_t hash);
/* Returns the next node with the same hash, or NULL. */
struct hash_node *hash_table_next(const struct hash_node *node);
/* Removes a node, which must be in this table. */
void hash_table_remove(struct hash_table *table, struct hash_node *node);
/* Frees the buckets. The nodes belong to the caller. */
void hash_table_free(struct hash_table *table);

#endif
