/* SPDX-License-Identifier: MIT */
#include "spoa/relay/io/counts.h"

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
static const char *const cuts[] = {"arrival", "parting", NULL};

struct counts {
    struct metric families[COUNT_FAMILIES];
    struct metrics *metrics;
    pthread_mutex_t lock;           /* of names */
    char *names[COUNTS_ROUTES + 2]; /* of the routes, "" where none is yet, "other", NULL */
};

static void fill_families(struct counts *c)
{
    const char *const *routes = (const char *const *)c->names;
    const struct metric families[COUNT_FAMILIES] = {
        [COUNT_TUNNELS] = {.name = "cellgate_relay_tunnels",
                           .help = "Tunnels that are open.",
                           .type = METRIC_GAUGE,
                           .labels = {{"route", routes}}},
        [COUNT_OPENED] = {.name = "cellgate_relay_tunnels_opened_total",
                          .help = "Tunnels that were opened.",
                          .type = METRIC_COUNTER,
                          .labels = {{"route", routes}}},
        [COUNT_CLOSED] = {.name = "cellgate_relay_tunnels_closed_total",
                          .help = "Tunnels that have ended, and why.",
                          .type = METRIC_COUNTER,
                          .labels = {{"route", routes}, {"reason", close_reason_names}}},
        [COUNT_REFUSED] = {.name = "cellgate_relay_refused_total",
                           .help = "Upgrades that were not accepted, and why.",
                           .type = METRIC_COUNTER,
                           .labels = {{"error", refusal_names}}},
        [COUNT_LIMITED] = {.name = "cellgate_relay_limited_total",
                           .help = "Upgrades refused with too_many_tunnels, and by which limit.",
                           .type = METRIC_COUNTER,
                           .labels = {{"limit", limit_names}}},
        [COUNT_REDIALS] = {.name = "cellgate_relay_redials_total",
                           .help = "Workers that were lost, and what came of it.",
                           .type = METRIC_COUNTER,
                           .labels = {{"cause", loss_names}, {"outcome", redial_outcomes}}},
        [COUNT_RESUME] = {.name = "cellgate_relay_resume_total",
                          .help = "Tunnels that went on with another worker.",
                          .type = METRIC_COUNTER,
                          .labels = {{"adapter", handover_resume_names}, {"outcome", resume_outcomes}}},
        [COUNT_MISSING] = {.name = "cellgate_relay_resume_missing_bytes_total",
                           .help = "Output that is missing in declared gaps, as far as their size is known.",
                           .type = METRIC_COUNTER,
                           .labels = {{"adapter", handover_resume_names}}},
        [COUNT_UNSURE] = {.name = "cellgate_relay_unsure_input_bytes_total",
                          .help = "Input that perhaps nobody has read, of workers that were lost and clients "
                                  "that left; it is not sent again.",
                          .type = METRIC_COUNTER},
        [COUNT_GAP] = {.name = "cellgate_relay_gap_seconds",
                       .help = "From the loss of a worker until the tunnel had one again.",
                       .type = METRIC_HISTOGRAM,
                       .bounds = metrics_seconds},
        [COUNT_DIAL] = {.name = "cellgate_relay_dial_seconds",
                        .help = "Dials of workers that succeeded.",
                        .type = METRIC_HISTOGRAM,
                        .bounds = metrics_seconds},
        [COUNT_BYTES] = {.name = "cellgate_relay_bytes_total",
                         .help = "Bytes of frames that were sent on.",
                         .type = METRIC_COUNTER,
                         .labels = {{"direction", directions}}},
        [COUNT_HELD] = {.name = "cellgate_relay_held_bytes",
                        .help =
                            "Memory of what tunnels hold: what waits to be sent, acknowledged or compared.",
                        .type = METRIC_GAUGE},
        [COUNT_ACCEPT_PAUSES] = {.name = "cellgate_relay_accept_pauses_total",
                                 .help = "Times that accepting paused for want of descriptors.",
                                 .type = METRIC_COUNTER},
        [COUNT_ARRIVALS] = {.name = "cellgate_relay_arrivals",
                            .help = "Connections that have not said yet what they want.",
                            .type = METRIC_GAUGE},
        [COUNT_PARTINGS] = {.name = "cellgate_relay_partings",
                            .help = "Sockets that are being closed.",
                            .type = METRIC_GAUGE},
        [COUNT_CUT_SHORT] =
            {.name = "cellgate_relay_cut_short_total",
             .help = "Connections that were closed because there were too many: without a whole head, "
                     "or while the end of their tunnel was sent.",
             .type = METRIC_COUNTER,
             .labels = {{"what", cuts}}},
        [COUNT_LOG_DROPPED] = {.name = "cellgate_relay_log_lines_dropped",
                               .help = "Log lines that could not be written in time.",
                               .type = METRIC_GAUGE},
        [COUNT_LOG_HELD_BACK] = {.name = "cellgate_relay_log_lines_held_back",
                                 .help = "Log lines not written because there were many like them.",
                                 .type = METRIC_GAUGE},
    };
    memcpy(c->families, families, sizeof families);
}

struct counts *counts_new(void)
{
    struct counts *c = calloc(1, sizeof *c);

    if (!c)
        return NULL;
    pthread_mutex_init(&c->lock, NULL);
    for (size_t i = 0; i < COUNTS_ROUTES; i++)
        c->names[i] = (char *)no_name;
    c->names[COUNTS_ROUTES] = (char *)other_name;
    fill_families(c);
    c->metrics = metrics_new(c->families, COUNT_FAMILIES);
    if (c->metrics)
        return c;
    counts_free(c);
    return NULL;
}

void counts_free(struct counts *c)
{
    if (!c)
        return;
    metrics_free(c->metrics);
    for (size_t i = 0; i < COUNTS_ROUTES; i++)
        if (c->names[i] != no_name)
            free(c->names[i]);
    pthread_mutex_destroy(&c->lock);
    free(c);
}

struct metrics *counts_metrics(struct counts *c)
{
    return c->metrics;
}

unsigned counts_route(struct counts *c, struct slice route)
{
    unsigned i = 0;

    pthread_mutex_lock(&c->lock);
    while (i < COUNTS_ROUTES && c->names[i] != no_name && !slice_is(route, c->names[i]))
        i++;
    if (i < COUNTS_ROUTES && c->names[i] == no_name) {
        char *name = slice_dup(route);
        /* a scrape reads it without the lock */
        if (name)
            __atomic_store_n(&c->names[i], name, __ATOMIC_RELEASE);
        else
            i = COUNTS_ROUTES;
    }
    pthread_mutex_unlock(&c->lock);
    return i;
}

void counts_refused(struct metrics_shard *shard, unsigned refusal)
{
    metrics_add(shard, COUNT_REFUSED, METRIC_INDEX(refusal), 1);
}

void counts_hold(struct metrics_shard *shard, struct limits *limits, int64_t bytes)
{
    if (!bytes)
        return;
    limits_hold(limits, bytes);
    metrics_add(shard, COUNT_HELD, METRIC_PLAIN, bytes);
}
