/* SPDX-License-Identifier: MIT */
#include "spoa/agent/token/cache.h"

#include <openssl/crypto.h>
#include <pthread.h>
#include <stdlib.h>

#include "spoa/base/table/hash.h"
#include "spoa/base/table/recent.h"
#include "spoa/base/table/references.h"

enum {
    TEXT_MOST = 1024, /* limit of the strings of one cached grant, in bytes */
    BYTES_EACH = 1024,
    BYTES_LEAST = 64 << 10, /* memory of the smallest table, in bytes */
    ENTRIES_MOST = 1 << 24,
    STRIPES = 64,
    HASHED = 64,       /* number of bytes of a token that are hashed */
    STRIPE_SHIFT = 40, /* distance from the low bits of a hash, which choose the slot in a table */
};

/* A token and its grant. Immutable; all threads that cache it share it. */
struct verified {
    atomic_uint references;
    uint64_t hash, generation;
    size_t token, bytes; /* length of the token, and of all texts, in bytes */
    struct grant grant;
    struct verified *gone; /* next entry that was evicted from the store together with this one */
    uint8_t text[];        /* the token, and the strings of grant */
};

struct stripe {
    pthread_mutex_t lock;
    struct verified *gone; /* entries evicted while the lock is held */
    struct recent table;
} __attribute__((aligned(64)));

struct token_store {
    struct hash_secret secret;
    struct stripe stripe[STRIPES];
};

struct token_cache {
    struct hash_secret secret;
    struct token_store *store; /* NULL if the cache has no store */
    struct recent table;
    uint64_t generation;
    struct token_cache_counts counts;
    struct slice asked; /* the token of the last token_cache_find */
    uint64_t asked_hash;
    struct writer scratch;
    uint8_t memory[TOKEN_LIMIT];
};

/* ---- verified tokens ---- */

static void verified_release(struct verified *v)
{
    if (!references_drop(&v->references))
        return;
    OPENSSL_cleanse(v->text, v->bytes);
    free(v);
}

static void release_all(struct verified *first)
{
    while (first) {
        struct verified *next = first->gone;
        verified_release(first);
        first = next;
    }
}

/* Returns NULL if memory is short or the texts are too long. */
static struct verified *verified_new(uint64_t hash, uint64_t generation, struct slice token,
                                     const struct grant *grant)
{
    struct grant own = *grant;
    struct slice *const all[] = {&own.sub, &own.org, &own.sandbox, &own.jti, &own.kid, &own.key, &own.ports};
    size_t count = sizeof all / sizeof *all, total = 0;
    for (size_t i = 0; i < count; i++)
        total += all[i]->len;
    if (total > TEXT_MOST || token.len > TOKEN_LIMIT)
        return NULL;
    total += token.len;
    struct verified *v = malloc(sizeof *v + total + 1);
    if (!v)
        return NULL;
    struct writer w = writer_of(v->text, total);
    writer_put(&w, token);
    for (size_t i = 0; i < count; i++) {
        const uint8_t *at = v->text + w.len;
        writer_put(&w, *all[i]);
        if (slice_present(*all[i]))
            all[i]->at = at;
    }
    v->references = 1;
    v->hash = hash;
    v->generation = generation;
    v->token = token.len;
    v->bytes = total;
    v->grant = own;
    v->gone = NULL;
    return v;
}

struct wanted {
    uint64_t generation;
    struct slice token;
};

/* Comparing may take a variable time: only a client that knows a token's secret part can produce its hash, so the time reveals nothing
 * about the tokens of others. */
static bool is_same(const void *item, const void *key)
{
    const struct verified *v = item;
    const struct wanted *wanted = key;
    return v->generation == wanted->generation && slice_equal(slice_of(v->text, v->token), wanted->token);
}

static bool expired(const struct grant *grant, int64_t now)
{
    return now >= grant->exp + grant->leeway;
}

static bool table_init(struct recent *table, size_t entries)
{
    entries = entries < ENTRIES_MOST ? entries : ENTRIES_MOST;
    return recent_init(table, entries,
                       entries * BYTES_EACH > BYTES_LEAST ? entries * BYTES_EACH : BYTES_LEAST);
}

/* Adds an entry; the table takes a reference of its own. */
static void table_put(struct recent *table, struct verified *v)
{
    const struct wanted same = {v->generation, slice_of(v->text, v->token)};
    struct recent_slot *old = recent_find(table, v->hash, is_same, &same);
    if (old)
        recent_drop(table, old);
    references_add(&v->references);
    recent_put(table, v->hash, v, v->bytes);
}

/* Returns the entry of the token if it has not expired. */
static struct verified *table_find(struct recent *table, uint64_t hash, const struct wanted *wanted,
                                   int64_t now)
{
    struct recent_slot *slot = recent_find(table, hash, is_same, wanted);
    struct verified *v = slot ? slot->item : NULL;
    if (!v || !expired(&v->grant, now))
        return v;
    recent_drop(table, slot);
    return NULL;
}

/* ---- the store: a lock is held only while pointers are moved ---- */

/* Collects an evicted entry; it is released after the lock, because that takes time. */
static void leave_store(void *context, void *item)
{
    struct verified **gone = context, *v = item;
    v->gone = *gone;
    *gone = v;
}

struct token_store *token_store_new(size_t entries)
{
    struct token_store *store = aligned_alloc(64, (sizeof *store + 63) / 64 * 64);
    if (!store)
        return NULL;
    memset(store, 0, sizeof *store);
    bool good = hash_secret_init(&store->secret);
    for (size_t i = 0; i < STRIPES; i++) {
        struct stripe *stripe = &store->stripe[i];
        stripe->table.gone = leave_store;
        stripe->table.context = &stripe->gone;
        pthread_mutex_init(&stripe->lock, NULL);
        good = good && table_init(&stripe->table, (entries + STRIPES - 1) / STRIPES);
    }
    if (good)
        return store;
    token_store_free(store);
    return NULL;
}

void token_store_free(struct token_store *store)
{
    if (!store)
        return;
    for (size_t i = 0; i < STRIPES; i++) {
        recent_free(&store->stripe[i].table);
        release_all(store->stripe[i].gone);
        pthread_mutex_destroy(&store->stripe[i].lock);
    }
    OPENSSL_cleanse(&store->secret, sizeof store->secret);
    free(store);
}

static struct stripe *lock_stripe(struct token_store *store, uint64_t hash)
{
    struct stripe *stripe = &store->stripe[(hash >> STRIPE_SHIFT) % STRIPES];
    pthread_mutex_lock(&stripe->lock);
    return stripe;
}

static void unlock_stripe(struct stripe *stripe)
{
    struct verified *gone = stripe->gone;
    stripe->gone = NULL;
    pthread_mutex_unlock(&stripe->lock);
    release_all(gone);
}

/* Returns an entry that the caller must release, or NULL if there is no valid one. */
static struct verified *store_find(struct token_store *store, uint64_t hash, const struct wanted *wanted,
                                   int64_t now)
{
    struct stripe *stripe = lock_stripe(store, hash);
    struct verified *found = table_find(&stripe->table, hash, wanted, now);
    if (found)
        references_add(&found->references);
    unlock_stripe(stripe);
    return found;
}

static void store_put(struct token_store *store, struct verified *v)
{
    struct stripe *stripe = lock_stripe(store, v->hash);
    table_put(&stripe->table, v);
    unlock_stripe(stripe);
}

/* ---- the cache ---- */

static void leave_cache(void *context, void *item)
{
    (void)context;
    verified_release(item);
}

struct token_cache *token_cache_new(size_t entries)
{
    struct token_cache *cache = calloc(1, sizeof *cache);
    if (cache)
        cache->table.gone = leave_cache;
    if (cache && hash_secret_init(&cache->secret) && table_init(&cache->table, entries))
        return cache;
    token_cache_free(cache);
    return NULL;
}

void token_cache_free(struct token_cache *cache)
{
    if (!cache)
        return;
    recent_free(&cache->table);
    OPENSSL_cleanse(&cache->secret, sizeof cache->secret);
    free(cache);
}

void token_cache_share(struct token_cache *cache, struct token_store *store)
{
    cache->store = store;
    cache->secret = store->secret;
}

/* Hashes only the end of a JWT, its signature: nobody without the key can choose it, and a client that knows it knows the token. Other
 * tokens are hashed as a whole, because the secret part of a secret that an operator made up may be at its beginning. */
static uint64_t hash_of(const struct token_cache *cache, struct slice token)
{
    bool signed_last = token.len > HASHED && slice_starts(token, "eyJ");

    return hash_keyed(&cache->secret, signed_last ? slice_from(token, token.len - HASHED) : token);
}

static const struct verified *recall(struct token_cache *cache, int64_t now)
{
    const struct wanted wanted = {cache->generation, cache->asked};
    const struct verified *own = table_find(&cache->table, cache->asked_hash, &wanted, now);
    if (own || !cache->store)
        return own;
    struct verified *shared = store_find(cache->store, cache->asked_hash, &wanted, now);
    if (!shared)
        return NULL;
    table_put(&cache->table, shared);
    verified_release(shared); /* the table has a reference of its own */
    cache->counts.shared++;
    return shared;
}

bool token_cache_find(struct token_cache *cache, uint64_t generation, struct slice token, int64_t now,
                      struct grant *grant)
{
    if (cache->generation != generation)
        recent_clear(&cache->table);
    cache->generation = generation;
    cache->asked = token;
    cache->asked_hash = hash_of(cache, token);
    const struct verified *v = recall(cache, now);
    cache->counts.hits += v != NULL;
    cache->counts.misses += !v;
    if (v)
        *grant = v->grant;
    return v;
}

void token_cache_put(struct token_cache *cache, const struct grant *grant)
{
    struct verified *v = verified_new(cache->asked_hash, cache->generation, cache->asked, grant);
    if (!v)
        return;
    table_put(&cache->table, v);
    if (cache->store)
        store_put(cache->store, v);
    verified_release(v);
}

struct writer *token_cache_scratch(struct token_cache *cache)
{
    cache->scratch = writer_of(cache->memory, sizeof(cache->memory));
    return &cache->scratch;
}

struct token_cache_counts token_cache_counts(const struct token_cache *cache)
{
    return cache->counts;
}
