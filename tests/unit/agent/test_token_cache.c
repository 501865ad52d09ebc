/* SPDX-License-Identifier: MIT */
#include "tests/unit/support.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "spoa/agent/token/cache.h"

#define NOW 2000000000

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

/* Tokens whose ends are alike share a hash: each is itself all the same. */
static void tokens_that_end_alike_are_told_apart(void **state)
{
    static const char *const fronts[] = {"eyJa", "eyJb", "a", "b", "eyJab"};
    struct token_cache *cache = token_cache_new(16);
    char end[100], tokens[5][200];
    struct grant g;
    memset(end, 'x', sizeof end - 1);
    end[sizeof end - 1] = '\0';
    for (int i = 0; i < 5; i++) {
        snprintf(tokens[i], sizeof tokens[i], "%s%s", fronts[i], end);
        remember(cache, tokens[i], fronts[i]); /* none was found before */
        assert_true(find(cache, tokens[i], NOW, &g));
        assert_true(slice_is(g.sub, fronts[i]));
    }
    assert_false(find(cache, end, NOW, &g));
    assert_false(find(cache, end + sizeof end - 1 - 64, NOW, &g));
    token_cache_free(cache);
    (void)state;
}

static void a_lookup_allocates_nothing(void **state)
{
    struct token_cache *cache = token_cache_new(16);
    struct grant g;
    remember(cache, "token", "me");
    alloc_fail_at(0);
    for (int i = 0; i < 1000; i++) {
        assert_true(find(cache, "token", NOW, &g));
        assert_false(find(cache, "another", NOW, &g));
    }
    assert_int_equal(alloc_count(), 0);
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

static void tokens_of_any_length_take_bounded_memory(void **state)
{
    struct token_cache *cache = token_cache_new(64); /* 64 KiB */
    struct grant g, made = some_grant("me");
    uint8_t *token = calloc(1, TOKEN_LIMIT + 1);
    unsigned kept = 0;
    for (uint8_t i = 0; i < 200; i++) {
        token[i] = 1;
        assert_false(token_cache_find(cache, 1, slice_of(token, TOKEN_LIMIT), NOW, &g));
        token_cache_put(cache, &made);
        assert_true(token_cache_find(cache, 1, slice_of(token, TOKEN_LIMIT), NOW, &g));
    }
    memset(token, 0, TOKEN_LIMIT);
    for (uint8_t i = 0; i < 200; i++) {
        token[i] = 1;
        kept += token_cache_find(cache, 1, slice_of(token, TOKEN_LIMIT), NOW, &g);
    }
    assert_in_range(kept, 1, 7); /* 8 KiB and some text each */
    assert_false(token_cache_find(cache, 1, slice_of(token, TOKEN_LIMIT + 1), NOW, &g));
    token_cache_put(cache, &made);
    assert_false(token_cache_find(cache, 1, slice_of(token, TOKEN_LIMIT + 1), NOW, &g));
    free(token);
    token_cache_free(cache);
    (void)state;
}

/* ---- what threads share ---- */

static struct token_cache *sharing(struct token_store *store)
{
    struct token_cache *cache = token_cache_new(16);
    assert_non_null(cache);
    token_cache_share(cache, store);
    return cache;
}

static void what_one_has_verified_another_knows(void **state)
{
    struct token_store *store = token_store_new(256);
    struct token_cache *one = sharing(store), *other = sharing(store);
    struct grant g;
    remember(one, "token", "me");
    assert_true(find(other, "token", NOW, &g));
    assert_true(slice_is(g.sub, "me"));
    token_cache_free(one);
    assert_true(find(other, "token", NOW, &g)); /* now of its own */
    assert_true(slice_is(g.sub, "me"));
    assert_int_equal(token_cache_counts(other).hits, 2);
    assert_int_equal(token_cache_counts(other).shared, 1);
    assert_int_equal(token_cache_counts(other).misses, 0);
    assert_false(find(other, "Token", NOW, &g));
    token_cache_free(other);
    token_store_free(store);
    (void)state;
}

static void expiry_and_generations_hold_for_what_is_shared(void **state)
{
    struct token_store *store = token_store_new(256);
    struct token_cache *one = sharing(store), *other = sharing(store);
    struct grant g, made = some_grant("new");
    remember(one, "token", "old");
    assert_false(
        token_cache_find(other, 2, SLICE_LITERAL("token"), NOW, &g)); /* it has the new keys already */
    token_cache_put(other, &made);
    assert_true(find(one, "token", NOW, &g));
    assert_true(slice_is(g.sub, "old"));
    assert_true(token_cache_find(one, 2, SLICE_LITERAL("token"), NOW, &g));
    assert_true(slice_is(g.sub, "new"));
    struct token_cache *third = sharing(store);
    assert_true(token_cache_find(third, 2, SLICE_LITERAL("token"), NOW + 59, &g));
    token_cache_free(third);
    third = sharing(store);
    assert_false(token_cache_find(third, 2, SLICE_LITERAL("token"), NOW + 60, &g));
    assert_false(token_cache_find(third, 2, SLICE_LITERAL("token"), NOW, &g)); /* it was let go */
    token_cache_free(one);
    token_cache_free(other);
    token_cache_free(third);
    token_store_free(store);
    (void)state;
}

enum { THREADS = 4, TOKENS = 600, TURNS = 20000 };

struct asker {
    struct token_store *store;
    pthread_t thread;
    unsigned seed;
    uint64_t wrong, hits;
};

/* Each token grants its own name, whoever has verified it. */
static void *ask(void *context)
{
    struct asker *a = context;
    struct token_cache *cache = sharing(a->store);
    unsigned random = a->seed;
    for (int i = 0; i < TURNS; i++) {
        char token[16];
        struct grant g, made;
        random = random * 1103515245 + 12345;
        snprintf(token, sizeof token, "t%u", (random >> 8) % TOKENS);
        made = some_grant(token);
        if (find(cache, token, NOW, &g)) {
            a->hits++;
            a->wrong += !slice_is(g.sub, token);
        } else {
            token_cache_put(cache, &made);
        }
    }
    token_cache_free(cache);
    return NULL;
}

static void threads_share_while_others_push_out(void **state)
{
    struct token_store *store = token_store_new(256);
    struct asker askers[THREADS];
    for (unsigned i = 0; i < THREADS; i++) {
        askers[i] = (struct asker){.store = store, .seed = i};
        assert_int_equal(pthread_create(&askers[i].thread, NULL, ask, &askers[i]), 0);
    }
    for (unsigned i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(askers[i].thread, NULL), 0);
        assert_int_equal(askers[i].wrong, 0);
        assert_true(askers[i].hits > 0);
    }
    token_store_free(store);
    (void)state;
}

static void without_memory_nothing_is_shared(void **state)
{
    bool made = false;
    for (unsigned n = 1; !made && n < 200; n++) {
        alloc_fail_at(n);
        struct token_store *store = token_store_new(256);
        alloc_fail_at(0);
        made = store;
        token_store_free(store);
    }
    assert_true(made);
    (void)state;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_grant_comes_back_with_strings_of_its_own),
        cmocka_unit_test(tokens_that_end_alike_are_told_apart),
        cmocka_unit_test(a_lookup_allocates_nothing),
        cmocka_unit_test(expiry_and_another_generation_forget),
        cmocka_unit_test(many_tokens_leave_the_newest),
        cmocka_unit_test(what_is_used_stays),
        cmocka_unit_test(long_grants_and_failing_memory_are_not_remembered),
        cmocka_unit_test(tokens_of_any_length_take_bounded_memory),
        cmocka_unit_test(what_one_has_verified_another_knows),
        cmocka_unit_test(expiry_and_generations_hold_for_what_is_shared),
        cmocka_unit_test(threads_share_while_others_push_out),
        cmocka_unit_test(without_memory_nothing_is_shared),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
