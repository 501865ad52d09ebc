/* SPDX-License-Identifier: MIT */
/*
 * token_check: checks a credential and returns its grant. It loads no entries (tokens.h), finds no credential in a request
 * (credential_source.h) and knows no format: the first kind that recognises a credential decides alone.
 *
 * A new kind is a file with a `const struct token_kind` and a row in TOKEN_KINDS (token/kind.h).
 *
 * If the secret of a kind is in the sandbox's record, token_check can only return what the record must hold (token_needs_secret). Such a
 * grant must not be used before token_admits_secret has checked the record.
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
 * Checks the credential. Returns REFUSAL_NONE and fills *grant, whose slices are valid until the next call of the cache. Otherwise
 * returns token_missing (no credential), token_invalid, token_expired, wrong_cell, or agent_unavailable if memory is short. With
 * token_expired and wrong_cell *grant is filled too, for messages. grant->kind is always set. *reason is always set to a static sentence
 * that has no part of the token.
 */
enum refusal token_check(const struct tokens *tokens, const struct credential *credential, int64_t now,
                         struct token_cache *cache, struct grant *grant, const char **reason);
/* Returns whether token_check gives the same answer for this valid credential until the grant expires. */
bool token_lasts(const struct credential *credential, const struct grant *grant);
/* Returns whether the Bearer of Authorization is a credential of cellgate in this place: an entry's key signed it, whatever it grants
 * and whether it is expired, or a kind that recognises its credentials by no form uses Authorization there. */
bool token_is_ours(const struct tokens *tokens, struct slice bearer, const struct credential_place *place,
                   int64_t now, struct token_cache *cache);
/* Returns whether requests without a credential are allowed in this place. */
bool token_is_public(const struct tokens *tokens, const struct credential_place *place);
/* Returns whether the grant's kind also accepts the token from a cookie in this place. */
bool token_may_be_cookie(const struct tokens *tokens, const struct grant *grant,
                         const struct credential_place *place);
/* Returns whether the caller must also call token_admits_secret. */
bool token_needs_secret(const struct grant *grant);
/* Compares the grant with the record's secret; `record` is NULL if there is none. Returns token_invalid, or token_missing if there was
 * no credential. The answer and its time are the same for a missing sandbox and a wrong secret, so that neither reveals which sandboxes
 * exist. */
enum refusal token_admits_secret(const struct grant *grant, const struct record *record, const char **reason);

/* Returns whether the worker must not get this header of the record with a request of the grant. The header is the secret that confirms
 * the grant, and a worker that receives it skips its own check of the signature. */
bool token_withholds(const struct grant *grant, struct slice header);

/* The target of the request. */
struct token_target {
    struct slice sandbox;
    unsigned need; /* mask of enum need, at least one bit */
    uint16_t port; /* 0 if the request names none */
};
/* Checks the grant before the sandbox is looked up. Returns REFUSAL_NONE, wrong_sandbox or not_granted. */
enum refusal token_admits(const struct grant *grant, const struct token_target *target, const char **reason);
/* Returns whether a token's organisation (absent if it names none) may use a sandbox of the record's organisation: if both are equal, or
 * if the token names the sandbox and no organisation. */
bool token_owns(struct slice of_token, bool named, struct slice of_record);
/* Checks the grant with the record. Returns sandbox_not_found if the sandbox belongs to another organisation, or token_revoked if the
 * token was issued before not_before (the later of the record's and the directory's; 0 if there is none). */
enum refusal token_admits_record(const struct grant *grant, struct slice org, int64_t not_before,
                                 const char **reason);
/* For an open tunnel: returns whether an entry still accepts the key of tunnel->key (or of tunnel->kid, if absent). For an access secret
 * or a public route, returns whether an entry still grants the same there. */
bool token_stands(const struct tokens *tokens, const struct token_tunnel *tunnel);
/* For an open tunnel: returns whether not_before revokes a token issued at iat (-1 if the token does not say). */
bool token_revoked(int64_t iat, int64_t not_before);

#endif
