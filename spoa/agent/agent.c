/* SPDX-License-Identifier: MIT */
#include "spoa/agent/agent.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "spoa/agent/agent_metrics.h"
#include "spoa/agent/decider.h"
#include "spoa/agent/file_watch.h"
#include "spoa/lib/json_write.h"

enum { TOKEN_CACHE_ENTRIES = 16384, START_SECONDS = 10 };

struct agent {
    struct agent_options options;
    struct metrics *metrics;
    struct metrics_shard *shard; /* of the main thread */
    struct file_watch *keys;
    int listener, relay_listener;
    struct decider **deciders;
    size_t decider_count;
    size_t drained; /* deciders that are; atomic */
    bool draining;
    bool stopped;
    struct loop_task all_drained, first_load, gone;

    struct directory_options *directory_options; /* of the directory that runs */
    void *directory;
    struct directory_sink sink;
    struct metrics_shard *directory_shard; /* of the directory's thread */
    struct names *names;

    pthread_cond_t first_seen; /* with the lock: directory_seen */
    pthread_mutex_t lock;      /* guards what follows; never held while a decision waits */
    struct snapshot *snapshot; /* the one in force */
    bool directory_seen;       /* it was read once, well or badly */
    int64_t loaded_at;         /* Unix seconds; 0: never */
    char directory_error[256]; /* of the last load; empty when it was good */
};

/* ---- snapshots: any thread ---- */

/* Called with the lock held: puts a snapshot of these parts in force. */
static bool use(struct agent *a, const struct snapshot_parts *parts)
{
    struct snapshot *fresh = snapshot_new(parts);
    if (!fresh)
        return false;
    snapshot_release(a->snapshot);
    a->snapshot = fresh;
    for (size_t i = 0; i < a->decider_count; i++)
        decider_use(a->deciders[i], fresh);
    return true;
}

static void seen(struct agent *a)
{
    if (!a->directory_seen)
        loop_post(a->options.loop, &a->first_load);
    a->directory_seen = true;
    pthread_cond_signal(&a->first_seen);
}

static void on_directory_loaded(void *context, const struct directory_load *load)
{
    struct agent *a = context;
    bool wanted =
        names_want(a->names, load->records); /* before anybody is told that the directory is there */
    pthread_mutex_lock(&a->lock);
    struct snapshot_parts parts = a->snapshot->parts;
    parts.records = load->records;
    parts.not_before = load->not_before;
    bool good = use(a, &parts);
    if (good) {
        a->loaded_at = time(NULL);
        a->directory_error[0] = '\0';
    }
    seen(a);
    pthread_mutex_unlock(&a->lock);
    good = good && wanted;
    metrics_add(a->directory_shard, AGENT_DIRECTORY_LOADS, METRIC_INDEX(good ? AGENT_GOOD : AGENT_BAD), 1);
    metrics_add(a->directory_shard, AGENT_DIRECTORY_BEHIND, METRIC_PLAIN, (int64_t)load->epochs_behind);
    metrics_set(a->directory_shard, AGENT_DIRECTORY_RECORDS, METRIC_PLAIN,
                (int64_t)records_count(load->records));
    metrics_set(a->directory_shard, AGENT_DIRECTORY_BYTES, METRIC_PLAIN,
                (int64_t)records_bytes(load->records));
    metrics_set(a->directory_shard, AGENT_DIRECTORY_LOADED_AT, METRIC_PLAIN, (int64_t)time(NULL));
    log_write(a->options.log, good ? LOG_INFO : LOG_ERROR,
              good ? "directory loaded" : "directory not loaded: out of memory",
              LOG_U64("records", records_count(load->records)),
              LOG_U64("bytes", records_bytes(load->records)), LOG_U64("epochs_behind", load->epochs_behind),
              LOG_SECONDS("seconds", load->seconds));
}

static void on_directory_health(void *context, bool answering, bool pushing, const char *why)
{
    struct agent *a = context;
    (void)pushing;
    if (answering)
        return;
    pthread_mutex_lock(&a->lock);
    snprintf(a->directory_error, sizeof a->directory_error, "%s", why);
    seen(a);
    pthread_mutex_unlock(&a->lock);
    metrics_add(a->directory_shard, AGENT_DIRECTORY_LOADS, METRIC_INDEX(AGENT_BAD), 1);
    log_write(a->options.log, LOG_ERROR, "directory not loaded, the last good version stays in force",
              LOG_TEXT("why", why));
}

static void on_names(void *context, struct name_table *table)
{
    struct agent *a = context;
    pthread_mutex_lock(&a->lock);
    struct snapshot_parts parts = a->snapshot->parts;
    parts.names = table;
    bool good = use(a, &parts);
    pthread_mutex_unlock(&a->lock);
    if (!good)
        log_write(a->options.log, LOG_ERROR, "new addresses not taken over: out of memory");
}

/* ---- reload ---- */

/* Only the main thread puts another policy in force, so it may use this one after the lock is given back. */
static struct policy *policy_in_force(struct agent *a)
{
    pthread_mutex_lock(&a->lock);
    struct policy *policy = a->snapshot->parts.policy;
    pthread_mutex_unlock(&a->lock);
    return policy;
}

static void log_warnings(struct agent *a, const struct policy *policy)
{
    const struct option_texts *warnings = tokens_warnings(policy->tokens);
    for (size_t i = 0; i < warnings->count; i++)
        log_write(a->options.log, LOG_WARN, "tokens", LOG_TEXT("warning", warnings->at[i]));
}

static bool watch_keys(struct agent *a, const struct policy *policy)
{
    const struct option_texts *files = tokens_files(policy->tokens);
    for (size_t i = 0; i < files->count; i++)
        if (!file_watch_add(a->keys, files->at[i]))
            return false;
    return true;
}

static bool start_directory(struct agent *a, struct directory_options *options, struct fail *why)
{
    a->directory_options = directory_options_retain(options);
    a->directory = options->kind->start(options->own, &a->sink, a->options.log, why);
    return a->directory;
}

static void stop_directory(struct agent *a)
{
    if (a->directory)
        a->directory_options->kind->stop(a->directory);
    a->directory = NULL;
    directory_options_release(a->directory_options);
    a->directory_options = NULL;
}

/* The old one ends first: what it still had to say would replace what the new one has read. */
static bool change_directory(struct agent *a, const struct policy *from, const struct policy *to,
                             struct fail *why)
{
    struct fail ignored;
    if (directory_options_equal(from->directory, to->directory))
        return true;
    stop_directory(a);
    if (start_directory(a, to->directory, why))
        return true;
    stop_directory(a);
    start_directory(a, from->directory, &ignored);
    return false;
}

/* Takes over the reference of policy, which is NULL if it could not be loaded. */
static bool take_over(struct agent *a, struct policy *policy, const char *what, struct fail *why)
{
    bool good = policy != NULL;
    if (good)
        good = watch_keys(a, policy) ? change_directory(a, policy_in_force(a), policy, why)
                                     : fail(why, "out of memory");
    if (good) {
        pthread_mutex_lock(&a->lock);
        struct snapshot_parts parts = a->snapshot->parts;
        parts.policy = policy;
        good = use(a, &parts) || fail(why, "out of memory");
        pthread_mutex_unlock(&a->lock);
    }
    metrics_add(a->shard, AGENT_RELOADS, METRIC_INDEX(good ? AGENT_GOOD : AGENT_BAD), 1);
    if (good) {
        log_write(a->options.log, LOG_INFO, "reloaded", LOG_TEXT("what", what));
        log_warnings(a, policy);
    } else {
        log_write(a->options.log, LOG_ERROR, "not reloaded, what was in force stays", LOG_TEXT("what", what),
                  LOG_TEXT("why", why->text));
    }
    policy_release(policy);
    return good;
}

static void on_key_changed(void *context)
{
    struct agent *a = context;
    struct fail why;
    (void)take_over(a, policy_reload_tokens(policy_in_force(a), &why), "keys", &why);
}

bool agent_reload(struct agent *a, struct fail *why)
{
    const struct agent_options *o = &a->options;
    return take_over(a, policy_load(o->config, o->overrides, o->override_count, why), "configuration", why);
}

/* ---- its life ---- */

static void on_all_drained(void *context)
{
    struct agent *a = context;
    if (!a->stopped)
        a->options.drained(a->options.context);
}

static void on_first_load(void *context)
{
    struct agent *a = context;
    if (!a->stopped)
        a->options.started(a->options.context);
}

static void on_decider_drained(void *context)
{
    struct agent *a = context;
    if (__atomic_add_fetch(&a->drained, 1, __ATOMIC_ACQ_REL) == a->decider_count)
        loop_post(a->options.loop, &a->all_drained);
}

static void close_listeners(struct agent *a)
{
    if (a->listener >= 0)
        net_unlisten(a->listener);
    if (a->relay_listener >= 0)
        net_unlisten(a->relay_listener);
    a->listener = a->relay_listener = -1;
}

void agent_drain(struct agent *a)
{
    double grace = (double)policy_in_force(a)->settings->agent.drain / 1000;
    if (a->draining)
        return;
    a->draining = true;
    close_listeners(a);
    for (size_t i = 0; i < a->decider_count; i++)
        decider_drain(a->deciders[i], grace);
}

void agent_stop(struct agent *a)
{
    if (!a)
        return;
    stop_directory(a);
    names_stop(a->names);
    for (size_t i = 0; i < a->decider_count; i++)
        decider_stop(a->deciders[i]);
    close_listeners(a);
    file_watch_free(a->keys);
    snapshot_release(a->snapshot);
    metrics_free(a->metrics);
    pthread_cond_destroy(&a->first_seen);
    pthread_mutex_destroy(&a->lock);
    free(a->deciders);
    /* behind the tasks that its threads have posted, which still point to it */
    a->stopped = true;
    a->gone = (struct loop_task){.run = free, .context = a};
    loop_post(a->options.loop, &a->gone);
}

static bool start_deciders(struct agent *a, struct fail *why)
{
    size_t threads = (size_t)a->snapshot->parts.policy->settings->agent.threads;
    a->deciders = calloc(threads, sizeof(struct decider *));
    if (!a->deciders)
        return fail(why, "out of memory");
    for (size_t i = 0; i < threads; i++) {
        const struct decider_options options = {.listener = a->listener,
                                                .relay_listener = a->relay_listener,
                                                .token_cache = TOKEN_CACHE_ENTRIES,
                                                .shard = metrics_shard(a->metrics),
                                                .log = a->options.log,
                                                .drained = on_decider_drained,
                                                .context = a};
        pthread_mutex_lock(&a->lock); /* directory and resolver may bring a newer snapshot at any time */
        a->deciders[i] = decider_start(&options, a->snapshot, why);
        a->decider_count += a->deciders[i] != NULL;
        pthread_mutex_unlock(&a->lock);
        if (!a->deciders[i])
            return false;
    }
    return true;
}

/* Nobody is answered before there is something to decide by, so that a restart costs no
 * `directory_unavailable`. Bounded: a directory that hangs must not hide behind an agent that does not start.
 */
static void await_directory(struct agent *a)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += START_SECONDS;
    pthread_mutex_lock(&a->lock);
    for (int error = 0; !a->directory_seen && error == 0;)
        error = pthread_cond_timedwait(&a->first_seen, &a->lock, &until);
    pthread_mutex_unlock(&a->lock);
    names_await(a->names, &until);
}

static bool start_parts(struct agent *a, struct policy *policy, struct fail *why)
{
    const struct snapshot_parts parts = {.policy = policy};
    a->metrics = metrics_new(agent_metrics, AGENT_METRICS);
    a->shard = a->metrics ? metrics_shard(a->metrics) : NULL;
    a->directory_shard = a->metrics ? metrics_shard(a->metrics) : NULL;
    a->snapshot = snapshot_new(&parts);
    if (!a->directory_shard || !a->snapshot)
        return fail(why, "out of memory");
    a->listener = net_listen(&policy->settings->agent.listen, 0660, why);
    a->relay_listener = a->listener < 0 ? -1 : net_listen(&policy->settings->agent.relay_listen, 0660, why);
    a->keys = a->relay_listener < 0 ? NULL : file_watch_new(a->options.loop, on_key_changed, a);
    if (!a->keys || !watch_keys(a, policy))
        return false;
    a->names = names_start(on_names, a, why);
    if (!a->names || !start_directory(a, policy->directory, why))
        return false;
    await_directory(a);
    return start_deciders(a, why);
}

static struct agent *agent_new(const struct agent_options *options)
{
    struct agent *a = calloc(1, sizeof *a);
    pthread_condattr_t monotonic;
    if (!a)
        return NULL;
    a->options = *options;
    a->listener = a->relay_listener = -1;
    a->all_drained = (struct loop_task){.run = on_all_drained, .context = a};
    a->sink =
        (struct directory_sink){.loaded = on_directory_loaded, .health = on_directory_health, .context = a};
    a->first_load = (struct loop_task){.run = on_first_load, .context = a};
    pthread_mutex_init(&a->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&a->first_seen, &monotonic);
    pthread_condattr_destroy(&monotonic);
    return a;
}

struct agent *agent_start(const struct agent_options *options, struct policy *policy, struct fail *why)
{
    struct agent *a = agent_new(options);
    fail(why, "out of memory"); /* unless a part says something else */
    bool good = a && start_parts(a, policy, why);
    if (good)
        log_warnings(a, policy);
    policy_release(policy);
    if (good)
        return a;
    agent_stop(a);
    return NULL;
}

/* ---- views ---- */

bool agent_ready(struct agent *a, const char **why)
{
    pthread_mutex_lock(&a->lock);
    bool loaded = a->snapshot->parts.records != NULL;
    pthread_mutex_unlock(&a->lock);
    *why = a->draining ? "draining" : loaded ? "ready" : "the directory is not loaded";
    return loaded && !a->draining;
}

static struct server_counters count(const struct agent *a)
{
    struct server_counters sum = {0};
    for (size_t i = 0; i < a->decider_count; i++)
        decider_count(a->deciders[i], &sum);
    return sum;
}

bool agent_write_metrics(struct agent *a, struct buffer *to)
{
    struct server_counters sum = count(a);
    metrics_set(a->shard, AGENT_LOG_DROPPED, METRIC_PLAIN, (int64_t)log_dropped(a->options.log));
    bool good = metrics_write(a->metrics, to);
#define X(field, help)                                                                  \
    good = good && json_write(to,                                                       \
                              "# HELP cellgate_agent_spop_" #field " SPOP: " help ".\n" \
                              "# TYPE cellgate_agent_spop_" #field " untyped\n"         \
                              "cellgate_agent_spop_" #field " %" PRIu64 "\n",           \
                              sum.field);
    SERVER_COUNTERS(X)
#undef X
    return good;
}

bool agent_write_status(struct agent *a, struct buffer *to)
{
    struct server_counters sum = count(a);
    const char *ready;
    agent_ready(a, &ready);
    pthread_mutex_lock(&a->lock);
    const struct records *records = a->snapshot->parts.records;
    bool good = json_write(to, "{\"version\":\"%s\",\"state\":\"%s\",\"cell\":", CELLGATE_VERSION, ready) &&
                json_write_text(to, slice_text(a->snapshot->parts.policy->settings->cell)) &&
                json_write(to, ",\"threads\":%zu,\"connections\":%" PRIu64 ",\"decisions\":%" PRIu64,
                           a->decider_count, sum.connections, sum.acks) &&
                json_write(to,
                           ",\"records\":%zu,\"records_bytes\":%zu,\"directory_loaded_at\":%" PRId64
                           ",\"directory_error\":",
                           records ? records_count(records) : 0, records ? records_bytes(records) : 0,
                           a->loaded_at) &&
                json_write_text(to, slice_text(a->directory_error)) && json_write(to, "}");
    pthread_mutex_unlock(&a->lock);
    return good;
}

void agent_log_status(struct agent *a)
{
    struct server_counters sum = count(a);
    const char *ready;
    agent_ready(a, &ready);
    pthread_mutex_lock(&a->lock);
    log_write(a->options.log, LOG_INFO, "status", LOG_TEXT("state", ready),
              LOG_U64("connections", sum.connections), LOG_U64("acks", sum.acks),
              LOG_TEXT("directory_error", a->directory_error));
    pthread_mutex_unlock(&a->lock);
}
