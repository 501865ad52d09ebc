/* SPDX-License-Identifier: MIT */
#include "tests/unit/support.h"

#include <openssl/crypto.h>
#include <stdio.h>
#include <stdlib.h>

#include "spoa/agent/token/cache.h"

#define NOW 2000000000

static unsigned openssl_allocations;

static void *count_malloc(size_t size, const char *file, int line)
{
    (void)file, (void)line;
    openssl_allocations++;
    return malloc(size);
}

static void *count_realloc(void *old, size_t size, const char *file, int line)
{
    (void)file, (void)line;
    openssl_allocations++;
    return realloc(old, size);
}

static void count_free(void *old, const char *file, int line)
{
    (void)file, (void)line;
    free(old);
}

static struct grant some_grant(const char *sub)
{
    return (struct grant){
        .sub = slice_text(sub), .sandbox = SLICE_LITERAL("sb-1"), .needs = NEED_ALL, .exp = NOW + 60};
}

static bool find(struct token_cache *cache, const char *token, int64_t now, struct grant *grant)
{
    return token_cache_find(cache, 1, slice_text(token), now, grant);
}

static void remember(struct token_cache *cache, const char *token, const char *sub)
{
    struct grant unused, grant = some_grant(sub);
    assert_false(find(cache, token, NOW, &unused));
    token_cache_put(cache, &grant);
}

static void a_grant_comes_back_with_strings_of_its_own(void **state)
{
    struct token_cache *cache = token_cache_new(16);
    struct grant g, made = some_grant("me");
    char sub[] = "me";
    uint8_t ports[] = {0, 80};
    made.sub = slice_text(sub);
    made.org = slice_of(sub, 0);
    made.ports = slice_of(ports, 2);
    assert_false(find(cache, "token", NOW, &g));
    token_cache_put(cache, &made);
    sub[0] = 'w';
    ports[1] = 81;
    assert_true(find(cache, "token", NOW, &g));
    assert_true(slice_is(g.sub, "me") && slice_is(g.sandbox, "sb-1"));
    assert_true(slice_present(g.org) && g.org.len == 0 && !slice_present(g.jti));
    assert_true(grant_allows_port(&g, 80) && !grant_allows_port(&g, 81));
    assert_false(find(cache, "Token", NOW, &g));
    assert_false(find(cache, "token2", NOW, &g));
    assert_false(find(cache, "", NOW, &g));
    token_cache_free(cache);
    (void)state;
}

static void a_lookup_allocates_nothing_but_the_state_of_one_hash(void **state)
{
    struct token_cache *cache = token_cache_new(16);
    struct grant g;
    remember(cache, "token", "me");
    assert_true(find(cache, "token", NOW, &g));
    assert_true(openssl_allocations > 0);
    alloc_fail_at(0);
    openssl_allocations = 0;
    for (int i = 0; i < 1000; i++) {
        assert_true(find(cache, "token", NOW, &g));
        assert_false(find(cache, "another", NOW, &g));
    }
    assert_int_equal(alloc_count(), openssl_allocations); /* taken and given back within the call */
    assert_true(openssl_allocations <= 2000);
    token_cache_free(cache);
    (void)state;
}

static void expiry_and_another_generation_forget(void **state)
{
    struct token_cache *cache = token_cache_new(16);
    struct grant g;
    remember(cache, "token", "me");
    assert_true(find(cache, "token", NOW + 59, &g));
    assert_false(find(cache, "token", NOW + 60, &g));
    assert_false(find(cache, "token", NOW, &g));
    remember(cache, "token", "me");
    assert_false(token_cache_find(cache, 2, SLICE_LITERAL("token"), NOW, &g));
    assert_false(find(cache, "token", NOW, &g));
    token_cache_free(cache);
    (void)state;
}

static void many_tokens_leave_the_newest(void **state)
{
    struct token_cache *cache = token_cache_new(64);
    struct grant g;
    char token[16];
    unsigned kept = 0;
    for (int i = 0; i < 1000; i++) {
        snprintf(token, sizeof(token), "t%d", i);
        remember(cache, token, token);
        assert_true(find(cache, token, NOW, &g));
        assert_true(slice_is(g.sub, token));
    }
    for (int i = 0; i < 1000; i++) {
        snprintf(token, sizeof(token), "t%d", i);
        if (!find(cache, token, NOW, &g))
            continue;
        assert_true(slice_is(g.sub, token));
        kept++;
    }
    assert_true(kept > 48 && kept <= 64);
    token_cache_free(cache);
    (void)state;
}

static void what_is_used_stays(void **state)
{
    struct token_cache *cache = token_cache_new(4);
    struct grant g;
    remember(cache, "used", "me");
    for (int i = 0; i < 100; i++) {
        char token[16];
        snprintf(token, sizeof(token), "t%d", i);
        remember(cache, token, token);
        assert_true(find(cache, "used", NOW, &g));
    }
    token_cache_free(cache);
    (void)state;
}

static void long_grants_and_failing_memory_are_not_remembered(void **state)
{
    struct token_cache *cache = token_cache_new(4);
    struct grant g, big = some_grant("me");
    char *text = calloc(1, 1025);
    big.sub = slice_of(text, 1025);
    assert_false(find(cache, "big", NOW, &g));
    token_cache_put(cache, &big);
    assert_false(find(cache, "big", NOW, &g));
    big.sub = SLICE_LITERAL("me");
    alloc_fail_at(1);
    token_cache_put(cache, &big);
    alloc_fail_at(0);
    assert_false(find(cache, "big", NOW, &g));
    free(text);
    token_cache_free(cache);
    alloc_fail_at(1);
    assert_null(token_cache_new(4));
    alloc_fail_at(0);
    (void)state;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_grant_comes_back_with_strings_of_its_own),
        cmocka_unit_test(a_lookup_allocates_nothing_but_the_state_of_one_hash),
        cmocka_unit_test(expiry_and_another_generation_forget),
        cmocka_unit_test(many_tokens_leave_the_newest),
        cmocka_unit_test(what_is_used_stays),
        cmocka_unit_test(long_grants_and_failing_memory_are_not_remembered),
    };
    /* Before OpenSSL allocates anything. */
    if (!CRYPTO_set_mem_functions(count_malloc, count_realloc, count_free))
        return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
