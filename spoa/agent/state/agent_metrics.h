/* SPDX-License-Identifier: MIT */
/* agent_metrics: the agent's metric families. docs/operations.md explains them. */
#ifndef CELLGATE_AGENT_STATE_AGENT_METRICS_H
#define CELLGATE_AGENT_STATE_AGENT_METRICS_H

#include "spoa/agent/directory/cache.h"
#include "spoa/agent/directory/kind.h"
#include "spoa/agent/model/verdict.h"
#include "spoa/service/metrics.h"

enum agent_metric {
    AGENT_DECISIONS,        /* verdict, error */
    AGENT_ROUTES,           /* route, verdict */
    AGENT_DECISION_SECONDS, /* histogram */
    AGENT_EGRESS,           /* error */
    AGENT_EGRESS_AUDITED,
    AGENT_TOKENS,      /* kind, outcome */
    AGENT_TOKEN_CACHE, /* outcome: hit, miss */
    AGENT_TOKEN_SHARED,
    AGENT_ANSWER_CACHE,        /* outcome: hit, miss */
    AGENT_DIRECTORY_RECORDS,   /* gauge */
    AGENT_DIRECTORY_BYTES,     /* gauge */
    AGENT_DIRECTORY_LOADS,     /* outcome: good, bad */
    AGENT_DIRECTORY_LOADED_AT, /* gauge: Unix seconds */
    AGENT_DIRECTORY_BEHIND,    /* records whose epoch went back */
    AGENT_PENDING,             /* outcome: kept, refused */
    DIRECTORY_UP,              /* gauge */
    DIRECTORY_PUSHING,         /* gauge */
    DIRECTORY_LOOK_UPS,        /* outcome: found, absent, unavailable */
    DIRECTORY_LOOK_UP_SECONDS, /* histogram */
    DIRECTORY_FINDS,           /* outcome: enum lookup */
    DIRECTORY_ENTRIES,         /* gauge; of: records, empty, in_use */
    DIRECTORY_BYTES,           /* gauge */
    DIRECTORY_PUSHES,
    DIRECTORY_BEHIND, /* records whose epoch went back */
    DIRECTORY_EVICTED,
    DIRECTORY_CROWDED,
    DIRECTORY_FOLLOWED_WATCHES, /* gauge; state: open, closed */
    DIRECTORY_FOLLOWED_OBJECTS, /* gauge */
    DIRECTORY_FOLLOWED_BYTES,   /* gauge */
    DIRECTORY_FOLLOWED_SILENT,  /* gauge: seconds */
    DIRECTORY_FOLLOWED_LISTS,   /* outcome: good, bad */
    DIRECTORY_FOLLOWED_EVENTS,
    DIRECTORY_FOLLOWED_ERRORS,
    DIRECTORY_FOLLOWED_ODD,
    AGENT_SUBSCRIPTIONS, /* gauge */
    AGENT_RELAY_REFUSED, /* why: enum agent_relay_refusal */
    AGENT_RENEW,         /* outcome: enum renew_outcome */
    AGENT_RELOADS,       /* outcome: good, bad */
    AGENT_RELOAD_GOOD,
    AGENT_RELOADED_AT,
    AGENT_REVOCATIONS, /* outcome: good, bad */
    AGENT_REVOKED,     /* gauge; by: directory, file */
    AGENT_AUDIT_DROPPED,
    AGENT_LOG_DROPPED,
    AGENT_LOG_HELD_BACK,
    AGENT_METRICS
};

enum agent_outcome { AGENT_GOOD, AGENT_BAD };
enum agent_relay_refusal { AGENT_RELAY_NOT_ADMITTED, AGENT_RELAY_TOO_MANY, AGENT_RELAY_TOO_LONG };
enum renew_outcome { RENEW_TOLD, RENEW_FAILED, RENEW_DROPPED };

extern const char *const agent_relay_refusals[];
/* The label value of requests without a route; it precedes the names of routes. */
extern const char *const agent_metrics_no_route[];
enum { AGENT_METRICS_ROUTES = 128 }; /* routes beyond this number count under "other" */

struct metric_names;
/* Fills in all families; `routes` has the names of the routes. */
void agent_metrics_fill(struct metric families[AGENT_METRICS], struct metric_names *routes);

/* Sets the metrics of the directory's cache; call it before a scrape. */
void agent_metrics_cache(struct metrics_shard *shard, const struct directory_cache_counts *counts);
/* Sets the metrics of a directory that is followed; call it before a scrape. */
void agent_metrics_followed(struct metrics_shard *shard, const uint64_t counts[DIRECTORY_FOLLOWED]);
/* Implements decide_view.token_checked; `shard` is a struct metrics_shard. */
void agent_metrics_token(void *shard, const char *kind, enum refusal refusal);
void agent_metrics_decision(struct metrics_shard *shard, const struct verdict *verdict, double seconds);
void agent_metrics_egress(struct metrics_shard *shard, enum refusal refusal, bool audit);

#endif
