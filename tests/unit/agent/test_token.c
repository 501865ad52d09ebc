/* SPDX-License-Identifier: MIT */
#include "tests/unit/support.h"

#include <sys/stat.h>

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "spoa/agent/token/check.h"
#include "spoa/agent/token/jws.h"
#include "spoa/agent/token/jwt_claims.h"
#include "spoa/agent/token/tokens.h"
#include "spoa/base/json/json.h"
#include "spoa/base/text/base64url.h"

/* tests/data/bad_tokens.json with its key files in a folder of their own. */
struct table {
    struct json *doc;
    const json_node *root;
    char folder[32];
    struct tokens *tokens;
    struct token_cache *cache;
    int64_t now;
};

static struct slice text_of(const json_node *node)
{
    struct slice s = {NULL, 0};
    json_text(node, &s);
    return s;
}

static int64_t number_of(const struct table *t, const json_node *node, int64_t absent)
{
    int64_t value = absent;
    json_int(t->doc, node, 0, INT64_MAX, &value);
    return value;
}

static void write_file(const struct table *t, const char *name, struct slice hex)
{
    char path[128];
    snprintf(path, sizeof(path), "%s/%s", t->folder, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    for (size_t i = 0; i + 1 < hex.len; i += 2) {
        char byte[3] = {(char)hex.at[i], (char)hex.at[i + 1], '\0'};
        fputc((int)strtol(byte, NULL, 16), file);
    }
    fclose(file);
}

static int set_up(void **state)
{
    static struct table t;
    struct fail why;
    const struct json_limits limits = {.bytes = 1 << 20, .depth = 16};
    t = (struct table){.folder = "/tmp/test_token.XXXXXX"};
    assert_non_null(mkdtemp(t.folder));
    t.doc = json_parse_file("tests/data/bad_tokens.json", 0, limits, &why);
    if (!t.doc)
        fail_msg("%s", why.text);
    t.root = json_root(t.doc);
    t.now = number_of(&t, json_member(t.root, "now"), 0);
    for (const json_node *n = json_first(json_member(t.root, "files")); n; n = json_next(n))
        write_file(&t, json_key(n), text_of(n));
    t.tokens = tokens_load(t.doc, json_member(t.root, "tokens"), t.folder, "cell-a", TOKENS_CHECK, &why);
    if (!t.tokens)
        fail_msg("%s", why.text);
    t.cache = token_cache_new(1024);
    assert_non_null(t.cache);
    *state = &t;
    return 0;
}

static int tear_down(void **state)
{
    struct table *t = *state;
    for (const json_node *n = json_first(json_member(t->root, "files")); n; n = json_next(n)) {
        char path[128];
        snprintf(path, sizeof(path), "%s/%s", t->folder, json_key(n));
        unlink(path);
    }
    rmdir(t->folder);
    token_cache_free(t->cache);
    tokens_free(t->tokens);
    json_free(t->doc);
    return 0;
}

static enum refusal check_bearer(const struct tokens *tokens, struct slice token, int64_t now,
                                 struct token_cache *cache, struct grant *grant, const char **reason)
{
    const struct credential credential = credential_bearer(token);
    return token_check(tokens, &credential, now, cache, grant, reason);
}

/* Everything that is asked about one token, in the order of the decision. */
static enum refusal judge(const struct table *t, const json_node *one, struct slice token,
                          struct grant *grant, const char **reason)
{
    struct token_target target = {.sandbox = text_of(json_member(t->root, "sandbox")),
                                  .need = need_of(text_of(json_member(t->root, "need"))),
                                  .port = (uint16_t)number_of(t, json_member(one, "port"), 0)};
    enum refusal refusal = check_bearer(t->tokens, token, t->now, t->cache, grant, reason);
    if (refusal == REFUSAL_NONE)
        refusal = token_admits(grant, &target, reason);
    if (refusal == REFUSAL_NONE)
        refusal = token_admits_record(grant, text_of(json_member(one, "org")),
                                      number_of(t, json_member(one, "not_before"), 0), reason);
    return refusal;
}

static const char *code_of(enum refusal refusal)
{
    static const char *const codes[] = {[REFUSAL_NONE] = "",
#define X(name, status, retryable, after, sentence) [REFUSAL_##name] = #name,
                                        REFUSALS(X)
#undef X
    };
    return codes[refusal];
}

static void each_token_of_the_table_gets_its_refusal_twice(void **state)
{
    const struct table *t = *state;
    size_t bad = 0;
    for (const json_node *one = json_first(json_member(t->root, "cases")); one; one = json_next(one))
        for (int round = 0; round < 2; round++) {
            struct grant grant;
            const char *reason = NULL;
            struct slice token = guarded(text_of(json_member(one, "token")));
            enum refusal refusal = judge(t, one, token, &grant, &reason);
            guarded_free(token);
            struct slice wanted = text_of(json_member(one, "refusal"));
            if (!slice_is(wanted, code_of(refusal)))
                fail_msg("%s: %s (%s), expected %.*s", (const char *)text_of(json_member(one, "name")).at,
                         code_of(refusal), reason, SLICE_PRINTF(wanted));
            assert_non_null(reason);
            bad += round == 0 && refusal != REFUSAL_NONE;
        }
    assert_true(bad >= 60);
    struct token_cache_counts counts = token_cache_counts(t->cache);
    assert_true(counts.hits > 0 && counts.misses > counts.hits);
}

static struct slice token_named(const struct table *t, const char *name)
{
    for (const json_node *one = json_first(json_member(t->root, "cases")); one; one = json_next(one))
        if (slice_is(text_of(json_member(one, "name")), name))
            return text_of(json_member(one, "token"));
    fail_msg("no token named %s", name);
    return (struct slice){NULL, 0};
}

static void check_good(const struct table *t, const char *name, struct grant *grant)
{
    const char *reason;
    assert_int_equal(check_bearer(t->tokens, token_named(t, name), t->now, t->cache, grant, &reason),
                     REFUSAL_NONE);
    assert_string_equal(reason, "good");
}

static void a_grant_says_what_the_token_said(void **state)
{
    const struct table *t = *state;
    for (int round = 0; round < 2; round++) { /* the second time from the cache */
        struct grant g;
        uint16_t port;
        check_good(t, "everything", &g);
        assert_true(slice_is(g.sub, "user-7") && slice_is(g.org, "org-1") && slice_is(g.sandbox, "sb-1"));
        assert_true(slice_is(g.jti, "j") && slice_is(g.kid, "k1"));
        assert_string_equal(g.kind, "jwt");
        assert_int_equal(g.needs, NEED_PTY | NEED_EXEC);
        assert_true(grant_port(&g, 0, &port) && port == 80 && grant_port(&g, 1, &port) && port == 8080);
        assert_false(grant_port(&g, 2, &port));
        assert_true(g.iat == t->now - 10 && g.exp == t->now + 110 && g.leeway == 5 && g.bind);
        check_good(t, "the least: exp, aud, sandbox", &g);
        assert_false(slice_present(g.sub) || slice_present(g.org) || slice_present(g.jti) ||
                     slice_present(g.ports));
        assert_int_equal(g.needs, NEED_UNSAID);
        assert_int_equal(g.iat, -1);
        check_good(t, "a secret of 32 NUL bytes, issuer and audience", &g);
        assert_true(g.bind && g.leeway == 0 && slice_is(g.kid, "k2"));
    }
}

static void opencomputers_vector_is_this_kind_with_renames(void **state)
{
    const struct table *t = *state;
    static const char claims[] = "{\"sub\":\"11111111-2222-4333-8444-555555555555\",\"iss\":\"opensandbox-"
                                 "edge\",\"iat\":1999999900,\"exp\":"
                                 "2000000020,\"org_id\":\"11111111-2222-4333-8444-555555555555\",\"cell_id\":"
                                 "\"cell-a\",\"plan\":\"pro\"}";
    char token[1024];
    struct writer w = writer_of(token, sizeof(token));
    struct grant g;
    const char *reason;
    base64url_encode(SLICE_LITERAL("{\"alg\":\"HS256\",\"typ\":\"JWT\"}"), &w);
    writer_text(&w, ".");
    base64url_encode(slice_text(claims), &w);
    writer_text(&w, ".5eP-bZ2J3PoNGGHBRG-zgHInN7RJ8jKMB4I3ou49aco");
    assert_int_equal(check_bearer(t->tokens, writer_slice(&w), 2000000000, t->cache, &g, &reason),
                     REFUSAL_NONE);
    assert_true(slice_is(g.org, "11111111-2222-4333-8444-555555555555"));
    assert_false(slice_present(g.sandbox) || slice_present(g.kid));
    assert_int_equal(check_bearer(t->tokens, writer_slice(&w), 2000000025, t->cache, &g, &reason),
                     REFUSAL_token_expired);
}

/* The first is not in the table because json.h reads no document with a NUL in a string. */
static void a_token_with_a_nul_or_none_at_all(void **state)
{
    const struct table *t = *state;
    struct slice good = token_named(t, "the least: exp, aud, sandbox");
    char *longer = slice_dup(good); /* its terminator becomes part of the token */
    struct grant g;
    const char *reason;
    assert_int_equal(check_bearer(t->tokens, slice_of(longer, good.len + 1), t->now, t->cache, &g, &reason),
                     REFUSAL_token_invalid);
    free(longer);
    assert_string_equal(g.kind, "jwt");
    assert_int_equal(check_bearer(t->tokens, (struct slice){NULL, 0}, t->now, t->cache, &g, &reason),
                     REFUSAL_token_missing);
    assert_null(g.kind);
}

static void every_cut_and_every_flipped_bit_is_refused(void **state)
{
    const struct table *t = *state;
    struct slice good = token_named(t, "everything");
    char *changed = slice_dup(good);
    struct grant g;
    const char *reason;
    for (size_t len = 0; len < good.len; len++)
        assert_int_equal(check_bearer(t->tokens, slice_sub(good, 0, len), t->now, t->cache, &g, &reason),
                         REFUSAL_token_invalid);
    for (size_t bit = 0; bit < good.len * 8; bit++) {
        changed[bit / 8] = (char)(changed[bit / 8] ^ (1 << bit % 8));
        assert_int_equal(check_bearer(t->tokens, slice_of(changed, good.len), t->now, t->cache, &g, &reason),
                         REFUSAL_token_invalid);
        changed[bit / 8] = (char)(changed[bit / 8] ^ (1 << bit % 8));
    }
    free(changed);
}

static void a_remembered_token_expires_and_a_reload_forgets_it(void **state)
{
    const struct table *t = *state;
    struct token_cache *cache = token_cache_new(16);
    struct slice token = token_named(t, "everything");
    struct grant g;
    struct fail why;
    const char *reason;
    assert_int_equal(check_bearer(t->tokens, token, t->now, cache, &g, &reason), REFUSAL_NONE);
    assert_int_equal(check_bearer(t->tokens, token, t->now + 114, cache, &g, &reason), REFUSAL_NONE);
    assert_int_equal(token_cache_counts(cache).hits, 1);
    assert_int_equal(check_bearer(t->tokens, token, t->now + 115, cache, &g, &reason), REFUSAL_token_expired);
    assert_int_equal(check_bearer(t->tokens, token, t->now, cache, &g, &reason), REFUSAL_NONE);
    struct tokens *none = tokens_load(t->doc, NULL, NULL, "cell-a", TOKENS_CHECK, &why);
    assert_int_equal(check_bearer(none, token, t->now, cache, &g, &reason), REFUSAL_token_invalid);
    tokens_free(none);
    token_cache_free(cache);
}

static void without_memory_a_check_is_no_yes(void **state)
{
    const struct table *t = *state;
    struct slice token = token_named(t, "everything");
    bool good = false;
    for (unsigned n = 1; !good && n < 1000; n++) {
        struct token_cache *cache = token_cache_new(4);
        struct grant g;
        const char *reason;
        alloc_fail_at(n);
        enum refusal refusal = check_bearer(t->tokens, token, t->now, cache, &g, &reason);
        alloc_fail_at(0);
        assert_true(refusal == REFUSAL_NONE || refusal == REFUSAL_agent_unavailable);
        good = refusal == REFUSAL_NONE;
        token_cache_free(cache);
    }
    assert_true(good);
}

static void loading_survives_every_failing_allocation(void **state)
{
    const struct table *t = *state;
    struct tokens *tokens = NULL;
    for (unsigned n = 1; !tokens && n < 5000; n++) {
        struct fail why = {""};
        alloc_fail_at(n);
        tokens = tokens_load(t->doc, json_member(t->root, "tokens"), t->folder, "cell-a", TOKENS_CHECK, &why);
        alloc_fail_at(0);
        assert_true(tokens || why.text[0]);
    }
    assert_non_null(tokens);
    tokens_free(tokens);
}

static void files_and_warnings_are_told(void **state)
{
    const struct table *t = *state;
    const struct texts *files = &tokens_files(t->tokens)->paths, *warnings = tokens_warnings(t->tokens);
    assert_int_equal(files->count, 6);
    for (size_t i = 0; i < files->count; i++)
        assert_int_equal(access(files->at[i], R_OK), 0);
    assert_int_equal(warnings->count, 1);
    assert_non_null(strstr(warnings->at[0], "opencomputer.secret"));
    assert_null(strstr(warnings->at[0], "test-session-secret"));
}

/* ---- the configuration ---- */

static struct tokens *load(const struct table *t, const char *array, enum tokens_use use, struct fail *why)
{
    const struct json_limits limits = {.bytes = 65536, .depth = 8};
    struct json *doc = json_parse(slice_text(array), "config", 0, limits, why);
    struct tokens *tokens = doc ? tokens_load(doc, json_root(doc), t->folder, "cell-a", use, why) : NULL;
    json_free(doc);
    return tokens;
}

#define HS256 "\"kind\":\"jwt\",\"alg\":\"HS256\",\"secret_file\":\"k1.secret\""

static void entries_that_are_not_in_order_are_refused(void **state)
{
    static const struct {
        const char *entry, *words;
    } bad[] = {
        {"{}", "tokens must be an array"},
        {"[1]", "must be an object"},
        {"[{}]", "kind"},
        {"[{\"kind\":\"JWT\"}]", "kind"},
        {"[{\"kind\":\"jwt\"}]", "alg"},
        {"[{\"kind\":\"jwt\",\"alg\":\"none\"}]", "alg"},
        {"[{\"kind\":\"jwt\",\"alg\":\"HS256\"}]", "secret_file"},
        {"[{\"kind\":\"jwt\",\"alg\":\"ES256\",\"secret_file\":\"k1.secret\"}]", "public_key_file"},
        {"[{" HS256 ",\"public_key_file\":\"ec.jwk\"}]", "secret_file"},
        {"[{\"kind\":\"jwt\",\"alg\":\"HS256\",\"secret_file\":\"missing\"}]", "missing"},
        {"[{\"kind\":\"jwt\",\"alg\":\"HS256\",\"secret_file\":\"opencomputer.secret\"}]", "19 bytes"},
        {"[{\"kind\":\"jwt\",\"alg\":\"HS256\",\"secret_file\":\"opencomputer.secret\",\"min_secret\":20}]",
         "19 bytes"},
        {"[{\"kind\":\"jwt\",\"alg\":\"EdDSA\",\"public_key_file\":\"ec.jwk\"}]", "ec.jwk"},
        {"[{" HS256 ",\"kid\":\"\"}]", "kid"},
        {"[{" HS256 ",\"kid\":\"a\\\"b\"}]", "kid"},
        {"[{" HS256 ",\"issuer\":\"\"}]", "issuer"},
        {"[{" HS256 ",\"leeway\":\"2h\"}]", "leeway"},
        {"[{" HS256 ",\"max_ttl\":\"0s\"}]", "max_ttl"},
        {"[{" HS256 ",\"claims\":{\"cells\":\"cell_id\"}}]", "claim"},
        {"[{" HS256 ",\"claims\":{\"cell\":7}}]", "claim"},
        {"[{" HS256 ",\"claims\":{\"cell\":\"\"}}]", "claim"},
        {"[{" HS256 ",\"claims\":{\"cell\":\"sub\"}}]", "same"},
        {"[{" HS256 ",\"claims\":[]}]", "claims"},
        {"[{" HS256 ",\"secret\":\"inline\"}]", "secret"},
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        struct fail why = {""};
        struct tokens *tokens = load(*state, bad[i].entry, TOKENS_CHECK, &why);
        if (tokens || !strstr(why.text, bad[i].words))
            fail_msg("%s: \"%s\", expected something with \"%s\"", bad[i].entry, why.text, bad[i].words);
    }
}

static void names_of_claims_can_be_exchanged(void **state)
{
    struct fail why;
    struct tokens *tokens =
        load(*state, "[{" HS256 ",\"claims\":{\"sub\":\"org\",\"org\":\"sub\"}}]", TOKENS_CHECK, &why);
    assert_non_null(tokens);
    tokens_free(tokens);
}

/* ---- minting ---- */

static void what_is_minted_is_admitted_as_it_was_meant(void **state)
{
    const struct table *t = *state;
    static const char config[] =
        "[{\"kind\":\"jwt\",\"alg\":\"EdDSA\",\"kid\":\"ed\",\"public_key_file\":\"ed.jwk\"},"
        "{" HS256 ",\"kid\":\"k1\"},{" HS256
        ",\"kid\":\"oc\",\"issuer\":\"edge\",\"claims\":{\"cell\":\"cell_id\"}},"
        "{" HS256 ",\"kid\":\"aud\",\"audience\":\"https://cellgate.example\"}]";
    static const char *const kids[] = {NULL, "k1", "oc", "aud"};
    static const uint8_t ports[] = {0, 80, 0x1f, 0x90};
    struct fail why;
    struct tokens *tokens = load(t, config, TOKENS_MINT, &why);
    assert_non_null(tokens);
    for (size_t i = 0; i < sizeof(kids) / sizeof(*kids); i++) {
        struct grant want = {.sandbox = SLICE_LITERAL("sb-1"),
                             .org = SLICE_LITERAL("org-1"),
                             .needs = NEED_PTY | NEED_HTTP,
                             .ports = slice_of(ports, sizeof(ports)),
                             .iat = t->now,
                             .exp = t->now + 120,
                             .jti = SLICE_LITERAL("id")},
                     got;
        uint8_t memory[TOKEN_LIMIT];
        struct writer w = writer_of(memory, sizeof(memory));
        const char *reason;
        if (!tokens_mint(tokens, (struct slice){NULL, 0}, slice_text(kids[i]), &want, &w, &why))
            fail_msg("%s", why.text);
        enum refusal refusal = check_bearer(tokens, writer_slice(&w), t->now, t->cache, &got, &reason);
        if (refusal != REFUSAL_NONE)
            fail_msg("%s", reason);
        assert_true(slice_equal(got.sandbox, want.sandbox) && slice_equal(got.org, want.org));
        assert_true(slice_equal(got.ports, want.ports) && slice_equal(got.jti, want.jti));
        assert_true(got.needs == want.needs && got.iat == want.iat && got.exp == want.exp);
        assert_true(slice_is(got.kid, kids[i] ? kids[i] : "k1"));
    }
    tokens_free(tokens);
}

static void what_cannot_be_minted_is_said(void **state)
{
    const struct table *t = *state;
    struct fail why;
    struct tokens *tokens =
        load(t,
             "[{\"kind\":\"jwt\",\"alg\":\"EdDSA\",\"kid\":\"ed\",\"public_key_file\":\"ed.jwk\"},"
             "{" HS256 ",\"kid\":\"k1\"}]",
             TOKENS_MINT, &why);
    struct grant want = {
        .sandbox = SLICE_LITERAL("sb-1"), .needs = NEED_UNSAID, .iat = t->now, .exp = t->now + 120};
    uint8_t memory[TOKEN_LIMIT];
    struct writer w = writer_of(memory, sizeof(memory));
    assert_false(tokens_mint(tokens, (struct slice){NULL, 0}, SLICE_LITERAL("ed"), &want, &w, &why));
    assert_non_null(strstr(why.text, "private_key_file"));
    assert_false(tokens_mint(tokens, (struct slice){NULL, 0}, SLICE_LITERAL("k9"), &want, &w, &why));
    assert_non_null(strstr(why.text, "kid"));
    want.exp = t->now + 3601;
    assert_false(tokens_mint(tokens, (struct slice){NULL, 0}, SLICE_LITERAL("k1"), &want, &w, &why));
    assert_non_null(strstr(why.text, "max_ttl"));
    want.exp = t->now + 60;
    want.sandbox = SLICE_LITERAL("sb\",\"org\":\"x");
    assert_false(tokens_mint(tokens, (struct slice){NULL, 0}, SLICE_LITERAL("k1"), &want, &w, &why));
    tokens_free(tokens);
}

/* ---- what a grant admits ---- */

static void ports_and_needs_are_all_or_those_named(void **state)
{
    uint8_t memory[8];
    struct writer w = writer_of(memory, sizeof(memory));
    struct grant g = {.needs = NEED_PTY | NEED_HTTP};
    grant_put_port(&w, 80);
    assert_true(grant_allows_port(&g, 1));
    g.ports = writer_slice(&w);
    assert_true(grant_allows_port(&g, 80) && grant_allows_port(&g, 0));
    assert_false(grant_allows_port(&g, 20480)); /* 80 with its bytes exchanged */
    g.sandbox = SLICE_LITERAL("sb-1");
    struct token_target target = {.sandbox = SLICE_LITERAL("sb-1"), .need = NEED_PTY | NEED_EXEC};
    const char *reason;
    assert_int_equal(token_admits(&g, &target, &reason), REFUSAL_not_granted);
    target.need = NEED_PTY | NEED_HTTP;
    assert_int_equal(token_admits(&g, &target, &reason), REFUSAL_NONE);
    (void)state;
}

static void a_grant_of_nobody_and_nothing_admits_to_nothing(void **state)
{
    struct grant nothing = {.needs = NEED_UNSAID, .iat = 1}, all = {.sandbox = SLICE_LITERAL("*"), .iat = 1};
    struct slice absent = {NULL, 0};
    const char *reason;
    assert_int_equal(token_admits_record(&nothing, absent, 0, &reason), REFUSAL_sandbox_not_found);
    assert_int_equal(token_admits_record(&all, absent, 0, &reason), REFUSAL_sandbox_not_found);
    assert_int_equal(token_admits_record(&all, SLICE_LITERAL(""), 0, &reason), REFUSAL_sandbox_not_found);
    (void)state;
}

static enum refusal with_claim(const char *claim)
{
    struct jwt_rules rules = {.cell = "cell-a", .max_ttl = INT64_MAX / 2};
    char payload[512], text[512];
    struct writer w = writer_of(text, sizeof(text));
    struct grant g;
    const char *reason;
    for (enum jwt_claim i = 0; i < JWT_CLAIM_COUNT; i++)
        rules.name[i] = jwt_claim_name(i);
    snprintf(payload, sizeof(payload), "{\"aud\":\"cell-a\",\"sandbox\":\"sb-1\",%s}", claim);
    return jwt_claims_read(&rules, slice_text(payload), 2000000000, &w, &g, &reason);
}

static enum refusal expiring(const char *exp)
{
    char claim[64];
    snprintf(claim, sizeof(claim), "\"exp\":%s", exp);
    return with_claim(claim);
}

/* It has to fit into every question about the token's tunnel. */
static void a_jti_has_at_most_256_bytes(void **state)
{
    char jti[257], claims[320];
    memset(jti, 'x', sizeof(jti));
    for (int length = 255; length <= 257; length++) {
        snprintf(claims, sizeof(claims), "\"exp\":2000000002,\"jti\":\"%.*s\"", length, jti);
        assert_int_equal(with_claim(claims), length <= 256 ? REFUSAL_NONE : REFUSAL_token_invalid);
    }
    (void)state;
}

static void times_are_exact_up_to_2_to_the_53(void **state)
{
    assert_int_equal(expiring("9007199254740992"), REFUSAL_NONE);
    assert_int_equal(expiring("9007199254740993"), REFUSAL_token_invalid);
    assert_int_equal(expiring("2147483648"), REFUSAL_NONE);
    assert_int_equal(expiring("4294967297"), REFUSAL_NONE);
    assert_int_equal(expiring("2000000001"), REFUSAL_NONE);
    assert_int_equal(expiring("2000000000"), REFUSAL_token_expired);
    assert_int_equal(expiring("0"), REFUSAL_token_expired);
    (void)state;
}

static void needs_are_words(void **state)
{
    char memory[64];
    struct writer w = writer_of(memory, sizeof(memory));
    need_text(NEED_ALL, &w);
    assert_true(slice_is(writer_slice(&w), "pty,exec,agent,http,mux,egress"));
    assert_int_equal(need_of(SLICE_LITERAL("mux")), NEED_MUX);
    assert_int_equal(need_of(SLICE_LITERAL("")), 0);
    assert_int_equal(need_of(SLICE_LITERAL("ptyx")), 0);
    (void)state;
}

int main(void)
{
    umask(077); /* secrets that everybody can read are warned of */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_token_of_the_table_gets_its_refusal_twice),
        cmocka_unit_test(a_grant_says_what_the_token_said),
        cmocka_unit_test(opencomputers_vector_is_this_kind_with_renames),
        cmocka_unit_test(a_token_with_a_nul_or_none_at_all),
        cmocka_unit_test(every_cut_and_every_flipped_bit_is_refused),
        cmocka_unit_test(a_remembered_token_expires_and_a_reload_forgets_it),
        cmocka_unit_test(without_memory_a_check_is_no_yes),
        cmocka_unit_test(loading_survives_every_failing_allocation),
        cmocka_unit_test(files_and_warnings_are_told),
        cmocka_unit_test(entries_that_are_not_in_order_are_refused),
        cmocka_unit_test(names_of_claims_can_be_exchanged),
        cmocka_unit_test(what_is_minted_is_admitted_as_it_was_meant),
        cmocka_unit_test(what_cannot_be_minted_is_said),
        cmocka_unit_test(ports_and_needs_are_all_or_those_named),
        cmocka_unit_test(a_grant_of_nobody_and_nothing_admits_to_nothing),
        cmocka_unit_test(a_jti_has_at_most_256_bytes),
        cmocka_unit_test(times_are_exact_up_to_2_to_the_53),
        cmocka_unit_test(needs_are_words),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
