/* SPDX-License-Identifier: MIT */
/*
 * hash_table: a chained hash table of nodes that are members of what they stand for. It grows and shrinks by one
 * bucket at a time (Litwin, "Linear hashing", 1980), so that no insertion or removal stalls for the rest of the
 * table. Hashes are the caller's: keyed ones (hash.h) wherever somebody outside chooses the keys.
 */
#ifndef CELLGATE_BASE_TABLE_HASH_TABLE_H
#define CELLGATE_BASE_TABLE_HASH_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct hash_node {
    struct hash_node *next;
    uint64_t hash;
};

struct hash_table { /* zero bytes are an empty table; read only */
    struct hash_node **buckets;
    size_t count, used, room; /* nodes; buckets in use; buckets that there is memory for */
    uint64_t mask;            /* the least 2^n - 1 that is not below used - 1 */
};

/* False when there is no memory for the first node; later ones go into longer chains then. */
bool hash_table_insert(struct hash_table *table, struct hash_node *node, uint64_t hash)
    __attribute__((warn_unused_result));
/* The first node of this hash or, after `node`, the next one; NULL: none. Equal hashes need not be equal keys. */
struct hash_node *hash_table_find(const struct hash_table *table, uint64_t hash);
struct hash_node *hash_table_next(const struct hash_node *node);
void hash_table_remove(struct hash_table *table, struct hash_node *node); /* it is in there */
void hash_table_free(struct hash_table *table);                           /* the nodes are the caller's */

#endif
