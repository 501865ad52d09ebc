/* SPDX-License-Identifier: MIT */
#include "spoa/relay/thread/relay_metrics.h"

#include "spoa/proto/refusal.h"
#include "spoa/relay/thread/limits.h"
#include "spoa/relay/tunnel/tunnel.h"
#include "spoa/service/metric_names.h"

#include <stdlib.h>

const char *const relay_metrics_refusals[] = {"worker", /* the worker's own refusal */
#define X(name, status, retryable, after, sentence) #name,
                                              REFUSALS(X)
#undef X
                                                  NULL};
static const char *const egress_ends[] = {
#define X(name, label, text) label,
    EGRESS_ENDS(X)
#undef X
        NULL};
static const char *const mux_ends[] = {
#define X(name, label, text) label,
    MUX_ENDS(X)
#undef X
        NULL};
static const char *const mux_outcomes[] = {"answered", "failed", "cancelled", "refused",
                                           "denied",   "cut",    NULL};
static const char *const mux_leg_outcomes[] = {"lost", "resumed", "refused", NULL};
static const char *const redial_outcomes[] = {"resumed", "failed", NULL};
static const char *const resume_outcomes[] = {"exact", "gap", NULL};
static const char *const directions[] = {"to_worker", "to_client", NULL};
static const char *const upgrade_outcomes[] = {"done", "failed", NULL}; /* enum keeper_outcome */
static const char *const server_fates[] = {"saved", "torn", "poisoned", "ending",
                                           NULL};                       /* enum keeper_fate */
static const char *const server_deaths[] = {"killed", "crashed", NULL}; /* enum keeper_cause */
static const char *const reload_outcomes[] = {[RELOAD_GOOD] = "good", [RELOAD_BAD] = "bad", NULL};
/* The bounds reach from the few milliseconds of a redial under `make run` to the longest move. */
const double relay_metrics_gaps[] = {0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025,
                                     0.05,   0.1,     0.25,   0.5,   1,      2.5,   5,    10,
                                     30,     60,      120,    300,   600,    0};
static const double ages[] = {1, 10, 60, 600, 3600, 6 * 3600, 24 * 3600, 7 * 24 * 3600, 0};
static const char *const cuts[] = {"handshake", "lingering", NULL};

/* A placeholder for the names of routes, which differ in each relay. */
static const char *const by_route[] = {NULL};

static const struct metric families[METRIC_FAMILIES] = {
    [METRIC_TUNNELS] = {.name = "cellgate_relay_tunnels",
                        .help = "Tunnels that are open.",
                        .type = METRIC_GAUGE,
                        .labels = {{"route", by_route}}},
    [METRIC_RESTING] = {.name = "cellgate_relay_tunnels_resting",
                        .help = "Tunnels at rest: at which nothing happens, so that they take little memory.",
                        .type = METRIC_GAUGE},
    [METRIC_OPENED] = {.name = "cellgate_relay_tunnels_opened_total",
                       .help = "Tunnels that were opened.",
                       .type = METRIC_COUNTER,
                       .labels = {{"route", by_route}}},
    [METRIC_CLOSED] = {.name = "cellgate_relay_tunnels_closed_total",
                       .help = "Tunnels that have ended, and why.",
                       .type = METRIC_COUNTER,
                       .labels = {{"route", by_route}, {"reason", close_reason_names}}},
    [METRIC_REFUSED] = {.name = "cellgate_relay_refused_total",
                        .help = "Upgrades that were not accepted, and why.",
                        .type = METRIC_COUNTER,
                        .labels = {{"error", relay_metrics_refusals}}},
    [METRIC_LIMITED] = {.name = "cellgate_relay_limited_total",
                        .help = "Upgrades refused with too_many_tunnels, CONNECTs with "
                                "too_many_connections, and by which limit.",
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
    [METRIC_UNCONFIRMED] = {.name = "cellgate_relay_unconfirmed_input_bytes_total",
                            .help =
                                "Input that perhaps nobody has read, of workers that were lost and clients "
                                "that left; it is not sent again.",
                            .type = METRIC_COUNTER},
    [METRIC_GAP] = {.name = "cellgate_relay_gap_seconds",
                    .help = "From the loss of a worker until the tunnel had one again.",
                    .type = METRIC_HISTOGRAM,
                    .bounds = relay_metrics_gaps},
    [METRIC_DIAL] = {.name = "cellgate_relay_dial_seconds",
                     .help = "Dials of workers that succeeded.",
                     .type = METRIC_HISTOGRAM,
                     .bounds = metrics_seconds},
    [METRIC_BYTES] = {.name = "cellgate_relay_bytes_total",
                      .help = "Bytes of frames that were sent on.",
                      .type = METRIC_COUNTER,
                      .labels = {{"direction", directions}}},
    [METRIC_HELD] = {.name = "cellgate_relay_held_bytes",
                     .help = "Memory of what tunnels hold: what waits to be sent, acknowledged or compared.",
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
    [METRIC_DIALS_FAILED] = {.name = "cellgate_relay_dials_failed_total",
                             .help = "Dials of workers that failed.",
                             .type = METRIC_COUNTER},
    [METRIC_AGE] = {.name = "cellgate_relay_tunnel_age_seconds",
                    .help = "How old tunnels were when they ended.",
                    .type = METRIC_HISTOGRAM,
                    .bounds = ages},
    [METRIC_EGRESS] = {.name = "cellgate_relay_egress_connections",
                       .help = "Connections of sandboxes to the outside that are open.",
                       .type = METRIC_GAUGE},
    [METRIC_EGRESS_ENDED] = {.name = "cellgate_relay_egress_ended_total",
                             .help = "Connections of sandboxes to the outside that ended, and why.",
                             .type = METRIC_COUNTER,
                             .labels = {{"reason", egress_ends}}},
    [METRIC_MUX] = {.name = "cellgate_relay_mux_sockets",
                    .help = "WebSockets of many requests that are open.",
                    .type = METRIC_GAUGE},
    [METRIC_MUX_REQUESTS] = {.name = "cellgate_relay_mux_requests_total",
                             .help = "Requests out of these, by what became of them.",
                             .type = METRIC_COUNTER,
                             .labels = {{"outcome", mux_outcomes}}},
    [METRIC_MUX_ENDED] = {.name = "cellgate_relay_mux_ended_total",
                          .help = "WebSockets of many requests that ended, and why.",
                          .type = METRIC_COUNTER,
                          .labels = {{"reason", mux_ends}}},
    [METRIC_MUX_LEGS] = {.name = "cellgate_relay_mux_legs_total",
                         .help = "Connections of clients that resume these: lost, resumed, and refused.",
                         .type = METRIC_COUNTER,
                         .labels = {{"outcome", mux_leg_outcomes}}},
    [METRIC_AGENT] = {.name = "cellgate_relay_agent_connected",
                      .help = "1 if every thread can ask the agent.",
                      .type = METRIC_GAUGE},
    [METRIC_DRAINING] = {.name = "cellgate_relay_draining",
                         .help = "1 while no new tunnels are accepted and those that are open end.",
                         .type = METRIC_GAUGE},
    [METRIC_TUNNELS_MOST] = {.name = "cellgate_relay_max_tunnels",
                             .help =
                                 "Tunnels that may be open: relay.max_tunnels, or what descriptors allow.",
                             .type = METRIC_GAUGE},
    [METRIC_MEMORY_MOST] = {.name = "cellgate_relay_memory_limit_bytes",
                            .help = "relay.memory.",
                            .type = METRIC_GAUGE},
    [METRIC_RELOADS] = {.name = "cellgate_relay_reloads_total",
                        .help = "Reloads of the configuration; a bad one changes nothing.",
                        .type = METRIC_COUNTER,
                        .labels = {{"outcome", reload_outcomes}}},
    [METRIC_RELOAD_GOOD] = {.name = "cellgate_relay_reload_good",
                            .help = "1 if the last reload of the configuration was taken over.",
                            .type = METRIC_GAUGE},
    [METRIC_RELOADED_AT] = {.name = "cellgate_relay_reload_good_timestamp_seconds",
                            .help = "When the configuration in force was read.",
                            .type = METRIC_GAUGE},
    [METRIC_SERVER_RESTARTS] = {.name = "cellgate_relay_server_restarts_total",
                                .help = "Servers of the relay that died and were replaced by the keeper.",
                                .type = METRIC_COUNTER,
                                .labels = {{"cause", server_deaths}}},
    [METRIC_TUNNELS_SALVAGED] =
        {.name = "cellgate_relay_salvaged_tunnels_total",
         .help = "Tunnels of servers that died: they go on in the next one, or what stopped them.",
         .type = METRIC_COUNTER,
         .labels = {{"outcome", server_fates}}},
    [METRIC_HANDOVER] = {.name = "cellgate_relay_handover_seconds",
                         .help = "From the last event of one server to the first of the next, in an upgrade.",
                         .type = METRIC_HISTOGRAM,
                         .bounds = metrics_seconds},
    [METRIC_UPGRADES] = {.name = "cellgate_relay_upgrades_total",
                         .help = "Upgrades of the relay's program under open sockets.",
                         .type = METRIC_COUNTER,
                         .labels = {{"outcome", upgrade_outcomes}}},
    [METRIC_LOG_DROPPED] = {.name = "cellgate_relay_log_lines_dropped_total",
                            .help = "Log lines that could not be written in time.",
                            .type = METRIC_COUNTER},
    [METRIC_LOG_HELD_BACK] = {.name = "cellgate_relay_log_lines_held_back_total",
                              .help = "Log lines not written because there were many like them.",
                              .type = METRIC_COUNTER},
};

struct relay_metrics {
    struct metric families[METRIC_FAMILIES];
    struct metrics *metrics;
    struct metric_names *routes;
};

static void fill_families(struct relay_metrics *c)
{
    memcpy(c->families, families, sizeof families);
    for (size_t i = 0; i < METRIC_FAMILIES; i++)
        if (families[i].labels[0].values == by_route)
            c->families[i].labels[0].values = metric_names_values(c->routes);
}

struct relay_metrics *relay_metrics_new(void)
{
    static const char *const none[] = {NULL};
    struct relay_metrics *c = calloc(1, sizeof *c);

    if (!c)
        return NULL;
    c->routes = metric_names_new(none, RELAY_METRICS_ROUTES);
    if (c->routes) {
        fill_families(c);
        c->metrics = metrics_new(c->families, METRIC_FAMILIES);
    }
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
    metric_names_free(c->routes);
    free(c);
}

struct metrics *relay_metrics_metrics(struct relay_metrics *c)
{
    return c->metrics;
}

unsigned relay_metrics_route(struct relay_metrics *c, struct slice route)
{
    return metric_names_index(c->routes, route);
}

static int64_t over_routes(struct relay_metrics *c, unsigned family, unsigned reason)
{
    int64_t sum = 0;
    const char *const *names = metric_names_values(c->routes);

    for (unsigned route = 0; names[route]; route++)
        if (*names[route])
            sum += metrics_value(c->metrics, family, METRIC_INDEX(route, reason));
    return sum;
}

int64_t relay_metrics_opened(struct relay_metrics *c)
{
    return over_routes(c, METRIC_OPENED, 0);
}

int64_t relay_metrics_ended(struct relay_metrics *c, unsigned reason)
{
    return over_routes(c, METRIC_CLOSED, reason);
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
