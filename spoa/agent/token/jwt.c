/* SPDX-License-Identifier: MIT */
/*
 * jwt: the kind `jwt` of token/kind.h: entries of `tokens` with a key each, selected by the token's kid. jws.c parses the token,
 * jwt_claims.c reads the claims, key.c checks the signature.
 */
#include <stdlib.h>

#include "spoa/agent/token/jws.h"
#include "spoa/agent/token/jwt_claims.h"
#include "spoa/agent/token/kind.h"
#include "spoa/agent/token/scope.h"

struct jwt_options {
    char *kind, *kid, *secret_file, *public_key_file, *private_key_file, *issuer, *audience;
    int algorithm;
    int64_t min_secret, leeway, max_ttl;
    bool bind;
    struct token_scope_options scope;
    const json_node *claims;
};

struct jwt_state {
    struct key *key;     /* verifies */
    struct key *private; /* signs, if `key` cannot; NULL if not loaded */
    struct token_scope scope;
    struct jwt_rules rules;
    /* texts that rules points to */
    char *kid, *issuer, *audience, *cell, *name[JWT_CLAIM_COUNT];
};

/* ---- the configuration ---- */

static const char *check_kid(struct slice value)
{
    return value.len && jws_plain(value) ? NULL : "printable ASCII without quotes and backslashes";
}

static const char *check_filled(struct slice value)
{
    return value.len ? NULL : "something";
}

static const char *const algorithms[] = {"HS256", "ES256", "EdDSA",
                                         NULL}; /* in the order of enum key_algorithm */

#define FIELD(name) offsetof(struct jwt_options, name)

static const struct option options[] = {
    {"kind", OPTION_TEXT, FIELD(kind), NULL, .help = "`jwt`", .max = 16},
    {"alg", OPTION_ENUM, FIELD(algorithm), NULL, .help = "the key's one algorithm", .names = algorithms},
    {"kid", OPTION_TEXT, FIELD(kid), OPTION_NONE,
     .help = "tokens with this `kid`; not set: tokens without one", .max = 128, .check = check_kid},
    {"secret_file", OPTION_PATH, FIELD(secret_file), OPTION_NONE, .help = "HS256: every byte is the key"},
    {"min_secret", OPTION_INT, FIELD(min_secret), "32", .help = "HS256: least bytes", .min = 1,
     .max = KEY_FILE},
    {"public_key_file", OPTION_PATH, FIELD(public_key_file), OPTION_NONE, .help = "ES256, EdDSA: PEM or JWK"},
    {"private_key_file", OPTION_PATH, FIELD(private_key_file), OPTION_NONE,
     .help = "likewise, for `cellgate token` alone"},
    {"issuer", OPTION_TEXT, FIELD(issuer), OPTION_NONE, .help = "what `iss` must be", .check = check_filled},
    {"audience", OPTION_TEXT, FIELD(audience), OPTION_NONE,
     .help = "what `aud` must name, instead of the cell", .check = check_filled},
    {"leeway", OPTION_DURATION, FIELD(leeway), "5s", .help = "how far clocks may differ", .min = 0,
     .max = OPTION_HOUR},
    {"max_ttl", OPTION_DURATION, FIELD(max_ttl), "1h", .help = "longer-lived tokens are refused",
     .min = OPTION_SECOND, .max = 3650 * OPTION_DAY},
    {"bind", OPTION_BOOL, FIELD(bind), "true", .help = "a relayed tunnel ends with its token"},
    {TOKEN_SCOPE_SOURCES, OPTION_TEXTS, FIELD(scope.sources), OPTION_NONE,
     .help = "where its tokens may stand: headers, `?NAME` for query parameters, other sources; not set: "
             "`authorization`, "
             "`subprotocol`, `query`, `cookie`",
     .max = SOURCE_COUNT + SOURCES_OWN_MOST, .check = token_scope_check_source,
     .old = TOKEN_SCOPE_SOURCES_OLD},
    {"systems", OPTION_TEXTS, FIELD(scope.systems), OPTION_NONE,
     .help = "its tokens are good on their routes; not set, nor `routes`: on all", .max = SYSTEM_COUNT,
     .check = token_scope_check_system},
    {"routes", OPTION_TEXTS, FIELD(scope.routes), OPTION_NONE,
     .help = "names of routes on which they are good", .max = 64},
    {"domains", OPTION_TEXTS, FIELD(scope.domains), OPTION_NONE,
     .help = "domains below which they are good, or `<FORM>` for a host form's; not set: every host",
     .max = 64, .check = token_scope_check_domain},
    {"claims", OPTION_NODE, FIELD(claims), OPTION_NONE,
     .help = "other names of claims, `{\"org\": \"org_id\"}`", .form = "an object of texts"},
};

#define OPTION_COUNT (sizeof(options) / sizeof(*options))

static bool rename_claim(const struct token_load *load, const json_node *node, struct jwt_state *state,
                         struct fail *why)
{
    struct slice name;
    enum jwt_claim claim = jwt_claim_of(slice_text(json_key(node)));
    if (claim == JWT_CLAIM_COUNT)
        return json_fail(load->doc, node, why, "claims: there is no such claim");
    if (!json_text(node, &name) || name.len == 0 || !jws_plain(name))
        return json_fail(load->doc, node, why, "claims: the name in the token must be printable ASCII");
    state->name[claim] = slice_dup(name);
    state->rules.name[claim] = state->name[claim];
    return state->name[claim] || fail(why, "out of memory");
}

static bool distinct_claims(const struct token_load *load, const json_node *node,
                            const struct jwt_rules *rules, struct fail *why)
{
    for (enum jwt_claim i = 0; i < JWT_CLAIM_COUNT; i++)
        for (enum jwt_claim j = 0; j < i; j++)
            if (strcmp(rules->name[i], rules->name[j]) == 0)
                return json_fail(load->doc, node, why, "claims: %s and %s would be the same",
                                 jwt_claim_name(i), jwt_claim_name(j));
    return true;
}

static bool load_claims(const struct token_load *load, const json_node *claims, struct jwt_state *state,
                        struct fail *why)
{
    for (enum jwt_claim i = 0; i < JWT_CLAIM_COUNT; i++)
        state->rules.name[i] = jwt_claim_name(i);
    if (!claims)
        return true;
    if (!json_is_object(claims))
        return json_fail(load->doc, claims, why, "claims must be an object");
    for (const json_node *node = json_first(claims); node; node = json_next(node))
        if (!rename_claim(load, node, state, why))
            return false;
    return distinct_claims(load, claims, &state->rules, why);
}

static bool load_secret(const struct token_load *load, const struct jwt_options *o, struct jwt_state *state,
                        struct fail *why)
{
    if (!token_load_secret_file(load, o->secret_file, why) ||
        !(state->key = key_secret_file(o->secret_file, (size_t)o->min_secret, why)))
        return false;
    size_t length = key_secret_length(state->key);
    if (length < KEY_SECRET &&
        !token_load_warn(load, why, "%s: the secret has only %zu bytes, HS256 wants %d", o->secret_file,
                         length, KEY_SECRET))
        return false;
    return !key_secret_ends_line(state->key) ||
           token_load_warn(load, why, "%s: the line end at the end of the file is part of the secret",
                           o->secret_file);
}

static bool load_pair(const struct token_load *load, const struct jwt_options *o, struct jwt_state *state,
                      struct fail *why)
{
    enum key_algorithm algorithm = (enum key_algorithm)o->algorithm;
    if (!token_load_file(load, o->public_key_file, why) ||
        !(state->key = key_pair_file(o->public_key_file, algorithm, KEY_PUBLIC, why)))
        return false;
    if (!load->minting || !o->private_key_file)
        return true;
    state->private = key_pair_file(o->private_key_file, algorithm, KEY_PRIVATE, why);
    if (!state->private)
        return false;
    return key_matches(state->key, state->private) ||
           fail(why, "%s: not the private key of %s", o->private_key_file, o->public_key_file);
}

static bool load_key(const struct token_load *load, const json_node *node, const struct jwt_options *o,
                     struct jwt_state *state, struct fail *why)
{
    if (o->algorithm == KEY_HS256) {
        if (!o->secret_file || o->public_key_file || o->private_key_file)
            return json_fail(load->doc, node, why, "HS256 takes a secret_file and no other");
        return load_secret(load, o, state, why);
    }
    if (!o->public_key_file || o->secret_file)
        return json_fail(load->doc, node, why, "%s takes a public_key_file and no secret_file",
                         algorithms[o->algorithm]);
    return load_pair(load, o, state, why);
}

/* Moves a text out of the options. */
static char *take_text(char **text)
{
    char *taken = *text;
    *text = NULL;
    return taken;
}

static bool load_rules(const struct token_load *load, struct jwt_options *o, struct jwt_state *state,
                       struct fail *why)
{
    state->kid = take_text(&o->kid);
    state->rules.issuer = state->issuer = take_text(&o->issuer);
    state->rules.audience = state->audience = take_text(&o->audience);
    state->rules.cell = state->cell = strdup(load->cell);
    state->rules.leeway = o->leeway / OPTION_SECOND;
    state->rules.max_ttl = o->max_ttl / OPTION_SECOND;
    state->rules.bind = o->bind;
    return state->cell ? load_claims(load, o->claims, state, why) : fail(why, "out of memory");
}

static void jwt_release(void *pointer)
{
    struct jwt_state *state = pointer;
    key_free(state->key);
    key_free(state->private);
    free(state->kid);
    free(state->issuer);
    free(state->audience);
    free(state->cell);
    token_scope_free(&state->scope);
    for (size_t i = 0; i < JWT_CLAIM_COUNT; i++)
        free(state->name[i]);
    free(state);
}

/* Registers the key with everything that makes its tokens acceptable: a tunnel ends when any of these parts changes. */
static bool mark_key(const struct token_load *load, const struct jwt_state *state, struct token_entry *entry,
                     struct fail *why)
{
    char memory[64 * 300];
    struct writer scope = writer_of(memory, sizeof(memory));
    token_scope_text(&state->scope, &scope);
    if (scope.full)
        return fail(why, "routes and domains are too long");
    const struct slice parts[] = {slice_text(key_algorithm_text(key_algorithm(state->key))),
                                  slice_text(state->kid),
                                  slice_text(state->issuer),
                                  slice_text(state->audience),
                                  slice_text(state->cell),
                                  writer_slice(&scope)};
    /* without a scope, leave the part out: earlier versions without scopes made this fingerprint, and open tunnels have it */
    size_t count = sizeof(parts) / sizeof(*parts) - !token_scope_is_bound(&state->scope);
    return token_load_key(load, state->key, "jwt", parts, count, entry->fingerprint, why);
}

static bool load_scope(const struct token_load *load, const json_node *node, struct jwt_options *o,
                       struct jwt_state *state, struct token_entry *entry, struct fail *why)
{
    struct fail what;
    unsigned sources;
    if (!token_scope_sources(load, &o->scope.sources, &sources, &what) ||
        !token_scope_take(load, &o->scope, &state->scope, &what))
        return json_fail(load->doc, node, why, "%s", what.text);
    entry->sources = sources ? sources : SOURCES_GENERAL;
    return true;
}

static unsigned jwt_sources_at(const struct token_entry *entry, const struct credential_place *place)
{
    return token_scope_has(&((const struct jwt_state *)entry->state)->scope, place) ? entry->sources : 0;
}

static bool jwt_load(const struct token_load *load, const json_node *node, struct token_entry *entry,
                     struct fail *why)
{
    struct jwt_options o = {.kind = NULL};
    struct jwt_state *state = calloc(1, sizeof(*state));
    if (!state)
        return fail(why, "out of memory");
    bool good = options_read(load->doc, node, options, OPTION_COUNT, load->base_dir, &o, why) &&
                load_scope(load, node, &o, state, entry, why) && load_rules(load, &o, state, why) &&
                load_key(load, node, &o, state, why) && mark_key(load, state, entry, why);
    options_free(options, OPTION_COUNT, &o);
    if (!good) {
        jwt_release(state);
        return false;
    }
    entry->state = state;
    entry->kid = slice_text(state->kid);
    return true;
}

/* ---- checking ---- */

/* Returns whether entry and token have the same kid, or both have none. */
static bool same_kid(const struct token_entry *entry, const struct jws *jws)
{
    return slice_present(entry->kid) == slice_present(jws->kid) && slice_equal(entry->kid, jws->kid);
}

/* Returns REFUSAL_NONE and the entry whose key signed the token. *named is true if an entry has its kid. */
static enum refusal find_signer(const struct token_check *check, const struct jws *jws,
                                const struct token_entry **signer, bool *named, const char **reason)
{
    *reason = "no key is configured for its kid, or for tokens without one";
    for (size_t i = 0; i < check->count; i++) {
        const struct token_entry *entry = &check->entries[i];
        if (entry->kind != &token_kind_jwt || !same_kid(entry, jws))
            continue;
        if (!token_entry_listens(entry, check->credential)) {
            *reason = "its key is not good here, or not for what has carried it";
            continue;
        }
        *named = *named || slice_present(jws->kid);
        switch (jws_verify(jws, ((const struct jwt_state *)entry->state)->key)) {
        case KEY_GOOD:
            *signer = entry;
            return REFUSAL_NONE;
        case KEY_MEMORY:
            *reason = "out of memory";
            return REFUSAL_agent_unavailable;
        case KEY_BAD:
            *reason = "its algorithm or its signature is not that of the key";
        }
    }
    return REFUSAL_token_invalid;
}

bool jwt_is_ours(const struct token_check *check)
{
    const char *reason;
    struct jws jws;
    enum jws_result opened = jws_open(check->credential->token, &jws, &reason);
    bool ours =
        opened == JWS_MEMORY; /* if memory is short, assume so, because nobody else may get the token then */
    if (opened != JWS_GOOD)
        return ours;
    for (size_t i = 0; i < check->count && !ours; i++) {
        const struct token_entry *entry = &check->entries[i];
        if (entry->kind == &token_kind_jwt && same_kid(entry, &jws))
            ours = slice_present(jws.kid) ||
                   jws_verify(&jws, ((const struct jwt_state *)entry->state)->key) != KEY_BAD;
    }
    jws_close(&jws);
    return ours;
}

/* Accepts a JWT or an access token (RFC 9068), as a media type with or without "application/". Other types (logout+jwt, dpop+jwt) are
 * not meant to grant access. */
static bool is_access(struct slice typ)
{
    static const struct slice before = SLICE_STATIC("application/");
    if (slice_equal_nocase(slice_sub(typ, 0, before.len), before))
        typ = slice_from(typ, before.len);
    return slice_equal_nocase(typ, SLICE_LITERAL("JWT")) || slice_equal_nocase(typ, SLICE_LITERAL("at+jwt"));
}

static enum refusal check_open(const struct token_check *check, const struct jws *jws, struct grant *grant,
                               const char **reason)
{
    uint8_t memory[JWS_PART];
    struct writer payload = writer_of(memory, sizeof(memory));
    if (slice_present(jws->typ) && !is_access(jws->typ)) {
        *reason = "its typ is neither JWT nor at+jwt";
        return REFUSAL_token_invalid;
    }
    const struct token_entry *entry = NULL;
    enum refusal refusal = find_signer(check, jws, &entry, &grant->ours, reason);
    if (refusal != REFUSAL_NONE)
        return refusal;
    grant->ours = true;
    if (!jws_payload(jws, &payload)) {
        *reason = "the payload is not base64url";
        return REFUSAL_token_invalid;
    }
    const struct jwt_state *state = entry->state;
    refusal = jwt_claims_read(&state->rules, writer_slice(&payload), check->now, check->text, grant, reason);
    grant->ours = true;
    grant->kid = entry->kid;
    grant->key = slice_of(entry->fingerprint, KEY_FINGERPRINT);
    return refusal;
}

static enum refusal jwt_check(const struct token_check *check, struct grant *grant, const char **reason)
{
    struct jws jws;
    switch (jws_open(check->credential->token, &jws, reason)) {
    case JWS_BAD:
        return REFUSAL_token_invalid;
    case JWS_MEMORY:
        *reason = "out of memory";
        return REFUSAL_agent_unavailable;
    case JWS_GOOD:
        break;
    }
    enum refusal refusal = check_open(check, &jws, grant, reason);
    jws_close(&jws);
    return refusal;
}

static bool jwt_mint(const struct token_entry *entry, const struct grant *grant, struct writer *w,
                     struct fail *why)
{
    const struct jwt_state *state = entry->state;
    uint8_t memory[JWS_PART];
    struct writer payload = writer_of(memory, sizeof(memory));
    const struct key *key = state->private ? state->private : state->key;
    if (grant->exp - grant->iat > state->rules.max_ttl)
        return fail(why, "the token would live longer than max_ttl, %lld s", (long long)state->rules.max_ttl);
    if (key_algorithm(key) != KEY_HS256 && !state->private)
        return fail(why, "the entry of tokens has no private_key_file");
    if (!jwt_claims_write(&state->rules, grant, &payload, why))
        return false;
    return jws_sign(key, entry->kid, writer_slice(&payload), w) || fail(why, "the token cannot be signed");
}

const struct token_kind token_kind_jwt = {.name = "jwt",
                                          .options = options,
                                          .options_count = OPTION_COUNT,
                                          .sources = SOURCES_GENERAL,
                                          .load = jwt_load,
                                          .release = jwt_release,
                                          .sources_at = jwt_sources_at,
                                          .recognises = jws_recognises,
                                          .check = jwt_check,
                                          .mint = jwt_mint};
