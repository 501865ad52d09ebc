/* SPDX-License-Identifier: MIT */
#include "spoa/agent/decision/auth_failure_limiter.h"

#include <stdlib.h>

#include "spoa/base/bytes/writer.h"
#include "spoa/base/table/hash.h"
#include "spoa/base/text/cidr.h"

enum {
    WAYS = 8,
    SETS = 2048,
    KNOWN_WAYS = 4,
    KNOWN_SETS = 1024,
    HOST_V4 = 4,
    HOST_V6 = 8,
    SITE_V6 = 6 /* bytes */,
    SITE_TIMES = 16
};

struct counter {
    uint64_t tag; /* hash of the network and the second: networks share a set for one second at most */
    uint32_t second, wrong; /* `wrong` counts this second; `second` has its lower bits */
};

struct auth_failure_limiter {
    struct hash_secret secret;
    struct counter counter[SETS][WAYS];
    uint64_t known[KNOWN_SETS][KNOWN_WAYS]; /* hashes of right credentials, the last one first; 0 if empty */
};

struct auth_failure_limiter *auth_failure_limiter_new(void)
{
    struct auth_failure_limiter *limiter = calloc(1, sizeof(*limiter));
    if (limiter && hash_secret_init(&limiter->secret))
        return limiter;
    free(limiter);
    return NULL;
}

void auth_failure_limiter_free(struct auth_failure_limiter *limiter)
{
    free(limiter);
}

/* Returns the tag of the network in the first `bytes` bytes. Each length and each sort of credential has tags of its own. */
static uint64_t tag_of(const struct auth_failure_limiter *limiter, const struct address *own, size_t bytes,
                       enum auth_failure sort, int64_t now)
{
    uint8_t key[8 + 1 + 1 + HOST_V6];
    struct writer w = writer_of(key, sizeof key);
    writer_be(&w, (uint64_t)now, 8);
    writer_u8(&w, (uint8_t)sort);
    writer_u8(&w, (uint8_t)bytes);
    writer_put(&w, slice_of(own->bytes, bytes));
    return hash_keyed(&limiter->secret, writer_slice(&w));
}

static bool is_of(const struct counter *counter, uint64_t tag)
{
    return counter->wrong > 0 && counter->tag == tag;
}

static int64_t wrong_of(const struct auth_failure_limiter *limiter, uint64_t tag)
{
    const struct counter *set = limiter->counter[tag % SETS];
    for (size_t i = 0; i < WAYS; i++)
        if (is_of(&set[i], tag))
            return set[i].wrong;
    return 0;
}

/* Counts in the tag's counter, in a free or outdated one, or in the one with the lowest count, which starts anew: no network inherits a
 * count. */
static void count_tag(struct auth_failure_limiter *limiter, uint64_t tag, int64_t now)
{
    struct counter *set = limiter->counter[tag % SETS], *least = set;
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

bool auth_failure_limiter_allows(struct auth_failure_limiter *limiter, const struct address *from,
                                 enum auth_failure sort, int64_t now, int64_t most)
{
    if (!limiter || most == 0)
        return true;
    struct address own = cidr_unmapped(from); /* otherwise all of IPv4 on an IPv6 socket would be one /64 */
    if (own.family != 6)
        return wrong_of(limiter, tag_of(limiter, &own, HOST_V4, sort, now)) < most;
    return wrong_of(limiter, tag_of(limiter, &own, HOST_V6, sort, now)) < most &&
           wrong_of(limiter, tag_of(limiter, &own, SITE_V6, sort, now)) < SITE_TIMES * most;
}

void auth_failure_limiter_count(struct auth_failure_limiter *limiter, const struct address *from,
                                enum auth_failure sort, int64_t now)
{
    if (!limiter)
        return;
    struct address own = cidr_unmapped(from);
    count_tag(limiter, tag_of(limiter, &own, own.family == 6 ? HOST_V6 : HOST_V4, sort, now), now);
    if (own.family == 6)
        count_tag(limiter, tag_of(limiter, &own, SITE_V6, sort, now), now);
}

enum refusal auth_failure_limiter_refuses(const char **why)
{
    *why = "too many wrong credentials came from this address within a second";
    return REFUSAL_too_many_requests;
}

enum refusal auth_failure_limiter_judge(struct auth_failure_limiter *limiter, const struct address *from,
                                        enum auth_failure sort, int64_t now, int64_t most,
                                        enum refusal refusal, const char **why)
{
    if (refusal != REFUSAL_token_invalid)
        return refusal;
    if (!auth_failure_limiter_allows(limiter, from, sort, now, most))
        return auth_failure_limiter_refuses(why);
    auth_failure_limiter_count(limiter, from, sort, now);
    return refusal;
}

/* Returns one hash of all parts, never 0. */
static uint64_t hash_of(const struct auth_failure_limiter *limiter, const struct slice *parts, size_t count)
{
    uint8_t hashes[AUTH_FAILURE_LIMITER_PARTS * 8];
    struct writer w = writer_of(hashes, sizeof hashes);
    for (size_t i = 0; i < count; i++)
        writer_be(&w, hash_keyed(&limiter->secret, parts[i]), 8);
    return hash_keyed(&limiter->secret, writer_slice(&w)) | 1;
}

bool auth_failure_limiter_knows(const struct auth_failure_limiter *limiter, const struct slice *parts,
                                size_t count)
{
    if (!limiter)
        return false;
    uint64_t hash = hash_of(limiter, parts, count);
    const uint64_t *set = limiter->known[(hash >> 1) % KNOWN_SETS];
    for (size_t i = 0; i < KNOWN_WAYS; i++)
        if (set[i] == hash)
            return true;
    return false;
}

void auth_failure_limiter_learn(struct auth_failure_limiter *limiter, const struct slice *parts, size_t count)
{
    if (!limiter)
        return;
    uint64_t hash = hash_of(limiter, parts, count);
    uint64_t *set = limiter->known[(hash >> 1) % KNOWN_SETS];
    size_t at = 0;
    while (at < KNOWN_WAYS - 1 && set[at] != hash)
        at++;
    for (; at > 0; at--)
        set[at] = set[at - 1];
    set[0] = hash;
}
