/* SPDX-License-Identifier: MIT */
/*
 * token_cache: grants of tokens that were verified a moment ago, so that a signature is checked once. A token_cache is
 * one thread's and takes no lock; behind those of all threads there may be one token_store, which is asked only for what
 * a thread does not know, so that a process checks a signature once, whichever thread is asked.
 *
 * A token is found by a keyed hash (hash.h) and compared as a whole. It is remembered until it expires. The number of
 * entries is fixed, and so are their bytes, a kilobyte for each on average; the least recently used of four gives way.
 * Finding allocates nothing.
 *
 * A cache also holds the memory that a check in progress writes its strings to, hence the rule for all grants:
 * they are good until the cache is asked again.
 */
#ifndef CELLGATE_AGENT_TOKEN_CACHE_H
#define CELLGATE_AGENT_TOKEN_CACHE_H

#include "spoa/agent/model/grant.h"

struct token_cache;
struct token_store;

/* entries is rounded up to a power of two, of at least 4 for a cache and 256 for a store. NULL when out of memory or
 * without randomness. */
struct token_cache *token_cache_new(size_t entries);
void token_cache_free(struct token_cache *cache); /* NULL is fine */
struct token_store *token_store_new(size_t entries);
void token_store_free(struct token_store *store); /* NULL is fine; no cache uses it any more */
/* Before the cache is asked: it shares what it learns with all others of this store, which it borrows. */
void token_cache_share(struct token_cache *cache, struct token_store *store);

/* What is remembered of this token under this generation of keys and is not expired. Another generation than
 * at the last call empties the cache first. */
bool token_cache_find(struct token_cache *cache, uint64_t generation, struct slice token, int64_t now,
                      struct grant *grant);
/* Remembers the grant of the token that token_cache_find was asked for last, whose bytes are still there. Without memory
 * it does not, which is no error; nor does it remember grants with more than a kilobyte of text. */
void token_cache_put(struct token_cache *cache, const struct grant *grant);
/* Where a check writes the strings of the grant that it makes. Emptied by this call. */
struct writer *token_cache_scratch(struct token_cache *cache);

struct token_cache_counts {
    uint64_t hits, misses;
    uint64_t shared; /* of the hits, those that another thread had verified */
};
struct token_cache_counts token_cache_counts(const struct token_cache *cache);

#endif
