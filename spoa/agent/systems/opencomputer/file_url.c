/* SPDX-License-Identifier: MIT */
/*
 * The kind `file-url` of token/kind.h: OpenComputer's signed file URLs.
 *
 *     GET .../files/download?path=P&expires=E&signature=S, PUT .../files/upload?...
 *     S: HMAC-SHA256, in lower-case hex, over
 *        "opensandbox-signed-url\n" ID "\n" P "\n" download|upload "\n" E
 *
 * Good for that sandbox, file, direction and nothing else, through the second of E.
 */
#include "spoa/agent/model/query.h"
#include "spoa/agent/token/secret.h"

#define CONTEXT "opensandbox-signed-url\n"

enum { HASH = 32, SIGNED = 8192 };

/* ---- the configuration ---- */

#define FIELD(name) offsetof(struct token_secret_options, name)

static const struct option options[] = {
    {"kind", OPTION_TEXT, FIELD(kind), NULL, .help = "`file-url`", .max = 16},
    {"kid", OPTION_TEXT, FIELD(kid), OPTION_NONE, .help = "names the key", .min = 1, .max = 128},
    {"secret_file", OPTION_PATH, FIELD(secret_file), NULL,
     .help = "OpenComputer's key of sandbox tokens, as text; white space around it does not count"},
    {"min_secret", OPTION_INT, FIELD(min_secret), "32", .help = "least bytes", .min = 1, .max = TOKEN_SECRET},
    {"max_ttl", OPTION_DURATION, FIELD(max_ttl), "1d", .help = "longer-lived URLs are refused",
     .min = OPTION_SECOND, .max = 3650 * OPTION_DAY},
};

#define OPTION_COUNT (sizeof(options) / sizeof(*options))

static bool file_url_load(const struct token_load *load, const json_node *node, struct token_entry *entry,
                          struct fail *why)
{
    return token_secret_load(load, node, options, OPTION_COUNT, entry, why);
}

/* ---- checking ---- */

static bool file_url_recognises(struct slice token)
{
    (void)token; /* the source alone decides */
    return true;
}

static void write_signed(struct slice sandbox, struct slice path, const char *operation, int64_t expires,
                         struct writer *w)
{
    writer_text(w, CONTEXT);
    writer_put(w, sandbox);
    writer_u8(w, '\n');
    writer_put(w, path);
    writer_printf(w, "\n%s\n%lld", operation, (long long)expires);
}

/* Reads 64 lower-case hex digits and nothing else. */
static bool read_hex(struct slice text, uint8_t bytes[HASH])
{
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < text.len && i < (size_t)2 * HASH; i++) {
        const char *digit = text.at[i] ? strchr(digits, text.at[i]) : NULL;
        if (!digit)
            return false;
        bytes[i / 2] = (uint8_t)(bytes[i / 2] << 4 | (digit - digits));
    }
    return text.len == (size_t)2 * HASH;
}

static enum refusal file_url_check(const struct token_check *check, struct grant *grant, const char **reason)
{
    const struct credential *url = check->credential;
    uint8_t signature[HASH] = {0}, memory[SIGNED];
    struct writer data = writer_of(memory, sizeof(memory));
    uint64_t expires;
    *reason = "`expires` or `signature` is not what it should be";
    if (!slice_u64(url->expires, (uint64_t)1 << 53, &expires) ||
        (url->expires.at[0] == '0' && url->expires.len > 1) || !read_hex(url->token, signature))
        return REFUSAL_token_invalid;
    write_signed(url->sandbox, url->path, url->operation, (int64_t)expires, &data);
    *reason = "the path is too long";
    if (data.full)
        return REFUSAL_token_invalid;
    const struct token_entry *entry = NULL;
    enum refusal refusal = token_secret_signer(check, &token_kind_file_url, writer_slice(&data),
                                               slice_of(signature, HASH), &entry, reason);
    if (refusal != REFUSAL_NONE)
        return refusal;
    grant->sandbox = url->sandbox;
    grant->file = url->path;
    grant->operation = url->operation;
    grant->kid = entry->kid;
    grant->key = slice_of(entry->fingerprint, KEY_FINGERPRINT);
    grant->needs = NEED_HTTP;
    grant->exp = (int64_t)expires;
    grant->leeway = 1;
    return token_check_lifetime(check, ((const struct token_secret *)entry->state)->max_ttl, grant, reason);
}

/* ---- minting ---- */

static bool file_url_mint(const struct token_entry *entry, const struct grant *grant, struct writer *w,
                          struct fail *why)
{
    static const char digits[] = "0123456789abcdef";
    const struct token_secret *state = entry->state;
    uint8_t mac[KEY_SIGNATURE] = {0}, memory[SIGNED];
    struct writer signature = writer_of(mac, sizeof(mac)), data = writer_of(memory, sizeof(memory));
    if (!slice_present(grant->file) || !grant->operation)
        return fail(why, "file-url: it must be said for which file");
    if (slice_present(grant->ports) || slice_present(grant->org) ||
        slice_find(grant->sandbox, '/') < grant->sandbox.len)
        return fail(why, "file-url: its URLs cannot say ports, org or a namespace");
    if (!token_secret_lives(state->max_ttl, grant, why))
        return false;
    write_signed(grant->sandbox, grant->file, grant->operation, grant->exp, &data);
    if (data.full || !key_sign(state->key, writer_slice(&data), &signature))
        return fail(why, "the URL cannot be signed");
    writer_text(w, "/api/sandboxes/");
    writer_put(w, grant->sandbox);
    writer_printf(w, "/files/%s?path=", grant->operation);
    query_encode(grant->file, w);
    writer_printf(w, "&expires=%lld&signature=", (long long)grant->exp);
    for (size_t i = 0; i < signature.len; i++)
        writer_put(w, slice_of((char[]){digits[mac[i] >> 4], digits[mac[i] & 15]}, 2));
    return !w->full || fail(why, "the URL would be too long");
}

/* ---- finding it in a request ---- */

static bool ends_with(struct slice path, const char *end)
{
    size_t len = strlen(end);
    return path.len > len && slice_is(slice_from(path, path.len - len), end);
}

static const char *file_url_operation(const struct request *request)
{
    if (slice_is(request->method, "GET") && ends_with(request->path, "/files/download"))
        return "download";
    return slice_is(request->method, "PUT") && ends_with(request->path, "/files/upload") ? "upload" : NULL;
}

const struct signed_url_form signed_url_opencomputer = {
    .operation = file_url_operation,
    .whole = {{"/api/sandboxes/{sandbox}/files/download", "GET"},
              {"/api/sandboxes/{sandbox}/files/upload", "PUT"}},
    .signature = "signature",
    .expires = "expires",
    .path = "path",
    .complete = true,
};

const struct token_kind token_kind_file_url = {.form = TOKEN_IS_FILE_URL,
                                               .name = "file-url",
                                               .options = options,
                                               .options_count = OPTION_COUNT,
                                               .sources = SOURCE_BIT(FILE_URL),
                                               .load = file_url_load,
                                               .release = token_secret_release,
                                               .recognises = file_url_recognises,
                                               .check = file_url_check,
                                               .mint = file_url_mint};
