/* SPDX-License-Identifier: MIT */
#include "spoa/agent/guesses.h"

#include <stdlib.h>

#include "spoa/lib/cidr.h"
#include "spoa/lib/hash.h"

enum { COUNTERS = 256 };

struct counter {
    int64_t second;
    int64_t wrong;
};

struct guesses {
    struct hash_secret secret;
    struct counter counter[COUNTERS];
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

static struct counter *counter_of(struct guesses *guesses, const struct address *from, int64_t now)
{
    struct address own = cidr_unmapped(from); /* else all of IPv4 on an IPv6 socket would be one /64 */
    uint64_t hash = hash_keyed(&guesses->secret, slice_of(own.bytes, own.family == 6 ? 8 : 4));
    struct counter *counter = &guesses->counter[hash % COUNTERS];
    if (counter->second != now)
        *counter = (struct counter){.second = now};
    return counter;
}

bool guesses_left(struct guesses *guesses, const struct address *from, int64_t now, int64_t most)
{
    return !guesses || most == 0 || counter_of(guesses, from, now)->wrong < most;
}

void guesses_count(struct guesses *guesses, const struct address *from, int64_t now)
{
    if (guesses)
        counter_of(guesses, from, now)->wrong++;
}
