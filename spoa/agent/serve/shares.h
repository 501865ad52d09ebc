/* SPDX-License-Identifier: MIT */
/*
 * shares: what each sandbox may take of a list that all of them wait in. Names that share a keyed hash share their part, so
 * that it costs the same memory however many there are. For one thread.
 */
#ifndef CELLGATE_AGENT_SERVE_SHARES_H
#define CELLGATE_AGENT_SERVE_SHARES_H

#include <stdbool.h>
#include <stdint.h>

#include "spoa/base/hash.h"
#include "spoa/base/slice.h"

enum { SHARES = 4096 }; /* that are told apart */

struct shares {
    struct hash_secret secret;
    uint32_t most, most_bytes; /* of one */
    struct {
        uint32_t count, bytes;
    } at[SHARES];
};

/* NULL when out of memory or of randomness; free() it. */
struct shares *shares_new(uint32_t most, uint32_t most_bytes);
/* The part of a name, for what follows. */
uint32_t shares_of(const struct shares *shares, struct slice name);
/* Whether one more of so many bytes is within it. */
bool shares_have_room(const struct shares *shares, uint32_t share, size_t bytes);
void shares_take(struct shares *shares, uint32_t share, size_t bytes);
/* As it was taken. */
void shares_give_back(struct shares *shares, uint32_t share, size_t bytes);

#endif
