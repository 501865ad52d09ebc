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

#include "spoa/agent/token/record_signed.h"
#include "spoa/agent/token/signed_url.h"
#include "spoa/base/text/base64url.h"

#define PREFIX "v1_"

enum { DIGITS = 43, SIGNED = 8192 };

static const struct option options[] = {RECORD_SIGNED_OPTIONS("e2b-file-url")};

static bool e2b_file_url_load(const struct token_load *load, const json_node *node, struct token_entry *entry,
                              struct fail *why)
{
    return record_signed_load(load, node, options, entry, why);
}

/* Limits the URLs to envd's port: an application at another port may have a path and a parameter of these names. */
static unsigned e2b_file_url_sources_at(const struct token_entry *entry, const struct credential_place *place)
{
    bool envd = place->system == SYSTEM_E2B && place->port == profile_of(SYSTEM_E2B)->withheld.port;
    return envd ? entry->sources : 0;
}

/* ---- checking ---- */

static bool e2b_file_url_recognises(struct slice token)
{
    (void)token; /* the source alone decides */
    return true;
}

/* Reads the digest from `v1_` and 43 characters of base64 with '+' and '/'. Returns false if the text has another form. */
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

static enum refusal e2b_file_url_check(const struct token_check *check, struct grant *grant,
                                       const char **reason)
{
    const struct credential *url = check->credential;
    uint8_t digest[SHA256_DIGEST_LENGTH];
    uint64_t expires = 0;
    *reason = "`signature` or `signature_expiration` is not what it should be";
    if (!read_signature(url->token, digest) || !url->operation ||
        (slice_present(url->expires) && (!record_signed_expiry(url->expires, &expires) || !expires)))
        return REFUSAL_token_invalid;
    /* the end of the path would not be clear */
    *reason = "the user's name has a colon";
    if (slice_find(url->user, ':') < url->user.len)
        return REFUSAL_token_invalid;
    return record_signed_grant(check, &token_kind_e2b_file_url, expires, grant, reason);
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

/* ---- minting ---- */

static bool e2b_file_url_mint(const struct token_entry *entry, const struct grant *grant, struct writer *w,
                              struct fail *why)
{
    (void)entry, (void)grant, (void)w;
    return fail(why, "e2b-file-url: e2b's SDK makes them, with the token of the sandbox's envd");
}

/* ---- finding it in a request ---- */

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
                                                   .options_count = RECORD_SIGNED_OPTION_COUNT,
                                                   .sources = SOURCE_BIT(ENVD_URL),
                                                   .load = e2b_file_url_load,
                                                   .release = free,
                                                   .sources_at = e2b_file_url_sources_at,
                                                   .recognises = e2b_file_url_recognises,
                                                   .check = e2b_file_url_check,
                                                   .confirms = e2b_file_url_confirms,
                                                   .secret_header = "X-Access-Token",
                                                   .mint = e2b_file_url_mint};
