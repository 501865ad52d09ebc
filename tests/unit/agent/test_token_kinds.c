/* SPDX-License-Identifier: MIT */
/* The kinds of tokens beside `jwt`, with the test vectors of the systems that they come from. */
#include "tests/unit/support.h"

#include <sys/stat.h>

#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "spoa/agent/token/check.h"
#include "spoa/agent/token/key.h"
#include "spoa/agent/token/static.h"
#include "spoa/agent/token/tokens.h"
#include "spoa/base/json/json.h"
#include "spoa/base/text/base64url.h"

#define NOW 1999999000

static const char config[] =
    "[{\"kind\":\"agent-sandbox\",\"kid\":\"old\",\"secret_file\":\"other\"},"
    " {\"kind\":\"agent-sandbox\",\"kid\":\"new\",\"secret_file\":\"scoped\"},"
    " {\"kind\":\"opensandbox-route\",\"min_secret\":1,\"keys\":{\"a\":\"a\",\"z\":\"z\",\"k\":\"k\"}},"
    " {\"kind\":\"file-url\",\"kid\":\"f\",\"min_secret\":1,\"secret_file\":\"url\"},"
    " {\"kind\":\"static\",\"everywhere\":true,\"sources\":[\"X-OC-Preview-Token\",\"authorization\"]},"
    " {\"kind\":\"static\",\"sources\":[\"opensandbox-secure-access\"],\"need\":[\"http\",\"pty\"]}]";

/* What OpenSandbox's keys are in its own vectors, one after the other. */
static const struct {
    const char *name, *content;
} files[] = {
    {"scoped", "  0123456789abcdef0123456789abcdef\n"},
    {"other", "fedcba9876543210fedcba9876543210"},
    {"url", "test-jwt-secret\n"},
    {"a", "bXktYmFzZTY0LWRlY29kZWQtc2VjcmV0IQ==\n"},
    {"z", "AQID"},
    {"k", "aW5ncmVzcy10ZXN0LXNlY3JldA=="},
    {"nosec", "Xl5eXg=="},
    {"bytes", "dGVzdC1zZWNyZXQtYnl0ZXM="},
    {"uri", "dXJpLW1vZGUtc2VjcmV0"},
};
enum { FILES = sizeof files / sizeof *files };

struct world {
    char folder[40];
    struct tokens *tokens;
    struct token_cache *cache;
};

static struct tokens *load(const struct world *w, const char *text, struct fail *why)
{
    const struct json_limits limits = {65536, 8};
    struct json *doc = json_parse(slice_text(text), "c", 0, limits, why);
    struct tokens *tokens =
        doc ? tokens_load(doc, json_root(doc), w->folder, "cell-a", TOKENS_MINT, why) : NULL;
    json_free(doc);
    return tokens;
}

/* Of a tunnel to an application, wherever its route is. */
static bool kid_stands(const struct tokens *tokens, struct slice kid, const struct record *record)
{
    const struct token_tunnel tunnel = {.kid = kid, .needs = NEED_HTTP};
    return token_stands(tokens, &tunnel) && (!record || token_static_stands(kid, record));
}

static void path_of(const struct world *w, const char *name, char path[128])
{
    snprintf(path, 128, "%s/%s", w->folder, name);
}

static void put(const struct world *w, const char *name, const char *content)
{
    char path[128];
    path_of(w, name, path);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(content, file);
    fclose(file);
}

static int set_up(void **state)
{
    static struct world w;
    struct fail why = {""};
    w = (struct world){.folder = "/tmp/test_token_kinds.XXXXXX"};
    assert_non_null(mkdtemp(w.folder));
    for (size_t i = 0; i < FILES; i++)
        put(&w, files[i].name, files[i].content);
    w.tokens = load(&w, config, &why);
    if (!w.tokens)
        fail_msg("%s", why.text);
    w.cache = token_cache_new(16);
    *state = &w;
    return 0;
}

static int tear_down(void **state)
{
    struct world *w = *state;
    char path[128];
    for (size_t i = 0; i < FILES; i++) {
        path_of(w, files[i].name, path);
        unlink(path);
    }
    rmdir(w->folder);
    tokens_free(w->tokens);
    token_cache_free(w->cache);
    return 0;
}

static enum refusal check(const struct world *w, const struct credential *credential, int64_t now,
                          struct grant *grant)
{
    const char *reason = NULL;
    enum refusal refusal = token_check(w->tokens, credential, now, w->cache, grant, &reason);
    assert_non_null(reason);
    assert_int_equal(refusal == REFUSAL_NONE, strcmp(reason, "good") == 0);
    return refusal;
}

/* ---- agent-sandbox ---- */

#define BOX_A     "v1.eyJucyI6Im5zIiwibmFtZSI6ImJveC1hIiwiZXhwIjoyMDAwMDAwMDAwfQ"
#define DEFAULT_A "v1.eyJucyI6ImRlZmF1bHQiLCJuYW1lIjoibXktc2FuZGJveCIsImV4cCI6MjAwMDAwMDAwMH0"
static const char box_a[] = BOX_A ".M1Vb0-M5-gnkivK7xeY711h5iZ87ZLO-85EALGrHShQ";

static enum refusal scoped(const struct world *w, const char *token, int64_t now, struct grant *grant)
{
    struct slice text = guarded(slice_text(token));
    const struct credential credential = credential_bearer(text);
    enum refusal refusal = check(w, &credential, now, grant);
    guarded_free(text);
    return refusal;
}

static void scoped_tokens_name_their_sandbox(void **state)
{
    const struct world *w = *state;
    const char *const tokens[] = {box_a, DEFAULT_A ".5B4WHDfPZI9Vy_jJ04AY0wP_KtmMZUHTwzLIoTxj2Gc"};
    const char *const sandboxes[] = {"ns/box-a", "my-sandbox"};
    for (int i = 0; i < 4; i++) { /* the second time from the cache */
        struct grant g;
        assert_int_equal(scoped(w, tokens[i / 2], NOW, &g), REFUSAL_NONE);
        assert_true(slice_is(g.sandbox, sandboxes[i / 2]) && slice_is(g.kid, "new"));
        assert_string_equal(g.kind, "agent-sandbox");
        assert_true(g.in_place && g.needs == NEED_UNSAID && !slice_present(g.ports) && !slice_present(g.org));
        assert_true(g.exp == 2000000000 && g.leeway == 0 && g.iat == -1);
    }
}

static void scoped_tokens_end_at_the_exact_second(void **state)
{
    struct grant g;
    assert_int_equal(scoped(*state, box_a, 1999999999, &g), REFUSAL_NONE);
    assert_int_equal(scoped(*state, box_a, 2000000000, &g), REFUSAL_token_expired);
    assert_true(slice_is(g.sandbox, "ns/box-a"));
}

static void scoped_tokens_without_the_context_or_with_another_secret_are_refused(void **state)
{
    static const char *const bad[] = {
        BOX_A ".bW5g89uck2MxNDXOjg9O4mmS8dGWBGhBubOpf3sHgWM", /* signed without the context */
        BOX_A ".5B4WHDfPZI9Vy_jJ04AY0wP_KtmMZUHTwzLIoTxj2Gc",
        BOX_A ".M1Vb0-M5-gnkivK7xeY711h5iZ87ZLO-85EALGrHShR", /* bits behind the last byte */
        BOX_A ".M1Vb0-M5-gnkivK7xeY711h5iZ87ZLO-85EALGrHShQ=",
        BOX_A ".M1Vb0-M5-gnkivK7xeY711h5iZ87ZLO-85EALGrHShQ.",
        BOX_A ".",
        BOX_A,
        "v1.",
        "v1..",
        "v1",
        "v2.eyJucyI6Im5zIiwibmFtZSI6ImJveC1hIiwiZXhwIjoyMDAwMDAwMDAwfQ.M1Vb0-M5-gnkivK7xeY711h5iZ87ZLO-"
        "85EALGrHShQ",
        "eyJucyI6Im5zIiwibmFtZSI6ImJveC1hIiwiZXhwIjoyMDAwMDAwMDAwfQ.M1Vb0-M5-gnkivK7xeY711h5iZ87ZLO-"
        "85EALGrHShQ",
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        struct grant g;
        enum refusal refusal = scoped(*state, bad[i], NOW, &g);
        /* what has not the form may be a secret that a record knows */
        if (refusal == REFUSAL_NONE)
            assert_true(token_needs_secret(&g) && strncmp(bad[i], "v1.", 3) != 0);
        else
            assert_int_equal(refusal, REFUSAL_token_invalid);
    }
}

static void every_flipped_bit_of_a_scoped_token_is_refused(void **state)
{
    char token[sizeof(box_a)];
    strcpy(token, box_a);
    for (size_t bit = 3 * 8; bit < strlen(token) * 8; bit++) {
        struct grant g;
        token[bit / 8] = (char)(token[bit / 8] ^ (1 << bit % 8));
        const struct credential credential = credential_bearer(slice_of(token, strlen(box_a)));
        assert_int_equal(check(*state, &credential, NOW, &g), REFUSAL_token_invalid);
        token[bit / 8] = (char)(token[bit / 8] ^ (1 << bit % 8));
    }
}

static void sign_scoped(const char *payload, char *token, size_t size)
{
    struct fail why;
    uint8_t mac[KEY_SIGNATURE], data[2048];
    struct key *key = key_secret(SLICE_LITERAL("0123456789abcdef0123456789abcdef"), 32, "k", &why);
    struct writer text = writer_of(data, sizeof data), signature = writer_of(mac, sizeof mac),
                  out = writer_of(token, size - 1);
    writer_text(&text, "agent-sandbox/scoped-token/v1.");
    base64url_encode(slice_text(payload), &text);
    assert_true(key_sign(key, writer_slice(&text), &signature));
    writer_text(&out, "v1.");
    base64url_encode(slice_text(payload), &out);
    writer_text(&out, ".");
    base64url_encode(writer_slice(&signature), &out);
    token[out.len] = '\0';
    key_free(key);
}

static void what_a_scoped_token_says_is_read_strictly(void **state)
{
    static const struct {
        const char *payload;
        enum refusal refusal;
    } cases[] = {
        {"{\"ns\":\"a\",\"name\":\"b\",\"exp\":2000000000}", REFUSAL_NONE},
        {" {\"exp\":2000000000 ,\"name\":\"b\",\"ns\":\"a\",\"more\":[1]}", REFUSAL_NONE},
        {"{\"ns\":\"a\",\"name\":\"b\",\"exp\":\"2000000000\"}", REFUSAL_token_invalid},
        {"{\"ns\":\"a\",\"name\":\"b\",\"exp\":2000000000.0}", REFUSAL_token_invalid},
        {"{\"ns\":\"a\",\"name\":\"b\",\"exp\":2e9}", REFUSAL_token_invalid},
        {"{\"ns\":\"a\",\"name\":\"b\",\"exp\":-1}", REFUSAL_token_invalid},
        {"{\"ns\":\"a\",\"name\":\"b\",\"exp\":9007199254740993}", REFUSAL_token_invalid},
        {"{\"ns\":\"a\",\"name\":\"b\"}", REFUSAL_token_invalid},
        {"{\"ns\":\"a\",\"exp\":2000000000}", REFUSAL_token_invalid},
        {"{\"name\":\"b\",\"exp\":2000000000}", REFUSAL_token_invalid},
        {"{\"ns\":\"a\",\"NAME\":\"b\",\"exp\":2000000000}", REFUSAL_token_invalid},
        {"{\"ns\":\"a\",\"name\":\"b/c\",\"exp\":2000000000}", REFUSAL_token_invalid},
        {"{\"ns\":\"a/b\",\"name\":\"c\",\"exp\":2000000000}", REFUSAL_token_invalid},
        {"{\"ns\":\"a\",\"name\":\"B\",\"exp\":2000000000}", REFUSAL_token_invalid},
        {"{\"ns\":\"a\",\"name\":\"-b\",\"exp\":2000000000}", REFUSAL_token_invalid},
        {"{\"ns\":\"\",\"name\":\"b\",\"exp\":2000000000}", REFUSAL_token_invalid},
        {"{\"ns\":\"a\",\"name\":\"*\",\"exp\":2000000000}", REFUSAL_token_invalid},
        {"{\"ns\":\"a\",\"ns\":\"b\",\"name\":\"b\",\"exp\":2000000000}", REFUSAL_token_invalid},
        {"{\"ns\":\"a\",\"name\":\"b\",\"exp\":2000000000}x", REFUSAL_token_invalid},
        {"[]", REFUSAL_token_invalid},
        {"", REFUSAL_token_invalid},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        char token[1024];
        struct grant g;
        sign_scoped(cases[i].payload, token, sizeof token);
        if (scoped(*state, token, NOW, &g) != cases[i].refusal)
            fail_msg("%s", cases[i].payload);
    }
}

/* ---- opensandbox-route ---- */

struct route {
    const char *key, *sandbox;
    uint16_t port;
    const char *expires, *signature;
};

static struct credential signed_route(const struct route *r)
{
    return (struct credential){.source = SOURCE_SIGNATURE,
                               .token = slice_text(r->signature),
                               .expires = slice_text(r->expires),
                               .sandbox = slice_text(r->sandbox),
                               .port = r->port};
}

static void signed_routes_of_opensandbox_are_good(void **state)
{
    static const struct route vectors[] = {
        {"a", "my-sandbox", 8080, "x2qxvk", "21e6a3d0a"},
        {"z", "sb", 42, "0", "8ccd73a1z"},
        {"nosec", "nosec", 8080, "0", "2def8676a"},
        {"bytes", "my-sandbox", 9000, "3w5e11264sgsf", "ce06eeb8z"},
        {"k", "gamma", 7777, "x2qxvk", "8df586d8k"},
        {"uri", "d-e", 3000, "x2qxvk", "8c431392a"},
    };
    for (size_t i = 0; i < sizeof(vectors) / sizeof(*vectors); i++) {
        const struct route *v = &vectors[i];
        struct world w = *(struct world *)*state;
        const struct credential c = signed_route(v);
        char text[256];
        struct grant g;
        struct fail why;
        char id = v->signature[8];
        snprintf(text, sizeof text,
                 "[{\"kind\":\"opensandbox-route\",\"min_secret\":1,\"keys\":{\"%c\":\"%s\"}}]", id, v->key);
        w.tokens = load(&w, text, &why);
        assert_non_null(w.tokens);
        assert_int_equal(check(&w, &c, 0, &g), REFUSAL_NONE);
        assert_true(slice_is(g.sandbox, v->sandbox) && g.needs == NEED_HTTP);
        assert_true(grant_allows_port(&g, v->port) && !grant_allows_port(&g, (uint16_t)(v->port + 1)));
        assert_true(g.kid.len == 19 && slice_starts(g.kid, "opensandbox-route:") && g.kid.at[18] == id);
        assert_true(kid_stands(w.tokens, g.kid, NULL));
        assert_true(kid_stands(((struct world *)*state)->tokens, g.kid, NULL));
        assert_false(kid_stands(w.tokens, SLICE_LITERAL("opensandbox-route:9"), NULL));
        assert_false(kid_stands(w.tokens, SLICE_LITERAL("a"), NULL));
        tokens_free(w.tokens);
    }
}

static void signed_routes_are_good_through_their_last_second(void **state)
{
    const struct route r = {NULL, "my-sandbox", 8080, "x2qxvk", "21e6a3d0a"};
    const struct credential c = signed_route(&r);
    struct grant g;
    assert_int_equal(check(*state, &c, 2000000000, &g), REFUSAL_NONE);
    assert_int_equal(check(*state, &c, 2000000001, &g), REFUSAL_token_expired);
}

static void a_signature_is_for_nothing_else(void **state)
{
    static const struct {
        struct route route;
        enum refusal refusal;
    } bad[] = {
        {{NULL, "my-sandbox", 8081, "x2qxvk", "21e6a3d0a"}, REFUSAL_token_invalid},
        {{NULL, "my-sandboy", 8080, "x2qxvk", "21e6a3d0a"}, REFUSAL_token_invalid},
        {{NULL, "ns/my-sandbox", 8080, "x2qxvk", "21e6a3d0a"}, REFUSAL_token_invalid},
        {{NULL, "my-sandbox", 8080, "x2qxvl", "21e6a3d0a"}, REFUSAL_token_invalid},
        {{NULL, "my-sandbox", 8080, "x2qxvk", "21e6a3d1a"}, REFUSAL_token_invalid},
        {{NULL, "my-sandbox", 8080, "x2qxvk", "21E6A3D0a"}, REFUSAL_token_invalid},
        {{NULL, "my-sandbox", 8080, "x2qxvk", "21e6a3d0z"}, REFUSAL_token_invalid},
        {{NULL, "my-sandbox", 8080, "x2qxvk", "21e6a3d0q"}, REFUSAL_token_invalid}, /* no such key */
        {{NULL, "my-sandbox", 8080, "x2qxvk", "21e6a3d0-"}, REFUSAL_token_invalid},
        {{NULL, "my-sandbox", 8080, "x2qxvk", "21e6a3d0"}, REFUSAL_bad_request},
        {{NULL, "my-sandbox", 8080, "x2qxvk", ""}, REFUSAL_bad_request},
        {{NULL, "my-sandbox", 8080, "3w5e11264sgsg", "21e6a3d0a"}, REFUSAL_bad_request}, /* 2^64 */
        {{NULL, "my-sandbox", 8080, "zzzzzzzzzzzzz", "21e6a3d0a"}, REFUSAL_bad_request},
        {{NULL, "my-sandbox", 8080, "0x2qxvk", "21e6a3d0a"}, REFUSAL_bad_request},
        {{NULL, "my-sandbox", 8080, "X2QXVK", "21e6a3d0a"}, REFUSAL_bad_request},
        {{NULL, "my-sandbox", 8080, "", "21e6a3d0a"}, REFUSAL_bad_request},
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        const struct credential c = signed_route(&bad[i].route);
        struct grant g;
        if (check(*state, &c, NOW, &g) != bad[i].refusal)
            fail_msg("%s %s", bad[i].route.expires, bad[i].route.signature);
    }
}

/* ---- file-url ---- */

#define FILE_SIGNATURE "019434f64ae08e581f9b086388ee047d20825c07225345af51cf238ab60faf90"

static struct credential file_url(const char *path, const char *operation, const char *expires,
                                  const char *signature)
{
    return (struct credential){.source = SOURCE_FILE_URL,
                               .token = slice_text(signature),
                               .expires = slice_text(expires),
                               .path = slice_text(path),
                               .operation = operation,
                               .sandbox = SLICE_LITERAL("sb-0123abcd")};
}

static void opencomputers_signed_url_is_good_for_a_day_at_most(void **state)
{
    const struct credential c = file_url("/home/user/a.txt", "download", "2000000000", FILE_SIGNATURE);
    struct grant g;
    assert_int_equal(check(*state, &c, 2000000000, &g), REFUSAL_NONE);
    assert_true(slice_is(g.sandbox, "sb-0123abcd") && slice_is(g.file, "/home/user/a.txt"));
    assert_true(slice_is(g.kid, "f") && g.needs == NEED_HTTP && g.exp == 2000000000);
    assert_true(g.iat == 2000000000 - 86400);
    assert_int_equal(check(*state, &c, 2000000001, &g), REFUSAL_token_expired);
    assert_int_equal(check(*state, &c, 2000000000 - 86400, &g), REFUSAL_NONE);
    assert_int_equal(check(*state, &c, 2000000000 - 86401, &g), REFUSAL_token_invalid);
}

static void a_signed_url_is_for_nothing_else(void **state)
{
    static const char good[] = FILE_SIGNATURE;
    const struct credential bad[] = {
        file_url("/home/user/b.txt", "download", "2000000000", good),
        file_url("/home/user/a.txt", "upload", "2000000000", good),
        file_url("/home/user/a.txt", "download", "2000000001", good),
        file_url("/home/user/a.txt", "download", "02000000000", good),
        file_url("/home/user/a.txt", "download", "+2000000000", good),
        file_url("/home/user/a.txt", "download", "2000000000 ", good),
        file_url("/home/user/a.txt", "download", "", good),
        file_url("/home/user/a.txt", "download", "99999999999999999999", good),
        file_url("/home/user/a.txt", "download", "2000000000", ""),
        file_url("/home/user/a.txt", "download", "2000000000", "0"),
        file_url("/home/user/a.txt", "download", "2000000000",
                 "019434F64AE08E581F9B086388EE047D20825C07225345AF51CF238AB60FAF90"),
        file_url("/home/user/a.txt", "download", "2000000000",
                 "019434f64ae08e581f9b086388ee047d20825c07225345af51cf238ab60faf9"),
        file_url("/home/user/a.txt", "download", "2000000000",
                 "019434f64ae08e581f9b086388ee047d20825c07225345af51cf238ab60faf900"),
        file_url("/home/user/a.txt", "download", "2000000000",
                 "119434f64ae08e581f9b086388ee047d20825c07225345af51cf238ab60faf90"),
        file_url("/home/user/a.txt", "download", "2000000000",
                 "g19434f64ae08e581f9b086388ee047d20825c07225345af51cf238ab60faf90"),
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        struct grant g;
        assert_int_equal(check(*state, &bad[i], NOW, &g), REFUSAL_token_invalid);
    }
    struct credential other = file_url("/home/user/a.txt", "download", "2000000000", good);
    struct grant g;
    other.sandbox = SLICE_LITERAL("sb-0123abce");
    assert_int_equal(check(*state, &other, NOW, &g), REFUSAL_token_invalid);
}

/* ---- static ---- */

static void sha256_of(const char *text, char hex[65])
{
    uint8_t digest[32];
    unsigned len = sizeof digest;
    assert_true(EVP_Digest(text, strlen(text), digest, &len, EVP_sha256(), NULL));
    for (size_t i = 0; i < 32; i++)
        snprintf(hex + 2 * i, 3, "%02x", digest[i]);
}

static struct credential secret(enum credential_source source, const char *text)
{
    return (struct credential){.source = source, .token = slice_text(text), .sandbox = SLICE_LITERAL("sb-1")};
}

static void the_records_secret_is_good_where_it_is_listened_to(void **state)
{
    const struct world *w = *state;
    struct credential c = secret(SOURCE_SECURE_ACCESS, "an access secret");
    struct record record = {.state = RECORD_RUNNING};
    char hex[65];
    struct grant g;
    const char *reason;
    sha256_of("an access secret", hex);
    record.access_sha256 = slice_text(hex);
    assert_int_equal(check(w, &c, NOW, &g), REFUSAL_NONE);
    assert_true(token_needs_secret(&g));
    assert_int_equal(token_admits_secret(&g, &record, &reason), REFUSAL_NONE);
    assert_true(slice_is(g.sandbox, "sb-1") && g.needs == (NEED_HTTP | NEED_PTY) && g.iat == NOW);
    c.source = SOURCE_OC_PREVIEW;
    assert_int_equal(check(w, &c, NOW, &g), REFUSAL_NONE);
    assert_int_equal(g.needs, NEED_HTTP);
    c.source = SOURCE_DAYTONA_PREVIEW;
    assert_int_equal(check(w, &c, NOW, &g), REFUSAL_token_invalid);
    assert_null(g.kind);
}

static void a_wrong_secret_and_no_such_sandbox_are_the_same(void **state)
{
    const struct credential c = secret(SOURCE_SECURE_ACCESS, "another");
    struct record with = {.state = RECORD_RUNNING}, without = with;
    const char *reason, *first;
    char hex[65];
    struct grant g;
    sha256_of("an access secret", hex);
    with.access_sha256 = slice_text(hex);
    assert_int_equal(check(*state, &c, NOW, &g), REFUSAL_NONE);
    assert_int_equal(token_admits_secret(&g, NULL, &first), REFUSAL_token_invalid);
    assert_int_equal(token_admits_secret(&g, &with, &reason), REFUSAL_token_invalid);
    assert_ptr_equal(reason, first);
    assert_int_equal(token_admits_secret(&g, &without, &reason), REFUSAL_token_invalid);
    assert_ptr_equal(reason, first);
}

static void a_changed_secret_ends_what_it_opened(void **state)
{
    const struct world *w = *state;
    const struct credential c = secret(SOURCE_SECURE_ACCESS, "an access secret");
    struct record record = {.state = RECORD_RUNNING};
    char hex[65], other[65], kid[64];
    struct grant g;
    sha256_of("an access secret", hex);
    sha256_of("another", other);
    assert_int_equal(check(w, &c, NOW, &g), REFUSAL_NONE);
    snprintf(kid, sizeof kid, "%.*s", SLICE_PRINTF(g.kid));
    assert_int_equal(strlen(kid), strlen("static:") + 8);
    assert_null(strstr(hex, kid + strlen("static:")));
    record.access_sha256 = slice_text(hex);
    assert_true(kid_stands(w->tokens, slice_text(kid), &record));
    record.access_sha256 = slice_text(other);
    assert_false(kid_stands(w->tokens, slice_text(kid), &record));
    record.access_sha256 = (struct slice){NULL, 0};
    assert_false(kid_stands(w->tokens, slice_text(kid), &record));
}

static void secrets_are_not_remembered(void **state)
{
    const struct world *w = *state;
    const struct credential c = secret(SOURCE_AUTHORIZATION, "an access secret");
    uint64_t before = token_cache_counts(w->cache).hits;
    for (int i = 0; i < 3; i++) {
        struct grant g;
        assert_int_equal(check(w, &c, NOW, &g), REFUSAL_NONE);
        assert_true(token_needs_secret(&g));
    }
    assert_int_equal(token_cache_counts(w->cache).hits, before);
}

static void sandboxes_without_a_secret_are_open_only_where_it_is_said(void **state)
{
    struct world w = *(struct world *)*state;
    struct record record = {.state = RECORD_RUNNING};
    const struct credential none = credential_bearer((struct slice){NULL, 0});
    const char *reason;
    char hex[65];
    struct grant g;
    struct fail why;
    assert_int_equal(check(&w, &none, NOW, &g), REFUSAL_token_missing);
    w.tokens = load(&w, "[{\"kind\":\"static\",\"everywhere\":true,\"public\":true}]", &why);
    assert_int_equal(check(&w, &none, NOW, &g), REFUSAL_NONE);
    assert_true(token_needs_secret(&g) && g.needs == NEED_HTTP);
    assert_int_equal(token_admits_secret(&g, &record, &reason), REFUSAL_NONE);
    assert_int_equal(token_admits_secret(&g, NULL, &reason), REFUSAL_token_missing);
    assert_true(kid_stands(w.tokens, g.kid, &record));
    sha256_of("x", hex);
    record.access_sha256 = slice_text(hex);
    assert_int_equal(token_admits_secret(&g, &record, &reason), REFUSAL_token_missing);
    /* nor are tunnels that were opened before it had one */
    assert_false(kid_stands(w.tokens, g.kid, &record));
    record.access_sha256 = (struct slice){NULL, 0};
    assert_false(kid_stands(((struct world *)*state)->tokens, g.kid, &record));
    tokens_free(w.tokens);
}

/* By its place, and by what it grants there. */
static void a_secrets_tunnel_ends_when_no_entry_would_let_it_in_again(void **state)
{
    static const struct {
        const char *entry;
        bool secret, public;
    } cases[] = {
        {"\"sources\":[\"authorization\"],\"routes\":[\"app\"]", true, false},
        {"\"sources\":[\"authorization\"],\"routes\":[\"other\"]", false, false},
        {"\"sources\":[\"authorization\"],\"systems\":[\"e2b\"]", true, false},
        {"\"sources\":[\"authorization\"],\"systems\":[\"daytona\"]", false, false},
        {"\"routes\":[\"app\"],\"public\":true", true, true},
        {"\"routes\":[\"other\"],\"public\":true", false, false},
        {"\"everywhere\":true,\"public\":true", true, true},
        {"\"everywhere\":true", true, false},
        {"\"everywhere\":true,\"public\":true,\"need\":[\"pty\"]", false, false},
        {"\"everywhere\":true,\"public\":true,\"need\":[\"pty\",\"http\"]", true, true},
        {"\"sources\":[\"X-Daytona-Preview-Token\"]", false, false},
        {"\"sources\":[\"e2b-traffic-access-token\"]", true, false},
    };
    struct token_tunnel tunnel = {.needs = NEED_HTTP, .place = {.route = "app", .system = SYSTEM_E2B}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[256];
        struct fail why;
        snprintf(text, sizeof text, "[{\"kind\":\"static\",%s}]", cases[i].entry);
        struct tokens *tokens = load(*state, text, &why);
        if (!tokens)
            fail_msg("%s", why.text);
        tunnel.kid = SLICE_LITERAL("static:12345678");
        assert_int_equal(token_stands(tokens, &tunnel), cases[i].secret);
        tunnel.kid = SLICE_LITERAL("static:public");
        assert_int_equal(token_stands(tokens, &tunnel), cases[i].public);
        tokens_free(tokens);
    }
}

/* ---- all of them ---- */

static void lifetimes_can_be_bounded_which_is_what_revocation_goes_by(void **state)
{
    struct world w = *(struct world *)*state;
    const struct route r = {NULL, "my-sandbox", 8080, "x2qxvk", "21e6a3d0a"};
    const struct credential c = signed_route(&r);
    struct grant g;
    struct fail why;
    const char *reason;
    w.tokens =
        load(&w,
             "[{\"kind\":\"agent-sandbox\",\"secret_file\":\"scoped\",\"max_ttl\":\"1h\"},"
             "{\"kind\":\"opensandbox-route\",\"min_secret\":1,\"max_ttl\":\"1h\",\"keys\":{\"a\":\"a\"}}]",
             &why);
    assert_non_null(w.tokens);
    for (int i = 0; i < 2; i++) {
        const struct credential one = i ? c : credential_bearer(slice_text(box_a));
        assert_int_equal(check(&w, &one, 2000000000 - 3601, &g), REFUSAL_token_invalid);
        assert_int_equal(check(&w, &one, 2000000000 - 3600, &g), REFUSAL_NONE);
        assert_int_equal(g.iat, 2000000000 - 3600);
        g.org = SLICE_LITERAL("o");
        assert_int_equal(token_admits_record(&g, SLICE_LITERAL("o"), g.iat, &reason), REFUSAL_NONE);
        assert_int_equal(token_admits_record(&g, SLICE_LITERAL("o"), g.iat + 1, &reason),
                         REFUSAL_token_revoked);
    }
    tokens_free(w.tokens);
}

static void what_is_minted_is_good(void **state)
{
    const struct world *w = *state;
    static const char *const kinds[] = {"agent-sandbox", "opensandbox-route", "file-url"};
    for (size_t i = 0; i < 3; i++) {
        uint8_t memory[1024], port[2];
        struct writer text = writer_of(memory, sizeof memory), ports = writer_of(port, sizeof port);
        struct grant want = {
            .sandbox = SLICE_LITERAL("my-sandbox"), .needs = NEED_UNSAID, .iat = NOW, .exp = NOW + 60};
        struct fail why = {""};
        grant_put_port(&ports, 8080);
        if (i == 1)
            want.ports = writer_slice(&ports);
        if (i == 2) {
            want.file = SLICE_LITERAL("/a b&c");
            want.operation = "upload";
        }
        if (!tokens_mint(w->tokens, slice_text(kinds[i]), (struct slice){NULL, 0}, &want, &text, &why))
            fail_msg("%s: %s", kinds[i], why.text);
        memory[text.len] = '\0';
        if (i == 0) {
            struct grant g;
            assert_int_equal(scoped(w, (char *)memory, NOW, &g), REFUSAL_NONE);
            assert_true(slice_is(g.sandbox, "my-sandbox") && slice_is(g.kid, "old"));
        } else if (i == 1) {
            assert_true(slice_starts(writer_slice(&text), "my-sandbox-8080-x2q"));
        } else {
            assert_non_null(
                strstr((char *)memory, "/my-sandbox/files/upload?path=/a%20b%26c&expires=1999999060&"));
        }
    }
}

static void what_a_kind_cannot_say_is_not_minted(void **state)
{
    const struct world *w = *state;
    const struct {
        const char *kind;
        struct grant grant;
    } bad[] = {
        {"agent-sandbox", {.sandbox = SLICE_LITERAL("a"), .needs = NEED_PTY, .exp = NOW}},
        {"agent-sandbox", {.sandbox = SLICE_LITERAL("a"), .needs = NEED_UNSAID, .org = SLICE_LITERAL("o")}},
        {"agent-sandbox", {.sandbox = SLICE_LITERAL("*"), .needs = NEED_UNSAID}},
        {"agent-sandbox", {.sandbox = SLICE_LITERAL("a/b/c"), .needs = NEED_UNSAID}},
        {"opensandbox-route", {.sandbox = SLICE_LITERAL("a"), .needs = NEED_UNSAID}},
        {"opensandbox-route", {.sandbox = SLICE_LITERAL("a"), .ports = SLICE_LITERAL("\0\1\0\2")}},
        {"opensandbox-route", {.sandbox = SLICE_LITERAL("n/a"), .ports = SLICE_LITERAL("\0\1")}},
        {"file-url", {.sandbox = SLICE_LITERAL("a")}},
        {"file-url",
         {.sandbox = SLICE_LITERAL("a"), .file = SLICE_LITERAL("b"), .operation = "upload", .exp = 86401}},
        {"jwt", {.sandbox = SLICE_LITERAL("a"), .needs = NEED_UNSAID}},
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        uint8_t memory[1024];
        struct writer text = writer_of(memory, sizeof memory);
        struct fail why = {""};
        assert_false(tokens_mint(w->tokens, slice_text(bad[i].kind), (struct slice){NULL, 0}, &bad[i].grant,
                                 &text, &why));
        assert_true(why.text[0] && text.len == 0);
    }
}

#define JWT "{\"kind\":\"jwt\",\"alg\":\"HS256\",\"secret_file\":\"scoped\""

/* Each entry is good for what it lists, where it lists it, whatever the cache has seen elsewhere. */
static void a_jwt_is_good_where_its_entry_says(void **state)
{
    static const char *const entries[] = {
        JWT "}",
        JWT ",\"sources\":[\"X-API-Key\",\"?api_key\"]}",
        JWT ",\"systems\":[\"e2b\"]}",
        JWT ",\"routes\":[\"app\"],\"sources\":[\"X-API-Key\",\"authorization\"]}",
        JWT ",\"domains\":[\"A.test\"]}",
    };
    const enum credential_source HEADER = SOURCE_COUNT, PARAMETER = SOURCE_COUNT + 1;
    const struct {
        enum credential_source source;
        struct credential_place place;
        const char *good; /* an entry each */
    } cases[] = {
        {SOURCE_AUTHORIZATION, {.route = "app", .host = {(const uint8_t *)"x.a.test", 8}}, "y  yy"},
        {SOURCE_AUTHORIZATION,
         {.route = "e", .system = SYSTEM_E2B, .host = {(const uint8_t *)"a.test", 6}},
         "y y y"},
        {SOURCE_AUTHORIZATION, {.route = "e", .host = {(const uint8_t *)"ba.test", 7}}, "y    "},
        {SOURCE_AUTHORIZATION, {.route = "e"}, "y    "},
        {SOURCE_COOKIE, {.route = "app"}, "y    "},
        {HEADER, {.route = "app"}, " y y "},
        {HEADER, {.route = "e", .system = SYSTEM_E2B}, " y   "},
        {PARAMETER, {.route = "e"}, " y   "},
    };
    struct world w = *(struct world *)*state;
    for (size_t i = 0; i < sizeof entries / sizeof *entries; i++) {
        char text[512], memory[2048];
        struct fail why;
        struct writer token = writer_of(memory, sizeof memory);
        const struct grant grant = {
            .sandbox = SLICE_LITERAL("sb-1"), .needs = NEED_HTTP, .iat = NOW, .exp = NOW + 60};
        snprintf(text, sizeof text, "[%s]", entries[i]);
        if (!(w.tokens = load(&w, text, &why)))
            fail_msg("%s", why.text);
        assert_true(
            tokens_mint(w.tokens, SLICE_LITERAL("jwt"), (struct slice){NULL, 0}, &grant, &token, &why));
        for (size_t j = 0; j < 2 * sizeof cases / sizeof *cases;
             j++) { /* and again, when the cache knows it */
            size_t k = j % (sizeof cases / sizeof *cases);
            const struct credential c = {
                .source = cases[k].source, .place = cases[k].place, .token = writer_slice(&token)};
            struct grant g;
            bool good = check(&w, &c, NOW, &g) == REFUSAL_NONE;
            if (good != (cases[k].good[i] == 'y'))
                fail_msg("%s, case %zu", entries[i], k);
        }
        tokens_free(w.tokens);
    }
}

/* Where there is no secret: on the hosts, or the routes, that the entry names, and nowhere else. */
static void public_is_what_its_entry_names(void **state)
{
    static const struct {
        const char *entry,
            *good; /* e2b's preview below a.test, an own host there, both elsewhere, an own path at a.test */
    } cases[] = {
        {"\"domains\":[\"a.test\"]", "yy   "},
        {"\"systems\":[\"e2b\"]", "y y  "},
        {"\"routes\":[\"own\"]", " y yy"},
        {"\"systems\":[\"e2b\"],\"domains\":[\"a.test\"]", "y    "},
        {"\"routes\":[\"own\"],\"domains\":[\"a.test\"]", " y   "},
        {"\"everywhere\":true", "yyyyy"},
        {"\"sources\":[\"e2b-traffic-access-token\"]", "y y  "},
    };
    const struct slice a = SLICE_LITERAL("80-x.a.test"), b = SLICE_LITERAL("80-x.b.test");
    const struct credential_place places[] = {
        {.route = "e2b-preview", .system = SYSTEM_E2B, .host = a, .by_host = true},
        {.route = "own", .host = a, .by_host = true},
        {.route = "e2b-preview", .system = SYSTEM_E2B, .host = b, .by_host = true},
        {.route = "own", .host = b, .by_host = true},
        {.route = "own", .host = a}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[256];
        struct fail why;
        snprintf(text, sizeof text, "[{\"kind\":\"static\",\"public\":true,%s}]", cases[i].entry);
        struct tokens *tokens = load(*state, text, &why);
        if (!tokens)
            fail_msg("%s", why.text);
        for (size_t j = 0; j < 5; j++)
            if (token_is_public(tokens, &places[j]) != (cases[i].good[j] == 'y'))
                fail_msg("%s, place %zu", cases[i].entry, j);
        tokens_free(tokens);
    }
}

/* An application may have a path `/files` and a parameter `signature`: that is no access secret. */
static void no_secret_comes_by_a_signature(void **state)
{
    static const char *const entries[] = {"\"systems\":[\"e2b\"]", "\"everywhere\":true",
                                          "\"sources\":[\"e2b-traffic-access-token\"]"};
    const struct credential_place preview = {.route = "e2b-preview", .system = SYSTEM_E2B, .port = 8080};
    for (size_t i = 0; i < sizeof entries / sizeof *entries; i++) {
        char text[256];
        struct fail why;
        snprintf(text, sizeof text, "[{\"kind\":\"static\",%s}]", entries[i]);
        struct tokens *tokens = load(*state, text, &why);
        if (!tokens)
            fail_msg("%s", why.text);
        unsigned sources = tokens_sources(tokens, &preview);
        assert_true(sources & SOURCE_BIT(E2B_ACCESS));
        assert_false(sources & (SOURCE_BIT(SIGNATURE) | SOURCE_BIT(FILE_URL) | SOURCE_BIT(ENVD_URL)));
        tokens_free(tokens);
    }
}

/* A narrower scope is another key to tunnels that are open. */
static void a_narrower_scope_ends_the_tunnels_of_a_jwt(void **state)
{
    const struct world *w = *state;
    static const char *const entries[] = {JWT "}", JWT ",\"routes\":[\"a\"]}",
                                          JWT ",\"routes\":[\"a\",\"b\"]}", JWT ",\"domains\":[\"a\"]}",
                                          JWT ",\"systems\":[\"e2b\"]}"};
    uint8_t key[5][KEY_FINGERPRINT];
    for (size_t i = 0; i < 5; i++) {
        char text[256];
        struct fail why;
        size_t count;
        snprintf(text, sizeof text, "[%s]", entries[i]);
        struct tokens *tokens = load(w, text, &why);
        memcpy(key[i], tokens_entries(tokens, &count)->fingerprint, KEY_FINGERPRINT);
        for (size_t j = 0; j < i; j++)
            assert_false(tokens_has_key(tokens, slice_of(key[j], KEY_FINGERPRINT)));
        tokens_free(tokens);
    }
}

static void entries_that_are_not_in_order_are_refused(void **state)
{
    const struct world *w = *state;
    static const struct {
        const char *text, *why;
    } bad[] = {
        {"[{\"kind\":\"agent-sandbox\"}]", "secret_file"},
        {"[{\"kind\":\"agent-sandbox\",\"secret_file\":\"nothing\"}]", "nothing"},
        {"[{\"kind\":\"agent-sandbox\",\"secret_file\":\"url\"}]", "at least 32"},
        {"[{\"kind\":\"file-url\",\"secret_file\":\"url\"}]", "at least 32"},
        {"[{\"kind\":\"opensandbox-route\",\"keys\":{\"a\":\"a\"}}]", "at least 32"},
        {"[{\"kind\":\"opensandbox-route\",\"keys\":{}}]", "at least one"},
        {"[{\"kind\":\"opensandbox-route\",\"keys\":{\"A\":\"a\"}}]", "0-9 and a-z"},
        {"[{\"kind\":\"opensandbox-route\",\"keys\":{\"aa\":\"a\"}}]", "0-9 and a-z"},
        {"[{\"kind\":\"opensandbox-route\",\"keys\":{\"a\":1}}]", "path"},
        {"[{\"kind\":\"opensandbox-route\",\"keys\":[]}]", "object"},
        {"[{\"kind\":\"opensandbox-route\",\"min_secret\":1,\"keys\":{\"a\":\"url\"}}]", "base64"},
        {"[{\"kind\":\"opensandbox-route\",\"min_secret\":1,\"keys\":{\"a\":\"nothing\"}}]", "nothing"},
        {"[{\"kind\":\"static\",\"sources\":[\"signature\"]}]", "no other meaning"},
        {"[{\"kind\":\"static\",\"systems\":[\"e2b\"],\"sources\":[\"file-url\"]}]", "no other meaning"},
        {"[{\"kind\":\"static\",\"systems\":[\"e2b\"],\"sources\":[\"envd-url\"]}]", "no other meaning"},
        {"[{\"kind\":\"static\",\"sources\":[\"X-Other\"]}]", "one of them is of no system"},
        {"[{\"kind\":\"static\",\"sources\":[\"?key\"]}]", "one of them is of no system"},
        {"[{\"kind\":\"static\",\"everywhere\":true,\"sources\":[\"X_Other\"]}]", "a header's name"},
        {"[{\"kind\":\"static\",\"everywhere\":true,\"sources\":[\"Connection\"]}]", "a header's name"},
        {"[{\"kind\":\"static\",\"everywhere\":true,\"sources\":[\"X-Cell-Handover\"]}]", "a header's name"},
        {"[{\"kind\":\"static\",\"everywhere\":true,\"sources\":[\"?a&b\"]}]", "a header's name"},
        {"[{\"kind\":\"static\",\"everywhere\":true,\"sources\":[\"?cellgate_token\"]}]", "a header's name"},
        {"[{\"kind\":\"static\",\"domains\":[\"a b\"]}]", "the name of a domain"},
        {"[{\"kind\":\"static\",\"domains\":[\"<e2b>\"]}]", "'<e2b>' has none"},
        {"[{\"kind\":\"static\",\"everywhere\":true,\"domains\":[\"a.b\"]}]", "not together"},
        {"[{\"kind\":\"jwt\",\"alg\":\"HS256\",\"secret_file\":\"scoped\",\"sources\":[\"signature\"]}]",
         "a header's name"},
        {"[{\"kind\":\"static\",\"need\":[\"all\"]}]", "pty"},
        {"[{\"kind\":\"static\",\"sources\":[\"X-OC-Preview-Token\",\"query\"]}]",
         "one of them is of no system"},
        {"[{\"kind\":\"static\",\"public\":true}]", "public: say for which systems"},
        {"[{\"kind\":\"static\",\"everywhere\":true,\"systems\":[\"e2b\"]}]", "not together"},
        {"[{\"kind\":\"static\",\"systems\":[\"E2B\"]}]", "opencomputer"},
        {"[{\"kind\":\"static\",\"secret_file\":\"a\"}]", "secret_file"},
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        struct fail why = {""};
        struct tokens *tokens = load(w, bad[i].text, &why);
        assert_null(tokens);
        if (!strstr(why.text, bad[i].why))
            fail_msg("%s: %s", bad[i].text, why.text);
        assert_null(strstr(why.text, "test-jwt-secret"));
    }
}

static void short_secrets_are_warned_of_and_all_files_told(void **state)
{
    const struct world *w = *state;
    assert_int_equal(tokens_warnings(w->tokens)->count, 4);
    assert_int_equal(tokens_files(w->tokens)->paths.count, 6);
    for (size_t i = 0; i < 4; i++)
        assert_non_null(strstr(tokens_warnings(w->tokens)->at[i], "bytes"));
}

/* ---- fingerprints of keys ---- */

/* What `text` makes of the files has the key of this grant. */
static bool stands(const struct world *w, const char *text, const struct grant *g)
{
    struct fail why = {""};
    struct tokens *tokens = load(w, text, &why);
    if (!tokens)
        fail_msg("%s", why.text);
    const struct token_tunnel tunnel = {.key = g->key, .kid = g->kid, .needs = g->needs};
    bool same = token_stands(tokens, &tunnel);
    tokens_free(tokens);
    return same;
}

static void each_kind_with_keys_says_which_one_it_was(void **state)
{
    const struct world *w = *state;
    const struct route r = {NULL, "my-sandbox", 8080, "x2qxvk", "21e6a3d0a"};
    const struct credential all[] = {credential_bearer(slice_text(box_a)), signed_route(&r),
                                     file_url("/home/user/a.txt", "download", "2000000000", FILE_SIGNATURE)};
    static const char *const file[] = {"scoped", "a", "url"};
    static const char *const other[] = {"another secret of the same kind, long",
                                        "Xl5eXg==", "another secret"};
    static const char *const old[] = {"  0123456789abcdef0123456789abcdef\n",
                                      "bXktYmFzZTY0LWRlY29kZWQtc2VjcmV0IQ==\n", "test-jwt-secret\n"};
    for (size_t i = 0; i < 3; i++) {
        struct grant g;
        assert_int_equal(check(w, &all[i], NOW, &g), REFUSAL_NONE);
        assert_int_equal(g.key.len, KEY_FINGERPRINT);
        assert_true(stands(w, config, &g));
        put(w, file[i], other[i]);
        assert_false(stands(w, config, &g));
        put(w, file[i], old[i]);
        assert_true(stands(w, config, &g));
        assert_false(stands(w, "[{\"kind\":\"static\"}]", &g));
    }
}

/* One of an entry with many, and its entry under another name. */
static void a_key_that_is_taken_out_or_called_otherwise_is_gone(void **state)
{
    const struct world *w = *state;
    const struct route r = {NULL, "my-sandbox", 8080, "x2qxvk", "21e6a3d0a"};
    const struct credential route = signed_route(&r), box = credential_bearer(slice_text(box_a));
    struct grant g;
    assert_int_equal(check(w, &route, NOW, &g), REFUSAL_NONE);
    assert_true(stands(w, "[{\"kind\":\"opensandbox-route\",\"min_secret\":1,\"keys\":{\"a\":\"a\"}}]", &g));
    assert_false(stands(w, "[{\"kind\":\"opensandbox-route\",\"min_secret\":1,\"keys\":{\"z\":\"z\"}}]", &g));
    assert_false(stands(w, "[{\"kind\":\"opensandbox-route\",\"min_secret\":1,\"keys\":{\"b\":\"a\"}}]", &g));
    assert_int_equal(check(w, &box, NOW, &g), REFUSAL_NONE);
    assert_true(stands(w, "[{\"kind\":\"agent-sandbox\",\"kid\":\"new\",\"secret_file\":\"scoped\"}]", &g));
    assert_false(stands(w, "[{\"kind\":\"agent-sandbox\",\"kid\":\"x\",\"secret_file\":\"scoped\"}]", &g));
    assert_false(stands(w, "[{\"kind\":\"agent-sandbox\",\"secret_file\":\"scoped\"}]", &g));
    assert_false(stands(w, "[{\"kind\":\"file-url\",\"kid\":\"new\",\"secret_file\":\"scoped\"}]", &g));
}

static void loading_and_checking_survive_every_failing_allocation(void **state)
{
    struct world w = *(struct world *)*state;
    const struct route r = {NULL, "my-sandbox", 8080, "x2qxvk", "21e6a3d0a"};
    const struct credential all[] = {credential_bearer(slice_text(box_a)), signed_route(&r),
                                     file_url("/home/user/a.txt", "download", "2000000000", FILE_SIGNATURE),
                                     secret(SOURCE_SECURE_ACCESS, "s")};
    struct tokens *tokens = NULL;
    for (unsigned n = 1; !tokens && n < 5000; n++) {
        struct fail why = {""};
        alloc_fail_at(n);
        tokens = load(&w, config, &why);
        alloc_fail_at(0);
        assert_true(tokens || why.text[0]);
    }
    assert_non_null(tokens);
    w.tokens = tokens;
    for (size_t i = 0; i < 4; i++) {
        bool good = false;
        for (unsigned n = 1; !good && n < 1000; n++) {
            struct grant g;
            const char *reason;
            w.cache = token_cache_new(4);
            alloc_fail_at(n);
            enum refusal refusal = token_check(w.tokens, &all[i], NOW, w.cache, &g, &reason);
            alloc_fail_at(0);
            assert_true(refusal == REFUSAL_NONE || refusal == REFUSAL_agent_unavailable);
            good = refusal == REFUSAL_NONE;
            token_cache_free(w.cache);
        }
        assert_true(good);
    }
    tokens_free(tokens);
}

int main(void)
{
    umask(077); /* secrets that everybody can read are warned of */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scoped_tokens_name_their_sandbox),
        cmocka_unit_test(scoped_tokens_end_at_the_exact_second),
        cmocka_unit_test(scoped_tokens_without_the_context_or_with_another_secret_are_refused),
        cmocka_unit_test(every_flipped_bit_of_a_scoped_token_is_refused),
        cmocka_unit_test(what_a_scoped_token_says_is_read_strictly),
        cmocka_unit_test(signed_routes_of_opensandbox_are_good),
        cmocka_unit_test(signed_routes_are_good_through_their_last_second),
        cmocka_unit_test(a_signature_is_for_nothing_else),
        cmocka_unit_test(opencomputers_signed_url_is_good_for_a_day_at_most),
        cmocka_unit_test(a_signed_url_is_for_nothing_else),
        cmocka_unit_test(the_records_secret_is_good_where_it_is_listened_to),
        cmocka_unit_test(a_wrong_secret_and_no_such_sandbox_are_the_same),
        cmocka_unit_test(a_changed_secret_ends_what_it_opened),
        cmocka_unit_test(secrets_are_not_remembered),
        cmocka_unit_test(a_secrets_tunnel_ends_when_no_entry_would_let_it_in_again),
        cmocka_unit_test(sandboxes_without_a_secret_are_open_only_where_it_is_said),
        cmocka_unit_test(lifetimes_can_be_bounded_which_is_what_revocation_goes_by),
        cmocka_unit_test(what_is_minted_is_good),
        cmocka_unit_test(what_a_kind_cannot_say_is_not_minted),
        cmocka_unit_test(a_jwt_is_good_where_its_entry_says),
        cmocka_unit_test(public_is_what_its_entry_names),
        cmocka_unit_test(no_secret_comes_by_a_signature),
        cmocka_unit_test(a_narrower_scope_ends_the_tunnels_of_a_jwt),
        cmocka_unit_test(entries_that_are_not_in_order_are_refused),
        cmocka_unit_test(short_secrets_are_warned_of_and_all_files_told),
        cmocka_unit_test(each_kind_with_keys_says_which_one_it_was),
        cmocka_unit_test(a_key_that_is_taken_out_or_called_otherwise_is_gone),
        cmocka_unit_test(loading_and_checking_survive_every_failing_allocation),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
