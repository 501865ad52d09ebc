/* SPDX-License-Identifier: MIT */
/*
 * guesses: how many wrong secrets an address may try in a second: access secrets, which can only be held
 * against the sandbox's record, so that each costs a look-up by somebody of whom nothing is known, and
 * signatures that are short enough to be tried out. Only what turned out wrong counts. Of IPv6 a /64 counts
 * as one address, and a /48, which one customer may have, for sixteen addresses at most. One per thread, no
 * locks.
 *
 * There are 16,384 counters (256 KiB) in sets of eight, each with a tag, so that addresses do not share any.
 * Where more wrong ones come in a second, those with the fewest are forgotten: that gives some away, and
 * refuses nobody for what others did.
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
