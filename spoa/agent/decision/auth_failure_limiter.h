/* SPDX-License-Identifier: MIT */
/*
 * auth_failure_limiter: how many wrong credentials an address may try in a second. Only what turned out wrong counts: neither a
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
#ifndef CELLGATE_AGENT_DECISION_AUTH_FAILURE_LIMITER_H
#define CELLGATE_AGENT_DECISION_AUTH_FAILURE_LIMITER_H

#include <stdbool.h>

#include "spoa/base/bytes/slice.h"
#include "spoa/base/text/address.h"
#include "spoa/proto/refusal.h"

struct auth_failure_limiter;

struct auth_failure_limiter *auth_failure_limiter_new(
    void); /* NULL when out of memory or without randomness */
void auth_failure_limiter_free(struct auth_failure_limiter *limiter); /* NULL is fine */

enum auth_failure { AUTH_FAILURE_SECRET, AUTH_FAILURE_TOKEN };
enum { AUTH_FAILURE_LIMITER_PARTS = 8 };

/* now: Unix seconds; most: in one second, 0: any number. limiter may be NULL: it allows any number. */
bool auth_failure_limiter_allows(struct auth_failure_limiter *limiter, const struct address *from,
                                 enum auth_failure sort, int64_t now, int64_t most);
void auth_failure_limiter_count(struct auth_failure_limiter *limiter, const struct address *from,
                                enum auth_failure sort, int64_t now);

/* Returns too_many_requests and sets *why. What is not looked at must not be told from what is wrong by anything but the
 * address it comes from, so there is one text for both. */
enum refusal auth_failure_limiter_refuses(const char **why);
/* Returns what to answer to a credential whose check ended with `refusal`: the same, unless the credential is wrong and its
 * address had brought too many wrong ones. Counts a wrong one. A good credential is never refused for what others behind its
 * address did: whoever takes credentials (decide.c, egress.c) asks this after the check, never before. */
enum refusal auth_failure_limiter_judge(struct auth_failure_limiter *limiter, const struct address *from,
                                        enum auth_failure sort, int64_t now, int64_t most,
                                        enum refusal refusal, const char **why);

/* Of a credential and the sandbox that it was right for, in up to AUTH_FAILURE_LIMITER_PARTS parts. 4,096 are kept,
 * others are forgotten. */
bool auth_failure_limiter_knows(const struct auth_failure_limiter *limiter, const struct slice *parts,
                                size_t count);
void auth_failure_limiter_learn(struct auth_failure_limiter *limiter, const struct slice *parts,
                                size_t count);

#endif
