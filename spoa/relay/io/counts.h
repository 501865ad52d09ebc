/* SPDX-License-Identifier: MIT */
/*
 * counts: what the relay counts, as metrics. A route gets its label when its first tunnel is opened; one that
 * comes when there are COUNTS_ROUTES already counts under "other".
 */
#ifndef CELLGATE_RELAY_IO_COUNTS_H
#define CELLGATE_RELAY_IO_COUNTS_H

#include "spoa/base/slice.h"
#include "spoa/service/metrics.h"

enum count {
    COUNT_TUNNELS, /* {route} */
    COUNT_OPENED,  /* {route} */
    COUNT_CLOSED,  /* {route,reason} */
    COUNT_REFUSED, /* {error} */
    COUNT_LIMITED, /* {limit} */
    COUNT_REDIALS, /* {cause,outcome} */
    COUNT_RESUME,  /* {adapter,outcome} */
    COUNT_MISSING, /* {adapter} */
    COUNT_UNSURE,
    COUNT_GAP,   /* histogram */
    COUNT_DIAL,  /* histogram */
    COUNT_BYTES, /* {direction} */
    COUNT_HELD,
    COUNT_ACCEPT_PAUSES, /* accepting paused for want of descriptors */
    COUNT_ARRIVALS,      /* connections whose head is not there yet */
    COUNT_PARTINGS,      /* sockets that are being closed */
    COUNT_CUT_SHORT,     /* {what} */
    COUNT_LOG_DROPPED,
    COUNT_LOG_HELD_BACK,
    COUNT_FAMILIES
};

enum { REDIAL_RESUMED, REDIAL_FAILED };
enum { RESUME_EXACT, RESUME_GAP };
enum { BYTES_TO_WORKER, BYTES_TO_CLIENT };
enum { CUT_ARRIVAL, CUT_PARTING };

struct counts;
struct limits;

enum { COUNTS_ROUTES = 64 };

/* NULL when out of memory. */
struct counts *counts_new(void);
void counts_free(struct counts *counts);
struct metrics *counts_metrics(struct counts *counts);
/* The index of a route's label; any thread. */
unsigned counts_route(struct counts *counts, struct slice route);
/* Memory of the process' tunnels has changed by so many bytes: limits and metric know it alike. */
void counts_hold(struct metrics_shard *shard, struct limits *limits, int64_t bytes);
/* REFUSAL_NONE: the worker's own refusal. */
void counts_refused(struct metrics_shard *shard, unsigned refusal);

#endif
