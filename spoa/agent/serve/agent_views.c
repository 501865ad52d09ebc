/* SPDX-License-Identifier: MIT */
/* agent_views: the agent's readiness, metrics and status. */
#include <inttypes.h>

#include "spoa/agent/serve/agent_parts.h"
#include "spoa/base/json/json_write.h"
#include "spoa/service/process_metrics.h"

bool agent_ready(struct agent *a, const char **why)
{
    pthread_mutex_lock(&a->lock);
    bool loaded = a->directory_known;
    pthread_mutex_unlock(&a->lock);
    *why = a->draining ? "draining" : loaded ? "ready" : "the directory is not loaded";
    return loaded && !a->draining;
}

static struct server_counters count_threads(const struct agent *a)
{
    struct server_counters sum = {0};
    for (size_t i = 0; i < a->decision_thread_count; i++)
        decision_thread_count(a->decision_threads[i], &sum);
    return sum;
}

static struct directory_cache_counts count_cache(const struct agent *a)
{
    struct directory_cache *cache = a->directory ? directory_cache(a->directory) : NULL;
    return cache ? directory_cache_counts(cache) : (struct directory_cache_counts){.hits = 0};
}

static void set_directory_metrics(struct agent *a)
{
    struct directory_cache_counts counts = count_cache(a);
    uint64_t followed[DIRECTORY_FOLLOWED] = {
        0}; /* zero, so that no counts remain of a directory before a reload */
    if (a->directory)
        (void)directory_counts(a->directory, followed);
    agent_metrics_cache(a->shard, &counts);
    agent_metrics_followed(a->shard, followed);
    pthread_mutex_lock(&a->lock);
    metrics_set(a->shard, DIRECTORY_UP, METRIC_PLAIN, a->directory_up);
    metrics_set(a->shard, DIRECTORY_PUSHING, METRIC_PLAIN, a->directory_pushing);
    const struct snapshot_parts *parts = &a->snapshot->parts;
    metrics_set(a->shard, AGENT_REVOKED, METRIC_INDEX(0), (int64_t)revoked_count(parts->revoked));
    metrics_set(a->shard, AGENT_REVOKED, METRIC_INDEX(1), (int64_t)revoked_count(parts->policy->revoked));
    pthread_mutex_unlock(&a->lock);
}

static bool write_spop(struct buffer *to, const char *field, const char *ending, const char *type,
                       const char *help, uint64_t value)
{
    return json_write(to, "# HELP cellgate_agent_spop_%s%s %s\n# TYPE cellgate_agent_spop_%s%s %s\n", field,
                      ending, help, field, ending, type) &&
           json_write(to, "cellgate_agent_spop_%s%s %" PRIu64 "\n", field, ending, value);
}

bool agent_write_metrics(struct agent *a, struct buffer *to)
{
    struct server_counters sum = count_threads(a);
    set_directory_metrics(a);
    metrics_set(a->shard, AGENT_SUBSCRIPTIONS, METRIC_PLAIN,
                (int64_t)atomic_load_explicit(&a->subscriptions.used, memory_order_relaxed));
    metrics_set(a->shard, AGENT_LOG_DROPPED, METRIC_PLAIN, (int64_t)log_dropped(a->options.log));
    metrics_set(a->shard, AGENT_LOG_HELD_BACK, METRIC_PLAIN, (int64_t)log_held_back(a->options.log));
    metrics_set(a->shard, AGENT_AUDIT_DROPPED, METRIC_PLAIN,
                a->options.audit ? (int64_t)log_dropped(a->options.audit) : 0);
    bool good = metrics_write(a->metrics, to) && process_metrics_write("agent", to);
#define GAUGE                "", "gauge"
#define COUNTER              "_total", "counter"
#define X(field, type, help) good = good && write_spop(to, #field, type, "SPOP: " help ".", sum.field);
    SERVER_COUNTERS(X)
#undef X
#undef GAUGE
#undef COUNTER
    return good;
}

/* Writes the directory's status; the lock must be held. */
static bool write_directory(struct agent *a, struct buffer *to)
{
    const struct records *records = a->snapshot->parts.records;
    struct directory_cache_counts counts = count_cache(a);
    return json_write(to, ",\"directory\":{\"kind\":\"%s\",\"up\":%s,\"pushing\":%s",
                      a->directory ? directory_kind(a->directory)->name : "",
                      a->directory_up ? "true" : "false", a->directory_pushing ? "true" : "false") &&
           json_write(to,
                      ",\"in_use\":%zu,\"look_ups\":%" PRIu64 ",\"failed\":%" PRIu64 "},\"records\":%zu"
                      ",\"records_bytes\":%zu",
                      counts.pinned, counts.look_ups, counts.failed,
                      records ? records_count(records) : counts.records + counts.pinned,
                      records ? records_bytes(records) : counts.bytes);
}

bool agent_write_status(struct agent *a, struct buffer *to)
{
    struct server_counters sum = count_threads(a);
    const char *ready;
    agent_ready(a, &ready);
    pthread_mutex_lock(&a->lock);
    bool good = json_write(to, "{\"version\":\"%s\",\"state\":\"%s\",\"cell\":", CELLGATE_VERSION, ready) &&
                json_write_text(to, slice_text(a->snapshot->parts.policy->settings->cell)) &&
                json_write(to, ",\"threads\":%zu,\"connections\":%" PRIu64 ",\"decisions\":%" PRIu64,
                           a->decision_thread_count, sum.connections, sum.acks) &&
                write_directory(a, to) &&
                json_write(to, ",\"directory_loaded_at\":%" PRId64 ",\"directory_error\":", a->loaded_at) &&
                json_write_text(to, slice_text(a->directory_error)) && json_write(to, "}");
    pthread_mutex_unlock(&a->lock);
    return good;
}

void agent_log_status(struct agent *a)
{
    struct server_counters sum = count_threads(a);
    const char *ready;
    agent_ready(a, &ready);
    pthread_mutex_lock(&a->lock);
    log_write(a->options.log, LOG_INFO, "status", LOG_TEXT("state", ready),
              LOG_U64("connections", sum.connections), LOG_U64("acks", sum.acks),
              LOG_TEXT("directory_error", a->directory_error));
    pthread_mutex_unlock(&a->lock);
}
