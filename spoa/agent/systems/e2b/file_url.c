/* SPDX-License-Identifier: MIT */
/*
 * The kind `e2b-file-url` of token/kind.h: signed file URLs of e2b's SDK.
 *
 *     GET and POST /files?path=P&username=U&signature=S[&signature_expiration=E] at envd's port
 *     S: "v1_" and base64 without padding of SHA-256 over P ":" read|write ":" U ":" TOKEN [":" E]
 *
 * TOKEN is envd's own access token, which the record sets as X-Access-Token. The gate checks the signature with it, so that a
 * forged URL tells nobody whether a sandbox exists. envd checks it again, and therefore must not get X-Access-Token with such a
 * request: it would then look at nothing else. Good through the second of E.
 */
#include <openssl/crypto.h>
#include <openssl/sha.h>
#include <stdlib.h>

#include "spoa/agent/token/kind.h"
#include "spoa/agent/token/signed_url.h"
#include "spoa/base/text/base64url.h"

#define PREFIX "v1_"

enum {
    DIGITS = 43,
    SIGNED = 8192,
    LIFE = 60
}; /* LIFE: seconds of a grant without an end, as of an access secret */

struct options {
    char *kind;
    int64_t max_ttl;
};

struct state {
    int64_t max_ttl; /* seconds; 0: any */
};

#define FIELD(name) offsetof(struct options, name)

static const struct option options[] = {
    {"kind", OPTION_TEXT, FIELD(kind), NULL, .help = "`e2b-file-url`", .max = 16},
    {"max_ttl", OPTION_DURATION, FIELD(max_ttl), OPTION_NONE,
     .help = "URLs that live longer, or without an end, are refused; not set: any `not_before` refuses all",
     .min = OPTION_SECOND, .max = 3650 * OPTION_DAY},
};

#define OPTION_COUNT (sizeof(options) / sizeof(*options))

static bool e2b_file_url_load(const struct token_load *load, const json_node *node, struct token_entry *entry,
                              struct fail *why)
{
    struct options o = {.kind = NULL};
    struct state *state = calloc(1, sizeof(*state));
    if (!state)
        return fail(why, "out of memory");
    bool good = options_read(load->doc, node, options, OPTION_COUNT, load->base_dir, &o, why);
    state->max_ttl = o.max_ttl / OPTION_SECOND;
    options_free(options, OPTION_COUNT, &o);
    if (good)
        entry->state = state;
    else
        free(state);
    return good;
}

/* An application behind another port may have a path and a parameter of these names. */
static unsigned e2b_file_url_sources_at(const struct token_entry *entry, const struct credential_place *place)
{
    bool envd = place->system == SYSTEM_E2B && place->port == profile_of(SYSTEM_E2B)->withheld.port;
    return envd ? entry->sources : 0;
}

/* ---- checking ---- */

static bool e2b_file_url_recognises(struct slice token)
{
    (void)token; /* whatever its source brings */
    return true;
}

/* The digest of `v1_` and 43 characters of base64 with '+' and '/'; false: it is none. */
static bool read_signature(struct slice text, uint8_t digest[SHA256_DIGEST_LENGTH])
{
    uint8_t letters[DIGITS];
    struct slice rest = slice_from(text, sizeof(PREFIX) - 1);
    struct writer w = writer_of(digest, SHA256_DIGEST_LENGTH);
    if (!slice_starts(text, PREFIX) || rest.len != DIGITS)
        return false;
    for (size_t i = 0; i < DIGITS; i++) {
        if (rest.at[i] == '-' || rest.at[i] == '_')
            return false;
        letters[i] = rest.at[i] == '+' ? '-' : rest.at[i] == '/' ? '_' : rest.at[i];
    }
    return base64url_decode(slice_of(letters, DIGITS), &w) && w.len == SHA256_DIGEST_LENGTH;
}

static bool read_expiry(struct slice text, uint64_t *seconds)
{
    return slice_u64(text, (uint64_t)1 << 53, seconds) && !(text.len > 1 && text.at[0] == '0');
}

static enum refusal e2b_file_url_check(const struct token_check *check, struct grant *grant,
                                       const char **reason)
{
    const struct credential *url = check->credential;
    const struct token_entry *entry = check->entries;
    uint8_t digest[SHA256_DIGEST_LENGTH];
    uint64_t expires = (uint64_t)check->now + LIFE;
    while (entry->kind != &token_kind_e2b_file_url)
        entry++; /* the table has one, or this kind would not have been asked */
    int64_t most = ((const struct state *)entry->state)->max_ttl;
    *reason = "`signature` or `signature_expiration` is not what it should be";
    if (!read_signature(url->token, digest) || !url->operation ||
        (slice_present(url->expires) && !read_expiry(url->expires, &expires)))
        return REFUSAL_token_invalid;
    /* the end of the path would not be clear */
    *reason = "the user's name has a colon";
    if (slice_find(url->user, ':') < url->user.len)
        return REFUSAL_token_invalid;
    *reason = "it has no end, and max_ttl wants one";
    if (!slice_present(url->expires) && most)
        return REFUSAL_token_invalid;
    grant->sandbox = url->sandbox;
    grant->file = slice_present(url->path) ? url->path : SLICE_LITERAL("");
    grant->operation = url->operation;
    grant->user = url->user;
    grant->expires = url->expires;
    grant->signature = url->token;
    grant->needs = NEED_EXEC;
    grant_put_port(check->text, url->port);
    grant->ports = writer_slice(check->text);
    grant->exp = (int64_t)expires;
    grant->leeway = 1;
    return token_check_lifetime(check, most, grant, reason);
}

static bool e2b_file_url_confirms(const struct grant *grant, struct slice secret)
{
    uint8_t memory[SIGNED], wanted[SHA256_DIGEST_LENGTH], digest[SHA256_DIGEST_LENGTH] = {0};
    struct writer text = writer_of(memory, sizeof(memory));
    writer_put(&text, grant->file);
    writer_printf(&text, ":%s:", grant->operation);
    writer_put(&text, grant->user);
    writer_u8(&text, ':');
    writer_put(&text, secret);
    if (slice_present(grant->expires)) {
        writer_u8(&text, ':');
        writer_put(&text, grant->expires);
    }
    bool good = read_signature(grant->signature, wanted) && !text.full && SHA256(text.at, text.len, digest) &&
                slice_equal_constant_time(slice_of(digest, sizeof(digest)), slice_of(wanted, sizeof(wanted)));
    OPENSSL_cleanse(memory, sizeof(memory));
    return good;
}

/* ---- making one ---- */

static bool e2b_file_url_mint(const struct token_entry *entry, const struct grant *grant, struct writer *w,
                              struct fail *why)
{
    (void)entry, (void)grant, (void)w;
    return fail(why, "e2b-file-url: e2b's SDK makes them, with the token of the sandbox's envd");
}

/* ---- where it stands ---- */

static const char *e2b_file_url_operation(const struct request *request)
{
    if (!slice_is(request->path, "/files"))
        return NULL;
    return slice_is(request->method, "GET") ? "read" : slice_is(request->method, "POST") ? "write" : NULL;
}

const struct signed_url_form signed_url_e2b = {
    .operation = e2b_file_url_operation,
    .signature = "signature",
    .expires = "signature_expiration",
    .path = "path",
    .user = "username",
    .kept = true,
    .encoded = true,
    .whole_path = true,
};

const struct token_kind token_kind_e2b_file_url = {.name = "e2b-file-url",
                                                   .options = options,
                                                   .options_count = OPTION_COUNT,
                                                   .sources = SOURCE_BIT(ENVD_URL),
                                                   .load = e2b_file_url_load,
                                                   .release = free,
                                                   .sources_at = e2b_file_url_sources_at,
                                                   .recognises = e2b_file_url_recognises,
                                                   .check = e2b_file_url_check,
                                                   .confirms = e2b_file_url_confirms,
                                                   .secret_header = "X-Access-Token",
                                                   .mint = e2b_file_url_mint};
