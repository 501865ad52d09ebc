/* SPDX-License-Identifier: MIT */
/* Lines of the input as the parts of each kind's credential: a scoped token, and its payload signed; a signed
 * route; a signed file URL; an access secret. What is good is what the kind says it is. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "spoa/agent/token/check.h"
#include "spoa/agent/token/key.h"
#include "spoa/agent/token/tokens.h"
#include "spoa/base/json/json.h"
#include "spoa/base/text/base64url.h"
#include "tests/fuzz/fuzz.h"

#define NOW 1999999000

static const char secret[] = "0123456789abcdef0123456789abcdef";
static const char config[] =
    "[{\"kind\":\"agent-sandbox\",\"secret_file\":\"s\"},"
    "{\"kind\":\"opensandbox-route\",\"min_secret\":1,\"keys\":{\"a\":\"k\"}},"
    "{\"kind\":\"file-url\",\"secret_file\":\"s\"},{\"kind\":\"static\",\"everywhere\":true}]";

static struct tokens *tokens;
static struct token_cache *cache;
static struct key *key;

static void put(const char *folder, const char *name, const char *content)
{
    char path[64];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    FILE *file = fopen(path, "w");
    if (!file || fputs(content, file) < 0 || fclose(file) != 0)
        abort();
}

static void drop(const char *folder, const char *name)
{
    char path[64];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    unlink(path);
}

static void set_up(void)
{
    struct fail why;
    char folder[] = "/tmp/fuzz_token_kinds.XXXXXX";
    if (!mkdtemp(folder))
        abort();
    put(folder, "s", secret);
    put(folder, "k", "AQID");
    struct json *doc = json_parse(slice_text(config), "c", 0, (struct json_limits){4096, 8}, &why);
    tokens = tokens_load(doc, json_root(doc), folder, "cell", TOKENS_MINT, &why);
    cache = token_cache_new(16);
    key = key_secret(slice_text(secret), 32, "key", &why);
    json_free(doc);
    drop(folder, "s");
    drop(folder, "k");
    rmdir(folder);
    if (!tokens || !cache || !key)
        abort();
}

static enum refusal check(const struct credential *credential, struct grant *grant)
{
    const char *reason = NULL;
    enum refusal refusal = token_check(tokens, credential, NOW, cache, grant, &reason);
    if (!reason || (refusal == REFUSAL_NONE && grant->exp + grant->leeway <= NOW))
        abort();
    return refusal;
}

/* At most one '/', and a name before and behind it. */
static bool is_name(struct slice s)
{
    size_t slash = slice_find(s, '/');
    struct slice rest = slice_from(s, slash + 1);
    return s.len && (slash == s.len || (slash > 0 && rest.len && slice_find(rest, '/') == rest.len));
}

static void as_scoped(struct slice token)
{
    struct grant g;
    const struct credential c = credential_bearer(token);
    if (check(&c, &g) == REFUSAL_NONE && !token_needs_secret(&g) && !is_name(g.sandbox))
        abort();
}

static void as_payload(struct slice payload)
{
    uint8_t data[4096], mac[KEY_SIGNATURE], token[4096];
    struct writer text = writer_of(data, sizeof(data)), signature = writer_of(mac, sizeof(mac)),
                  out = writer_of(token, sizeof(token));
    writer_text(&text, "agent-sandbox/scoped-token/v1.");
    base64url_encode(payload, &text);
    if (!key_sign(key, writer_slice(&text), &signature))
        abort();
    writer_text(&out, "v1.");
    base64url_encode(payload, &out);
    writer_text(&out, ".");
    base64url_encode(writer_slice(&signature), &out);
    if (!out.full && !text.full)
        as_scoped(writer_slice(&out));
}

static void as_route(struct slice sandbox, struct slice expires, struct slice signature)
{
    const struct credential c = {.source = SOURCE_SIGNATURE,
                                 .token = signature,
                                 .expires = expires,
                                 .sandbox = sandbox,
                                 .port = (uint16_t)(sandbox.len + 1)};
    struct grant g;
    if (check(&c, &g) == REFUSAL_NONE && (!grant_allows_port(&g, c.port) || !slice_equal(g.sandbox, sandbox)))
        abort();
}

static void as_file_url(struct slice path, struct slice expires, struct slice signature)
{
    const struct credential c = {.source = SOURCE_FILE_URL,
                                 .token = signature,
                                 .expires = expires,
                                 .path = path,
                                 .operation = "download",
                                 .sandbox = SLICE_LITERAL("sb-1")};
    struct grant g;
    if (check(&c, &g) == REFUSAL_NONE && (!slice_equal(g.file, path) || g.exp > NOW + 86400))
        abort();
}

static void as_secret(struct slice text)
{
    const struct credential c = {
        .source = SOURCE_SECURE_ACCESS, .token = text, .sandbox = SLICE_LITERAL("sb-1")};
    struct grant g;
    const char *reason;
    enum refusal refusal = check(&c, &g);
    if (text.len <= TOKEN_LIMIT && (refusal != REFUSAL_NONE || !token_needs_secret(&g) ||
                                    token_admits_secret(&g, NULL, &reason) != REFUSAL_token_invalid))
        abort();
}

static int read_input(const uint8_t *data, size_t size)
{
    struct slice rest = slice_of(data, size), line[3] = {{data, 0}, {data, 0}, {data, 0}};
    if (!tokens)
        set_up();
    for (size_t i = 0; i < 3 && slice_present(rest); i++)
        slice_split(&rest, '\n', &line[i]);
    as_scoped(slice_of(data, size));
    as_payload(slice_of(data, size));
    as_route(line[0], line[1], line[2]);
    as_file_url(line[0], line[1], line[2]);
    as_secret(slice_of(data, size));
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    return fuzz_grown(read_input, data, size);
}
