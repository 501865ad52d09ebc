/* SPDX-License-Identifier: MIT */
#include "spoa/relay/io/relay_metrics.h"

#include "spoa/proto/refusal.h"
#include "spoa/relay/io/limits.h"
#include "spoa/relay/tunnel/tunnel.h"

#include <pthread.h>
#include <stdlib.h>

static const char *const refusal_names[] = {"worker", /* its own answer */
#define X(name, status, retryable, after, sentence) #name,
                                            REFUSALS(X)
#undef X
                                                NULL};
static const char *const redial_outcomes[] = {"resumed", "failed", NULL};
static const char *const resume_outcomes[] = {"exact", "gap", NULL};
static const char no_name[] = "", other_name[] = "other";
static const char *const directions[] = {"to_worker", "to_client", NULL};
static const char *const cuts[] = {"handshake", "lingering", NULL};

struct relay_metrics {
    struct metric families[METRIC_FAMILIES];
    struct metrics *metrics;
    pthread_mutex_t lock;                  /* of names */
    char *names[RELAY_METRICS_ROUTES + 2]; /* of the routes, "" where none is yet, "other", NULL */
};

static void fill_families(struct relay_metrics *c)
{
    const char *const *routes = (const char *const *)c->names;
    const struct metric families[METRIC_FAMILIES] = {
        [METRIC_TUNNELS] = {.name = "cellgate_relay_tunnels",
                            .help = "Tunnels that are open.",
                            .type = METRIC_GAUGE,
                            .labels = {{"route", routes}}},
        [METRIC_OPENED] = {.name = "cellgate_relay_tunnels_opened_total",
                           .help = "Tunnels that were opened.",
                           .type = METRIC_COUNTER,
                           .labels = {{"route", routes}}},
        [METRIC_CLOSED] = {.name = "cellgate_relay_tunnels_closed_total",
                           .help = "Tunnels that have ended, and why.",
                           .type = METRIC_COUNTER,
                           .labels = {{"route", routes}, {"reason", close_reason_names}}},
        [METRIC_REFUSED] = {.name = "cellgate_relay_refused_total",
                            .help = "Upgrades that were not accepted, and why.",
                            .type = METRIC_COUNTER,
                            .labels = {{"error", refusal_names}}},
        [METRIC_LIMITED] = {.name = "cellgate_relay_limited_total",
                            .help = "Upgrades refused with too_many_tunnels, and by which limit.",
                            .type = METRIC_COUNTER,
                            .labels = {{"limit", limit_names}}},
        [METRIC_REDIALS] = {.name = "cellgate_relay_redials_total",
                            .help = "Workers that were lost, and what came of it.",
                            .type = METRIC_COUNTER,
                            .labels = {{"cause", loss_names}, {"outcome", redial_outcomes}}},
        [METRIC_RESUME] = {.name = "cellgate_relay_resume_total",
                           .help = "Tunnels that went on with another worker.",
                           .type = METRIC_COUNTER,
                           .labels = {{"adapter", handover_resume_names}, {"outcome", resume_outcomes}}},
        [METRIC_MISSING] = {.name = "cellgate_relay_resume_missing_bytes_total",
                            .help = "Output that is missing in declared gaps, as far as their size is known.",
                            .type = METRIC_COUNTER,
                            .labels = {{"adapter", handover_resume_names}}},
        [METRIC_UNCONFIRMED] =
            {.name = "cellgate_relay_unconfirmed_input_bytes_total",
             .help = "Input that perhaps nobody has read, of workers that were lost and clients "
                     "that left; it is not sent again.",
             .type = METRIC_COUNTER},
        [METRIC_GAP] = {.name = "cellgate_relay_gap_seconds",
                        .help = "From the loss of a worker until the tunnel had one again.",
                        .type = METRIC_HISTOGRAM,
                        .bounds = metrics_seconds},
        [METRIC_DIAL] = {.name = "cellgate_relay_dial_seconds",
                         .help = "Dials of workers that succeeded.",
                         .type = METRIC_HISTOGRAM,
                         .bounds = metrics_seconds},
        [METRIC_BYTES] = {.name = "cellgate_relay_bytes_total",
                          .help = "Bytes of frames that were sent on.",
                          .type = METRIC_COUNTER,
                          .labels = {{"direction", directions}}},
        [METRIC_HELD] = {.name = "cellgate_relay_held_bytes",
                         .help =
                             "Memory of what tunnels hold: what waits to be sent, acknowledged or compared.",
                         .type = METRIC_GAUGE},
        [METRIC_ACCEPT_PAUSES] = {.name = "cellgate_relay_accept_pauses_total",
                                  .help = "Times that accepting paused for want of descriptors.",
                                  .type = METRIC_COUNTER},
        [METRIC_HANDSHAKES] = {.name = "cellgate_relay_handshakes",
                               .help = "Connections that have not said yet what they want.",
                               .type = METRIC_GAUGE},
        [METRIC_LINGERING] = {.name = "cellgate_relay_lingering_closes",
                              .help = "Sockets that are being closed.",
                              .type = METRIC_GAUGE},
        [METRIC_CUT_SHORT] =
            {.name = "cellgate_relay_cut_short_total",
             .help = "Connections that were closed because there were too many: without a whole head, "
                     "or while the end of their tunnel was sent.",
             .type = METRIC_COUNTER,
             .labels = {{"what", cuts}}},
        [METRIC_LOG_DROPPED] = {.name = "cellgate_relay_log_lines_dropped",
                                .help = "Log lines that could not be written in time.",
                                .type = METRIC_GAUGE},
        [METRIC_LOG_HELD_BACK] = {.name = "cellgate_relay_log_lines_held_back",
                                  .help = "Log lines not written because there were many like them.",
                                  .type = METRIC_GAUGE},
    };
    memcpy(c->families, families, sizeof families);
}

struct relay_metrics *relay_metrics_new(void)
{
    struct relay_metrics *c = calloc(1, sizeof *c);

    if (!c)
        return NULL;
    pthread_mutex_init(&c->lock, NULL);
    for (size_t i = 0; i < RELAY_METRICS_ROUTES; i++)
        c->names[i] = (char *)no_name;
    c->names[RELAY_METRICS_ROUTES] = (char *)other_name;
    fill_families(c);
    c->metrics = metrics_new(c->families, METRIC_FAMILIES);
    if (c->metrics)
        return c;
    relay_metrics_free(c);
    return NULL;
}

void relay_metrics_free(struct relay_metrics *c)
{
    if (!c)
        return;
    metrics_free(c->metrics);
    for (size_t i = 0; i < RELAY_METRICS_ROUTES; i++)
        if (c->names[i] != no_name)
            free(c->names[i]);
    pthread_mutex_destroy(&c->lock);
    free(c);
}

struct metrics *relay_metrics_metrics(struct relay_metrics *c)
{
    return c->metrics;
}

unsigned relay_metrics_route(struct relay_metrics *c, struct slice route)
{
    unsigned i = 0;

    pthread_mutex_lock(&c->lock);
    while (i < RELAY_METRICS_ROUTES && c->names[i] != no_name && !slice_is(route, c->names[i]))
        i++;
    if (i < RELAY_METRICS_ROUTES && c->names[i] == no_name) {
        char *name = slice_dup(route);
        /* a scrape reads it without the lock */
        if (name)
            __atomic_store_n(&c->names[i], name, __ATOMIC_RELEASE);
        else
            i = RELAY_METRICS_ROUTES;
    }
    pthread_mutex_unlock(&c->lock);
    return i;
}

void relay_metrics_refused(struct metrics_shard *shard, unsigned refusal)
{
    metrics_add(shard, METRIC_REFUSED, METRIC_INDEX(refusal), 1);
}

void relay_metrics_hold(struct metrics_shard *shard, struct limits *limits, int64_t bytes)
{
    if (!bytes)
        return;
    limits_hold(limits, bytes);
    metrics_add(shard, METRIC_HELD, METRIC_PLAIN, bytes);
}
