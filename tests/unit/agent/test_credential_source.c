/* SPDX-License-Identifier: MIT */
#include "tests/unit/support.h"

#include <stdio.h>

#include "spoa/agent/token/credential_source.h"

#define ABSENT "\1" /* in the tables: no such value */

struct found {
    enum refusal refusal;
    struct carried carried;
    uint8_t memory[512];
};

static struct slice value_of(const char *text)
{
    return text && strcmp(text, ABSENT) != 0 ? slice_text(text) : (struct slice){NULL, 0};
}

static bool same(struct slice s, const char *text)
{
    struct slice wanted = value_of(text);
    return slice_present(s) == slice_present(wanted) && slice_equal(s, wanted);
}

static void find(const struct request *request, bool cookie_route, struct found *found)
{
    struct writer scratch = writer_of(found->memory, sizeof(found->memory));
    found->refusal = credential_find(request, &(struct credential_rules){.cookie = cookie_route}, &scratch,
                                     &found->carried);
}

static void authorization_carries_what_follows_bearer(void **state)
{
    static const struct {
        const char *header, *token;
    } cases[] = {
        {"Bearer abc", "abc"},  {"bearer abc", "abc"},
        {"BEARER abc", "abc"},  {"Bearer   abc ", "abc"},
        {"Bearer", ""},         {"Bearer ", ""},
        {"Bearer a b", "a b"},  {"Bearer a, Bearer b", "a, Bearer b"},
        {"Bearer\tabc", "abc"}, {"Bearerabc", ABSENT},
        {"Beare", ABSENT},      {"Basic abc", ABSENT},
        {"", ABSENT},           {"Token Bearer abc", ABSENT},
        {" Bearer abc", "abc"}, {"Bearer=abc", ABSENT},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct request request = {.authorization = guarded(slice_text(cases[i].header)), .authorizations = 1};
        struct found f;
        find(&request, true, &f);
        if (f.refusal != REFUSAL_NONE || !same(f.carried.credential.token, cases[i].token))
            fail_msg("\"%s\"", cases[i].header);
        assert_int_equal(f.carried.credential.source,
                         slice_present(f.carried.credential.token) ? SOURCE_AUTHORIZATION : SOURCE_NONE);
        guarded_free(request.authorization);
    }
    (void)state;
}

static void subprotocols_lose_the_token_and_cellgate(void **state)
{
    static const struct {
        const char *header, *token;
        bool edit, select;
        const char *rest;
    } cases[] = {
        {"cellgate.bearer.abc", "abc", true, false, ABSENT},
        {"cellgate, cellgate.bearer.abc", "abc", true, true, ABSENT},
        {"cellgate.bearer.abc,cellgate,chat", "abc", true, true, "chat"},
        {"chat, cellgate.bearer.abc ,superchat", "abc", true, false, "chat,superchat"},
        {"cellgate", ABSENT, true, true, ABSENT},
        {"cellgate,a,b,c,d,e,f,g,h", ABSENT, true, true, "a,b,c,d,e,f,g,h"},
        {"chat, superchat", ABSENT, false, false, ABSENT},
        {"", ABSENT, false, false, ABSENT},
        {",,", ABSENT, false, false, ABSENT},
        {",cellgate.bearer.abc,", "abc", true, false, ABSENT},
        {"cellgate.bearer.", "", true, false, ABSENT},
        {"cellgate.bearer", ABSENT, false, false, ABSENT},
        {"Cellgate.bearer.abc", ABSENT, false, false, ABSENT},
        {"cellgate.bearer.a.b-c_d", "a.b-c_d", true, false, ABSENT},
        {"xcellgate.bearer.abc, Cellgate", ABSENT, false, false, ABSENT},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct request request = {.ws_protocol = guarded(slice_text(cases[i].header)), .ws_protocols = 1};
        struct found f;
        find(&request, false, &f);
        const struct carried *c = &f.carried;
        if (f.refusal != REFUSAL_NONE || !same(c->credential.token, cases[i].token) ||
            !same(c->protocol, cases[i].rest) || c->protocol_edit != cases[i].edit ||
            c->select_cellgate != cases[i].select)
            fail_msg("\"%s\"", cases[i].header);
        assert_int_equal(c->credential.source,
                         slice_present(c->credential.token) ? SOURCE_SUBPROTOCOL : SOURCE_NONE);
        guarded_free(request.ws_protocol);
    }
    (void)state;
}

static void the_query_loses_the_token_and_nothing_else(void **state)
{
    static const struct {
        const char *query, *token, *rest;
    } cases[] = {
        {"cellgate_token=abc", "abc", ABSENT},
        {"cellgate_token=abc&cols=80", "abc", "cols=80"},
        {"cols=80&cellgate_token=abc", "abc", "cols=80"},
        {"cols=80&cellgate_token=abc&rows=24", "abc", "cols=80&rows=24"},
        {"a=%2f+%zz&&b;c=d&cellgate_token=abc&", "abc", "a=%2f+%zz&&b;c=d&"},
        {"&cellgate_token=abc", "abc", ABSENT},
        {"&&cellgate_token=abc", "abc", "&"},
        {"cellgate_token=", "", ABSENT},
        {"cellgate_token", "", ABSENT},
        {"cellgate_token=a=b", "a=b", ABSENT},
        {"cellgate_token=a%2Eb%2ec", "a.b.c", ABSENT},
        {"cellgate_token=a+b", "a+b", ABSENT},
        {"cellgate_token=a%2", "a%2", ABSENT},
        {"cellgate_token=%", "%", ABSENT},
        {"cellgate_token=a%zzb", "a%zzb", ABSENT},
        {"cellgate%5Ftoken=abc&x=1", "abc", "x=1"},
        {"%63%65llgate_token=abc", "abc", ABSENT},
        {"cellgate_tokens=abc", ABSENT, "cellgate_tokens=abc"},
        {"cellgate_toke=abc", ABSENT, "cellgate_toke=abc"},
        {"cellgate_tokex=abc", ABSENT, "cellgate_tokex=abc"},
        {"Cellgate_token=abc", ABSENT, "Cellgate_token=abc"},
        {"x=cellgate_token=abc", ABSENT, "x=cellgate_token=abc"},
        {"cellgate%255Ftoken=abc", ABSENT, "cellgate%255Ftoken=abc"},
        {"", ABSENT, ""},
        {"&", ABSENT, "&"},
        {"a=1&&b=2&", ABSENT, "a=1&&b=2&"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct request request = {.query = guarded(slice_text(cases[i].query))};
        struct found f;
        find(&request, false, &f);
        if (f.refusal != REFUSAL_NONE || !same(f.carried.credential.token, cases[i].token) ||
            !same(f.carried.query, cases[i].rest))
            fail_msg("\"%s\": token \"%.*s\", rest \"%.*s\"", cases[i].query,
                     SLICE_PRINTF(f.carried.credential.token), SLICE_PRINTF(f.carried.query));
        assert_int_equal(f.carried.credential.source,
                         slice_present(f.carried.credential.token) ? SOURCE_QUERY : SOURCE_NONE);
        guarded_free(request.query);
    }
    (void)state;
}

static void the_first_source_decides_and_all_are_emptied(void **state)
{
    struct request request = {.authorization = SLICE_LITERAL("Bearer one"),
                              .authorizations = 1,
                              .ws_protocol = SLICE_LITERAL("chat,cellgate.bearer.two"),
                              .ws_protocols = 1,
                              .query = SLICE_LITERAL("cellgate_token=three&x=1"),
                              .cookie = SLICE_LITERAL("four")};
    static const char *const tokens[] = {"one", "two", "three", "four"};
    static const enum credential_source sources[] = {SOURCE_AUTHORIZATION, SOURCE_SUBPROTOCOL, SOURCE_QUERY,
                                                     SOURCE_COOKIE};
    struct found f;
    for (size_t i = 0; i < 4; i++) {
        find(&request, true, &f);
        assert_int_equal(f.refusal, REFUSAL_NONE);
        assert_int_equal(f.carried.credential.source, sources[i]);
        assert_true(slice_is(f.carried.credential.token, tokens[i]));
        assert_true(i > 2 || slice_is(f.carried.query, "x=1"));
        assert_true(i > 1 || slice_is(f.carried.protocol, "chat"));
        request.authorization = i == 0 ? (struct slice){NULL, 0} : request.authorization;
        request.ws_protocol = i == 1 ? (struct slice){NULL, 0} : request.ws_protocol;
        request.query = i == 2 ? (struct slice){NULL, 0} : request.query;
    }
    find(&request, false, &f);
    assert_int_equal(f.carried.credential.source, SOURCE_NONE);
    assert_false(slice_present(f.carried.credential.token));
    (void)state;
}

static void an_empty_first_source_is_not_passed_over(void **state)
{
    struct request request = {.authorization = SLICE_LITERAL("Bearer"),
                              .authorizations = 1,
                              .query = SLICE_LITERAL("cellgate_token=three")};
    struct found f;
    find(&request, false, &f);
    assert_int_equal(f.carried.credential.source, SOURCE_AUTHORIZATION);
    assert_true(slice_present(f.carried.credential.token) && f.carried.credential.token.len == 0);
    (void)state;
}

static void a_foreign_scheme_is_passed_over(void **state)
{
    struct request request = {.authorization = SLICE_LITERAL("Basic YTpi"),
                              .authorizations = 1,
                              .query = SLICE_LITERAL("cellgate_token=three")};
    struct found f;
    find(&request, false, &f);
    assert_int_equal(f.carried.credential.source, SOURCE_QUERY);
    (void)state;
}

static void two_credentials_in_one_source_are_a_bad_request(void **state)
{
    const struct request bad[] = {
        {.authorization = SLICE_LITERAL("Bearer one"), .authorizations = 2},
        {.authorization = SLICE_LITERAL("Basic one"), .authorizations = 2},
        {.ws_protocol = SLICE_LITERAL("cellgate.bearer.a"),
         .ws_protocols = 2,
         .headers = SLICE_LITERAL("sec-websocket-protocol: cellgate.bearer.a\r\n"
                                  "sec-websocket-protocol: cellgate.bearer.b\r\n\r\n")},
        {.ws_protocol = SLICE_LITERAL("cellgate.bearer.a,cellgate.bearer.b"), .ws_protocols = 1},
        {.ws_protocol = SLICE_LITERAL("cellgate.bearer.a,cellgate.bearer.a"), .ws_protocols = 1},
        {.query = SLICE_LITERAL("cellgate_token=a&cellgate_token=b")},
        {.query = SLICE_LITERAL("cellgate_token&x=1&cellgate%5ftoken=b")},
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        struct found f;
        find(&bad[i], true, &f);
        assert_int_equal(f.refusal, REFUSAL_bad_request);
    }
    (void)state;
}

static void a_second_line_of_a_header_that_is_listened_to_is_a_bad_request(void **state)
{
    const struct request bad[] = {
        {.secure_access = SLICE_LITERAL("one"), .secure_accesses = 2},
        {.oc_preview = SLICE_LITERAL("one"), .oc_previews = 2},
        {.daytona_preview = SLICE_LITERAL("one"), .daytona_previews = 2},
        {.e2b_access = SLICE_LITERAL("one"), .e2b_accesses = 2},
        {.secure_access = SLICE_LITERAL("one"), .secure_accesses = 1, .e2b_accesses = 2},
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        const struct credential_rules all = {.listening = ~0u}, none = {.listening = 0};
        uint8_t memory[16];
        struct writer scratch = writer_of(memory, sizeof(memory));
        struct carried c;
        assert_int_equal(credential_find(&bad[i], &all, &scratch, &c), REFUSAL_bad_request);
        assert_int_equal(credential_find(&bad[i], &none, &scratch, &c), REFUSAL_NONE);
        assert_int_equal(c.credential.source, SOURCE_NONE);
    }
    (void)state;
}

static void the_lengths_of_query_and_protocol_are_enough_scratch(void **state)
{
    const struct request request = {.ws_protocol = SLICE_LITERAL("cellgate,a,b,c,d,cellgate.bearer.x"),
                                    .ws_protocols = 1,
                                    .query = SLICE_LITERAL("a=1&cellgate_token=%41%42&b=2&c")};
    size_t enough = request.ws_protocol.len + request.query.len, least = enough;
    for (size_t size = 0; size <= enough; size++) {
        uint8_t memory[128];
        struct writer scratch = writer_of(memory, size);
        struct carried c;
        enum refusal refusal =
            credential_find(&request, &(struct credential_rules){.cookie = false}, &scratch, &c);
        assert_true(refusal == REFUSAL_NONE || refusal == REFUSAL_request_too_large);
        if (refusal == REFUSAL_NONE && size < least)
            least = size;
        assert_true(refusal != REFUSAL_NONE || slice_is(c.query, "a=1&b=2&c"));
    }
    assert_true(least <= enough);
    struct request nothing = {
        .query = SLICE_LITERAL("a=1"), .ws_protocol = SLICE_LITERAL("chat"), .ws_protocols = 1};
    struct writer exact = writer_of((uint8_t[7]){0}, 7);
    struct carried c;
    assert_int_equal(credential_find(&nothing, &(struct credential_rules){.cookie = false}, &exact, &c),
                     REFUSAL_NONE);
    (void)state;
}

/* The whole order: each is present until it has decided once. */
static void what_is_made_for_us_decides_before_what_applications_use(void **state)
{
    struct captures captures = {0};
    struct request request = {.method = SLICE_LITERAL("GET"),
                              .path = SLICE_LITERAL("/a/files/download"),
                              .secure_access = SLICE_LITERAL("1"),
                              .oc_preview = SLICE_LITERAL("2"),
                              .daytona_preview = SLICE_LITERAL("3"),
                              .e2b_access = SLICE_LITERAL("4"),
                              .authorization = SLICE_LITERAL("Bearer 10"),
                              .authorizations = 1,
                              .ws_protocol = SLICE_LITERAL("cellgate.bearer.11"),
                              .ws_protocols = 1,
                              .query = SLICE_LITERAL("signature=7&path=p&expires=1&cellgate_token=12&"
                                                     "DAYTONA_SANDBOX_AUTH_KEY=%313"),
                              .cookie = SLICE_LITERAL("14")};
    struct slice *const each[] = {&request.secure_access,
                                  &request.oc_preview,
                                  &request.daytona_preview,
                                  &request.e2b_access,
                                  &captures.value[CAPTURE_SIGNATURE],
                                  &captures.value[CAPTURE_TOKEN],
                                  &request.method,
                                  &request.method,
                                  &request.method, /* a URL is one of the three */
                                  &request.authorization,
                                  &request.ws_protocol};
    captures.value[CAPTURE_SIGNATURE] = SLICE_LITERAL("5");
    captures.value[CAPTURE_EXPIRES] = SLICE_LITERAL("x");
    captures.value[CAPTURE_TOKEN] = SLICE_LITERAL("6");
    for (enum credential_source c = SOURCE_NONE + 1; c < SOURCE_COUNT; c++) {
        if (c == SOURCE_ENVD_URL || c == SOURCE_DAYTONA_URL)
            continue;
        const struct credential_rules rules = {.listening = ~0u, .cookie = true, .captures = &captures};
        uint8_t memory[512];
        char number[4];
        struct writer scratch = writer_of(memory, sizeof(memory));
        struct carried carried;
        snprintf(number, sizeof(number), "%d", (int)c);
        assert_int_equal(credential_find(&request, &rules, &scratch, &carried), REFUSAL_NONE);
        assert_int_equal(carried.credential.source, c);
        assert_true(slice_is(carried.credential.token, number));
        assert_true(c > SOURCE_FILE_URL || slice_is(carried.query, "path=p"));
        if (c <= SOURCE_SUBPROTOCOL)
            *each[c - 1] = (struct slice){NULL, 0};
        else
            request.query = slice_from(request.query, slice_find(request.query, 'D'));
        if (c == SOURCE_DAYTONA_QUERY)
            request.query = (struct slice){NULL, 0};
    }
    (void)state;
}

static struct own_sources own = {
    .at = {{(char *)"X-API-Key", false}, {(char *)"api_key", true}, {(char *)"X-Second", false}}, .count = 3};
#define OWN_BIT(i) (1u << (SOURCE_COUNT + (i)))

/* What an entry names is found where it is listened to, and a parameter then leaves the query. */
static void headers_and_parameters_of_ones_own_carry_credentials(void **state)
{
    static const struct {
        const char *headers, *query;
        unsigned listening;
        enum refusal refusal;
        const char *source, *token, *left;
        bool in_query;
    } cases[] = {
        {"x-api-key: k", "a=1", OWN_BIT(0), REFUSAL_NONE, "X-API-Key", "k", "a=1", false},
        {"X-Api-KEY: k", "a=1", OWN_BIT(0), REFUSAL_NONE, "X-API-Key", "k", "a=1", false},
        {"x-api-key:", "", OWN_BIT(0), REFUSAL_NONE, "X-API-Key", "", "", false},
        {"x-api-key: k", "a=1", OWN_BIT(2), REFUSAL_NONE, "none", ABSENT, "a=1", false},
        {"x-api-key: k\r\nx-second: s", "", OWN_BIT(2), REFUSAL_NONE, "X-Second", "s", "", false},
        {"x-second: s\r\nx-api-key: k", "", OWN_BIT(0) | OWN_BIT(2), REFUSAL_NONE, "X-API-Key", "k", "",
         false},
        {"x-api-key: k\r\nx-api-key: k", "", OWN_BIT(0), REFUSAL_bad_request, NULL, NULL, NULL, false},
        {"x-api-key: k\r\nx-api-key: k", "", OWN_BIT(1), REFUSAL_NONE, "none", ABSENT, "", false},
        {"a: b", "b=2&api_key=k%20l&c=3", OWN_BIT(1), REFUSAL_NONE, "api_key", "k l", "b=2&c=3", true},
        {"a: b", "api%5Fkey=k", OWN_BIT(1), REFUSAL_NONE, "api_key", "k", ABSENT, true},
        {"a: b", "api_key=k", OWN_BIT(0), REFUSAL_NONE, "none", ABSENT, "api_key=k", false},
        {"a: b", "api_key=k&api_key=l", OWN_BIT(1), REFUSAL_bad_request, NULL, NULL, NULL, false},
        {"a: b", "api_key=k&api_key=l", OWN_BIT(0), REFUSAL_NONE, "none", ABSENT, "api_key=k&api_key=l",
         false},
        /* another one decides, and yet it is gone */
        {"x-api-key: k", "api_key=l&a", OWN_BIT(0) | OWN_BIT(1), REFUSAL_NONE, "X-API-Key", "k", "a", false},
        {"a: b", "cellgate_token=t&api_key=l", OWN_BIT(1), REFUSAL_NONE, "query", "t", ABSENT, true},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        char headers[128];
        snprintf(headers, sizeof(headers), "%s\r\n\r\n", cases[i].headers);
        struct request request = {.headers = guarded(slice_text(headers)),
                                  .query = guarded(slice_text(cases[i].query))};
        const struct credential_rules rules = {.listening = cases[i].listening, .own = &own};
        uint8_t memory[256];
        struct writer scratch = writer_of(memory, sizeof(memory));
        struct carried c;
        enum refusal refusal = credential_find(&request, &rules, &scratch, &c);
        if (refusal != cases[i].refusal)
            fail_msg("%zu: %d", i, (int)refusal);
        if (refusal == REFUSAL_NONE &&
            (!same(c.credential.token, cases[i].token) || !same(c.query, cases[i].left) ||
             strcmp(credential_source_name(&c.credential), cases[i].source) != 0 ||
             c.credential.in_query != cases[i].in_query))
            fail_msg("%zu: %s \"%.*s\", left \"%.*s\"", i, credential_source_name(&c.credential),
                     SLICE_PRINTF(c.credential.token), SLICE_PRINTF(c.query));
        guarded_free(request.headers);
        guarded_free(request.query);
    }
    (void)state;
}

static void nobody_listening_leaves_them_to_the_application(void **state)
{
    struct captures captures = {.value[CAPTURE_SIGNATURE] = SLICE_LITERAL("5"),
                                .value[CAPTURE_EXPIRES] = SLICE_LITERAL("x"),
                                .value[CAPTURE_TOKEN] = SLICE_LITERAL("6")};
    const struct request request = {.method = SLICE_LITERAL("GET"),
                                    .path = SLICE_LITERAL("/files/download"),
                                    .query =
                                        SLICE_LITERAL("signature=7&expires=1&DAYTONA_SANDBOX_AUTH_KEY=8"),
                                    .secure_access = SLICE_LITERAL("1")};
    const struct credential_rules rules = {.captures = &captures};
    uint8_t memory[256];
    struct writer scratch = writer_of(memory, sizeof(memory));
    struct carried c;
    assert_int_equal(credential_find(&request, &rules, &scratch, &c), REFUSAL_NONE);
    assert_int_equal(c.credential.source, SOURCE_NONE);
    assert_true(slice_equal(c.query, request.query));
    (void)state;
}

static void a_file_url_is_all_of_its_parts_once(void **state)
{
    static const struct {
        const char *method, *path, *query, *file, *left; /* file NULL: bad request; ABSENT: none */
    } cases[] = {
        {"GET", "/x/files/download", "path=%2fa%20b&expires=1&signature=s", "/a b", "path=%2fa%20b"},
        {"GET", "/x/files/download", "p%61th=a+b&e%78pires=1&signature=s&z=1", "a b", "p%61th=a+b&z=1"},
        {"PUT", "/x/files/upload", "signature=s&path=&expires=", "", "path="},
        {"GET", "/x/files/upload", "path=a&expires=1&signature=s", ABSENT, "path=a&expires=1&signature=s"},
        {"HEAD", "/x/files/download", "path=a&expires=1&signature=s", ABSENT, "path=a&expires=1&signature=s"},
        {"GET", "/files/download", "path=a&expires=1&signature=s", ABSENT, "path=a&expires=1&signature=s"},
        {"GET", "/x/files/download/", "path=a&expires=1&signature=s", ABSENT, "path=a&expires=1&signature=s"},
        {"GET", "/x/files/download", "path=a&expires=1", ABSENT, "path=a&expires=1"},
        {"GET", "/x/files/download", "path=a&signature=s", NULL, NULL},
        {"GET", "/x/files/download", "expires=1&signature=s", NULL, NULL},
        {"GET", "/x/files/download", "path=a&path=b&expires=1&signature=s", NULL, NULL},
        {"GET", "/x/files/download", "path=a&expires=1&expires=2&signature=s", NULL, NULL},
        {"GET", "/x/files/download", "path=a&expires=1&signature=s&signature=s", NULL, NULL},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct request request = {.method = slice_text(cases[i].method),
                                  .path = slice_text(cases[i].path),
                                  .query = guarded(slice_text(cases[i].query))};
        const struct credential_rules rules = {.listening = ~SOURCE_BIT(DAYTONA_URL)};
        uint8_t memory[256];
        struct writer scratch = writer_of(memory, sizeof(memory));
        struct carried c;
        enum refusal refusal = credential_find(&request, &rules, &scratch, &c);
        assert_int_equal(refusal, cases[i].file ? REFUSAL_NONE : REFUSAL_bad_request);
        if (cases[i].file && (!same(c.credential.path, cases[i].file) || !same(c.query, cases[i].left)))
            fail_msg("%s: \"%.*s\", left \"%.*s\"", cases[i].query, SLICE_PRINTF(c.credential.path),
                     SLICE_PRINTF(c.query));
        guarded_free(request.query);
    }
    (void)state;
}

static void sources_have_names(void **state)
{
    assert_string_equal(credential_source_text(SOURCE_NONE), "none");
    assert_string_equal(credential_source_text(SOURCE_COOKIE), "cookie");
    (void)state;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(authorization_carries_what_follows_bearer),
        cmocka_unit_test(subprotocols_lose_the_token_and_cellgate),
        cmocka_unit_test(the_query_loses_the_token_and_nothing_else),
        cmocka_unit_test(the_first_source_decides_and_all_are_emptied),
        cmocka_unit_test(an_empty_first_source_is_not_passed_over),
        cmocka_unit_test(a_foreign_scheme_is_passed_over),
        cmocka_unit_test(two_credentials_in_one_source_are_a_bad_request),
        cmocka_unit_test(a_second_line_of_a_header_that_is_listened_to_is_a_bad_request),
        cmocka_unit_test(the_lengths_of_query_and_protocol_are_enough_scratch),
        cmocka_unit_test(what_is_made_for_us_decides_before_what_applications_use),
        cmocka_unit_test(headers_and_parameters_of_ones_own_carry_credentials),
        cmocka_unit_test(nobody_listening_leaves_them_to_the_application),
        cmocka_unit_test(a_file_url_is_all_of_its_parts_once),
        cmocka_unit_test(sources_have_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
