/* SPDX-License-Identifier: MIT */
#include "tests/unit/support.h"

#include "spoa/base/table/recent.h"

enum { ITEMS = 1000 };

struct world {
    struct recent table;
    int item[ITEMS];
    unsigned gone[ITEMS];
};

static void leave(void *context, void *item)
{
    ((struct world *)context)->gone[*(int *)item]++;
}

static void begin(struct world *w, size_t entries, size_t most)
{
    memset(w, 0, sizeof *w);
    for (int i = 0; i < ITEMS; i++)
        w->item[i] = i;
    w->table.gone = leave;
    w->table.context = w;
    assert_true(recent_init(&w->table, entries, most));
}

static bool same(const void *item, const void *key)
{
    return *(const int *)item == *(const int *)key;
}

static int *find(struct world *w, uint64_t hash, int i)
{
    struct recent_slot *slot = recent_find(&w->table, hash, same, &i);
    return slot ? slot->item : NULL;
}

static void equal_hashes_are_not_equal_items(void **state)
{
    struct world w;
    begin(&w, 4, 100);
    for (int i = 0; i < 4; i++)
        recent_put(&w.table, 7, &w.item[i], 1);
    for (int i = 0; i < 4; i++)
        assert_ptr_equal(find(&w, 7, i), &w.item[i]);
    assert_null(find(&w, 7, 4));
    assert_null(find(&w, 8, 3));
    recent_free(&w.table);
    (void)state;
}

static void the_least_recently_used_of_four_gives_way(void **state)
{
    struct world w;
    begin(&w, 64, 100);
    for (int i = 0; i < 4; i++)
        recent_put(&w.table, 7, &w.item[i], 1);
    assert_non_null(find(&w, 7, 0));
    recent_put(&w.table, 7, &w.item[4], 1);
    assert_int_equal(w.gone[1], 1);
    assert_non_null(find(&w, 7, 0));
    assert_null(find(&w, 7, 1));
    recent_drop(&w.table, recent_find(&w.table, 7, same, &(int){0}));
    assert_int_equal(w.gone[0], 1);
    assert_null(find(&w, 7, 0));
    recent_clear(&w.table);
    for (int i = 0; i < 5; i++)
        assert_int_equal(w.gone[i], 1);
    assert_int_equal(w.table.bytes, 0);
    recent_free(&w.table);
    (void)state;
}

static void bytes_are_bounded_and_each_item_leaves_once(void **state)
{
    struct world w;
    begin(&w, 500, 1000);
    assert_int_equal(w.table.slots, 512);
    for (int i = 0; i < ITEMS; i++) {
        recent_put(&w.table, (uint64_t)i * 0x9e3779b97f4a7c15, &w.item[i], (size_t)i % 100);
        assert_true(w.table.bytes <= 1000);
        assert_non_null(find(&w, (uint64_t)i * 0x9e3779b97f4a7c15, i));
    }
    recent_put(&w.table, 1, &w.item[0], 1000); /* alone */
    assert_int_equal(w.table.bytes, 1000);
    assert_int_equal(w.gone[0], 1);
    recent_free(&w.table);
    assert_int_equal(w.gone[0], 2);
    for (int i = 1; i < ITEMS; i++)
        assert_int_equal(w.gone[i], 1);
    recent_free(&w.table);
    (void)state;
}

static void without_memory_there_is_none(void **state)
{
    struct recent table = {.gone = leave};
    alloc_fail_at(1);
    assert_false(recent_init(&table, 16, 100));
    alloc_fail_at(0);
    recent_free(&table);
    (void)state;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_hashes_are_not_equal_items),
        cmocka_unit_test(the_least_recently_used_of_four_gives_way),
        cmocka_unit_test(bytes_are_bounded_and_each_item_leaves_once),
        cmocka_unit_test(without_memory_there_is_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
