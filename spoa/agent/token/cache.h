/* SPDX-License-Identifier: MIT */
/*
 * token_cache: grants of tokens that were verified a moment ago, so that a signature is checked once. One per
 * thread, no locks. A token is remembered as SHA-256 over a secret of this cache and the token, never in
 * clear, and until it expires. The number of entries is fixed; the least recently used of four gives way. A
 * look-up allocates nothing but what OpenSSL takes and gives back for one hash.
 *
 * It also holds the memory that a check in progress writes its strings to, hence the rule for all grants:
 * they are good until the cache is asked again.
 */
#ifndef CELLGATE_AGENT_TOKEN_CACHE_H
#define CELLGATE_AGENT_TOKEN_CACHE_H

#include "spoa/agent/model/grant.h"

struct token_cache;

/* entries is rounded up to a power of two of at least 4. NULL when out of memory or without randomness. */
struct token_cache *token_cache_new(size_t entries);
void token_cache_free(struct token_cache *cache); /* NULL is fine */

/* What is remembered of this token under this generation of keys and is not expired. Another generation than
 * at the last call empties the cache first. */
bool token_cache_find(struct token_cache *cache, uint64_t generation, struct slice token, int64_t now,
                      struct grant *grant);
/* Remembers the grant of the token that token_cache_find was asked for last. Without memory it does not,
 * which is no error; nor does it remember grants with more than a kilobyte of text. */
void token_cache_put(struct token_cache *cache, const struct grant *grant);
/* Where a check writes the strings of the grant that it makes. Emptied by this call. */
struct writer *token_cache_scratch(struct token_cache *cache);

struct token_cache_counts {
    uint64_t hits, misses;
};
struct token_cache_counts token_cache_counts(const struct token_cache *cache);

#endif
