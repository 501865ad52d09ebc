/* SPDX-License-Identifier: MIT */
/*
 * auth_failure_limiter: limits the number of wrong credentials that an address may try per second. A request without a credential or
 * with an expired one does not count. In IPv6 a /64 counts as one address, and a /48, which one customer may have, as at most sixteen
 * addresses. One limiter per thread; no locks.
 *
 * A credential that is too long to be guessed (the signature of a token) is checked even over the limit, so that clients with a common
 * address do not lock each other out; only the answer to wrong ones changes. A credential that can be guessed (an access secret, a
 * signature of 32 bits) is not checked over the limit, because otherwise trials would find it. Credentials that were right before are
 * remembered, so that current users can continue.
 *
 * There are 16,384 counters (256 KiB) in sets of eight, each with a tag, so that addresses do not share counters. If more wrong
 * credentials arrive in a second, the counters with the lowest counts are dropped: this allows a few trials more, and never refuses an
 * address for the trials of others.
 */
#ifndef CELLGATE_AGENT_DECISION_AUTH_FAILURE_LIMITER_H
#define CELLGATE_AGENT_DECISION_AUTH_FAILURE_LIMITER_H

#include <stdbool.h>

#include "spoa/base/bytes/slice.h"
#include "spoa/base/text/address.h"
#include "spoa/proto/refusal.h"

struct auth_failure_limiter;

struct auth_failure_limiter *auth_failure_limiter_new(
    void); /* returns NULL if memory is short or there is no randomness */
void auth_failure_limiter_free(struct auth_failure_limiter *limiter); /* limiter may be NULL */

enum auth_failure { AUTH_FAILURE_SECRET, AUTH_FAILURE_TOKEN };
enum { AUTH_FAILURE_LIMITER_PARTS = 8 };

/* `now` is in Unix seconds; `most` is the limit per second, 0 for none. limiter may be NULL; it then allows any number. */
bool auth_failure_limiter_allows(struct auth_failure_limiter *limiter, const struct address *from,
                                 enum auth_failure sort, int64_t now, int64_t most);
void auth_failure_limiter_count(struct auth_failure_limiter *limiter, const struct address *from,
                                enum auth_failure sort, int64_t now);

/* Returns too_many_requests and sets *why. A client must not be able to distinguish an unchecked credential from a wrong one except by
 * its address, so both get the same text. */
enum refusal auth_failure_limiter_refuses(const char **why);
/* Returns the answer to a credential whose check ended with `refusal`. It differs from `refusal` only if the credential is wrong and its
 * address had sent too many wrong ones. Counts a wrong credential. A valid credential must never be refused for the trials of others at
 * its address: callers (decide.c, egress.c) call this after the check, never before. */
enum refusal auth_failure_limiter_judge(struct auth_failure_limiter *limiter, const struct address *from,
                                        enum auth_failure sort, int64_t now, int64_t most,
                                        enum refusal refusal, const char **why);

/* Remember a credential and the sandbox that it was right for, in up to AUTH_FAILURE_LIMITER_PARTS parts. The limiter holds 4,096 of
 * them and evicts others. */
bool auth_failure_limiter_knows(const struct auth_failure_limiter *limiter, const struct slice *parts,
                                size_t count);
void auth_failure_limiter_learn(struct auth_failure_limiter *limiter, const struct slice *parts,
                                size_t count);

#endif
