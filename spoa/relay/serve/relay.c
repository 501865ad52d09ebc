/* SPDX-License-Identifier: MIT */
#include "spoa/relay/serve/relay.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "spoa/base/json/json_write.h"
#include "spoa/base/os/file.h"
#include "spoa/relay/egress/egress_io.h"
#include "spoa/relay/mux_io/mux_io.h"
#include "spoa/relay/mux_io/mux_sessions.h"
#include "spoa/relay/serve/handover.h"
#include "spoa/relay/serve/relay_thread_run.h"
#include "spoa/relay/serve/salvage.h"
#include "spoa/relay/tunnel_io/tunnel_io.h"
#include "spoa/relay/tunnel_io/tunnel_stats.h"
#include "spoa/service/daemon.h"
#include "spoa/service/keeper/keeper.h"
#include "spoa/service/process_metrics.h"

#define FILES_SPARE    128 /* descriptors for everything that is no tunnel */
#define FILES_A_TUNNEL 2
#define QUESTIONS      200000 /* of a thread */
#define SAMPLE_SECONDS 2
#define SAMPLES        150
#define DRAINED_EVERY  (50 * MILLISECOND)

struct sample {
    uint64_t tunnels, redials;
    uint64_t longest_gap; /* microseconds */
};

struct relay {
    struct relay_options options;
    struct settings_marks start; /* of the settings that the relay has started with */
    struct limits *limits;
    struct relay_metrics *metrics;
    struct mux_sessions *mux_sessions;
    struct metrics_shard *shard; /* metrics that belong to no single thread */
    int listener;
    size_t threads_count;
    struct relay_thread *threads[SETTINGS_THREADS_MAX];
    bool draining;
    uint64_t emptied; /* time when the last tunnel of a draining relay ended, in µs; 0 before that */
    struct loop_timer sampling, drained, rounds;
    struct sample samples[SAMPLES]; /* a ring */
    size_t sampled;
};

/* ---- all threads ---- */
static void each_thread(struct relay *r, void (*run)(struct relay_thread *thread, void *context),
                        void *context)
{
    for (size_t i = 0; i < r->threads_count; i++)
        relay_thread_call(r->threads[i], run, context);
}

/* ---- start and end ---- */

/* How many tunnels there may be, as far as open files allow. */
static bool fit_files(const struct settings *settings, uint64_t *tunnels, struct fail *why)
{
    uint64_t files = 0, wanted = (uint64_t)settings->relay.max_tunnels;

    if (!daemon_raise_files(&files, why))
        return false;
    uint64_t spare = FILES_SPARE + (uint64_t)settings->relay.threads * PIPES_FILES;
    uint64_t most = files > spare ? (files - spare) / FILES_A_TUNNEL : 0;
    uint64_t needed = wanted * FILES_A_TUNNEL + spare;
    *tunnels = wanted ? wanted : most;
    if (*tunnels > most || most == 0)
        return fail(
            why, "relay.max_tunnels %llu needs %llu open files, the limit is %llu (LimitNOFILE, ulimit -n)",
            (unsigned long long)wanted, (unsigned long long)needed, (unsigned long long)files);
    return true;
}

/* Returns a limit as configured, or if it is -1, a fraction of all tunnels, so that no single owner can take every slot. */
static uint64_t part_of(int64_t said, uint64_t tunnels, uint64_t part)
{
    return said >= 0 ? (uint64_t)said : tunnels > part ? tunnels / part : 1;
}

static struct limits_settings limits_from(const struct settings *settings, uint64_t tunnels)
{
    const struct settings_relay *s = &settings->relay;
    uint64_t sandbox = part_of(s->max_tunnels_per_sandbox, tunnels, LIMITS_SANDBOX_PART);

    if (s->max_tunnels_per_sandbox < 0 && sandbox > LIMITS_SANDBOX_MOST)
        sandbox = LIMITS_SANDBOX_MOST;
    return (struct limits_settings){
        .tunnels = tunnels,
        .most = {[LIMIT_sandbox] = sandbox,
                 [LIMIT_org] = part_of(s->max_tunnels_per_org, tunnels, LIMITS_ORG_PART),
                 [LIMIT_token] = part_of(s->max_tunnels_per_token, tunnels, LIMITS_TOKEN_PART),
                 [LIMIT_refused] = part_of(-1, tunnels, LIMITS_REFUSED_PART),
                 [LIMIT_egress] = part_of(s->max_egress, tunnels, LIMITS_EGRESS_PART),
                 [LIMIT_mux] = part_of(-1, tunnels, LIMITS_MUX_PART),
                 [LIMIT_client] = part_of(s->max_tunnels_per_token, tunnels, LIMITS_CLIENT_PART),
                 [LIMIT_unauthenticated] = part_of(-1, tunnels, LIMITS_UNAUTHENTICATED_PART)},
        .memory = (uint64_t)s->memory};
}

/* Starts the threads. The number of questions to the agent is not derived from the number of tunnels: each tunnel has up to two, and one
 * that has ended has its subscription until the agent knows, so tunnels that come and go quickly have more. */
static bool start_threads(struct relay *r, const struct settings *settings, struct fail *why)
{
    struct relay_thread_settings thread_settings;

    if (!relay_thread_settings_from(&thread_settings, settings))
        return fail(why, "more than %d worker_networks", RELAY_THREAD_CIDRS);
    for (int64_t i = 0; i < settings->relay.threads; i++) {
        struct relay_thread_options options = {
            .number = (unsigned)i,
            .log = r->options.log,
            .limits = r->limits,
            .metrics = r->metrics,
            .mux_sessions = r->mux_sessions,
            .settings = &thread_settings,
            .agent = &settings->relay.agent,
            .questions = QUESTIONS,
            .listener = r->listener,
        };
        r->threads[i] = relay_thread_start(&options, why);
        if (!r->threads[i])
            return false;
        r->threads_count++;
    }
    return true;
}

/* Sets the metrics that show the present configuration. */
static void note_settings(struct relay *r, const struct limits_settings *limits)
{
    metrics_set(r->shard, METRIC_TUNNELS_MOST, METRIC_PLAIN, (int64_t)limits->tunnels);
    metrics_set(r->shard, METRIC_MEMORY_MOST, METRIC_PLAIN, (int64_t)limits->memory);
    metrics_set(r->shard, METRIC_RELOAD_GOOD, METRIC_PLAIN, 1);
    metrics_set(r->shard, METRIC_RELOADED_AT, METRIC_PLAIN, time(NULL));
}

/* Each server starts its counters anew but these, which the keeper remembers. */
static void note_deaths(struct relay *r, const struct keeper_server *keeper)
{
    for (unsigned cause = 0; keeper && cause < KEEPER_CAUSES; cause++)
        metrics_add(r->shard, METRIC_SERVER_RESTARTS, METRIC_INDEX(cause), keeper->deaths[cause]);
    for (unsigned fate = 0; keeper && fate < KEEPER_FATES; fate++)
        metrics_add(r->shard, METRIC_TUNNELS_SALVAGED, METRIC_INDEX(fate), keeper->fates[fate]);
    for (unsigned outcome = 0; keeper && outcome < KEEPER_OUTCOMES; outcome++)
        metrics_add(r->shard, METRIC_UPGRADES, METRIC_INDEX(outcome), keeper->upgrades[outcome]);
}

static void sample(void *owner);
static void make_room(void *owner);
static void look_if_drained(void *owner);

static bool start(struct relay *r, const struct settings *settings, struct fail *why)
{
    uint64_t tunnels = 0;

    if (!fit_files(settings, &tunnels, why))
        return false;
    if (!settings_mark(settings, &r->start))
        return fail(why, "no random bytes");
    struct limits_settings limits = limits_from(settings, tunnels);
    r->limits = limits_new(&limits);
    r->metrics = relay_metrics_new();
    r->mux_sessions = mux_sessions_new();
    r->shard = r->metrics ? metrics_shard(relay_metrics_metrics(r->metrics)) : NULL;
    if (!r->limits || !r->mux_sessions || !r->shard)
        return fail(why, "out of memory");
    note_settings(r, &limits);
    note_deaths(r, r->options.keeper);
    r->listener = net_listen(&settings->relay.listen, 0660, why);
    if (r->listener < 0 || !start_threads(r, settings, why))
        return false;
    loop_timer_open(&r->sampling, r->options.loop, sample, r);
    loop_timer_open(&r->drained, r->options.loop, look_if_drained, r);
    loop_timer_open(&r->rounds, r->options.loop, make_room, r);
    loop_timer_set(&r->sampling, SAMPLE_SECONDS * SECOND);
    loop_timer_set(&r->rounds, LIMITS_ROUND);
    return true;
}

struct relay *relay_start(const struct relay_options *options, const struct settings *settings,
                          struct fail *why)
{
    struct relay *r = calloc(1, sizeof *r);

    if (!r) {
        fail(why, "out of memory");
        return NULL;
    }
    r->options = *options;
    r->listener = -1;
    if (start(r, settings, why))
        return r;
    relay_stop(r);
    return NULL;
}

/* One thread's part of taking over. */
struct taking {
    const struct keeper_server *keeper;
    struct handover_records records;
    pthread_barrier_t *all;
};

/* No thread serves before all have taken over and the keeper knows it: if this server dies before, another one reads the same file, and
 * the tunnels must be as they stand there. */
static void take_over_in_thread(struct relay_thread *thread, void *context)
{
    struct taking *t = context;

    handover_read(&t->records, thread);
    if (pthread_barrier_wait(t->all) == PTHREAD_BARRIER_SERIAL_THREAD)
        keeper_tell(t->keeper, KEEPER_READY);
    pthread_barrier_wait(t->all);
}

static void take_over(struct relay *r, struct handover_records *records)
{
    struct taking takings[SETTINGS_THREADS_MAX];
    pthread_barrier_t all;

    pthread_barrier_init(&all, NULL, (unsigned)r->threads_count);
    records->step = r->threads_count;
    records->left_out = r->options.keeper->left_out;
    records->left_out_count = r->options.keeper->left_out_count;
    for (size_t i = 0; i < r->threads_count; i++) {
        records->first = i;
        records->reads = i < KEEPER_THREADS_MAX ? &r->options.keeper->board->reads[i] : NULL;
        takings[i] = (struct taking){r->options.keeper, *records, &all};
    }
    relay_threads_call(r->threads, r->threads_count, take_over_in_thread, takings, sizeof *takings);
    for (size_t i = 0; i < r->threads_count; i++) {
        records->taken += takings[i].records.taken;
        records->lost += takings[i].records.lost;
    }
    pthread_barrier_destroy(&all);
}

static void take_over_file(struct relay *r, int images)
{
    struct handover_records records;

    if (!handover_map(images, &records))
        return;
    take_over(r, &records);
    handover_unmap(&records);
    uint64_t took = loop_clock() - records.begun;
    metrics_observe(r->shard, METRIC_HANDOVER, METRIC_PLAIN, (double)took / 1e6);
    log_write(r->options.log, records.lost ? LOG_WARN : LOG_INFO, "tunnels taken over",
              LOG_U64("tunnels", records.taken), LOG_U64("lost", records.lost),
              LOG_SECONDS("seconds", (double)took / 1e6));
}

static void accept_in_thread(struct relay_thread *thread, void *context)
{
    (void)context;
    relay_thread_accept(thread);
}

void relay_serve(struct relay *r)
{
    const struct keeper_server *keeper = r->options.keeper;

    if (keeper && keeper->images >= 0)
        take_over_file(r, keeper->images);
    each_thread(r, accept_in_thread, NULL);
}

static void hand_over_in_thread(struct relay_thread *thread, void *file)
{
    relay_thread_hand_over(thread, file);
}

/* Stops a thread from beginning tunnels: the memory file is sized by their number, which must not grow any more. */
static void hold_in_thread(struct relay_thread *thread, void *context)
{
    (void)context;
    relay_thread_hold(thread);
}

int relay_hand_over(struct relay *r)
{
    struct handover_file file;

    each_thread(r, hold_in_thread, NULL);
    handover_begin(&file, limits_tunnels(r->limits));
    each_thread(r, hand_over_in_thread, &file);
    for (size_t i = 0; i < r->threads_count; i++)
        pthread_join(r->threads[i]->thread, NULL);
    return handover_end(&file);
}

void relay_salvage(struct relay *r)
{
    salvage(r->threads, r->threads_count, r->options.keeper->board);
}

void relay_stop(struct relay *r)
{
    if (!r)
        return;
    loop_timer_close(&r->sampling);
    loop_timer_close(&r->drained);
    loop_timer_close(&r->rounds);
    for (size_t i = 0; i < r->threads_count; i++)
        relay_thread_stop(r->threads[i]);
    if (r->listener >= 0)
        net_unlisten(r->listener);
    relay_metrics_free(r->metrics);
    mux_sessions_free(r->mux_sessions);
    limits_free(r->limits);
    free(r);
}

/* ---- draining ---- */
static void add_lingering(struct relay_thread *thread, void *context)
{
    *(size_t *)context += thread->lingering.count;
}

/* Returns true while connections of the last tunnels still have unsent output. Clients that arrive now and are refused do not count. */
static bool is_lingering(struct relay *r)
{
    uint64_t now = loop_clock();
    size_t lingering = 0;

    if (!r->emptied)
        r->emptied = now;
    each_thread(r, add_lingering, &lingering);
    return lingering && now - r->emptied < LINGERING_TIME;
}

static void look_if_drained(void *owner)
{
    struct relay *r = owner;

    if (limits_tunnels(r->limits) == 0 && !is_lingering(r))
        r->options.drained(r->options.context);
    else
        loop_timer_set(&r->drained, DRAINED_EVERY);
}

static void drain_thread(struct relay_thread *thread, void *context)
{
    (void)context;
    relay_thread_drain(thread);
}

void relay_drain(struct relay *r)
{
    if (r->draining)
        return;
    r->draining = true;
    each_thread(r, drain_thread, NULL);
    loop_timer_set(&r->drained, DRAINED_EVERY);
}

bool relay_upgrade(struct relay *r, bool same)
{
    if (!r->options.keeper)
        return false;
    keeper_tell(r->options.keeper, same ? KEEPER_SAME : KEEPER_UPGRADE);
    return true;
}

bool relay_ready(const struct relay *r, const char **why)
{
    *why = r->draining ? "draining" : "ready";
    return !r->draining;
}

/* ---- where memory is short ---- */
static void look_at_thread(struct relay_thread *thread, void *round)
{
    tunnel_ios_look(thread, round);
    mux_ios_look(thread, round);
    egress_ios_look(thread, round);
}

static void give_way_in_thread(struct relay_thread *thread, void *round)
{
    tunnel_ios_give_way(thread, round);
    mux_ios_give_way(thread, round);
    egress_ios_give_way(thread, round);
}

static void make_room(void *owner)
{
    struct relay *r = owner;
    struct limits_round round;

    loop_timer_set(&r->rounds, LIMITS_ROUND);
    if (!limits_round_begin(r->limits, &round))
        return;
    each_thread(r, look_at_thread, &round);
    each_thread(r, give_way_in_thread, &round);
}

/* ---- reload ---- */
static void set_thread(struct relay_thread *thread, void *context)
{
    size_t buffer = thread->settings.tunnel.buffer;
    thread->settings = *(const struct relay_thread_settings *)context;
    thread->settings.tunnel.buffer = buffer; /* tunnels that are open have send queues of this size */
}

static bool reload(struct relay *r, struct fail *why)
{
    const struct relay_options *o = &r->options;
    struct relay_thread_settings thread_settings;
    uint64_t tunnels = 0;
    struct stat look;
    file_look(o->config, &look);
    if (S_ISREG(look.st_mode) && look.st_nlink == 0) /* a mount holds it: the unit's BindReadOnlyPaths */
        return fail(why, "%s: another file replaced it, which only a restart sees", o->config);
    struct settings *settings = settings_load(o->config, o->overrides, o->override_count, why);

    if (!settings)
        return false;
    bool good =
        fit_files(settings, &tunnels, why) && (relay_thread_settings_from(&thread_settings, settings) ||
                                               fail(why, "more than %d worker_networks", RELAY_THREAD_CIDRS));
    if (good) {
        struct limits_settings limits = limits_from(settings, tunnels);
        limits_set(r->limits, &limits);
        note_settings(r, &limits);
        each_thread(r, set_thread, &thread_settings);
        settings_log_warnings(settings, r->options.log);
        settings_log_ignored(settings, &r->start, SETTINGS_OF_RELAY, r->options.log);
    }
    settings_free(settings);
    return good;
}

void relay_reload(struct relay *r)
{
    struct fail why;

    bool good = reload(r, &why);
    metrics_add(r->shard, METRIC_RELOADS, METRIC_INDEX(good ? RELOAD_GOOD : RELOAD_BAD), 1);
    metrics_set(r->shard, METRIC_RELOAD_GOOD, METRIC_PLAIN, good);
    if (good)
        log_audit(r->options.log, LOG_INFO, "configuration reloaded");
    else
        log_audit(r->options.log, LOG_ERROR, "configuration not reloaded, the old one stays in force",
                  LOG_TEXT("why", why.text));
}

/* ---- views ---- */
static void log_thread(struct relay_thread *thread, void *context)
{
    (void)context;
    log_write(thread->log, LOG_INFO, "summary", LOG_U64("thread", thread->number),
              LOG_U64("tunnels", thread->tunnels_count), LOG_U64("handshakes", thread->handshakes_count),
              LOG_U64("lingering", thread->lingering.count),
              LOG_TEXT("agent", agent_client_connected(thread->agent) ? "connected" : "not connected"),
              LOG_TEXT("state", thread->draining ? "draining" : "serving"));
}

void relay_log_summary(struct relay *r)
{
    each_thread(r, log_thread, NULL);
    log_write(r->options.log, LOG_INFO, "summary", LOG_U64("tunnels", limits_tunnels(r->limits)),
              LOG_U64("held", limits_held(r->limits)), LOG_U64("threads", r->threads_count));
}

static void note_gauges(struct relay_thread *thread, void *context)
{
    size_t *connected = context;
    *connected += agent_client_connected(thread->agent);
    metrics_set(thread->shard, METRIC_HANDSHAKES, METRIC_PLAIN, (int64_t)thread->handshakes_count);
    metrics_set(thread->shard, METRIC_RESTING, METRIC_PLAIN, (int64_t)thread->rest.resting);
    metrics_set(thread->shard, METRIC_LINGERING, METRIC_PLAIN, (int64_t)thread->lingering.count);
}

bool relay_write_metrics(struct relay *r, struct buffer *to)
{
    size_t connected = 0;
    each_thread(r, note_gauges, &connected);
    metrics_set(r->shard, METRIC_AGENT, METRIC_PLAIN, connected == r->threads_count);
    const struct keeper_server *keeper = r->options.keeper;
    if (keeper) /* the keeper counts the upgrades that it refuses while this server runs */
        metrics_set(r->shard, METRIC_UPGRADES, METRIC_INDEX(KEEPER_NOT_UPGRADED),
                    (int64_t)keeper->upgrades[KEEPER_NOT_UPGRADED] + atomic_load(&keeper->board->refused));
    metrics_set(r->shard, METRIC_DRAINING, METRIC_PLAIN, r->draining);
    metrics_set(r->shard, METRIC_LOG_DROPPED, METRIC_PLAIN, (int64_t)log_dropped(r->options.log));
    metrics_set(r->shard, METRIC_LOG_HELD_BACK, METRIC_PLAIN, (int64_t)log_held_back(r->options.log));
    return metrics_write(relay_metrics_metrics(r->metrics), to) && process_metrics_write("relay", to);
}

bool relay_write_keeper(struct relay *r, struct buffer *to)
{
    const struct keeper_server *k = r->options.keeper;
    char why[sizeof k->board->why] = "";

    if (k)
        snprintf(why, sizeof why, "%.*s", (int)sizeof why - 1, k->board->why);
    return json_write(to,
                      ",\"version\":\"%s\",\"keeper\":%s,\"pid\":%d,\"deaths\":%u,\"upgraded\":%u,"
                      "\"refused\":%u,\"why\":",
                      CELLGATE_VERSION, k ? "true" : "false", (int)getpid(),
                      k ? k->deaths[KEEPER_KILLED] + k->deaths[KEEPER_CRASHED] : 0,
                      k ? k->upgrades[KEEPER_UPGRADED] : 0,
                      k ? k->upgrades[KEEPER_NOT_UPGRADED] + atomic_load(&k->board->refused) : 0) &&
           json_write_text(to, slice_text(why));
}

struct listing {
    struct buffer *to;
    struct slice sandbox;
    bool good, any;
};

static void list_thread(struct relay_thread *thread, void *context)
{
    struct listing *l = context;
    struct tunnel_visit visit;
    struct tunnel_head head;

    for (struct tunnel_seat *p = thread->tunnels; p && l->good; p = tunnel_io_next(p)) {
        tunnel_visit(p, &visit, head.memory);
        if (slice_present(l->sandbox) &&
            !slice_equal(l->sandbox, upgrade_handover(visit.stats.upgrade).sandbox))
            continue;
        l->good = (!l->any || json_write(l->to, ",")) && tunnel_stats_describe(&visit.stats, l->to);
        l->any = true;
    }
}

bool relay_write_tunnels(struct relay *r, struct slice sandbox, struct buffer *to)
{
    struct listing l = {.to = to, .sandbox = sandbox, .good = json_write(to, "\"tunnels\":[")};

    each_thread(r, list_thread, &l);
    return l.good && json_write(to, "]");
}

static void add_connected(struct relay_thread *thread, void *context)
{
    *(size_t *)context += agent_client_connected(thread->agent);
}

static bool write_state(struct relay *r, struct buffer *to)
{
    const char *state;
    size_t connected = 0;

    relay_ready(r, &state);
    each_thread(r, add_connected, &connected);
    return json_write(
               to, "\"version\":\"%s\",\"state\":\"%s\",\"agent\":%s,\"tunnels\":%llu,\"max_tunnels\":%lld,",
               CELLGATE_VERSION, state, connected == r->threads_count ? "true" : "false",
               (unsigned long long)limits_tunnels(r->limits),
               (long long)metrics_value(relay_metrics_metrics(r->metrics), METRIC_TUNNELS_MOST,
                                        METRIC_PLAIN)) &&
           json_write(
               to, "\"held\":%llu,\"memory\":%lld,", (unsigned long long)limits_held(r->limits),
               (long long)metrics_value(relay_metrics_metrics(r->metrics), METRIC_MEMORY_MOST, METRIC_PLAIN));
}

bool relay_write_top(struct relay *r, const struct top_question *question, struct buffer *to)
{
    struct top *top = top_new(question);

    if (!top)
        return false;
    each_thread(r, top_look, top);
    bool good = write_state(r, to) && top_write(top, r->limits, to) && json_write(to, ",") &&
                top_write_counts(r->metrics, to);
    top_free(top);
    return good;
}

struct kicking {
    struct slice id;
    bool found;
};

static void kick_in_thread(struct relay_thread *thread, void *context)
{
    struct kicking *k = context;
    struct tunnel_visit visit;
    char id[32];

    for (struct tunnel_seat *p = thread->tunnels; p && !k->found; p = tunnel_io_next(p)) {
        tunnel_visit(p, &visit, NULL);
        tunnel_stats_id(&visit.stats, id);
        if (!slice_is(k->id, id))
            continue;
        k->found = true;
        tunnel_io_end(p, CLOSE_kicked);
        return;
    }
}

bool relay_kick(struct relay *r, struct slice id)
{
    struct kicking k = {id, false};
    each_thread(r, kick_in_thread, &k);
    return k.found;
}

/* ---- samples for the live page ---- */
static void take_gap(struct relay_thread *thread, void *context)
{
    uint64_t *longest = context;

    if (thread->longest_gap > *longest)
        *longest = thread->longest_gap;
    thread->longest_gap = 0;
}

static uint64_t redials(struct relay *r)
{
    int64_t sum = 0;

    for (unsigned cause = 0; loss_names[cause]; cause++)
        for (unsigned outcome = REDIAL_RESUMED; outcome <= REDIAL_FAILED; outcome++)
            sum += metrics_value(relay_metrics_metrics(r->metrics), METRIC_REDIALS,
                                 METRIC_INDEX(cause, outcome));
    return (uint64_t)sum;
}

static void sample(void *owner)
{
    struct relay *r = owner;
    struct sample now = {.tunnels = limits_tunnels(r->limits), .redials = redials(r)};

    each_thread(r, take_gap, &now.longest_gap);
    r->samples[r->sampled++ % SAMPLES] = now;
    loop_timer_set(&r->sampling, SAMPLE_SECONDS * SECOND);
}

bool relay_write_stats(struct relay *r, struct buffer *to)
{
    size_t count = r->sampled < SAMPLES ? r->sampled : SAMPLES;
    const char *state;

    relay_ready(r, &state);
    bool good = json_write(
        to,
        "{\"state\":\"%s\",\"tunnels\":%llu,\"redials\":%llu,\"held\":%llu,\"draining\":%s,"
        "\"sample_seconds\":%d,\"samples\":[",
        state, (unsigned long long)limits_tunnels(r->limits), (unsigned long long)redials(r),
        (unsigned long long)limits_held(r->limits), r->draining ? "true" : "false", SAMPLE_SECONDS);

    for (size_t i = 0; i < count && good; i++) {
        const struct sample *s = &r->samples[(r->sampled - count + i) % SAMPLES];
        good = json_write(to, "%s[%llu,%llu,%.3f]", i ? "," : "", (unsigned long long)s->tunnels,
                          (unsigned long long)s->redials, (double)s->longest_gap / 1e6);
    }
    return good && json_write(to, "]}");
}
