/* SPDX-License-Identifier: MIT */
#include "spoa/agent/decision/guesses.h"

#include <stdlib.h>

#include "spoa/base/cidr.h"
#include "spoa/base/hash.h"
#include "spoa/base/writer.h"

enum { WAYS = 8, SETS = 2048, KNOWN_WAYS = 4, KNOWN_SETS = 1024, HOST_V4 = 4, HOST_V6 = 8, SITE_V6 = 6 /* bytes */, SITE_TIMES = 16 };

struct counter {
    uint64_t tag;           /* of the network and the second: who shares a set now does not in the next */
    uint32_t second, wrong; /* `wrong` of that second, of which these are the lower bits */
};

struct guesses {
    struct hash_secret secret;
    struct counter counter[SETS][WAYS];
    uint64_t known[KNOWN_SETS][KNOWN_WAYS]; /* hashes of what was right, the last one first; 0: none */
};

struct guesses *guesses_new(void)
{
    struct guesses *guesses = calloc(1, sizeof(*guesses));
    if (guesses && hash_secret_init(&guesses->secret))
        return guesses;
    free(guesses);
    return NULL;
}

void guesses_free(struct guesses *guesses)
{
    free(guesses);
}

/* Of the network of so many bytes: each length, and each sort of credential, has tags of its own. */
static uint64_t tag_of(const struct guesses *guesses, const struct address *own, size_t bytes, enum guess sort,
                       int64_t now)
{
    uint8_t key[8 + 1 + 1 + HOST_V6];
    struct writer w = writer_of(key, sizeof key);
    writer_be(&w, (uint64_t)now, 8);
    writer_u8(&w, (uint8_t)sort);
    writer_u8(&w, (uint8_t)bytes);
    writer_put(&w, slice_of(own->bytes, bytes));
    return hash_keyed(&guesses->secret, writer_slice(&w));
}

static bool is_of(const struct counter *counter, uint64_t tag)
{
    return counter->wrong > 0 && counter->tag == tag;
}

static int64_t wrong_of(const struct guesses *guesses, uint64_t tag)
{
    const struct counter *set = guesses->counter[tag % SETS];
    for (size_t i = 0; i < WAYS; i++)
        if (is_of(&set[i], tag))
            return set[i].wrong;
    return 0;
}

/* Where none is free, or of another second, the least takes this one in: nobody inherits a count. */
static void count(struct guesses *guesses, uint64_t tag, int64_t now)
{
    struct counter *set = guesses->counter[tag % SETS], *least = set;
    uint32_t fewest = UINT32_MAX;
    for (size_t i = 0; i < WAYS; i++) {
        if (is_of(&set[i], tag)) {
            set[i].wrong++;
            return;
        }
        uint32_t wrong = set[i].second == (uint32_t)now ? set[i].wrong : 0;
        if (wrong < fewest) {
            fewest = wrong;
            least = &set[i];
        }
    }
    *least = (struct counter){tag, (uint32_t)now, 1};
}

bool guesses_left(struct guesses *guesses, const struct address *from, enum guess sort, int64_t now, int64_t most)
{
    if (!guesses || most == 0)
        return true;
    struct address own = cidr_unmapped(from); /* else all of IPv4 on an IPv6 socket would be one /64 */
    if (own.family != 6)
        return wrong_of(guesses, tag_of(guesses, &own, HOST_V4, sort, now)) < most;
    return wrong_of(guesses, tag_of(guesses, &own, HOST_V6, sort, now)) < most &&
           wrong_of(guesses, tag_of(guesses, &own, SITE_V6, sort, now)) < SITE_TIMES * most;
}

void guesses_count(struct guesses *guesses, const struct address *from, enum guess sort, int64_t now)
{
    if (!guesses)
        return;
    struct address own = cidr_unmapped(from);
    count(guesses, tag_of(guesses, &own, own.family == 6 ? HOST_V6 : HOST_V4, sort, now), now);
    if (own.family == 6)
        count(guesses, tag_of(guesses, &own, SITE_V6, sort, now), now);
}

/* One number for all parts, never 0. */
static uint64_t hash_of(const struct guesses *guesses, const struct slice *parts, size_t count)
{
    uint8_t hashes[GUESSES_PARTS * 8];
    struct writer w = writer_of(hashes, sizeof hashes);
    for (size_t i = 0; i < count; i++)
        writer_be(&w, hash_keyed(&guesses->secret, parts[i]), 8);
    return hash_keyed(&guesses->secret, writer_slice(&w)) | 1;
}

bool guesses_known(const struct guesses *guesses, const struct slice *parts, size_t count)
{
    if (!guesses)
        return false;
    uint64_t hash = hash_of(guesses, parts, count);
    const uint64_t *set = guesses->known[(hash >> 1) % KNOWN_SETS];
    for (size_t i = 0; i < KNOWN_WAYS; i++)
        if (set[i] == hash)
            return true;
    return false;
}

void guesses_learn(struct guesses *guesses, const struct slice *parts, size_t count)
{
    if (!guesses)
        return;
    uint64_t hash = hash_of(guesses, parts, count);
    uint64_t *set = guesses->known[(hash >> 1) % KNOWN_SETS];
    size_t at = 0;
    while (at < KNOWN_WAYS - 1 && set[at] != hash)
        at++;
    for (; at > 0; at--)
        set[at] = set[at - 1];
    set[0] = hash;
}
