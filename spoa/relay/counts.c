/* SPDX-License-Identifier: MIT */
#include "spoa/relay/counts.h"

#include "spoa/lib/refusal.h"
#include "spoa/relay/tunnel.h"

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
        [COUNT_TUNNELS] = {"cellgate_relay_tunnels",
                           "Tunnels that are open.",
                           METRIC_GAUGE,
                           {{"route", routes}}},
        [COUNT_OPENED] = {"cellgate_relay_tunnels_opened_total",
                          "Tunnels that were opened.",
                          METRIC_COUNTER,
                          {{"route", routes}}},
        [COUNT_CLOSED] = {"cellgate_relay_tunnels_closed_total",
                          "Tunnels that have ended, and why.",
                          METRIC_COUNTER,
                          {{"route", routes}, {"reason", close_reason_names}}},
        [COUNT_REFUSED] = {"cellgate_relay_refused_total",
                           "Upgrades that were not accepted, and why.",
                           METRIC_COUNTER,
                           {{"error", refusal_names}}},
        [COUNT_REDIALS] = {"cellgate_relay_redials_total",
                           "Workers that were lost, and what came of it.",
                           METRIC_COUNTER,
                           {{"cause", loss_names}, {"outcome", redial_outcomes}}},
        [COUNT_RESUME] = {"cellgate_relay_resume_total",
                          "Tunnels that went on with another worker.",
                          METRIC_COUNTER,
                          {{"adapter", handover_resume_names}, {"outcome", resume_outcomes}}},
        [COUNT_MISSING] = {"cellgate_relay_resume_missing_bytes_total",
                           "Output that is missing in declared gaps, as far as their size is known.",
                           METRIC_COUNTER,
                           {{"adapter", handover_resume_names}}},
        [COUNT_GAP] = {"cellgate_relay_gap_seconds",
                       "From the loss of a worker until the tunnel had one again.", METRIC_HISTOGRAM,
                       .bounds = metrics_seconds},
        [COUNT_DIAL] = {"cellgate_relay_dial_seconds", "Dials of workers that succeeded.", METRIC_HISTOGRAM,
                        .bounds = metrics_seconds},
        [COUNT_BYTES] = {"cellgate_relay_bytes_total",
                         "Bytes of frames that were sent on.",
                         METRIC_COUNTER,
                         {{"direction", directions}}},
        [COUNT_HELD] = {"cellgate_relay_held_bytes", "Memory of what waits to be sent.", METRIC_GAUGE},
        [COUNT_ACCEPT_PAUSES] = {"cellgate_relay_accept_pauses_total",
                                 "Times that accepting paused for want of descriptors.", METRIC_COUNTER},
        [COUNT_PARTINGS] = {"cellgate_relay_partings", "Sockets that are being closed.", METRIC_GAUGE},
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
