/* SPDX-License-Identifier: MIT */
/*
 * token_check: whether a credential is good, and what it grants. It loads no entries (tokens.h), finds no credential
 * in a request (credential_source.h) and knows no format: a credential is given to the first kind that recognises it,
 * and that kind's word is final.
 *
 * A new kind is a file with a `const struct token_kind` and a row in TOKEN_KINDS (token/kind.h).
 *
 * A kind whose secret lies in the sandbox's record cannot say more than what the record has to hold:
 * token_needs_secret. Until token_admits_secret has seen the record such a grant is worth nothing.
 */
#ifndef CELLGATE_AGENT_TOKEN_CHECK_H
#define CELLGATE_AGENT_TOKEN_CHECK_H

#include "spoa/agent/model/grant.h"
#include "spoa/agent/model/record.h"
#include "spoa/agent/token/cache.h"
#include "spoa/agent/token/credential_source.h"

struct tokens;
struct token_tunnel; /* token/kind.h */

/*
 * Whether the credential is good, and for what. REFUSAL_NONE fills *grant, whose slices live until the cache
 * is asked again. Otherwise token_missing (credential absent), token_invalid, token_expired, wrong_cell, or
 * agent_unavailable when out of memory; with token_expired and wrong_cell *grant is what it would have been,
 * for people; grant->kind is always right. *reason is always set: a static sentence without anything of the
 * token's.
 */
enum refusal token_check(const struct tokens *tokens, const struct credential *credential, int64_t now,
                         struct token_cache *cache, struct grant *grant, const char **reason);
/* Whether all that token_check will say of a credential that it found good is this grant, until the grant expires. */
bool token_lasts(const struct credential *credential, const struct grant *grant);
/* Whether what stands in Authorization there is one of ours: it has the key of an entry, whatever it grants and until
 * when, or a kind listens to Authorization there that knows its credentials by no form. */
bool token_is_ours(const struct tokens *tokens, struct slice bearer, const struct credential_place *place,
                   int64_t now, struct token_cache *cache);
/* Whether requests without a credential may be let in there. */
bool token_is_public(const struct tokens *tokens, const struct credential_place *place);
/* Whether its kind would take it from a cookie there, too. */
bool token_may_be_cookie(const struct tokens *tokens, const struct grant *grant,
                         const struct credential_place *place);
/* Whether token_admits_secret has to be asked, too. */
bool token_needs_secret(const struct grant *grant);
/* record: NULL where there is none. token_invalid, or token_missing where there was no credential: the same,
 * and in the same time, for a sandbox that is not there and a secret that is not its. */
enum refusal token_admits_secret(const struct grant *grant, const struct record *record, const char **reason);

/* Returns whether the worker must not get this header of the record with a request of the grant: the header is the secret that
 * confirms the grant, and a worker that has it judges the signature no more. */
bool token_withholds(const struct grant *grant, struct slice header);

/* What the request wants to reach. */
struct token_target {
    struct slice sandbox;
    unsigned need; /* of enum need, one or more bits */
    uint16_t port; /* 0: none is named */
};
/* Before the sandbox is looked up: wrong_sandbox or not_granted. */
enum refusal token_admits(const struct grant *grant, const struct token_target *target, const char **reason);
/* Returns whether a token's organisation (absent: it names none) may use a sandbox of the record's: the same one, or any if the
 * token names the sandbox and no organisation. */
bool token_owns(struct slice of_token, bool named, struct slice of_record);
/* With the record: sandbox_not_found where it is not the token's organisation's, token_revoked where the
 * token was issued before not_before (the later of the record's and the directory's; 0: none). */
enum refusal token_admits_record(const struct grant *grant, struct slice org, int64_t not_before,
                                 const char **reason);
/* For tunnels that are open: whether the key of tunnel->key (absent: of tunnel->kid) is still one; of a secret, or of none,
 * whether an entry still grants there what it granted. */
bool token_stands(const struct tokens *tokens, const struct token_tunnel *tunnel);
/* The same: whether a token issued at iat (-1: it did not say) is refused by not_before. */
bool token_revoked(int64_t iat, int64_t not_before);

#endif
