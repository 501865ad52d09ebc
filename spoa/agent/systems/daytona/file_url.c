/* SPDX-License-Identifier: MIT */
/*
 * The kind `daytona-file-url` of token/kind.h: pre-signed file URLs of Daytona's SDK.
 *
 *     GET and HEAD .../files/download?path=P&expires=E&signature=S, POST .../files/upload-v2?... at the toolbox's port
 *     S: "v1_" and base64url of HMAC-SHA256 over "v1:files:" GET|POST ":" P ":" E
 *
 * The key is the sandbox's, which its record holds as `signing_key`. The gate alone judges the signature: the toolbox gets neither
 * the key nor the signature. Good through the second of E; E 0 has no end.
 */
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdlib.h>

#include "spoa/agent/token/record_signed.h"
#include "spoa/agent/token/signed_url.h"
#include "spoa/base/text/base64url.h"

#define PREFIX   "v1_"
#define DOWNLOAD "download"
#define UPLOAD   "upload-v2"

enum { DIGITS = 43, MAC = 32, SIGNED = 8192, TOOLBOX = 2280 };

static const struct option options[] = {RECORD_SIGNED_OPTIONS("daytona-file-url")};

static bool daytona_file_url_load(const struct token_load *load, const json_node *node,
                                  struct token_entry *entry, struct fail *why)
{
    return record_signed_load(load, node, options, entry, why);
}

/* Limits the URLs to the toolbox's port: an application at another port may have a path and a parameter of these names. */
static unsigned daytona_file_url_sources_at(const struct token_entry *entry,
                                            const struct credential_place *place)
{
    return place->system == SYSTEM_DAYTONA && place->port == TOOLBOX ? entry->sources : 0;
}

/* ---- finding it in a request ---- */

static bool ends_with(struct slice path, const char *end)
{
    size_t len = strlen(end);
    return path.len >= len && slice_is(slice_from(path, path.len - len), end);
}

static const char *daytona_file_url_operation(const struct request *request)
{
    bool get = slice_is(request->method, "GET") || slice_is(request->method, "HEAD");
    if (get && ends_with(request->path, "/files/" DOWNLOAD))
        return DOWNLOAD;
    return slice_is(request->method, "POST") && ends_with(request->path, "/files/" UPLOAD) ? UPLOAD : NULL;
}

const struct signed_url_form signed_url_daytona = {
    .operation = daytona_file_url_operation,
    .signature = "signature",
    .expires = "expires",
    .path = "path",
    .complete = true,
    .at_root = true,
};

/* ---- checking ---- */

static bool daytona_file_url_recognises(struct slice token)
{
    (void)token; /* the source alone decides */
    return true;
}

static bool read_signature(struct slice text, uint8_t mac[MAC])
{
    struct writer w = writer_of(mac, MAC);
    struct slice rest = slice_from(text, sizeof(PREFIX) - 1);
    return slice_starts(text, PREFIX) && rest.len == DIGITS && base64url_decode(rest, &w) && w.len == MAC;
}

static enum refusal daytona_file_url_check(const struct token_check *check, struct grant *grant,
                                           const char **reason)
{
    const struct credential *url = check->credential;
    uint8_t mac[MAC];
    uint64_t expires;
    *reason = "`signature`, `expires` or `path` is not what it should be";
    if (!read_signature(url->token, mac) || !url->operation || url->path.len == 0 ||
        !record_signed_expiry(url->expires, &expires))
        return REFUSAL_token_invalid;
    return record_signed_grant(check, &token_kind_daytona_file_url, expires, grant, reason);
}

static bool daytona_file_url_confirms(const struct grant *grant, struct slice secret)
{
    uint8_t memory[SIGNED], wanted[MAC], mac[EVP_MAX_MD_SIZE] = {0};
    struct writer text = writer_of(memory, sizeof(memory));
    unsigned len = 0;
    writer_printf(&text, "v1:files:%s:", strcmp(grant->operation, UPLOAD) == 0 ? "POST" : "GET");
    writer_put(&text, grant->file);
    writer_u8(&text, ':');
    writer_put(&text, grant->expires);
    bool good = read_signature(grant->signature, wanted) && !text.full &&
                HMAC(EVP_sha256(), secret.at, (int)secret.len, text.at, text.len, mac, &len) && len == MAC &&
                slice_equal_constant_time(slice_of(mac, MAC), slice_of(wanted, MAC));
    OPENSSL_cleanse(mac, sizeof(mac));
    return good;
}

/* ---- minting ---- */

static bool daytona_file_url_mint(const struct token_entry *entry, const struct grant *grant,
                                  struct writer *w, struct fail *why)
{
    (void)entry, (void)grant, (void)w;
    return fail(why, "daytona-file-url: Daytona's SDK makes them, with the signing key of the sandbox");
}

const struct token_kind token_kind_daytona_file_url = {.name = "daytona-file-url",
                                                       .options = options,
                                                       .options_count = RECORD_SIGNED_OPTION_COUNT,
                                                       .sources = SOURCE_BIT(DAYTONA_URL),
                                                       .load = daytona_file_url_load,
                                                       .release = free,
                                                       .sources_at = daytona_file_url_sources_at,
                                                       .recognises = daytona_file_url_recognises,
                                                       .check = daytona_file_url_check,
                                                       .confirms = daytona_file_url_confirms,
                                                       .mint = daytona_file_url_mint};
