/* SPDX-License-Identifier: MIT */
#include "tests/unit/support.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "spoa/base/table/slabs.h"

enum { SIZE = 296, MANY = 3 * SLABS_SIZE / SIZE };

static uint8_t *objects[MANY];

#ifdef __SANITIZE_ADDRESS__
enum { SLABS = 0 }; /* each object comes from malloc, which ends the program if memory is short */
#else
enum { SLABS = 1 };
#endif

/* Sets the limit of the program's memory, if `none` so low that the kernel grants no more. The limit is not 0, because Valgrind is
 * refused memory for itself then; 1 refuses the program and lets Valgrind have more. */
static void limit_memory(bool none)
{
    struct rlimit limit;

    assert_int_equal(getrlimit(RLIMIT_DATA, &limit), 0);
    limit.rlim_cur = none ? 1 : limit.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_DATA, &limit), 0);
}

static void take_all(struct slabs *slabs)
{
    for (size_t i = 0; i < MANY; i++) {
        objects[i] = slabs_take(slabs);
        assert_non_null(objects[i]);
        assert_int_equal((uintptr_t)objects[i] % 8, 0);
        for (size_t j = 0; j < SIZE; j++)
            assert_int_equal(objects[i][j], 0);
        memset(objects[i], (int)(i % 251) + 1, SIZE);
    }
}

static void check(size_t i)
{
    for (size_t j = 0; j < SIZE; j++)
        assert_int_equal(objects[i][j], i % 251 + 1);
}

static void gives_zeroed_objects_that_do_not_overlap(void **state)
{
    (void)state;
    struct slabs slabs = slabs_of(SIZE - 3);
    for (unsigned round = 0; round < 2; round++) {
        take_all(&slabs);
        for (size_t i = 0; i < MANY; i++)
            check(i);
        for (size_t i = 0; i < MANY; i += 2)
            slabs_give(&slabs, objects[i]);
        for (size_t i = 1; i < MANY; i += 2) {
            check(i);
            slabs_give(&slabs, objects[i]);
        }
    }
    slabs_free(&slabs);
}

#ifndef __SANITIZE_ADDRESS__ /* each object comes from malloc there */
static void gives_slabs_back_that_are_free_but_the_last(void **state)
{
    (void)state;
    struct slabs slabs = slabs_of(SIZE);
    take_all(&slabs);
    size_t most = slabs.count;
    assert_true(most >= 3);
    for (size_t i = 0; i < MANY; i++)
        slabs_give(&slabs, objects[i]);
    assert_int_equal(slabs.count, 1);
    take_all(&slabs);
    assert_int_equal(slabs.count, most);
    for (size_t i = MANY; i--;)
        slabs_give(&slabs, objects[i]);
    assert_int_equal(slabs.count, 1);
    slabs_free(&slabs);
    assert_int_equal(slabs.count, 0);
}

static void takes_what_was_given_back_before_a_new_slab(void **state)
{
    (void)state;
    struct slabs slabs = slabs_of(SIZE);
    take_all(&slabs);
    size_t most = slabs.count;
    for (size_t i = 0; i < MANY; i += 3)
        slabs_give(&slabs, objects[i]);
    for (size_t i = 0; i < MANY; i += 3)
        assert_non_null(objects[i] = slabs_take(&slabs));
    assert_int_equal(slabs.count, most);
    for (size_t i = 0; i < MANY; i++)
        slabs_give(&slabs, objects[i]);
    slabs_free(&slabs);
}
#endif

static void one_that_rests_has_a_place_whatever_is_taken_meanwhile(void **state)
{
    (void)state;
    struct slabs slabs = slabs_of(SIZE);
    for (unsigned round = 0; round < 3; round++) {
        take_all(&slabs);
        for (size_t i = 0; i < MANY; i += 1 + round)
            slabs_rest(&slabs, objects[i]);
        static void *others[MANY];
        size_t taken = 0;
        for (; taken < 40; taken++)
            assert_non_null(memset(others[taken] = slabs_take(&slabs), 255, SIZE));
        limit_memory(true);
        while (SLABS && taken < MANY && (others[taken] = slabs_take(&slabs)))
            memset(others[taken++], 255, SIZE);
        assert_true(taken < MANY);
        for (size_t i = 0; i < MANY; i += 1 + round) {
            objects[i] = slabs_wake(&slabs);
            for (size_t j = 0; objects[i] && j < SIZE; j++)
                assert_int_equal(objects[i][j], 0);
            memset(objects[i], (int)(i % 251) + 1, SIZE);
        }
        limit_memory(false);
        for (size_t i = 0; i < MANY; i++) {
            check(i);
            slabs_give(&slabs, objects[i]);
        }
        while (taken)
            slabs_give(&slabs, others[--taken]);
    }
    slabs_free(&slabs);
}

/* ---- random operations ---- */
enum { MODEL_MAX = 9000, PHASES = 5, KINDS = 4 };

/* The probability of each operation in a phase, in percent: take, give, rest; the remainder is wake. */
static const unsigned likely[PHASES][KINDS - 1] = {
    {25, 25, 25}, {55, 15, 15}, {45, 5, 45}, {5, 45, 5}, {5, 5, 20}};

static struct {
    struct slabs slabs;
    uint8_t *objects[MODEL_MAX], tags[MODEL_MAX];
    size_t count, resting, places; /* places of one slab */
    bool limited;
} model;

static unsigned below(unsigned n)
{
    static uint32_t state = 1;
    state = state * 1664525 + 1013904223;
    return (state >> 8) % n;
}

static void model_add(uint8_t *object)
{
    for (size_t i = 0; i < model.slabs.size; i++)
        if (object[i])
            fail_msg("byte %zu of an object is not 0", i);
    uint8_t tag = (uint8_t)(1 + below(255));
    memset(object, tag, model.slabs.size);
    if (SLABS && !below(64)) /* mlock may fail; the kernel does not take back pages of locked memory */
        (void)mlock((void *)((uintptr_t)object & ~(uintptr_t)(SLABS_SIZE - 1)), SLABS_SIZE);
    model.objects[model.count] = object;
    model.tags[model.count++] = tag;
}

static uint8_t *model_remove(void)
{
    size_t i = below((unsigned)model.count);
    uint8_t *object = model.objects[i];

    for (size_t j = 0; j < model.slabs.size; j++)
        if (object[j] != model.tags[i])
            fail_msg("byte %zu of an object was changed", j);
    model.objects[i] = model.objects[--model.count];
    model.tags[i] = model.tags[model.count];
    return object;
}

static void model_take(void)
{
    struct slabs *slabs = &model.slabs;
    bool room = slabs->places > slabs->kept;
    size_t before = slabs->count;

    if (model.count + model.resting == MODEL_MAX || model.count + model.resting > 6 * model.places)
        return;
    uint8_t *object = slabs_take(slabs);
    assert_true(object || (model.limited && !room));
    if (SLABS)
        assert_int_equal(slabs->count, before + (object && !room));
    if (object)
        model_add(object);
}

static void model_step(const unsigned *phase)
{
    unsigned draw = below(100);

    if (draw < phase[0]) {
        model_take();
    } else if (draw < phase[0] + phase[1]) {
        if (model.count)
            slabs_give(&model.slabs, model_remove());
    } else if (draw < phase[0] + phase[1] + phase[2]) {
        if (!model.count)
            return;
        slabs_rest(&model.slabs, model_remove());
        model.resting++;
    } else if (model.resting) {
        model_add(slabs_wake(&model.slabs));
        model.resting--;
    }
}

static void model_check(void)
{
    const struct slabs *slabs = &model.slabs;
    size_t needed = (model.count + model.resting + model.places - 1) / model.places;

    assert_int_equal(slabs->kept, model.resting);
    assert_int_equal(slabs->places + model.count, slabs->count * model.places);
    assert_true(slabs->places >= slabs->kept);
    /* there may be more slabs than needed only while objects are scattered over them */
    assert_true(!slabs->empty_count || slabs->count <= needed + 1);
}

static void objects_keep_their_content_under_random_operations(void **state)
{
    (void)state;
    static const size_t sizes[] = {24, 296, 1992, 6552, 8192};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        model.slabs = slabs_of(sizes[i]);
        model.places = (SLABS_SIZE - 64) / sizes[i];
        const unsigned *phase = likely[0];
        for (size_t step = 0; step < 8000 + 40 * model.places; step++) {
            if (step % (2 * model.places) == 0)
                phase = likely[below(PHASES)];
            if (SLABS && !below(300))
                limit_memory(model.limited = !model.limited);
            model_step(phase);
            if (SLABS)
                model_check();
        }
        limit_memory(model.limited = false);
        for (; model.resting; model.resting--)
            slabs_give(&model.slabs, slabs_wake(&model.slabs));
        while (model.count)
            slabs_give(&model.slabs, model_remove());
        slabs_free(&model.slabs);
        assert_int_equal(model.slabs.count, 0);
    }
}

#ifndef __SANITIZE_ADDRESS__
static size_t resident(const struct slabs *slabs)
{
    size_t pages = 0;
    for (size_t i = 0; i < slabs->empty_count; i++) {
        unsigned char there[SLABS_SIZE / 4096];
        assert_int_equal(mincore(slabs->empty[i], SLABS_SIZE, there), 0);
        for (size_t j = 0; j < sizeof there; j++)
            pages += there[j] & 1;
    }
    return pages;
}

static void resting_objects_cost_no_memory_and_their_places_go_with_them(void **state)
{
    (void)state;
    struct slabs slabs = slabs_of(SIZE);
    take_all(&slabs);
    size_t most = slabs.count;
    for (size_t i = 0; i < MANY; i++)
        slabs_rest(&slabs, objects[i]);
    assert_int_equal(slabs.count, most);
    assert_int_equal(slabs.empty_count, most - 1);
    assert_int_equal(resident(&slabs), 0);
    void *one = slabs_take(&slabs); /* no place that is reserved for a resting object */
    assert_int_equal(slabs.places, slabs.kept + (most * ((SLABS_SIZE - 64) / SIZE) - MANY) - 1);
    slabs_give(&slabs, one);
    for (size_t i = 0; i < MANY; i++)
        slabs_give(&slabs, slabs_wake(&slabs));
    assert_int_equal(slabs.count, 1);
    slabs_free(&slabs);
    assert_int_equal(slabs.count, 0);
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gives_zeroed_objects_that_do_not_overlap),
        cmocka_unit_test(one_that_rests_has_a_place_whatever_is_taken_meanwhile),
        cmocka_unit_test(objects_keep_their_content_under_random_operations),
#ifndef __SANITIZE_ADDRESS__
        cmocka_unit_test(gives_slabs_back_that_are_free_but_the_last),
        cmocka_unit_test(takes_what_was_given_back_before_a_new_slab),
        cmocka_unit_test(resting_objects_cost_no_memory_and_their_places_go_with_them),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
