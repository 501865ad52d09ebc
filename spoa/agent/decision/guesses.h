/* SPDX-License-Identifier: MIT */
/*
 * guesses: how many wrong credentials an address may try in a second. Only what turned out wrong counts: neither a
 * request without a credential nor an expired one. Of IPv6 a /64 counts as one address, and a /48, which one
 * customer may have, for sixteen addresses at most. One per thread, no locks.
 *
 * What is too long to be guessed (the signature of a token) is checked whoever sends it, so that clients behind one
 * address do not lock each other out; once there are too many wrong ones these are answered otherwise. What could be
 * guessed (an access secret, a signature of 32 bits) is not looked at any more then, or trying on would find it; but
 * what was right before is remembered, so that whoever is at work goes on.
 *
 * There are 16,384 counters (256 KiB) in sets of eight, each with a tag, so that addresses do not share any.
 * Where more wrong ones come in a second, those with the fewest are forgotten: that gives some away, and
 * refuses nobody for what others did.
 */
#ifndef CELLGATE_AGENT_DECISION_GUESSES_H
#define CELLGATE_AGENT_DECISION_GUESSES_H

#include <stdbool.h>

#include "spoa/base/address.h"
#include "spoa/base/slice.h"

struct guesses;

struct guesses *guesses_new(void);          /* NULL when out of memory or without randomness */
void guesses_free(struct guesses *guesses); /* NULL is fine */

enum guess { GUESS_SECRET, GUESS_TOKEN };
enum { GUESSES_PARTS = 8 };

/* now: Unix seconds; most: in one second, 0: any number. guesses may be NULL: there is always one left. */
bool guesses_left(struct guesses *guesses, const struct address *from, enum guess sort, int64_t now, int64_t most);
void guesses_count(struct guesses *guesses, const struct address *from, enum guess sort, int64_t now);

/* Of a credential and the sandbox that it was right for, in up to GUESSES_PARTS parts. Some are forgotten: 4,096 are kept. */
bool guesses_known(const struct guesses *guesses, const struct slice *parts, size_t count);
void guesses_learn(struct guesses *guesses, const struct slice *parts, size_t count);

#endif
