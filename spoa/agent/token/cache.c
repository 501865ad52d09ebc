/* SPDX-License-Identifier: MIT */
#include "spoa/agent/token/cache.h"

#include <openssl/crypto.h>
#include <pthread.h>
#include <stdlib.h>

#include "spoa/base/hash.h"
#include "spoa/base/references.h"

enum {
    WAYS = 4,         /* slots that a token may be in */
    TEXT_MOST = 1024, /* bytes of strings of one remembered grant */
    BYTES_EACH = 1024,
    BYTES_LEAST = 64 << 10, /* what the smallest table holds */
    STRIPES = 64,
    STRIPE_SHIFT = 40, /* a table takes the low bits of a hash */
};

/* A token and what it grants: immutable, of all threads that remember it. */
struct verified {
    atomic_uint references;
    uint64_t hash, generation;
    size_t token, bytes; /* bytes of the token, of all texts */
    struct grant grant;
    struct verified *gone; /* the next one that a table gives up: of whom took it out of the store */
    uint8_t text[];        /* the token, and what grant points into */
};

struct slot {
    uint64_t hash;
    uint64_t used;             /* the table's count of uses at the last one */
    struct verified *verified; /* NULL: the slot is empty */
};

struct table {
    size_t slots; /* a power of two */
    size_t bytes, most;
    uint64_t uses;
    struct slot *slot;
};

struct stripe {
    pthread_mutex_t lock;
    struct table table;
} __attribute__((aligned(64)));

struct token_store {
    struct hash_secret secret;
    struct stripe stripe[STRIPES];
};

struct token_cache {
    struct hash_secret secret;
    struct token_store *store; /* NULL: the cache is alone */
    struct table table;
    uint64_t generation;
    struct token_cache_counts counts;
    struct slice asked; /* the token asked for last */
    uint64_t asked_hash;
    struct writer scratch;
    uint8_t memory[TOKEN_LIMIT];
};

/* ---- what was verified ---- */

static void verified_release(struct verified *v)
{
    if (!v || !references_drop(&v->references))
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

/* NULL: without memory, or there is too much text. */
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

/* Nobody can choose tokens of one hash, so the time that this takes tells nobody about another one's token. */
static bool is_of(const struct slot *slot, uint64_t hash, uint64_t generation, struct slice token)
{
    const struct verified *v = slot->verified;
    return v && slot->hash == hash && v->generation == generation &&
           slice_equal(slice_of(v->text, v->token), token);
}

static bool expired(const struct grant *grant, int64_t now)
{
    return now >= grant->exp + grant->leeway;
}

/* ---- a table ---- */

static size_t power_of_two(size_t entries, size_t least)
{
    size_t n = least;
    while (n < entries && n < (SIZE_MAX >> 1))
        n *= 2;
    return n;
}

static bool table_init(struct table *t, size_t slots)
{
    t->slots = slots;
    t->most = slots * BYTES_EACH > BYTES_LEAST ? slots * BYTES_EACH : BYTES_LEAST;
    t->slot = slots <= SIZE_MAX / BYTES_EACH ? calloc(slots, sizeof *t->slot) : NULL;
    return t->slot;
}

/* What the slot held is added to *gone. */
static void empty_slot(struct table *t, struct slot *slot, struct verified **gone)
{
    struct verified *v = slot->verified;
    *slot = (struct slot){.verified = NULL};
    if (!v)
        return;
    t->bytes -= v->bytes;
    if (gone) {
        v->gone = *gone;
        *gone = v;
    } else {
        verified_release(v);
    }
}

static void table_clear(struct table *t)
{
    for (size_t i = 0; t->slot && i < t->slots; i++)
        empty_slot(t, &t->slot[i], NULL);
}

static struct slot *ways(const struct table *t, uint64_t hash)
{
    return &t->slot[hash & (t->slots - 1) & ~(uint64_t)(WAYS - 1)];
}

static struct slot *table_find(struct table *t, uint64_t hash, uint64_t generation, struct slice token)
{
    struct slot *set = ways(t, hash);
    for (size_t i = 0; i < WAYS; i++)
        if (is_of(&set[i], hash, generation, token)) {
            set[i].used = ++t->uses;
            return &set[i];
        }
    return NULL;
}

/* NULL: the table is empty. */
static struct slot *oldest_of(struct slot *slots, size_t count)
{
    struct slot *oldest = NULL;
    for (size_t i = 0; i < count; i++)
        if (slots[i].verified && (!oldest || slots[i].used < oldest->used))
            oldest = &slots[i];
    return oldest;
}

/* The place of the same token, or a free one, or that of the least recently used one. */
static struct slot *choose_slot(struct table *t, const struct verified *v)
{
    struct slot *set = ways(t, v->hash), *chosen = NULL;
    for (size_t i = 0; i < WAYS; i++) {
        if (is_of(&set[i], v->hash, v->generation, slice_of(v->text, v->token)))
            return &set[i];
        if (!set[i].verified)
            chosen = &set[i];
    }
    return chosen ? chosen : oldest_of(set, WAYS);
}

/* Takes a reference of its own. What gives way is added to *gone, as of empty_slot. */
static void table_put(struct table *t, struct verified *v, struct verified **gone)
{
    struct slot *slot = choose_slot(t, v);
    empty_slot(t, slot, gone);
    while (t->bytes + v->bytes > t->most) /* looks at all: rare, and less than the check of a signature */
        empty_slot(t, oldest_of(t->slot, t->slots), gone);
    references_add(&v->references);
    t->bytes += v->bytes;
    *slot = (struct slot){.hash = v->hash, .used = ++t->uses, .verified = v};
}

/* ---- the store: its locks are held only while pointers move ---- */

struct token_store *token_store_new(size_t entries)
{
    struct token_store *store = aligned_alloc(64, (sizeof *store + 63) / 64 * 64);
    if (!store)
        return NULL;
    memset(store, 0, sizeof *store);
    bool good = hash_secret_init(&store->secret);
    for (size_t i = 0; i < STRIPES; i++) {
        pthread_mutex_init(&store->stripe[i].lock, NULL);
        good = good &&
               table_init(&store->stripe[i].table, power_of_two(entries, (size_t)STRIPES * WAYS) / STRIPES);
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
        table_clear(&store->stripe[i].table);
        free(store->stripe[i].table.slot);
        pthread_mutex_destroy(&store->stripe[i].lock);
    }
    OPENSSL_cleanse(&store->secret, sizeof store->secret);
    free(store);
}

static struct stripe *stripe_of(struct token_store *store, uint64_t hash)
{
    return &store->stripe[(hash >> STRIPE_SHIFT) % STRIPES];
}

/* The caller's to release; NULL: there is none that is good. */
static struct verified *store_find(struct token_store *store, uint64_t hash, uint64_t generation,
                                   struct slice token, int64_t now)
{
    struct verified *found = NULL, *gone = NULL;
    struct stripe *stripe = stripe_of(store, hash);
    pthread_mutex_lock(&stripe->lock);
    struct slot *slot = table_find(&stripe->table, hash, generation, token);
    if (slot && expired(&slot->verified->grant, now)) {
        empty_slot(&stripe->table, slot, &gone);
    } else if (slot) {
        found = slot->verified;
        references_add(&found->references);
    }
    pthread_mutex_unlock(&stripe->lock);
    release_all(gone);
    return found;
}

static void store_put(struct token_store *store, struct verified *v)
{
    struct verified *gone = NULL;
    struct stripe *stripe = stripe_of(store, v->hash);
    pthread_mutex_lock(&stripe->lock);
    table_put(&stripe->table, v, &gone);
    pthread_mutex_unlock(&stripe->lock);
    release_all(gone);
}

/* ---- the cache ---- */

struct token_cache *token_cache_new(size_t entries)
{
    struct token_cache *cache = calloc(1, sizeof *cache);
    if (cache && hash_secret_init(&cache->secret) && table_init(&cache->table, power_of_two(entries, WAYS)))
        return cache;
    token_cache_free(cache);
    return NULL;
}

void token_cache_free(struct token_cache *cache)
{
    if (!cache)
        return;
    table_clear(&cache->table);
    free(cache->table.slot);
    OPENSSL_cleanse(&cache->secret, sizeof cache->secret);
    free(cache);
}

void token_cache_share(struct token_cache *cache, struct token_store *store)
{
    cache->store = store;
    cache->secret = store->secret;
}

static const struct verified *recall_own(struct token_cache *cache, int64_t now)
{
    struct slot *slot = table_find(&cache->table, cache->asked_hash, cache->generation, cache->asked);
    if (slot && expired(&slot->verified->grant, now)) {
        empty_slot(&cache->table, slot, NULL);
        slot = NULL;
    }
    return slot ? slot->verified : NULL;
}

static const struct verified *recall_shared(struct token_cache *cache, int64_t now)
{
    struct verified *v =
        cache->store ? store_find(cache->store, cache->asked_hash, cache->generation, cache->asked, now)
                     : NULL;
    if (!v)
        return NULL;
    table_put(&cache->table, v, NULL);
    verified_release(v); /* the table has a reference */
    cache->counts.shared++;
    return v;
}

bool token_cache_find(struct token_cache *cache, uint64_t generation, struct slice token, int64_t now,
                      struct grant *grant)
{
    if (cache->generation != generation)
        table_clear(&cache->table);
    cache->generation = generation;
    cache->asked = token;
    cache->asked_hash = hash_keyed(&cache->secret, token);
    const struct verified *v = recall_own(cache, now);
    v = v ? v : recall_shared(cache, now);
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
    table_put(&cache->table, v, NULL);
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
