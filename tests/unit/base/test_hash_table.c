/* SPDX-License-Identifier: MIT */
#include "tests/unit/support.h"

#include <stdlib.h>

#include "spoa/base/table/hash.h"
#include "spoa/base/table/hash_table.h"

enum { NODES = 20000 };

static struct hash_node nodes[NODES];

static uint64_t hash_of(size_t i)
{
    static const struct hash_secret secret = {1, 2};
    return hash_keyed(&secret, slice_of(&i, sizeof i));
}

static bool is_in(const struct hash_table *t, size_t i)
{
    for (struct hash_node *node = hash_table_find(t, hash_of(i)); node; node = hash_table_next(node))
        if (node == &nodes[i])
            return true;
    return false;
}

static size_t longest(const struct hash_table *t)
{
    size_t longest = 0;
    for (size_t i = 0; i < t->used; i++) {
        size_t length = 0;
        for (const struct hash_node *node = t->buckets[i]; node; node = node->next)
            length++;
        longest = length > longest ? length : longest;
    }
    return longest;
}

static void a_table_grows_and_shrinks_with_its_nodes(void **state)
{
    struct hash_table t = {.count = 0};
    (void)state;
    assert_false(is_in(&t, 0));
    for (size_t i = 0; i < NODES; i++) {
        assert_true(hash_table_insert(&t, &nodes[i], hash_of(i)));
        assert_true(is_in(&t, i / 2) && is_in(&t, i));
        assert_false(is_in(&t, i + 1));
    }
    assert_int_equal(t.count, NODES);
    assert_in_range(t.used, NODES, NODES + 16);
    assert_in_range(longest(&t), 1, 16);
    for (size_t i = 0; i < NODES; i++)
        assert_true(is_in(&t, i));
    for (size_t n = 0, i = 0; n < NODES; n++, i = (i + 7919) % NODES) {
        assert_true(is_in(&t, i));
        hash_table_remove(&t, &nodes[i]);
        assert_false(is_in(&t, i));
        assert_true(n + 1 == NODES || is_in(&t, (i + 7919) % NODES));
    }
    assert_int_equal(t.count, 0);
    assert_in_range(t.room, 16, 128);
    hash_table_free(&t);
}

static void equal_hashes_are_told_apart(void **state)
{
    struct hash_table t = {.count = 0};
    (void)state;
    for (size_t i = 0; i < 100; i++)
        assert_true(hash_table_insert(&t, &nodes[i], i % 2 ? 5 : 5 + ((uint64_t)1 << 40)));
    size_t found = 0;
    for (const struct hash_node *node = hash_table_find(&t, 5); node; node = hash_table_next(node))
        found++;
    assert_int_equal(found, 50);
    assert_null(hash_table_find(&t, 6));
    hash_table_free(&t);
}

static void without_memory_chains_are_longer(void **state)
{
    struct hash_table t = {.count = 0};
    (void)state;
    alloc_fail_at(1);
    assert_false(hash_table_insert(&t, &nodes[0], hash_of(0)));
    alloc_fail_at(0);
    for (size_t i = 0; i < NODES; i++) {
        alloc_fail_at(i > 100 ? 1 : 0);
        assert_true(hash_table_insert(&t, &nodes[i], hash_of(i)));
        alloc_fail_at(0);
        if (t.used > 200)
            fail_msg("it has grown");
        if (i > 1000)
            break;
    }
    assert_true(is_in(&t, 0) && is_in(&t, 1000));
    hash_table_free(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_table_grows_and_shrinks_with_its_nodes),
        cmocka_unit_test(equal_hashes_are_told_apart),
        cmocka_unit_test(without_memory_chains_are_longer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
