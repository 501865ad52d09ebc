/* SPDX-License-Identifier: MIT */
#include "spoa/agent/token/cache.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/rand.h>
#include <stdlib.h>


#define DIGEST    32
#define WAYS      4    /* slots that a token may be in */
#define TEXT_MOST 1024 /* bytes of strings of one remembered grant */

struct slot {
    uint8_t digest[DIGEST];
    struct grant grant;
    uint64_t used; /* the cache's count of uses at the last one */
    uint8_t *text; /* what grant points into; NULL: the slot is empty */
};

struct token_cache {
    EVP_MD *sha256;
    EVP_MD_CTX *context;
    uint8_t secret[DIGEST];
    uint64_t generation;
    uint64_t uses;
    struct token_cache_counts counts;
    uint8_t asked[DIGEST]; /* digest of the token asked for last */
    bool asked_valid;
    struct writer scratch;
    uint8_t memory[TOKEN_LIMIT];
    size_t slots; /* a power of two */
    struct slot slot[];
};

static size_t power_of_two(size_t least)
{
    size_t n = WAYS;
    while (n < least && n < (SIZE_MAX >> 1))
        n *= 2;
    return n;
}

struct token_cache *token_cache_new(size_t entries)
{
    size_t slots = power_of_two(entries);
    if (slots > (SIZE_MAX - sizeof(struct token_cache)) / sizeof(struct slot))
        return NULL;
    struct token_cache *cache = calloc(1, sizeof(*cache) + slots * sizeof(struct slot));
    if (!cache)
        return NULL;
    cache->slots = slots;
    cache->sha256 = EVP_MD_fetch(NULL, "SHA256", NULL);
    cache->context = EVP_MD_CTX_new();
    if (cache->sha256 && cache->context && RAND_bytes(cache->secret, sizeof(cache->secret)) == 1)
        return cache;
    token_cache_free(cache);
    return NULL;
}

static void empty(struct slot *slot)
{
    free(slot->text);
    *slot = (struct slot){.text = NULL};
}

static void empty_all(struct token_cache *cache)
{
    for (size_t i = 0; i < cache->slots; i++)
        empty(&cache->slot[i]);
}

void token_cache_free(struct token_cache *cache)
{
    if (!cache)
        return;
    empty_all(cache);
    EVP_MD_CTX_free(cache->context);
    EVP_MD_free(cache->sha256);
    OPENSSL_cleanse(cache->secret, sizeof(cache->secret));
    free(cache);
}

static bool digest_of(struct token_cache *cache, struct slice token, uint8_t digest[DIGEST])
{
    return EVP_DigestInit_ex2(cache->context, cache->sha256, NULL) &&
           EVP_DigestUpdate(cache->context, cache->secret, sizeof(cache->secret)) &&
           EVP_DigestUpdate(cache->context, token.at, token.len) &&
           EVP_DigestFinal_ex(cache->context, digest, NULL);
}

/* The WAYS slots that the token asked for may be in. */
static struct slot *ways(struct token_cache *cache)
{
    size_t at;
    memcpy(&at, cache->asked, sizeof(at));
    return &cache->slot[at & (cache->slots - 1) & ~(size_t)(WAYS - 1)];
}

static bool expired(const struct slot *slot, int64_t now)
{
    return now >= slot->grant.exp + slot->grant.leeway;
}

bool token_cache_find(struct token_cache *cache, uint64_t generation, struct slice token, int64_t now,
                      struct grant *grant)
{
    if (cache->generation != generation)
        empty_all(cache);
    cache->generation = generation;
    cache->asked_valid = digest_of(cache, token, cache->asked);
    for (size_t i = 0; cache->asked_valid && i < WAYS; i++) {
        struct slot *slot = &ways(cache)[i];
        if (!slot->text || CRYPTO_memcmp(slot->digest, cache->asked, DIGEST) != 0)
            continue;
        if (expired(slot, now)) {
            empty(slot);
            break;
        }
        slot->used = ++cache->uses;
        cache->counts.hits++;
        *grant = slot->grant;
        return true;
    }
    cache->counts.misses++;
    return false;
}

/* Moves a grant's strings to memory of their own. */
static uint8_t *own_text(struct grant *grant)
{
    struct slice *const all[] = {&grant->sub, &grant->org, &grant->sandbox, &grant->jti,
                                 &grant->kid, &grant->key, &grant->ports};
    size_t count = sizeof(all) / sizeof(*all), total = 0;
    for (size_t i = 0; i < count; i++)
        total += all[i]->len;
    uint8_t *text = total <= TEXT_MOST ? malloc(total + 1) : NULL;
    if (!text)
        return NULL;
    struct writer w = writer_of(text, total);
    for (size_t i = 0; i < count; i++) {
        if (!slice_present(*all[i]))
            continue;
        const uint8_t *at = text + w.len;
        writer_put(&w, *all[i]);
        all[i]->at = at;
    }
    return text;
}

void token_cache_put(struct token_cache *cache, const struct grant *grant)
{
    if (!cache->asked_valid)
        return;
    struct grant own = *grant;
    uint8_t *text = own_text(&own);
    if (!text)
        return;
    struct slot *set = ways(cache), *oldest = set;
    for (size_t i = 1; i < WAYS; i++)
        if (set[i].used < oldest->used)
            oldest = &set[i];
    empty(oldest);
    *oldest = (struct slot){.grant = own, .used = ++cache->uses, .text = text};
    memcpy(oldest->digest, cache->asked, DIGEST);
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
