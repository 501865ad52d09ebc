/* SPDX-License-Identifier: MIT */
#include "spoa/agent/token/check.h"

#include "spoa/agent/token/kind.h"
#include "spoa/agent/token/static.h"
#include "spoa/agent/token/tokens.h"
#include "spoa/proto/http.h"

static const struct token_kind *const kinds[] = {
#define X(variable, name) &token_kind_##variable,
    TOKEN_KINDS(X)
#undef X
};

#define KIND_COUNT (sizeof(kinds) / sizeof(*kinds))

const struct token_kind *token_kind_at(size_t i)
{
    return i < KIND_COUNT ? kinds[i] : NULL;
}

/* Returns whether an entry of this kind uses the source in this place. */
static bool configured(const struct token_entry *entries, size_t count, const char *kind,
                       enum credential_source source, const struct credential_place *place)
{
    for (size_t i = 0; i < count; i++)
        if (entries[i].kind->name == kind && token_entry_sources(&entries[i], place) & 1u << source)
            return true;
    return false;
}

static const struct token_kind *kind_of(const struct token_check *check)
{
    for (size_t i = 0; i < KIND_COUNT; i++)
        if (configured(check->entries, check->count, kinds[i]->name, check->credential->source,
                       &check->credential->place) &&
            kinds[i]->recognises(check->credential->token))
            return kinds[i];
    return NULL;
}

static enum refusal refuse_credential(enum refusal refusal, const char **reason, const char *text)
{
    *reason = text;
    return refusal;
}

/* Only tokens from these sources are cached: they have a signature, and nothing outside the token is signed. */
static bool remembered(const struct credential *credential)
{
    return (SOURCES_GENERAL | SOURCES_OWN) & 1u << credential->source;
}

bool token_lasts(const struct credential *credential, const struct grant *grant)
{
    return remembered(credential) && !token_needs_secret(grant) && !slice_present(grant->method);
}

/* A cached token was valid in some place. Returns whether its key is also valid here, for this source. */
static bool may_come_here(const struct token_check *check, const struct grant *grant)
{
    for (size_t i = 0; i < check->count; i++)
        if (token_entry_listens(&check->entries[i], check->credential) &&
            slice_equal(grant->key, slice_of(check->entries[i].fingerprint, KEY_FINGERPRINT)))
            return true;
    return false;
}

static enum refusal check_token(const struct token_check *check, struct token_cache *cache,
                                struct grant *grant, const char **reason)
{
    const struct token_kind *kind = kind_of(check);
    if (!kind)
        return refuse_credential(REFUSAL_token_invalid, reason,
                                 "it has the form of no kind that is configured for it");
    enum refusal refusal = kind->check(check, grant, reason);
    grant->kind = kind->name;
    if (refusal == REFUSAL_NONE)
        *reason = "good";
    if (refusal == REFUSAL_NONE && token_lasts(check->credential, grant))
        token_cache_put(cache, grant);
    return refusal;
}

static bool recall(const struct token_check *check, const struct tokens *tokens, struct token_cache *cache,
                   struct grant *grant)
{
    return remembered(check->credential) &&
           token_cache_find(cache, tokens_generation(tokens), check->credential->token, check->now, grant) &&
           may_come_here(check, grant);
}

enum refusal token_check(const struct tokens *tokens, const struct credential *credential, int64_t now,
                         struct token_cache *cache, struct grant *grant, const char **reason)
{
    *reason = "good";
    *grant = (struct grant){.kind = NULL};
    if (credential->source != SOURCE_NONE && credential->token.len > TOKEN_LIMIT)
        return refuse_credential(REFUSAL_token_invalid, reason, "longer than 8 KiB");
    struct token_check check = {.credential = credential, .now = now, .text = token_cache_scratch(cache)};
    check.entries = tokens_entries(tokens, &check.count);
    if (recall(&check, tokens, cache, grant))
        return REFUSAL_NONE;
    *grant = (struct grant){.kind = NULL};
    if (credential->source == SOURCE_NONE && !token_static_public(&check, grant))
        return refuse_credential(REFUSAL_token_missing, reason, "there is none");
    return credential->source == SOURCE_NONE ? REFUSAL_NONE : check_token(&check, cache, grant, reason);
}

bool token_is_ours(const struct tokens *tokens, struct slice bearer, const struct credential_place *place,
                   int64_t now, struct token_cache *cache)
{
    struct credential credential = credential_bearer(bearer);
    struct token_check check = {.credential = &credential};
    struct grant grant;
    const char *reason;
    if (credential.source == SOURCE_NONE)
        return false;
    credential.place = *place;
    check.entries = tokens_entries(tokens, &check.count);
    const struct token_kind *kind = kind_of(&check);
    if (kind == &token_kind_static)
        return true;
    if (kind && (token_check(tokens, &credential, now, cache, &grant, &reason) != REFUSAL_token_invalid ||
                 grant.ours))
        return true;
    return jwt_is_ours(&check); /* also true if an entry that is not valid here signed it */
}

bool token_is_public(const struct tokens *tokens, const struct credential_place *place)
{
    const struct credential none = {.source = SOURCE_NONE, .place = *place};
    struct token_check check = {.credential = &none};
    struct grant grant = {.kind = NULL};
    check.entries = tokens_entries(tokens, &check.count);
    return token_static_public(&check, &grant);
}

bool token_may_be_cookie(const struct tokens *tokens, const struct grant *grant,
                         const struct credential_place *place)
{
    size_t count;
    const struct token_entry *entries = tokens_entries(tokens, &count);
    return configured(entries, count, grant->kind, SOURCE_COOKIE, place);
}

bool token_needs_secret(const struct grant *grant)
{
    return grant->without_secret || slice_present(grant->secret_sha256) || slice_present(grant->signature);
}

/* Returns the kind that checked the grant, if a secret of the record must confirm the grant, or NULL. */
static const struct token_kind *confirming(const struct grant *grant)
{
    for (size_t i = 0; grant->kind && i < KIND_COUNT; i++)
        if (kinds[i]->name == grant->kind)
            return kinds[i]->confirms ? kinds[i] : NULL;
    return NULL;
}

/* Returns the record's secret for the signatures of this kind; absent if the record has none. */
static struct slice secret_of(const struct record *record, const char *header)
{
    struct slice name, value;
    size_t cursor = 0;
    if (!header)
        return record ? record->signing_key : (struct slice){NULL, 0};
    while (record && record_header(record->headers, &cursor, &name, &value))
        if (slice_equal_nocase(name, slice_text(header)) && value.len)
            return value;
    return (struct slice){NULL, 0};
}

static enum refusal admit_signed(const struct grant *grant, const struct record *record, const char **reason)
{
    const struct token_kind *kind = confirming(grant);
    if (!kind)
        return refuse_credential(REFUSAL_token_invalid, reason, "its kind confirms nothing");
    struct slice secret = secret_of(record, kind->secret_header);
    bool held = slice_present(secret);
    /* without a secret, verify nevertheless, so that the time is the same */
    bool same = kind->confirms(grant, held ? secret : SLICE_LITERAL("00000000000000000000000000000000"));
    *reason = "good";
    return held && same
               ? REFUSAL_NONE
               : refuse_credential(REFUSAL_token_invalid, reason,
                                   "no sandbox of this name has signed it, or it is for something else");
}

bool token_withholds(const struct grant *grant, struct slice header)
{
    const struct token_kind *kind = slice_present(grant->signature) ? confirming(grant) : NULL;
    return kind && kind->secret_header && http_same_name(header, slice_text(kind->secret_header));
}

enum refusal token_admits_secret(const struct grant *grant, const struct record *record, const char **reason)
{
    /* digest of no known text, for sandboxes that do not exist or have no secret */
    static const char none[] = "0000000000000000000000000000000000000000000000000000000000000000";
    bool held = record && slice_present(record->access_sha256);
    *reason = "good";
    if (slice_present(grant->signature))
        return admit_signed(grant, record, reason);
    if (grant->without_secret)
        return record && !held ? REFUSAL_NONE
                               : refuse_credential(REFUSAL_token_missing, reason, "there is none");
    struct slice wanted = held ? record->access_sha256 : slice_text(none);
    if (slice_equal_constant_time(wanted, grant->secret_sha256))
        return REFUSAL_NONE;
    return refuse_credential(REFUSAL_token_invalid, reason,
                             "it is not the access secret of a sandbox of this name");
}

static bool any_sandbox(const struct grant *grant)
{
    return !slice_present(grant->sandbox) || slice_is(grant->sandbox, "*");
}

enum refusal token_admits(const struct grant *grant, const struct token_target *target, const char **reason)
{
    *reason = "good";
    if (!any_sandbox(grant) && !slice_equal(grant->sandbox, target->sandbox))
        return refuse_credential(REFUSAL_wrong_sandbox, reason, "it is for another sandbox");
    if ((grant->needs & target->need) != target->need)
        return refuse_credential(REFUSAL_not_granted, reason, "it does not grant what the route needs");
    if (!grant_allows_port(grant, target->port))
        return refuse_credential(REFUSAL_not_granted, reason, "it does not grant this port");
    return REFUSAL_NONE;
}

bool token_owns(struct slice of_token, bool named, struct slice of_record)
{
    if (!slice_present(of_token))
        return named;
    return slice_present(of_record) && slice_equal(of_token, of_record);
}

enum refusal token_admits_record(const struct grant *grant, struct slice org, int64_t not_before,
                                 const char **reason)
{
    *reason = "good";
    if (!token_owns(grant->org, !any_sandbox(grant), org))
        return refuse_credential(REFUSAL_sandbox_not_found, reason,
                                 "the sandbox is not of the token's organisation");
    if (token_revoked(grant->iat, not_before))
        return refuse_credential(REFUSAL_token_revoked, reason,
                                 "it was issued before not_before, or does not say when");
    return REFUSAL_NONE;
}

bool token_stands(const struct tokens *tokens, const struct token_tunnel *tunnel)
{
    return slice_present(tunnel->key) ? tokens_has_key(tokens, tunnel->key) : tokens_admit(tokens, tunnel);
}

bool token_revoked(int64_t iat, int64_t not_before)
{
    return not_before > 0 && iat < not_before;
}
