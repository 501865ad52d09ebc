/* SPDX-License-Identifier: MIT */
#include "spoa/service/metrics.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "spoa/base/bytes/writer.h"

enum { CACHE_LINE = 64, LINE = 1024 }; /* bytes; maximum length of a line */
#define NANOSECONDS 1000000000
#define MAX_SECONDS 9e9 /* maximum observation; more nanoseconds do not fit into 63 bits */

const double metrics_seconds[] = {0.00001, 0.000025, 0.00005, 0.0001, 0.00025, 0.0005, 0.001,
                                  0.0025,  0.005,    0.01,    0.025,  0.05,    0.1,    0.25,
                                  0.5,     1,        2.5,     5,      10,      0};

/* The place of one family in every shard. */
struct layout {
    size_t start;
    unsigned values[METRIC_LABELS]; /* number of values of each label; 1 for a missing label */
    size_t bounds;                  /* number of bounds of a histogram */
    size_t slots; /* slots of one series: 1; of a histogram its buckets, the one above all bounds, the sum */
};

struct metrics_shard {
    struct metrics *metrics;
    struct metrics_shard *next;
    char front[CACHE_LINE];  /* keeps the slots apart from memory that others write */
    _Atomic int64_t slots[]; /* followed by an unused cache line */
};

struct metrics {
    const struct metric *families;
    size_t count, slots; /* number of families; of slots in a shard */
    struct layout *layouts;
    pthread_mutex_t lock; /* guards the list of shards */
    struct metrics_shard *shards;
};

/* ---- layout ---- */

/* Returns the layout of a family whose first slot is `start`. */
static struct layout layout_of(const struct metric *family, size_t start)
{
    struct layout l = {.start = start, .slots = 1};
    for (size_t i = 0; i < METRIC_LABELS; i++) {
        const char *const *values = family->labels[i].values;
        l.values[i] = family->labels[i].name ? 0 : 1;
        while (family->labels[i].name && values[l.values[i]])
            l.values[i]++;
    }
    if (family->type == METRIC_HISTOGRAM) {
        while (family->bounds[l.bounds] > 0)
            l.bounds++;
        l.slots = l.bounds + 2;
    }
    return l;
}

/* Returns the number of series of a family. */
static size_t series_count(const struct layout *l)
{
    size_t count = 1;
    for (size_t i = 0; i < METRIC_LABELS; i++)
        count *= l->values[i];
    return count;
}

/* Returns the index of a series within its family. */
static size_t series_of(const struct layout *l, const unsigned *values)
{
    size_t series = 0;
    for (size_t i = 0; i < METRIC_LABELS; i++)
        series = series * l->values[i] + (values[i] < l->values[i] ? values[i] : l->values[i] - 1);
    return series;
}

struct metrics *metrics_new(const struct metric *families, size_t count)
{
    struct metrics *m = calloc(1, sizeof *m);
    struct layout *layouts = calloc(count, sizeof *layouts);
    if (!m || !layouts) {
        free(m);
        free(layouts);
        return NULL;
    }
    *m = (struct metrics){.families = families, .count = count, .layouts = layouts};
    for (size_t i = 0; i < count; i++) {
        layouts[i] = layout_of(&families[i], m->slots);
        m->slots += series_count(&layouts[i]) * layouts[i].slots;
    }
    pthread_mutex_init(&m->lock, NULL);
    return m;
}

void metrics_free(struct metrics *metrics)
{
    if (!metrics)
        return;
    for (struct metrics_shard *shard = metrics->shards, *next; shard; shard = next) {
        next = shard->next;
        free(shard);
    }
    pthread_mutex_destroy(&metrics->lock);
    free(metrics->layouts);
    free(metrics);
}

struct metrics_shard *metrics_shard(struct metrics *metrics)
{
    struct metrics_shard *shard =
        calloc(1, sizeof *shard + metrics->slots * sizeof *shard->slots + CACHE_LINE);
    if (!shard)
        return NULL;
    shard->metrics = metrics;
    pthread_mutex_lock(&metrics->lock);
    shard->next = metrics->shards;
    metrics->shards = shard;
    pthread_mutex_unlock(&metrics->lock);
    return shard;
}

/* ---- counting ---- */

static _Atomic int64_t *series_at(struct metrics_shard *shard, unsigned family, const unsigned *values)
{
    const struct layout *l = &shard->metrics->layouts[family];
    return &shard->slots[l->start + series_of(l, values) * l->slots];
}

/* Adds without overflow: a peer may choose what is counted, hence the sum stays at the end of the range. */
static int64_t add(int64_t a, int64_t b)
{
    int64_t total;
    return __builtin_add_overflow(a, b, &total) ? (b < 0 ? INT64_MIN : INT64_MAX) : total;
}

/* Adds to a slot. Only the shard's own thread writes it, so no atomic read-modify-write is needed. */
static void bump(_Atomic int64_t *slot, int64_t by)
{
    int64_t before = atomic_load_explicit(slot, memory_order_relaxed);
    atomic_store_explicit(slot, add(before, by), memory_order_relaxed);
}

void metrics_add(struct metrics_shard *shard, unsigned family, const unsigned *values, int64_t by)
{
    if (shard && (by >= 0 || shard->metrics->families[family].type == METRIC_GAUGE))
        bump(series_at(shard, family, values), by);
}

struct metrics_series metrics_series(struct metrics_shard *shard, unsigned family, const unsigned *values)
{
    return (struct metrics_series){shard ? series_at(shard, family, values) : NULL};
}

void metrics_series_add(struct metrics_series series, uint64_t by)
{
    if (series.slot)
        bump(series.slot, by < INT64_MAX ? (int64_t)by : INT64_MAX);
}

void metrics_set(struct metrics_shard *shard, unsigned family, const unsigned *values, int64_t value)
{
    if (shard)
        atomic_store_explicit(series_at(shard, family, values), value, memory_order_relaxed);
}

void metrics_observe(struct metrics_shard *shard, unsigned family, const unsigned *values, double seconds)
{
    if (!shard)
        return;
    const double *bounds = shard->metrics->families[family].bounds;
    _Atomic int64_t *series = series_at(shard, family, values);
    size_t bucket = 0, count = shard->metrics->layouts[family].bounds;
    while (bucket < count && seconds > bounds[bucket])
        bucket++;
    bump(&series[bucket], 1);
    if (seconds > 0)
        bump(&series[count + 1], seconds < MAX_SECONDS ? (int64_t)(seconds * NANOSECONDS) : INT64_MAX);
}

/* ---- reading ---- */

/* Returns the sum of a slot over all shards, with the lock held. */
static int64_t sum(const struct metrics *m, size_t slot)
{
    int64_t total = 0;
    for (struct metrics_shard *shard = m->shards; shard; shard = shard->next)
        total = add(total, atomic_load_explicit(&shard->slots[slot], memory_order_relaxed));
    return total;
}

int64_t metrics_value(struct metrics *metrics, unsigned family, const unsigned *values)
{
    const struct layout *l = &metrics->layouts[family];
    size_t first = l->start + series_of(l, values) * l->slots, counts = l->slots == 1 ? 1 : l->slots - 1;
    int64_t total = 0;
    pthread_mutex_lock(&metrics->lock);
    for (size_t i = 0; i < counts; i++)
        total = add(total, sum(metrics, first + i));
    pthread_mutex_unlock(&metrics->lock);
    return total;
}

size_t metrics_buckets(struct metrics *metrics, unsigned family, const unsigned *values, int64_t *counts,
                       size_t room)
{
    const struct layout *l = &metrics->layouts[family];
    size_t first = l->start + series_of(l, values) * l->slots;
    pthread_mutex_lock(&metrics->lock);
    for (size_t i = 0; i <= l->bounds && i < room; i++)
        counts[i] = sum(metrics, first + i);
    pthread_mutex_unlock(&metrics->lock);
    return l->bounds + 1;
}

/* Writes a text escaped: in a label's value a quote is escaped, in HELP it is not. */
static void put_escaped(struct writer *w, const char *text, bool quoted)
{
    for (; *text; text++) {
        if (*text == '\n')
            writer_text(w, "\\n");
        else if (*text == '\\' || (quoted && *text == '"'))
            writer_printf(w, "\\%c", *text);
        else
            writer_u8(w, (uint8_t)*text);
    }
}

/* Writes `route="pty",reason="idle"`. Returns false if one of the values is a place without a name. */
static bool put_labels(struct writer *w, const struct metric *family, const struct layout *l, size_t series)
{
    unsigned index[METRIC_LABELS];
    for (size_t i = METRIC_LABELS; i-- > 0; series /= l->values[i])
        index[i] = (unsigned)(series % l->values[i]);
    for (size_t i = 0; i < METRIC_LABELS && family->labels[i].name; i++) {
        /* another thread may be adding the value */
        const char *value = atomic_load_explicit(
            (const _Atomic(const char *) *)&family->labels[i].values[index[i]], memory_order_acquire);
        if (!*value)
            return false;
        writer_printf(w, "%s%s=\"", i ? "," : "", family->labels[i].name);
        put_escaped(w, value, true);
        writer_text(w, "\"");
    }
    return true;
}

static bool put_line(struct buffer *to, const struct writer *line)
{
    return !line->full && buffer_put(to, writer_slice(line));
}

/* Writes "name{labels} value"; suffix and bound are those of a histogram's line, or empty. */
static bool put_sample(struct buffer *to, const char *name, const char *suffix, struct slice labels,
                       const char *bound, const char *value)
{
    char memory[LINE];
    struct writer line = writer_of(memory, sizeof memory);
    writer_printf(&line, "%s%s", name, suffix);
    if (labels.len || *bound) {
        writer_text(&line, "{");
        writer_put(&line, labels);
        if (*bound)
            writer_printf(&line, "%sle=\"%s\"", labels.len ? "," : "", bound);
        writer_text(&line, "}");
    }
    writer_printf(&line, " %s\n", value);
    return put_line(to, &line);
}

/* Writes the lines of one series of a histogram. */
static bool put_histogram(const struct metrics *m, const struct metric *family, const struct layout *l,
                          size_t first, struct slice labels, struct buffer *to)
{
    char bound[32], value[48];
    int64_t total = 0;
    for (size_t i = 0; i <= l->bounds; i++) {
        total = add(total, sum(m, first + i));
        if (i < l->bounds)
            snprintf(bound, sizeof bound, "%g", family->bounds[i]);
        snprintf(value, sizeof value, "%" PRId64, total);
        if (!put_sample(to, family->name, "_bucket", labels, i < l->bounds ? bound : "+Inf", value))
            return false;
    }
    int64_t seconds = sum(m, first + l->bounds + 1);
    if (!put_sample(to, family->name, "_count", labels, "", value))
        return false;
    snprintf(value, sizeof value, "%" PRId64 ".%09" PRId64, seconds / NANOSECONDS, seconds % NANOSECONDS);
    return put_sample(to, family->name, "_sum", labels, "", value);
}

/* Writes one series. Returns false if there is no room. */
static bool put_series(const struct metrics *m, size_t f, size_t series, struct buffer *to)
{
    const struct metric *family = &m->families[f];
    const struct layout *l = &m->layouts[f];
    size_t first = l->start + series * l->slots;
    char memory[LINE / 2], value[32];
    struct writer labels = writer_of(memory, sizeof memory);
    if (!put_labels(&labels, family, l, series))
        return true;
    if (labels.full)
        return false;
    if (family->type == METRIC_HISTOGRAM)
        return put_histogram(m, family, l, first, writer_slice(&labels), to);
    snprintf(value, sizeof value, "%" PRId64, sum(m, first));
    return put_sample(to, family->name, "", writer_slice(&labels), "", value);
}

/* Writes HELP, TYPE and all series of a family. */
static bool put_family(const struct metrics *m, size_t f, struct buffer *to)
{
    static const char *const types[] = {"counter", "gauge", "histogram"};
    const struct metric *family = &m->families[f];
    char memory[LINE];
    struct writer head = writer_of(memory, sizeof memory);
    writer_printf(&head, "# HELP %s ", family->name);
    put_escaped(&head, family->help, false);
    writer_printf(&head, "\n# TYPE %s %s\n", family->name, types[family->type]);
    bool good = put_line(to, &head);
    for (size_t series = 0; good && series < series_count(&m->layouts[f]); series++)
        good = put_series(m, f, series, to);
    return good;
}

bool metrics_write(struct metrics *metrics, struct buffer *to)
{
    bool good = true;
    pthread_mutex_lock(&metrics->lock);
    for (size_t f = 0; good && f < metrics->count; f++)
        good = put_family(metrics, f, to);
    pthread_mutex_unlock(&metrics->lock);
    return good;
}
