/* SPDX-License-Identifier: MIT */
/*
 * metrics: counters, gauges and histograms in the Prometheus text format (version 0.0.4).
 *
 * A daemon declares its families in one static table. The values of labels are enumerated there, so the number of series is fixed and all
 * memory is allocated at the start. Each thread counts in a shard of its own with relaxed loads and stores: no lock,
 * and no cache line is shared with another writer. A scrape sums the shards; it may miss counts that change meanwhile.
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

enum { METRIC_LABELS = 3 }; /* maximum number of labels of a family */

enum metric_type { METRIC_COUNTER, METRIC_GAUGE, METRIC_HISTOGRAM };

struct metric_label {
    const char *name; /* NULL after the last label */
    /* NULL-terminated. An empty value is not written: it is a place for a name that is added later, by an atomic store with release
     * order. */
    const char *const *values;
};

/* One family: a name and all its series. */
struct metric {
    const char *name, *help;
    enum metric_type type;
    struct metric_label labels[METRIC_LABELS];
    const double *bounds; /* METRIC_HISTOGRAM: upper bounds [s], ascending, ended by a 0, without +Inf */
};

/* Bounds from 10 µs to 10 s, for decisions, dials and gaps. */
extern const double metrics_seconds[];

struct metrics;
struct metrics_shard; /* one for each thread, which alone may write to it */

/* Returns metrics of these families, which must outlive them, or NULL if memory is short. */
struct metrics *metrics_new(const struct metric *families, size_t count) MUST_CHECK;
/* Frees the metrics with all their shards; NULL is fine. */
void metrics_free(struct metrics *metrics);
/* Returns a new shard, which lives as long as the metrics, or NULL if memory is short. Any thread may call this. */
struct metrics_shard *metrics_shard(struct metrics *metrics) MUST_CHECK;

/* The indices of a series: one value for each label of the family. An index that is too high counts as the last one. A NULL shard counts
 * nothing, as in unit tests. */
#define METRIC_INDEX(...) ((const unsigned[METRIC_LABELS]){__VA_ARGS__})
#define METRIC_PLAIN      METRIC_INDEX(0)

/* Adds to a series. A counter ignores negative numbers and stays at the end of 63 bits; a gauge may fall, and a shard of it may be negative
 * as long as the sum is not. */
void metrics_add(struct metrics_shard *shard, unsigned family, const unsigned *values, int64_t by);
/* One series of a counter, for callers that add so often that finding the series matters. For the shard's thread. */
struct metrics_series {
    _Atomic int64_t *slot;
};
struct metrics_series metrics_series(struct metrics_shard *shard, unsigned family, const unsigned *values);
void metrics_series_add(struct metrics_series series, uint64_t by);
/* Sets a gauge that only this thread writes. */
void metrics_set(struct metrics_shard *shard, unsigned family, const unsigned *values, int64_t value);
/* Counts one observation of a histogram. */
void metrics_observe(struct metrics_shard *shard, unsigned family, const unsigned *values, double seconds);

/* Returns the sum of a series over all shards, for views and tests; for a histogram the number of observations. */
int64_t metrics_value(struct metrics *metrics, unsigned family, const unsigned *values);
/* Fills in how many observations of a histogram are within each bound but above the one before, then those above the last bound. Writes at
 * most `room` numbers and returns how many there are. */
size_t metrics_buckets(struct metrics *metrics, unsigned family, const unsigned *values, int64_t *counts,
                       size_t room);
/* Writes all families in the text format; an untouched series is 0. Returns false if `to` is full or memory is short. */
bool metrics_write(struct metrics *metrics, struct buffer *to) MUST_CHECK;

#endif
