/* SPDX-License-Identifier: MIT */
/* agent_directory: turns events of the directory into snapshots, notifications, metrics and log lines. */
#include <stdio.h>
#include <time.h>

#include "spoa/agent/serve/agent_parts.h"

#define START_AGAIN (100 * MILLISECOND)

/* ---- events of the directory; I/O thread ---- */

static void seen(struct agent *a)
{
    if (!a->directory_seen)
        loop_post(a->options.loop, &a->first_load);
    a->directory_seen = true;
    pthread_cond_signal(&a->first_seen);
}

/* Notes that the directory answers; the lock must be held. */
static void answers(struct agent *a, bool pushing)
{
    a->directory_known = a->directory_up = true;
    a->directory_pushing = pushing;
    a->directory_error[0] = '\0';
}

void agent_tell_over(struct agent *a, const char *list, size_t over)
{
    if (over)
        log_write(a->options.log, LOG_WARN, "revoked tokens left out: they expired over an hour ago",
                  LOG_TEXT("list", list), LOG_U64("count", over));
}

static void want_names(struct agent *a, char *const *hosts, size_t count)
{
    pthread_mutex_lock(&a->lock);
    a->names_settled = false;
    pthread_mutex_unlock(&a->lock);
    names_want(a->names, hosts, count);
}

static bool on_loaded(void *context, const struct directory_load *load)
{
    struct agent *a = context;
    want_names(a, load->hosts,
               load->host_count); /* before other threads learn that the directory is loaded */
    pthread_mutex_lock(&a->lock);
    struct snapshot_parts parts = a->snapshot->parts;
    parts.records = load->records;
    parts.not_before = load->not_before;
    parts.revoked = load->revoked;
    bool good = agent_use(a, &parts);
    if (good) {
        answers(a, true);
        a->loaded_at = time(NULL);
    }
    seen(a);
    metrics_add(a->directory_shard, AGENT_DIRECTORY_LOADS, METRIC_INDEX(good ? AGENT_GOOD : AGENT_BAD), 1);
    metrics_add(a->directory_shard, AGENT_DIRECTORY_BEHIND, METRIC_PLAIN, (int64_t)load->epochs_behind);
    metrics_set(a->directory_shard, AGENT_DIRECTORY_RECORDS, METRIC_PLAIN,
                (int64_t)records_count(load->records));
    metrics_set(a->directory_shard, AGENT_DIRECTORY_BYTES, METRIC_PLAIN,
                (int64_t)records_bytes(load->records));
    metrics_set(a->directory_shard, AGENT_DIRECTORY_LOADED_AT, METRIC_PLAIN, (int64_t)time(NULL));
    pthread_mutex_unlock(&a->lock);
    log_write(a->options.log, good ? LOG_INFO : LOG_ERROR,
              good ? "directory loaded" : "directory not loaded: out of memory",
              LOG_U64("records", records_count(load->records)),
              LOG_U64("bytes", records_bytes(load->records)), LOG_U64("epochs_behind", load->epochs_behind),
              LOG_SECONDS("seconds", load->seconds));
    if (good && load->exposed)
        log_write(a->options.log, LOG_WARN,
                  "everybody on this machine can read the directory's file, and what its headers let in "
                  "with: it should belong to the agent's account, with mode 600",
                  LOG_U64("records", load->exposed));
    if (good)
        agent_tell_over(a, "directory", load->revoked_over);
    return good;
}

static void on_not_loaded(struct agent *a, const char *why)
{
    pthread_mutex_lock(&a->lock);
    bool known = a->directory_known;
    a->directory_up = false;
    snprintf(a->directory_error, sizeof a->directory_error, "%s", why);
    metrics_add(a->directory_shard, AGENT_DIRECTORY_LOADS, METRIC_INDEX(AGENT_BAD), 1);
    seen(a);
    pthread_mutex_unlock(&a->lock);
    log_write(a->options.log, LOG_ERROR,
              known ? "directory not loaded, the last good version stays in force"
                    : "directory not loaded, nobody gets in until it is",
              LOG_TEXT("why", why));
}

static void on_health(void *context, bool answering, bool pushing, const char *why)
{
    struct agent *a = context;
    if (!a->directory_asked) {
        on_not_loaded(a, why);
        return;
    }
    pthread_mutex_lock(&a->lock);
    if (answering) {
        answers(a, pushing);
    } else {
        a->directory_up = a->directory_pushing = false;
        snprintf(a->directory_error, sizeof a->directory_error, "%s", why);
    }
    seen(a);
    pthread_mutex_unlock(&a->lock);
    log_write(a->options.log, answering ? LOG_INFO : LOG_ERROR,
              answering ? "directory answers" : "directory does not answer, what is known serves on",
              LOG_TEXT("changes", pushing ? "pushed" : "polled"), LOG_TEXT("why", why));
}

static bool on_revoked(void *context, int64_t not_before)
{
    struct agent *a = context;
    pthread_mutex_lock(&a->lock);
    struct snapshot_parts parts = a->snapshot->parts;
    parts.not_before = not_before;
    bool good = agent_use(a, &parts);
    pthread_mutex_unlock(&a->lock);
    if (!good)
        log_write(a->options.log, LOG_ERROR, "revocation not taken over: out of memory");
    return good;
}

static bool on_revoked_tokens(void *context, struct slice text, bool all, struct fail *why)
{
    struct agent *a = context;
    size_t over = 0;
    pthread_mutex_lock(&a->lock);
    struct snapshot_parts parts = a->snapshot->parts;
    struct revoked *list = all || !parts.revoked ? NULL : revoked_retain(parts.revoked);
    bool good = revoked_read(text, "revoked", time(NULL), &list, &parts.not_before, &over, why);
    parts.revoked = list;
    good = good && (agent_use(a, &parts) || fail(why, "out of memory"));
    revoked_release(list);
    metrics_add(a->directory_shard, AGENT_REVOCATIONS, METRIC_INDEX(good ? AGENT_GOOD : AGENT_BAD), 1);
    pthread_mutex_unlock(&a->lock);
    if (!good)
        log_write(a->options.log, LOG_ERROR, "revoked tokens not taken over, those of before stay",
                  LOG_TEXT("why", why->text));
    else
        agent_tell_over(a, "directory", over);
    return good;
}

static void use_name(struct agent *a, const struct worker *worker, struct fair_owner owner)
{
    if (!worker->addr.family && (worker->kind == WORKER_HTTP || worker->kind == WORKER_HTTPS))
        names_use(a->names, worker->host, owner);
}

/* Resolves the names of a record's workers. If the record has no organisation, each worker is an owner of its own. */
static void on_learned(void *context, const struct record *record)
{
    const struct agent *a = context;
    const struct asker asker = asker_of_org(record->org, (struct slice){NULL, 0}, record->worker.host);
    struct fair_owner owner = asker_owner(&asker, &a->owners);
    struct worker worker;
    size_t cursor = 0;
    use_name(context, &record->worker, owner);
    while (record_port_next(record, &cursor, &(uint16_t){0}, &worker))
        use_name(context, &worker, owner);
}

static void on_look_up_answered(void *context, enum lookup outcome, uint64_t took)
{
    struct agent *a = context;
    (void)outcome;
    pthread_mutex_lock(&a->lock);
    metrics_observe(a->directory_shard, DIRECTORY_LOOK_UP_SECONDS, METRIC_PLAIN, (double)took / 1e6);
    pthread_mutex_unlock(&a->lock);
}

static void on_directory_notified(void *context, struct slice key, uint64_t waiters)
{
    struct agent *a = context;
    size_t count = atomic_load_explicit(&a->decision_thread_count, memory_order_acquire);
    for (size_t i = 0; i < count; i++)
        if (waiters & agent_waiter(i))
            decision_thread_notify(a->decision_threads[i], key);
}

/* ---- start and end ---- */

/* Puts the directory in force, together with its policy: keys of one policy were never valid for sandboxes of another one's directory.
 * The lock must be held. */
static bool put_in_force(struct agent *a, struct policy *policy)
{
    struct snapshot_parts parts = a->snapshot->parts;
    bool another = !directory_options_equal(parts.policy->directory, policy->directory);
    parts.policy = policy;
    parts.directory = a->directory;
    parts.resolver = a->names;
    parts.hosts = a->hosts;
    /* revoked tokens stay revoked until this directory sends another list, which it may have just done */
    if (another)
        parts.records = NULL;
    if (!agent_use(a, &parts))
        return false;
    if (another)
        a->directory_known = a->directory_up = a->directory_pushing = false;
    return true;
}

static void end_directory(void *context)
{
    struct agent *a = context;
    directory_stop(a->directory);
    directory_release(a->directory);
    a->directory = NULL;
}

struct start {
    struct agent *agent;
    struct policy *policy;
    struct fail *why;
};

/* Starts the directory on the I/O thread, so that it sends no event before it is in force. */
static void start_directory(void *context)
{
    const struct start *s = context;
    struct agent *a = s->agent;
    const struct directory_owner owner = {.loaded = on_loaded,
                                          .revoked = on_revoked,
                                          .revoked_tokens = on_revoked_tokens,
                                          .health = on_health,
                                          .learned = on_learned,
                                          .answered = on_look_up_answered,
                                          .notify = on_directory_notified,
                                          .context = a};
    uint64_t patience = (uint64_t)s->policy->settings->agent.lookup * MILLISECOND;
    a->directory_asked = s->policy->directory->kind->ask;
    a->directory = directory_start(s->policy->directory, &owner, patience, loop_thread_loop(a->io),
                                   a->options.log, s->why);
    if (!a->directory)
        return;
    pthread_mutex_lock(&a->lock);
    bool good = put_in_force(a, s->policy);
    pthread_mutex_unlock(&a->lock);
    if (!good) {
        fail(s->why, "out of memory");
        end_directory(a);
    } else if (a->directory_asked) {
        want_names(a, NULL, 0); /* replaces the names in records of a file, if there was one before */
    }
}

bool agent_directory_start(struct agent *a, struct policy *policy, struct fail *why)
{
    struct start s = {a, policy, why};
    loop_thread_call(a->io, start_directory, &s);
    return a->directory;
}

void agent_directory_stop(struct agent *a)
{
    loop_timer_close(&a->start_again);
    if (a->directory)
        loop_thread_call(a->io, end_directory, a);
}

/* Tries again, after a reload that could start neither the new directory nor the old one. */
static void on_start_again(void *context)
{
    struct agent *a = context;
    struct fail ignored;
    pthread_mutex_lock(&a->lock);
    struct policy *policy = a->snapshot->parts.policy; /* only the main thread replaces the policy */
    pthread_mutex_unlock(&a->lock);
    if (agent_directory_start(a, policy, &ignored))
        log_write(a->options.log, LOG_INFO, "directory started again");
    else
        loop_timer_set(&a->start_again, START_AGAIN);
}

/* Ends the old directory first, because its late events would replace what the new one has read. */
bool agent_directory_change(struct agent *a, struct policy *from, struct policy *to, struct fail *why)
{
    struct fail ignored;
    if (a->directory && directory_options_equal(from->directory, to->directory))
        return true;
    agent_directory_stop(a);
    if (agent_directory_start(a, to, why))
        return true;
    if (!agent_directory_start(a, from, &ignored)) {
        loop_timer_open(&a->start_again, a->options.loop, on_start_again, a);
        loop_timer_set(&a->start_again, START_AGAIN);
    }
    return false;
}
