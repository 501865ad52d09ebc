/* SPDX-License-Identifier: MIT */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "spoa/agent/serve/agent_parts.h"

#define TICKET_SUFFIX ".key"
#define NAME_UNUSED   (10 * MINUTE)
#define HAPROXY_USER  "agent.haproxy_user"
#define HAPROXY_USUAL "haproxy" /* the account's name in packages of HAProxy */
#define RELAY_USER    "agent.relay_user"

enum { TOKEN_CACHE_ENTRIES = 4096, TOKEN_STORE_ENTRIES = 16384, START_SECONDS = 10, NAMES_MOST = 100000 };

/* ---- snapshots; any thread ---- */

bool agent_use(struct agent *a, const struct snapshot_parts *parts)
{
    struct snapshot *fresh = snapshot_new(parts);
    if (!fresh)
        return false;
    snapshot_release(a->snapshot);
    a->snapshot = fresh;
    for (size_t i = 0; i < a->decision_thread_count; i++)
        decision_thread_hand_over(a->decision_threads[i], fresh);
    for (size_t i = 0; i < a->decision_thread_count; i++)
        decision_thread_take(a->decision_threads[i]);
    return true;
}

static bool on_names(void *context, struct name_table *table)
{
    struct agent *a = context;
    pthread_mutex_lock(&a->lock);
    struct snapshot_parts parts = a->snapshot->parts;
    parts.names = table;
    bool good = agent_use(a, &parts);
    pthread_mutex_unlock(&a->lock);
    if (!good)
        log_write(a->options.log, LOG_ERROR, "new addresses not taken over: out of memory");
    return good;
}

static void on_names_settled(void *context)
{
    struct agent *a = context;
    pthread_mutex_lock(&a->lock);
    a->names_settled = true;
    pthread_cond_signal(&a->first_seen);
    pthread_mutex_unlock(&a->lock);
}

static void on_host(void *context, struct slice host, uint64_t waiters)
{
    struct agent *a = context;
    uint8_t memory[256];
    struct slice key = snapshot_host_key(host, memory);
    size_t count = atomic_load_explicit(&a->decision_thread_count, memory_order_acquire);
    for (size_t i = 0; i < count; i++)
        if (waiters & agent_waiter(i))
            decision_thread_notify(a->decision_threads[i], key);
}

/* ---- reload ---- */

/* Returns the policy in force. The caller may use it after the lock is released, because only the main thread replaces it. */
static struct policy *policy_in_force(struct agent *a)
{
    pthread_mutex_lock(&a->lock);
    struct policy *policy = a->snapshot->parts.policy;
    pthread_mutex_unlock(&a->lock);
    return policy;
}

static void warn_of_secrets(struct agent *a, const struct option *table, size_t count, const void *values)
{
    size_t at = 0;
    struct fail what;
    while (options_exposed_secret(table, count, values, "relay.", &at, &what) != FILE_PRIVATE)
        log_write(a->options.log, LOG_WARN, "others can read a secret", LOG_TEXT("reason", what.text));
}

static void note_reload(struct agent *a, bool good)
{
    metrics_set(a->shard, AGENT_RELOAD_GOOD, METRIC_PLAIN, good);
    if (good)
        metrics_set(a->shard, AGENT_RELOADED_AT, METRIC_PLAIN, time(NULL));
}

static void log_warnings(struct agent *a, const struct policy *policy)
{
    size_t count;
    const struct option *table = settings_options(&count);
    const struct directory_options *directory = policy->directory;
    warn_of_secrets(a, table, count, policy->settings);
    warn_of_secrets(a, directory->kind->options, directory->kind->options_count, directory->own);
    settings_log_warnings(policy->settings, a->options.log);
    settings_log_ignored(policy->settings, &a->start, SETTINGS_OF_AGENT, a->options.log);
    const struct texts *warnings = tokens_warnings(policy->tokens);
    for (size_t i = 0; i < warnings->count; i++)
        log_write(a->options.log, LOG_WARN, "tokens", LOG_TEXT("warning", warnings->at[i]));
    agent_tell_over(a, "tokens_revoked_file", policy->revoked_over);
}

static bool watch_keys(struct agent *a, const struct policy *policy)
{
    const struct token_files *files = tokens_files(policy->tokens);
    for (size_t i = 0; i < files->paths.count; i++)
        if (!file_watch_add(a->keys, files->paths.at[i], &files->seen[i]))
            return false;
    const struct stat *seen;
    const char *secret, *revoked = policy->settings->tokens_revoked_file;
    for (size_t i = 0; (secret = egress_config_secret_file(policy->egress, i, &seen)); i++)
        if (!file_watch_add(a->keys, secret, seen))
            return false;
    return !revoked || file_watch_add(a->keys, revoked, &policy->revoked_seen);
}

static unsigned label_of(void *context, struct slice name)
{
    return metric_names_index(context, name);
}

/* Sets the labels before decisions read them. */
static void label_routes(struct agent *a, struct policy *policy)
{
    routes_label(policy->routes, label_of, a->route_names);
}

/* Puts a policy in force and takes over its reference; policy is NULL if it could not be loaded. */
static bool take_over(struct agent *a, struct policy *policy, const char *what, struct fail *why)
{
    bool good = policy != NULL;
    if (good && !policy->base) /* otherwise the policy shares routes that are in force already */
        label_routes(a, policy);
    if (good)
        good = watch_keys(a, policy) ? agent_directory_change(a, policy_in_force(a), policy, why)
                                     : fail(why, "out of memory");
    if (good) {
        pthread_mutex_lock(&a->lock);
        struct snapshot_parts parts = a->snapshot->parts;
        if (parts.policy != policy) { /* agent_directory_change may have put the policy in force already */
            parts.policy = policy;
            good = agent_use(a, &parts) || fail(why, "out of memory");
        }
        pthread_mutex_unlock(&a->lock);
    }
    metrics_add(a->shard, AGENT_RELOADS, METRIC_INDEX(good ? AGENT_GOOD : AGENT_BAD), 1);
    note_reload(a, good);
    /* a reload by the operator is always logged; files may change at a high rate */
    log_fields_function *line = strcmp(what, "configuration") == 0 ? log_fields_audit : log_fields;
    if (good) {
        LOG_BY(line, a->options.log, LOG_INFO, "reloaded", LOG_TEXT("what", what));
        log_warnings(a, policy);
    } else {
        LOG_BY(line, a->options.log, LOG_ERROR, "not reloaded, what was in force stays",
               LOG_TEXT("what", what), LOG_TEXT("why", why->text));
    }
    policy_release(policy);
    return good;
}

/* Reads the keys again. The watch tries again after a failure, because its cause, for example a lack of descriptors, may be temporary;
 * the failure is logged once. */
static bool on_key_changed(void *context)
{
    struct agent *a = context;
    struct fail why = {""};
    struct policy *policy = policy_reload_tokens(policy_in_force(a), &why);
    if (!policy && strcmp(why.text, a->keys_reported.text) == 0)
        return false;
    bool good = take_over(a, policy, "keys", &why);
    if (good)
        why.text[0] = '\0';
    a->keys_reported = why;
    return good;
}

bool agent_reload(struct agent *a, struct fail *why)
{
    const struct agent_options *o = &a->options;
    return take_over(a, policy_load(o->config, o->overrides, o->override_count, why), "configuration", why);
}

/* ---- start and end ---- */

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

static void on_decision_thread_drained(void *context)
{
    struct agent *a = context;
    if (atomic_fetch_add_explicit(&a->drained, 1, memory_order_acq_rel) + 1 == a->decision_thread_count)
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
    uint64_t grace = (uint64_t)policy_in_force(a)->settings->agent.drain * MILLISECOND;
    if (a->draining)
        return;
    a->draining = true;
    close_listeners(a);
    for (size_t i = 0; i < a->decision_thread_count; i++)
        decision_thread_drain(a->decision_threads[i], grace);
}

static void stop_io(void *context)
{
    struct agent *a = context;
    names_stop(a->names);
    host_cache_free(a->hosts);
    renew_stop(a->renew);
}

void agent_stop(struct agent *a)
{
    if (!a)
        return;
    agent_directory_stop(a);
    for (size_t i = 0; i < a->decision_thread_count; i++)
        decision_thread_stop(a->decision_threads[i]);
    if (a->io) /* decisions may have started look-ups until now */
        loop_thread_call(a->io, stop_io, a);
    loop_thread_stop(a->io);
    for (size_t i = 0; i < a->decision_thread_count; i++)
        decision_thread_free(
            a->decision_threads
                [i]); /* only now, because each thread may have notified others until it ended */
    policy_release(a->renew_policy);
    close_listeners(a);
    file_watch_free(a->keys);
    snapshot_release(a->snapshot);
    key_free(a->ticket_key);
    token_store_free(a->tokens);
    metrics_free(a->metrics);
    metric_names_free(a->route_names);
    pthread_cond_destroy(&a->first_seen);
    pthread_mutex_destroy(&a->lock);
    free(a->decision_threads);
    /* freed by a task of its own, after the tasks of its threads that still point to it */
    a->stopped = true;
    a->gone = (struct loop_task){.run = free, .context = a};
    loop_post(a->options.loop, &a->gone);
}

static bool start_decision_threads(struct agent *a, struct fail *why)
{
    const struct settings *all = a->snapshot->parts.policy->settings;
    const struct settings_agent *settings = &all->agent;
    size_t threads = (size_t)settings->threads;
    a->subscriptions.most = (uint64_t)settings->max_subscriptions;
    a->decision_threads = calloc(threads, sizeof(struct decision_thread *));
    if (!a->decision_threads)
        return fail(why, "out of memory");
    for (size_t i = 0; i < threads; i++) {
        const struct decision_thread_options options = {.waiter = agent_waiter(i),
                                                        .owners = &a->owners,
                                                        .listener = a->listener,
                                                        .relay_listener = a->relay_listener,
                                                        .share = &a->share,
                                                        .relay_share = &a->relay_share,
                                                        .haproxy_user = a->haproxy_user,
                                                        .relay_user = a->relay_user,
                                                        .token_cache = TOKEN_CACHE_ENTRIES,
                                                        .token_store = a->tokens,
                                                        .lookup = (uint64_t)settings->lookup * MILLISECOND,
                                                        .host_lookup =
                                                            (uint64_t)all->egress.lookup * MILLISECOND,
                                                        .renew = a->renew,
                                                        .ticket_key = a->ticket_key,
                                                        .subscriptions = &a->subscriptions,
                                                        .shard = metrics_shard(a->metrics),
                                                        .log = a->options.log,
                                                        .audit = a->options.audit,
                                                        .drained = on_decision_thread_drained,
                                                        .context = a};
        pthread_mutex_lock(
            &a->lock); /* the directory and the resolver may replace the snapshot at any time */
        a->decision_threads[i] = decision_thread_start(&options, a->snapshot, why);
        if (a->decision_threads[i])
            atomic_store_explicit(&a->decision_thread_count, i + 1, memory_order_release);
        pthread_mutex_unlock(&a->lock);
        if (!a->decision_threads[i])
            return false;
    }
    return true;
}

/* Waits for the directory, so that a restart causes no `directory_unavailable`. The time is limited, so that the operator sees a
 * directory that hangs, not an agent that does not start. */
static void await_directory(struct agent *a)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += START_SECONDS;
    pthread_mutex_lock(&a->lock);
    for (int error = 0; !(a->directory_seen && a->names_settled) && error == 0;)
        error = pthread_cond_timedwait(&a->first_seen, &a->lock, &until);
    pthread_mutex_unlock(&a->lock);
}

/* Loads the ticket key. Its default place is beside the relay's socket, because whoever can replace the one can replace the other. */
static struct key *load_ticket_key(const struct settings_agent *settings, struct fail *why)
{
    char path[sizeof settings->relay_listen.path.sun_path + sizeof TICKET_SUFFIX];
    if (settings->ticket_secret_file)
        return ticket_key_load(settings->ticket_secret_file, why);
    snprintf(path, sizeof path, "%s" TICKET_SUFFIX, settings->relay_listen.path.sun_path);
    return ticket_key_load(path, why);
}

struct start {
    struct agent *agent;
    struct policy *policy;
    struct fail *why;
    bool good;
};

static void start_io(void *context)
{
    struct start *s = context;
    struct agent *a = s->agent;
    const struct settings *settings = s->policy->settings;
    const struct names_options names = {.servers = settings->agent.name_servers,
                                        .unused = NAME_UNUSED,
                                        .max_used = NAMES_MOST,
                                        .changed = on_names,
                                        .settled = on_names_settled,
                                        .context = a};
    const struct renew_options renew = {.settings = &settings->renew,
                                        .loop = loop_thread_loop(a->io),
                                        .log = a->options.log,
                                        .shard = a->renew_shard};
    const struct host_cache_options hosts = {.loop = loop_thread_loop(a->io),
                                             .servers = settings->agent.name_servers,
                                             .patience = (uint64_t)settings->egress.lookup * MILLISECOND,
                                             .notify = on_host,
                                             .context = a};
    a->names = names_start(loop_thread_loop(a->io), &names, s->why);
    a->hosts = a->names ? host_cache_new(&hosts, s->why) : NULL;
    if (a->hosts && settings->renew.redis) {
        a->renew_policy = policy_retain(s->policy);
        a->renew = renew_start(&renew, s->why);
    }
    s->good = a->hosts && (a->renew || !settings->renew.redis);
}

/* Finds the users that may connect. Answers on HAProxy's socket have the secrets of egress, answers on the relay's the contents of
 * records. */
static bool find_peers(struct agent *a, const struct settings_agent *settings, struct fail *why)
{
    if (!peer_user_find(HAPROXY_USER, settings->haproxy_user, HAPROXY_USUAL, &a->haproxy_user, why) ||
        !peer_user_find(RELAY_USER, settings->relay_user, NULL, &a->relay_user, why))
        return false;
    a->haproxy_user.listener = "agent.listen";
    a->haproxy_user.any = !net_is_unix(&settings->listen); /* allowed by agent.trust_tcp */
    a->relay_user.listener = "agent.relay_listen";
    if (a->relay_user.other && a->relay_user.uid == a->haproxy_user.uid)
        log_write(a->options.log, LOG_WARN,
                  "agent.relay_user and agent.haproxy_user are one account: the relay counts as HAProxy",
                  LOG_U64("uid", a->relay_user.uid));
    return true;
}

static bool start_parts(struct agent *a, struct policy *policy, struct fail *why)
{
    const struct snapshot_parts parts = {.policy = policy};
    if (!settings_mark(policy->settings, &a->start))
        return fail(why, "no random bytes");
    a->route_names = metric_names_new(agent_metrics_no_route, AGENT_METRICS_ROUTES);
    if (!a->route_names)
        return fail(why, "out of memory");
    label_routes(a, policy);
    agent_metrics_fill(a->families, a->route_names);
    a->metrics = metrics_new(a->families, AGENT_METRICS);
    a->shard = a->metrics ? metrics_shard(a->metrics) : NULL;
    a->directory_shard = a->metrics ? metrics_shard(a->metrics) : NULL;
    a->renew_shard = a->metrics && policy->settings->renew.redis ? metrics_shard(a->metrics) : NULL;
    a->snapshot = snapshot_new(&parts);
    a->tokens = token_store_new(TOKEN_STORE_ENTRIES);
    if (!a->directory_shard || !a->snapshot || !a->tokens)
        return fail(why, "out of memory");
    note_reload(a, true);
    const struct settings_agent *settings = &policy->settings->agent;
    if (!find_peers(a, settings, why))
        return false;
    a->listener = net_listen(&settings->listen, 0660, why);
    a->relay_listener =
        a->listener < 0 ? -1 : peer_user_listen(&a->relay_user, RELAY_USER, &settings->relay_listen, why);
    a->ticket_key = a->relay_listener < 0 ? NULL : load_ticket_key(settings, why);
    a->keys = !a->ticket_key ? NULL : file_watch_new(a->options.loop, on_key_changed, a);
    if (!a->keys || !watch_keys(a, policy))
        return false;
    struct start s = {.agent = a, .policy = policy, .why = why};
    if (!(a->io = loop_thread_start(why)))
        return false;
    loop_thread_call(a->io, start_io, &s);
    if (!s.good || !agent_directory_start(a, policy, why))
        return false;
    await_directory(a);
    return start_decision_threads(a, why);
}

static struct agent *agent_new(const struct agent_options *options)
{
    struct agent *a = calloc(1, sizeof *a);
    pthread_condattr_t monotonic;
    if (!a || !hash_secret_init(&a->owners)) {
        free(a);
        return NULL;
    }
    a->options = *options;
    a->listener = a->relay_listener = -1;
    a->all_drained = (struct loop_task){.run = on_all_drained, .context = a};
    a->first_load = (struct loop_task){.run = on_first_load, .context = a};
    a->names_settled = true;
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
    fail(why, "out of memory"); /* default text, if no part sets another one */
    bool good = a && start_parts(a, policy, why);
    if (good)
        log_warnings(a, policy);
    policy_release(policy);
    if (good)
        return a;
    agent_stop(a);
    return NULL;
}
