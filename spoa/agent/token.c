/* SPDX-License-Identifier: MIT */
#include "spoa/agent/token.h"

#include "spoa/agent/token_kind.h"
#include "spoa/agent/tokens.h"

/* The first that recognises a credential has it, so a kind with a narrower form stands before one with a
 * wider. */
static const struct token_kind *const kinds[] = {&token_kind_jwt};

#define KIND_COUNT (sizeof(kinds) / sizeof(*kinds))

const struct token_kind *token_kind_at(size_t i)
{
    return i < KIND_COUNT ? kinds[i] : NULL;
}

static bool configured(const struct token_check *check, const struct token_kind *kind)
{
    for (size_t i = 0; i < check->count; i++)
        if (check->entries[i].kind == kind)
            return true;
    return false;
}

static const struct token_kind *kind_of(const struct token_check *check)
{
    for (size_t i = 0; i < KIND_COUNT; i++)
        if (configured(check, kinds[i]) && kinds[i]->recognises(check->credential))
            return kinds[i];
    return NULL;
}

static enum refusal refuse(enum refusal refusal, const char **reason, const char *text)
{
    *reason = text;
    return refusal;
}

enum refusal token_check(const struct tokens *tokens, struct slice credential, int64_t now,
                         struct token_cache *cache, struct grant *grant, const char **reason)
{
    *reason = "good";
    *grant = (struct grant){.kind = NULL};
    if (!slice_present(credential))
        return refuse(REFUSAL_token_missing, reason, "there is none");
    if (credential.len > TOKEN_LIMIT)
        return refuse(REFUSAL_token_invalid, reason, "longer than 8 KiB");
    if (token_cache_find(cache, tokens_generation(tokens), credential, now, grant))
        return REFUSAL_NONE;
    struct token_check check = {.credential = credential, .now = now, .text = token_cache_scratch(cache)};
    check.entries = tokens_entries(tokens, &check.count);
    const struct token_kind *kind = kind_of(&check);
    if (!kind)
        return refuse(REFUSAL_token_invalid, reason, "it has the form of no kind that is configured");
    enum refusal refusal = kind->check(&check, grant, reason);
    grant->kind = kind->name;
    if (refusal == REFUSAL_NONE)
        token_cache_put(cache, grant);
    return refusal;
}

static bool any_sandbox(const struct grant *grant)
{
    return !slice_present(grant->sandbox) || slice_is(grant->sandbox, "*");
}

enum refusal token_admits(const struct grant *grant, const struct token_target *target, const char **reason)
{
    *reason = "good";
    if (!any_sandbox(grant) && !slice_equal(grant->sandbox, target->sandbox))
        return refuse(REFUSAL_wrong_sandbox, reason, "it is for another sandbox");
    if ((grant->needs & target->need) != target->need)
        return refuse(REFUSAL_not_granted, reason, "it does not grant what the route needs");
    if (!grant_allows_port(grant, target->port))
        return refuse(REFUSAL_not_granted, reason, "it does not grant this port");
    return REFUSAL_NONE;
}

enum refusal token_admits_record(const struct grant *grant, struct slice org, int64_t not_before,
                                 const char **reason)
{
    bool owned = slice_present(org) && slice_present(grant->org) && slice_equal(org, grant->org);
    *reason = "good";
    if ((slice_present(grant->org) || any_sandbox(grant)) && !owned)
        return refuse(REFUSAL_sandbox_not_found, reason, "the sandbox is not of the token's organisation");
    if (token_revoked(grant->iat, not_before))
        return refuse(REFUSAL_token_revoked, reason, "it was issued before not_before, or does not say when");
    return REFUSAL_NONE;
}

bool token_revoked(int64_t iat, int64_t not_before)
{
    return not_before > 0 && iat < not_before;
}
