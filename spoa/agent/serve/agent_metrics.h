/* SPDX-License-Identifier: MIT */
/* agent_metrics: the agent's metric families. docs/operations.md explains them. */
#ifndef CELLGATE_AGENT_SERVE_AGENT_METRICS_H
#define CELLGATE_AGENT_SERVE_AGENT_METRICS_H

#include "spoa/agent/directory/cache.h"
#include "spoa/agent/model/verdict.h"
#include "spoa/service/metrics.h"

enum agent_metric {
    AGENT_DECISIONS,           /* verdict, error */
    AGENT_DECISION_SECONDS,    /* histogram */
    AGENT_TOKENS,              /* kind, outcome */
    AGENT_TOKEN_CACHE,         /* outcome: hit, miss */
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
    AGENT_SUBSCRIPTIONS, /* gauge */
    AGENT_RELAY_REFUSED, /* why: enum agent_relay_refusal */
    AGENT_RENEW,         /* outcome: enum renew_outcome */
    AGENT_RELOADS,       /* outcome: good, bad */
    AGENT_REVOCATIONS,   /* outcome: good, bad */
    AGENT_REVOKED,       /* gauge; by: directory, file */
    AGENT_AUDIT_DROPPED,
    AGENT_LOG_DROPPED,
    AGENT_LOG_HELD_BACK,
    AGENT_METRICS
};

enum agent_outcome { AGENT_GOOD, AGENT_BAD };
enum agent_relay_refusal { AGENT_RELAY_NOT_ADMITTED, AGENT_RELAY_TOO_MANY, AGENT_RELAY_TOO_LONG };
enum renew_outcome { RENEW_TOLD, RENEW_FAILED, RENEW_DROPPED };

extern const char *const agent_relay_refusals[];
extern const struct metric agent_metrics[AGENT_METRICS];

/* What the directory's cache has counted; before a scrape. */
void agent_metrics_cache(struct metrics_shard *shard, const struct directory_cache_counts *counts);
/* As decide_view.token_checked; shard is a struct metrics_shard. */
void agent_metrics_token(void *shard, const char *kind, enum refusal refusal);
void agent_metrics_decision(struct metrics_shard *shard, const struct verdict *verdict, double seconds);

#endif
