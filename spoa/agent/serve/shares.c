/* SPDX-License-Identifier: MIT */
#include "spoa/agent/serve/shares.h"

#include <assert.h>
#include <stdlib.h>

struct shares *shares_new(uint32_t most, uint32_t most_bytes)
{
    struct shares *s = calloc(1, sizeof *s);
    if (!s || !hash_secret_init(&s->secret)) {
        free(s);
        return NULL;
    }
    s->most = most;
    s->most_bytes = most_bytes;
    return s;
}

uint32_t shares_of(const struct shares *s, struct slice name)
{
    return (uint32_t)(hash_keyed(&s->secret, name) % SHARES);
}

bool shares_have_room(const struct shares *s, uint32_t share, size_t bytes)
{
    return s->at[share].count < s->most && bytes <= s->most_bytes - s->at[share].bytes;
}

void shares_take(struct shares *s, uint32_t share, size_t bytes)
{
    s->at[share].count++;
    s->at[share].bytes += (uint32_t)bytes;
}

void shares_give_back(struct shares *s, uint32_t share, size_t bytes)
{
    assert(s->at[share].count > 0 && s->at[share].bytes >= bytes);
    s->at[share].count--;
    s->at[share].bytes -= (uint32_t)bytes;
}
