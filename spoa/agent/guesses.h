/* SPDX-License-Identifier: MIT */
/*
 * guesses: how many wrong secrets an address may try in a second: access secrets, which can only be held
 * against the sandbox's record, so that each costs a look-up by somebody of whom nothing is known, and
 * signatures that are short enough to be tried out. Only what turned out wrong counts. Addresses (of IPv6:
 * their /64) share a fixed number of counters by a keyed hash. One per thread, no locks.
 */
#ifndef CELLGATE_AGENT_GUESSES_H
#define CELLGATE_AGENT_GUESSES_H

#include <stdbool.h>

#include "spoa/lib/address.h"

struct guesses;

struct guesses *guesses_new(void);          /* NULL when out of memory or without randomness */
void guesses_free(struct guesses *guesses); /* NULL is fine */

/* now: Unix seconds; most: in one second, 0: any number. guesses may be NULL: there is always one left. */
bool guesses_left(struct guesses *guesses, const struct address *from, int64_t now, int64_t most);
void guesses_count(struct guesses *guesses, const struct address *from, int64_t now);

#endif
