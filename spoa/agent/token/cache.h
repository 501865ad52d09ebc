/* SPDX-License-Identifier: MIT */
/*
 * token_cache: grants of recently verified tokens, so that a signature is checked only once. A token_cache belongs to one thread and
 * takes no lock. The caches of all threads can share one token_store, which a cache asks for tokens it does not have; a process then
 * checks each signature only once, in whichever thread.
 *
 * A keyed hash (hash.h) finds a token, and the whole token is compared. The cache holds it until it expires. The number of entries is
 * fixed, and so is their memory, a kilobyte per entry on average; the least recently used of four is evicted. Finding allocates nothing.
 *
 * A cache also owns the memory for the strings of a check in progress. Therefore every grant is valid until the next call of the cache.
 */
#ifndef CELLGATE_AGENT_TOKEN_CACHE_H
#define CELLGATE_AGENT_TOKEN_CACHE_H

#include "spoa/agent/model/grant.h"

struct token_cache;
struct token_store;

/* `entries` is rounded up to a power of two, at least 4 for a cache and 256 for a store. Returns NULL if memory is short or there is no
 * randomness. */
struct token_cache *token_cache_new(size_t entries);
void token_cache_free(struct token_cache *cache); /* cache may be NULL */
struct token_store *token_store_new(size_t entries);
void token_store_free(struct token_store *store); /* store may be NULL; no cache may use it any more */
/* Connects the cache to a store, which it borrows, to share verified tokens with the other caches of this store. Call it before
 * token_cache_find. */
void token_cache_share(struct token_cache *cache, struct token_store *store);

/* Finds the grant of this token, if it was verified with this generation of keys and has not expired. A generation other than that of
 * the last call empties the cache first. */
bool token_cache_find(struct token_cache *cache, uint64_t generation, struct slice token, int64_t now,
                      struct grant *grant);
/* Caches the grant of the token in the last call of token_cache_find; the bytes of that token must still exist. The grant is silently
 * not cached if memory is short or it has more than a kilobyte of text. */
void token_cache_put(struct token_cache *cache, const struct grant *grant);
/* Returns the memory in which a check writes the strings of its grant, and empties it. */
struct writer *token_cache_scratch(struct token_cache *cache);

struct token_cache_counts {
    uint64_t hits, misses;
    uint64_t shared; /* hits on tokens that another thread had verified */
};
struct token_cache_counts token_cache_counts(const struct token_cache *cache);

#endif
