/* SPDX-License-Identifier: MIT */
/*
 * relay_metrics: the metrics of the relay. A route gets a label when its first tunnel is opened; after RELAY_METRICS_ROUTES
 * labels, further routes count as "other".
 */
#ifndef CELLGATE_RELAY_THREAD_RELAY_METRICS_H
#define CELLGATE_RELAY_THREAD_RELAY_METRICS_H

#include "spoa/base/bytes/slice.h"
#include "spoa/service/metrics.h"

enum count {
    METRIC_TUNNELS, /* {route} */
    METRIC_RESTING, /* idle, packed tunnels, a part of METRIC_TUNNELS */
    METRIC_OPENED,  /* {route} */
    METRIC_CLOSED,  /* {route,reason} */
    METRIC_REFUSED, /* {error} */
    METRIC_LIMITED, /* {limit} */
    METRIC_REDIALS, /* {cause,outcome} */
    METRIC_RESUME,  /* {adapter,outcome} */
    METRIC_MISSING, /* {adapter} */
    METRIC_UNCONFIRMED,
    METRIC_GAP,   /* histogram */
    METRIC_DIAL,  /* histogram */
    METRIC_BYTES, /* {direction} */
    METRIC_HELD,
    METRIC_ACCEPT_PAUSES, /* pauses of accepting for lack of descriptors */
    METRIC_HANDSHAKES,    /* connections without a complete head */
    METRIC_LINGERING,     /* sockets in a lingering close */
    METRIC_CUT_SHORT,     /* {what} */
    METRIC_DIALS_FAILED,
    METRIC_AGE,          /* histogram */
    METRIC_EGRESS,       /* gauge */
    METRIC_EGRESS_ENDED, /* {reason}: enum egress_end */
    METRIC_MUX,          /* gauge */
    METRIC_MUX_REQUESTS, /* {outcome}: enum mux_outcome */
    METRIC_MUX_ENDED,    /* {reason}: enum mux_end */
    METRIC_MUX_LEGS,     /* {outcome}: enum mux_leg_outcome */
    METRIC_AGENT,
    METRIC_DRAINING,
    METRIC_TUNNELS_MOST,
    METRIC_MEMORY_MOST,
    METRIC_RELOADS, /* {outcome} */
    METRIC_RELOAD_GOOD,
    METRIC_RELOADED_AT,
    METRIC_SERVER_RESTARTS,  /* {cause}: enum keeper_cause */
    METRIC_TUNNELS_SALVAGED, /* {outcome}: enum keeper_fate */
    METRIC_HANDOVER,
    METRIC_UPGRADES, /* {outcome}: enum keeper_outcome */
    METRIC_LOG_DROPPED,
    METRIC_LOG_HELD_BACK,
    METRIC_FAMILIES
};

enum { REDIAL_RESUMED, REDIAL_FAILED };
enum { RESUME_EXACT, RESUME_GAP };
/* The reasons why an egress connection ended: X(name, label, text for the log). */
#define EGRESS_ENDS(X)                                                                                  \
    X(DONE, "done", "both sides are through")                                                           \
    X(CLIENT, "client", "the client's connection broke")                                                \
    X(DESTINATION, "destination", "the destination's connection broke")                                 \
    X(UNREACHABLE, "unreachable", "the destination cannot be reached")                                  \
    X(TIMEOUT, "timeout", "the destination did not answer in time")                                     \
    X(SILENT, "silent", "inspected: the client said nothing in time")                                   \
    X(INSIDE, "inside", "inspected: HAProxy cannot be reached: relay.egress_tls, CELLGATE_EGRESS_SIGN") \
    X(NAME, "name", "the ClientHello asks for another host, or for none")                               \
    X(DENIED, "denied", "it is allowed no longer")                                                      \
    X(EXPIRED, "expired", "its token has expired")                                                      \
    X(IDLE, "idle", "one side had ended, and the other said nothing for long")                          \
    X(RESTARTING, "restarting", "the relay shuts down")                                                 \
    X(MEMORY, "memory", "the relay has no memory for it")
enum egress_end {
#define X(name, label, text) EGRESS_##name,
    EGRESS_ENDS(X)
#undef X
};

/* The reasons why a WebSocket of many requests ended: X(name, label, text for the log). */
#define MUX_ENDS(X)                                                    \
    X(CLIENT, "client", "the client closed it")                        \
    X(BROKEN, "broken", "the client's connection broke")               \
    X(PROTOCOL, "protocol", "the client broke the WebSocket protocol") \
    X(LARGE, "large", "a message is longer than max_message")          \
    X(IDLE, "idle", "nobody asked anything for long")                  \
    X(DEAD, "dead", "the client does not answer, or takes nothing")    \
    X(AGE, "age", "it has reached max_age")                            \
    X(MEMORY, "memory", "the relay has no memory for it")              \
    X(RESTARTING, "restarting", "the relay shuts down")                \
    X(LOST, "lost", "the client did not come back")
enum mux_end {
#define X(name, label, text) MUX_END_##name,
    MUX_ENDS(X)
#undef X
};
enum mux_outcome {
    MUX_OUTCOME_ANSWERED,
    MUX_OUTCOME_FAILED,
    MUX_OUTCOME_CANCELLED,
    MUX_OUTCOME_REFUSED,
    MUX_OUTCOME_DENIED, /* a long request that is no longer allowed */
    MUX_OUTCOME_CUT
};

enum mux_leg_outcome { MUX_LEG_LOST, MUX_LEG_RESUMED, MUX_LEG_REFUSED };

enum { BYTES_TO_WORKER, BYTES_TO_CLIENT };
enum { CUT_HANDSHAKE, CUT_LINGERING };
enum { RELOAD_GOOD, RELOAD_BAD };

struct relay_metrics;
struct limits;

extern const double relay_metrics_gaps[];          /* bounds of METRIC_GAP */
extern const char *const relay_metrics_refusals[]; /* labels of METRIC_REFUSED, with NULL after the last */

enum { RELAY_METRICS_ROUTES = 64 };

/* Returns new metrics, or NULL if memory is short. */
struct relay_metrics *relay_metrics_new(void);
void relay_metrics_free(struct relay_metrics *metrics);
struct metrics *relay_metrics_metrics(struct relay_metrics *metrics);
/* Returns the index of a route's label. Any thread may call this. */
unsigned relay_metrics_route(struct relay_metrics *metrics, struct slice route);
/* Return the number of tunnels, over all routes, that were opened, or that ended for `reason`. */
int64_t relay_metrics_opened(struct relay_metrics *metrics);
int64_t relay_metrics_ended(struct relay_metrics *metrics, unsigned reason);
/* Adds a change of held memory, in bytes, to the limits and to METRIC_HELD. */
void relay_metrics_hold(struct metrics_shard *shard, struct limits *limits, int64_t bytes);
/* Counts a refusal; REFUSAL_NONE stands for a refusal by the worker. */
void relay_metrics_refused(struct metrics_shard *shard, unsigned refusal);

#endif
