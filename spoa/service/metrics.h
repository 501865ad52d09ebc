/* SPDX-License-Identifier: MIT */
/*
 * metrics: counters, gauges and histograms in the Prometheus text format (version 0.0.4).
 *
 * A daemon declares its families in one static table. Label values are enumerated there, so that the number
 * of series is fixed and all memory is taken at start. Each thread counts in a shard of its own: one relaxed
 * load and store, no lock, no cache line shared with another writer. A scrape sums the shards; it may miss
 * what happens meanwhile.
 *
 *     enum { TUNNELS, REDIALS, FAMILIES };
 *     static const struct metric families[FAMILIES] = {
 *         [TUNNELS] = {"cellgate_relay_tunnels", "...", METRIC_GAUGE, {{"route", routes}}},
 *         [REDIALS] = {"cellgate_relay_redials_total", "...", METRIC_COUNTER,
 *                      {{"cause", causes}, {"outcome", outcomes}}},
 *     };
 *     metrics_add(shard, REDIALS, METRIC_INDEX(CAUSE_RESET, OUTCOME_RESUMED), 1);
 */
#ifndef CELLGATE_SERVICE_METRICS_H
#define CELLGATE_SERVICE_METRICS_H

#include "spoa/base/bytes/buffer.h"

enum { METRIC_LABELS = 3 };

enum metric_type { METRIC_COUNTER, METRIC_GAUGE, METRIC_HISTOGRAM };

struct metric_label {
    const char *name; /* NULL: no more labels */
    /* NULL-terminated; "" is not written: a place kept for a name that comes later, by an atomic
     * store that releases it. */
    const char *const *values;
};

struct metric {
    const char *name, *help;
    enum metric_type type;
    struct metric_label labels[METRIC_LABELS];
    const double *bounds; /* METRIC_HISTOGRAM: upper bounds in seconds, rising, ended by a 0; without +Inf */
};

/* Bounds from 10 microseconds to 10 seconds, for decisions, dials and gaps. */
extern const double metrics_seconds[];

struct metrics;
struct metrics_shard; /* one per thread, for that thread alone */

/* The families must outlive it. NULL when out of memory. */
struct metrics *metrics_new(const struct metric *families, size_t count);
void metrics_free(struct metrics *metrics); /* with all shards */
/* Any thread; lives as long as metrics. NULL when out of memory. */
struct metrics_shard *metrics_shard(struct metrics *metrics);

/* `values`: one index per label of the family; one that is too high counts as the last. A shard may be NULL:
 * nothing is counted (unit tests). */
#define METRIC_INDEX(...) ((const unsigned[METRIC_LABELS]){__VA_ARGS__})
#define METRIC_PLAIN      METRIC_INDEX(0)

/* A counter does not take what is negative, and at the end of 63 bits it stays; a gauge may fall, and its shards may be
 * negative as long as the sum is not. */
void metrics_add(struct metrics_shard *shard, unsigned family, const unsigned *values, int64_t by);
/* One series of a counter, for who adds to it so often that looking for it counts. As of metrics_add, by the shard's thread. */
struct metrics_series {
    _Atomic int64_t *slot;
};
struct metrics_series metrics_series(struct metrics_shard *shard, unsigned family, const unsigned *values);
void metrics_series_add(struct metrics_series series, uint64_t by);
/* Of a gauge that only this thread keeps. */
void metrics_set(struct metrics_shard *shard, unsigned family, const unsigned *values, int64_t value);
void metrics_observe(struct metrics_shard *shard, unsigned family, const unsigned *values, double seconds);

/* The sum over all shards, for views and tests; of a histogram the number of observations. */
int64_t metrics_value(struct metrics *metrics, unsigned family, const unsigned *values);
/* Of a histogram: how many observations are within each bound and above the one before, then those above the last bound.
 * Writes at most `room` and returns how many there are. */
size_t metrics_buckets(struct metrics *metrics, unsigned family, const unsigned *values, int64_t *counts,
                       size_t room);
/* The whole exposition. A series that was never touched is
 * written as 0. False when `to` is full or memory is short. */
bool metrics_write(struct metrics *metrics, struct buffer *to);

#endif
