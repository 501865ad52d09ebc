/* SPDX-License-Identifier: MIT */
#include "tests/unit/support.h"

#include <pthread.h>

#include "spoa/service/metric_names.h"
#include "spoa/service/metrics.h"

enum { PLAIN, OPEN, PAIRS, TIMES, FAMILIES };

static const char *const routes[] = {"pty", "a\"b\\c\nd", "", NULL};
static const char *const reasons[] = {"idle", "other", NULL};
static const double bounds[] = {0.001, 0.5, 10, 0};

static const struct metric families[FAMILIES] = {
    [PLAIN] = {"x_total", "One \"line\",\nwith \\ in it.", METRIC_COUNTER, {{NULL, NULL}}, NULL},
    [OPEN] = {"x_open", "Open.", METRIC_GAUGE, {{"route", routes}}, NULL},
    [PAIRS] = {"x_pairs_total", "Pairs.", METRIC_COUNTER, {{"reason", reasons}, {"route", routes}}, NULL},
    [TIMES] = {"x_seconds", "Times.", METRIC_HISTOGRAM, {{"reason", reasons}}, bounds},
};

static struct metrics *metrics;

static int make(void **state)
{
    (void)state;
    metrics = metrics_new(families, FAMILIES);
    return metrics ? 0 : -1;
}

static int drop(void **state)
{
    (void)state;
    metrics_free(metrics);
    return 0;
}

static void the_exposition_has_each_family_once_and_all_series(void **state)
{
    (void)state;
    struct metrics_shard *one = metrics_shard(metrics), *other = metrics_shard(metrics);
    metrics_add(one, PLAIN, METRIC_PLAIN, 40);
    metrics_add(other, PLAIN, METRIC_PLAIN, 2);
    metrics_add(one, OPEN, METRIC_INDEX(1), 3);
    metrics_add(other, OPEN, METRIC_INDEX(1), -1);
    metrics_set(one, OPEN, METRIC_INDEX(0), 9);
    metrics_add(one, PAIRS, METRIC_INDEX(1, 0), 5);
    metrics_observe(one, TIMES, METRIC_INDEX(1), 0.001);
    metrics_observe(other, TIMES, METRIC_INDEX(1), 0.25);
    metrics_observe(one, TIMES, METRIC_INDEX(1), 11);
    struct buffer out = buffer_with_limit(65536);
    assert_true(metrics_write(metrics, &out));
    assert_true(buffer_put(&out, SLICE_LITERAL("\0")));
    assert_string_equal(buffer_slice(&out).at, "# HELP x_total One \"line\",\\nwith \\\\ in it.\n"
                                               "# TYPE x_total counter\n"
                                               "x_total 42\n"
                                               "# HELP x_open Open.\n"
                                               "# TYPE x_open gauge\n"
                                               "x_open{route=\"pty\"} 9\n"
                                               "x_open{route=\"a\\\"b\\\\c\\nd\"} 2\n"
                                               "# HELP x_pairs_total Pairs.\n"
                                               "# TYPE x_pairs_total counter\n"
                                               "x_pairs_total{reason=\"idle\",route=\"pty\"} 0\n"
                                               "x_pairs_total{reason=\"idle\",route=\"a\\\"b\\\\c\\nd\"} 0\n"
                                               "x_pairs_total{reason=\"other\",route=\"pty\"} 5\n"
                                               "x_pairs_total{reason=\"other\",route=\"a\\\"b\\\\c\\nd\"} 0\n"
                                               "# HELP x_seconds Times.\n"
                                               "# TYPE x_seconds histogram\n"
                                               "x_seconds_bucket{reason=\"idle\",le=\"0.001\"} 0\n"
                                               "x_seconds_bucket{reason=\"idle\",le=\"0.5\"} 0\n"
                                               "x_seconds_bucket{reason=\"idle\",le=\"10\"} 0\n"
                                               "x_seconds_bucket{reason=\"idle\",le=\"+Inf\"} 0\n"
                                               "x_seconds_count{reason=\"idle\"} 0\n"
                                               "x_seconds_sum{reason=\"idle\"} 0.000000000\n"
                                               "x_seconds_bucket{reason=\"other\",le=\"0.001\"} 1\n"
                                               "x_seconds_bucket{reason=\"other\",le=\"0.5\"} 2\n"
                                               "x_seconds_bucket{reason=\"other\",le=\"10\"} 2\n"
                                               "x_seconds_bucket{reason=\"other\",le=\"+Inf\"} 3\n"
                                               "x_seconds_count{reason=\"other\"} 3\n"
                                               "x_seconds_sum{reason=\"other\"} 11.251000000\n");
    buffer_free(&out);
}

static void a_value_is_the_sum_over_all_threads(void **state)
{
    (void)state;
    struct metrics_shard *one = metrics_shard(metrics), *other = metrics_shard(metrics);
    metrics_add(one, PAIRS, METRIC_INDEX(0, 1), 7);
    metrics_add(other, PAIRS, METRIC_INDEX(0, 1), 8);
    metrics_observe(other, TIMES, METRIC_INDEX(0), 1);
    metrics_observe(one, TIMES, METRIC_INDEX(0), 1);
    assert_int_equal(metrics_value(metrics, PAIRS, METRIC_INDEX(0, 1)), 15);
    assert_int_equal(metrics_value(metrics, PAIRS, METRIC_INDEX(1, 1)), 0);
    assert_int_equal(metrics_value(metrics, TIMES, METRIC_INDEX(0)), 2);
}

static void an_index_that_is_too_high_counts_as_the_last(void **state)
{
    (void)state;
    struct metrics_shard *shard = metrics_shard(metrics);
    metrics_add(shard, PAIRS, METRIC_INDEX(77, 1), 1);
    assert_int_equal(metrics_value(metrics, PAIRS, METRIC_INDEX(1, 1)), 1);
}

/* Numbers that a peer may choose: no counter falls, and none goes round. */
static void a_histogram_tells_its_buckets(void **state)
{
    (void)state;
    int64_t counts[5] = {0, 0, 0, 0, -7};
    struct metrics_shard *one = metrics_shard(metrics), *other = metrics_shard(metrics);
    metrics_observe(one, TIMES, METRIC_INDEX(1), 0.001);
    metrics_observe(other, TIMES, METRIC_INDEX(1), 0.4);
    metrics_observe(other, TIMES, METRIC_INDEX(1), 0.5);
    metrics_observe(one, TIMES, METRIC_INDEX(1), 99);
    assert_int_equal(metrics_buckets(metrics, TIMES, METRIC_INDEX(1), counts, 5), 4);
    assert_int_equal(counts[0], 1);
    assert_int_equal(counts[1], 2);
    assert_int_equal(counts[2], 0);
    assert_int_equal(counts[3], 1);
    assert_int_equal(counts[4], -7);
    counts[1] = 0;
    assert_int_equal(metrics_buckets(metrics, TIMES, METRIC_INDEX(1), counts, 1), 4);
    assert_int_equal(counts[1], 0);
}

static void at_the_end_of_its_range_a_counter_stays(void **state)
{
    (void)state;
    struct metrics_shard *one = metrics_shard(metrics), *other = metrics_shard(metrics);
    for (int i = 0; i < 3; i++)
        metrics_add(one, PLAIN, METRIC_PLAIN, INT64_MAX - 1);
    metrics_add(other, PLAIN, METRIC_PLAIN, INT64_MAX);
    metrics_add(other, PLAIN, METRIC_PLAIN, -7);
    assert_true(metrics_value(metrics, PLAIN, METRIC_PLAIN) == INT64_MAX);
    metrics_add(one, PAIRS, METRIC_INDEX(0, 0), -1);
    assert_true(metrics_value(metrics, PAIRS, METRIC_INDEX(0, 0)) == 0);
    metrics_add(one, OPEN, METRIC_INDEX(0), INT64_MIN);
    metrics_add(one, OPEN, METRIC_INDEX(0), -1);
    assert_true(metrics_value(metrics, OPEN, METRIC_INDEX(0)) == INT64_MIN);
    metrics_observe(one, TIMES, METRIC_INDEX(0), 1e300);
    metrics_observe(other, TIMES, METRIC_INDEX(0), 1);
    metrics_observe(one, TIMES, METRIC_INDEX(0), -1e300);
    assert_int_equal(metrics_value(metrics, TIMES, METRIC_INDEX(0)), 3);
    struct buffer out = buffer_with_limit(65536);
    assert_true(metrics_write(metrics, &out));
    assert_true(buffer_put(&out, SLICE_LITERAL("\0")));
    assert_non_null(strstr((const char *)buffer_slice(&out).at, "\nx_total 9223372036854775807\n"));
    assert_non_null(
        strstr((const char *)buffer_slice(&out).at, "_sum{reason=\"idle\"} 9223372036.854775807\n"));
    buffer_free(&out);
}

static void no_shard_counts_nothing(void **state)
{
    (void)state;
    metrics_add(NULL, PLAIN, METRIC_PLAIN, 1);
    metrics_set(NULL, OPEN, METRIC_PLAIN, 1);
    metrics_observe(NULL, TIMES, METRIC_PLAIN, 1);
    assert_int_equal(metrics_value(metrics, PLAIN, METRIC_PLAIN), 0);
}

static void an_exposition_that_does_not_fit_is_refused(void **state)
{
    (void)state;
    struct buffer small = buffer_with_limit(100);
    assert_false(metrics_write(metrics, &small));
    buffer_free(&small);
}

static void *count(void *context)
{
    struct metrics_shard *shard = context;
    for (int i = 0; i < 20000; i++) {
        metrics_add(shard, PLAIN, METRIC_PLAIN, 1);
        metrics_observe(shard, TIMES, METRIC_PLAIN, 0.1);
    }
    return NULL;
}

static void threads_count_while_they_are_scraped(void **state)
{
    (void)state;
    pthread_t threads[3];
    for (int i = 0; i < 3; i++)
        pthread_create(&threads[i], NULL, count, metrics_shard(metrics));
    for (int i = 0; i < 20; i++) {
        struct buffer out = buffer_with_limit(65536);
        assert_true(metrics_write(metrics, &out));
        buffer_free(&out);
    }
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(metrics_value(metrics, PLAIN, METRIC_PLAIN), 60000);
    assert_int_equal(metrics_value(metrics, TIMES, METRIC_PLAIN), 60000);
}

static void running_out_of_memory_is_an_error(void **state)
{
    (void)state;
    for (unsigned n = 1; n <= 2; n++) {
        alloc_fail_at(n);
        assert_null(metrics_new(families, FAMILIES));
    }
    alloc_fail_at(1);
    assert_null(metrics_shard(metrics));
    alloc_fail_at(0);
    metrics_free(NULL);
}

static void a_name_keeps_its_place_and_one_too_many_is_other(void **state)
{
    static const char *const fixed[] = {"none", NULL};
    (void)state;
    struct metric_names *names = metric_names_new(fixed, 2);
    const char *const *values = metric_names_values(names);
    assert_string_equal(values[0], "none");
    assert_string_equal(values[1], "");
    assert_int_equal(metric_names_index(names, SLICE_LITERAL("pty")), 1);
    assert_int_equal(metric_names_index(names, SLICE_LITERAL("exec")), 2);
    assert_int_equal(metric_names_index(names, SLICE_LITERAL("pty")), 1);
    assert_int_equal(metric_names_index(names, SLICE_LITERAL("none")), 0);
    assert_int_equal(metric_names_index(names, SLICE_LITERAL("more")), 3);
    assert_string_equal(values[1], "pty");
    assert_string_equal(values[3], "other");
    assert_null(values[4]);
    metric_names_free(names);
}

static void a_name_without_memory_is_other(void **state)
{
    static const char *const fixed[] = {NULL};
    (void)state;
    alloc_fail_at(1);
    assert_null(metric_names_new(fixed, 1));
    alloc_fail_at(0);
    struct metric_names *names = metric_names_new(fixed, 1);
    alloc_fail_at(1);
    assert_int_equal(metric_names_index(names, SLICE_LITERAL("pty")), 1);
    alloc_fail_at(0);
    assert_int_equal(metric_names_index(names, SLICE_LITERAL("pty")), 0);
    metric_names_free(names);
    metric_names_free(NULL);
}

int main(void)
{
#define TEST(test) cmocka_unit_test_setup_teardown(test, make, drop)
    const struct CMUnitTest tests[] = {
        TEST(the_exposition_has_each_family_once_and_all_series),
        TEST(a_value_is_the_sum_over_all_threads),
        TEST(an_index_that_is_too_high_counts_as_the_last),
        TEST(a_histogram_tells_its_buckets),
        TEST(at_the_end_of_its_range_a_counter_stays),
        TEST(no_shard_counts_nothing),
        TEST(an_exposition_that_does_not_fit_is_refused),
        TEST(threads_count_while_they_are_scraped),
        TEST(running_out_of_memory_is_an_error),
        TEST(a_name_keeps_its_place_and_one_too_many_is_other),
        TEST(a_name_without_memory_is_other),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
