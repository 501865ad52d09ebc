/* SPDX-License-Identifier: MIT */
#include "spoa/agent/state/agent_metrics.h"

#include "spoa/agent/token/kind.h"
#include "spoa/service/metric_names.h"

static const char *const verdicts[] = {
    [VERDICT_DENY] = "deny",         [VERDICT_DIRECT] = "direct",       [VERDICT_RELAY] = "relay",
    [VERDICT_REDIRECT] = "redirect", [VERDICT_PREFLIGHT] = "preflight", NULL};

static const char *const errors[] = {[REFUSAL_NONE] = "none",
#define X(name, status, retryable, after, sentence) [REFUSAL_##name] = #name,
                                     REFUSALS(X)
#undef X
                                         NULL};

/* the names of the kinds in the configuration; "none" if there is no credential, or no kind recognised it */
static const char *const kinds[] = {"none",
#define X(variable, name) (name),
                                    TOKEN_KINDS(X)
#undef X
                                        NULL};

static const char *const outcomes[] = {[AGENT_GOOD] = "good", [AGENT_BAD] = "bad", NULL};
static const char *const pending[] = {[AGENT_GOOD] = "kept", [AGENT_BAD] = "refused", NULL};
static const char *const renewed[] = {
    [RENEW_TOLD] = "told", [RENEW_FAILED] = "failed", [RENEW_DROPPED] = "dropped", NULL};
static const char *const look_ups[] = {"found", "absent", "unavailable", NULL};
static const char *const finds[] = {"hit", "stale", "absent", "wait", "unavailable", NULL};
static const char *const revokers[] = {"directory", "file", NULL};
static const char *const entries[] = {"record", "empty", "in_use", NULL};
const char *const agent_relay_refusals[] = {[AGENT_RELAY_NOT_ADMITTED] = "not_admitted",
                                            [AGENT_RELAY_TOO_MANY] = "too_many",
                                            [AGENT_RELAY_TOO_LONG] = "too_long",
                                            NULL};
static const char *const watches[] = {"open", "closed", NULL};
static const char *const cache[] = {"hit", "miss", NULL};

const char *const agent_metrics_no_route[] = {"none", NULL};

static const struct metric all_families[AGENT_METRICS] = {
    [AGENT_DECISIONS] = {.name = "cellgate_agent_decisions_total",
                         .help = "Decisions by verdict and error.",
                         .type = METRIC_COUNTER,
                         .labels = {{"verdict", verdicts}, {"error", errors}}},
    [AGENT_ROUTES] = {.name = "cellgate_agent_route_decisions_total",
                      .help = "Decisions by route and verdict; none: no route matches.",
                      .type = METRIC_COUNTER,
                      .labels = {{"route", agent_metrics_no_route}, {"verdict", verdicts}}},
    [AGENT_EGRESS] = {.name = "cellgate_agent_egress_decisions_total",
                      .help = "Decisions about CONNECTs of sandboxes, by error.",
                      .type = METRIC_COUNTER,
                      .labels = {{"error", errors}}},
    [AGENT_EGRESS_AUDITED] = {.name = "cellgate_agent_egress_audited_total",
                              .help = "CONNECTs and requests that passed by the mode `audit` alone.",
                              .type = METRIC_COUNTER},
    [AGENT_DECISION_SECONDS] = {.name = "cellgate_agent_decision_seconds",
                                .help = "Time from a question's decoding to its answer's encoding.",
                                .type = METRIC_HISTOGRAM,
                                .bounds = metrics_seconds},
    [AGENT_TOKENS] = {.name = "cellgate_agent_tokens_total",
                      .help = "Credentials that were checked, by kind and outcome.",
                      .type = METRIC_COUNTER,
                      .labels = {{"kind", kinds}, {"outcome", errors}}},
    [AGENT_TOKEN_CACHE] = {.name = "cellgate_agent_token_cache_total",
                           .help = "Tokens found in the cache of verified tokens, and not.",
                           .type = METRIC_COUNTER,
                           .labels = {{"outcome", cache}}},
    [AGENT_TOKEN_SHARED] = {.name = "cellgate_agent_token_cache_shared_total",
                            .help = "Of the tokens found, those that another thread had verified.",
                            .type = METRIC_COUNTER},
    [AGENT_ANSWER_CACHE] = {.name = "cellgate_agent_answer_cache_total",
                            .help = "Questions that were answered as shortly before, and others.",
                            .type = METRIC_COUNTER,
                            .labels = {{"outcome", cache}}},
    [AGENT_DIRECTORY_RECORDS] = {.name = "cellgate_agent_directory_records",
                                 .help = "Sandboxes in the directory.",
                                 .type = METRIC_GAUGE},
    [AGENT_DIRECTORY_BYTES] = {.name = "cellgate_agent_directory_bytes",
                               .help = "Memory that the directory's records take.",
                               .type = METRIC_GAUGE},
    [AGENT_DIRECTORY_LOADS] = {.name = "cellgate_agent_directory_loads_total",
                               .help = "Times that the directory was read; a bad version changes nothing.",
                               .type = METRIC_COUNTER,
                               .labels = {{"outcome", outcomes}}},
    [AGENT_DIRECTORY_LOADED_AT] = {.name = "cellgate_agent_directory_loaded_timestamp_seconds",
                                   .help = "When the directory in use was read.",
                                   .type = METRIC_GAUGE},
    [AGENT_DIRECTORY_BEHIND] = {.name = "cellgate_agent_directory_epochs_behind_total",
                                .help = "Records ignored because their epoch went back.",
                                .type = METRIC_COUNTER},
    [AGENT_PENDING] = {.name = "cellgate_agent_pending_total",
                       .help = "Decisions that had to wait for a look-up; refused: too many waited already.",
                       .type = METRIC_COUNTER,
                       .labels = {{"outcome", pending}}},
    [DIRECTORY_UP] = {.name = "cellgate_directory_up",
                      .help = "Whether the directory answers.",
                      .type = METRIC_GAUGE},
    [DIRECTORY_PUSHING] = {.name = "cellgate_directory_pushing",
                           .help = "Whether the directory tells of changes by itself.",
                           .type = METRIC_GAUGE},
    [DIRECTORY_LOOK_UPS] = {.name = "cellgate_directory_look_ups_total",
                            .help = "Look-ups of one record in the directory, by its answer.",
                            .type = METRIC_COUNTER,
                            .labels = {{"outcome", look_ups}}},
    [DIRECTORY_LOOK_UP_SECONDS] = {.name = "cellgate_directory_look_up_seconds",
                                   .help = "Time from a look-up's beginning to its answer.",
                                   .type = METRIC_HISTOGRAM,
                                   .bounds = metrics_seconds},
    [DIRECTORY_FINDS] = {.name = "cellgate_directory_cache_total",
                         .help =
                             "Records asked of the cache: there, there but the directory does not answer, "
                             "known to be absent, to be waited for, unknown.",
                         .type = METRIC_COUNTER,
                         .labels = {{"outcome", finds}}},
    [DIRECTORY_ENTRIES] = {.name = "cellgate_directory_cache_entries",
                           .help =
                               "Entries of the cache: with a record, without one, used by an open tunnel.",
                           .type = METRIC_GAUGE,
                           .labels = {{"of", entries}}},
    [DIRECTORY_BYTES] = {.name = "cellgate_directory_cache_bytes",
                         .help = "Memory that the cache's entries take.",
                         .type = METRIC_GAUGE},
    [DIRECTORY_PUSHES] = {.name = "cellgate_directory_pushes_total",
                          .help = "Changes that the directory pushed and that were of use.",
                          .type = METRIC_COUNTER},
    [DIRECTORY_BEHIND] = {.name = "cellgate_directory_epochs_behind_total",
                          .help = "Records of the cache ignored because their epoch went back.",
                          .type = METRIC_COUNTER},
    [DIRECTORY_EVICTED] = {.name = "cellgate_directory_cache_evicted_total",
                           .help = "Entries of the cache given up for others.",
                           .type = METRIC_COUNTER},
    [DIRECTORY_CROWDED] = {.name = "cellgate_directory_look_ups_refused_total",
                           .help = "Look-ups not begun: too many were on their way.",
                           .type = METRIC_COUNTER},
    [DIRECTORY_FOLLOWED_WATCHES] = {.name = "cellgate_directory_watches",
                                    .help = "Watches at the API server (kind kubernetes).",
                                    .type = METRIC_GAUGE,
                                    .labels = {{"state", watches}}},
    [DIRECTORY_FOLLOWED_OBJECTS] = {.name = "cellgate_directory_objects",
                                    .help = "Objects of the API server that are sandboxes.",
                                    .type = METRIC_GAUGE},
    [DIRECTORY_FOLLOWED_BYTES] = {.name = "cellgate_directory_objects_bytes",
                                  .help = "Memory that these objects take.",
                                  .type = METRIC_GAUGE},
    [DIRECTORY_FOLLOWED_SILENT] = {.name = "cellgate_directory_silent_seconds",
                                   .help = "Time since the API server was last heard, by the watch that is "
                                           "closed longest; 0: all are open.",
                                   .type = METRIC_GAUGE},
    [DIRECTORY_FOLLOWED_LISTS] = {.name = "cellgate_directory_lists_total",
                                  .help = "Lists of all objects of a watch.",
                                  .type = METRIC_COUNTER,
                                  .labels = {{"outcome", outcomes}}},
    [DIRECTORY_FOLLOWED_EVENTS] = {.name = "cellgate_directory_events_total",
                                   .help = "Events of watches, bookmarks included.",
                                   .type = METRIC_COUNTER},
    [DIRECTORY_FOLLOWED_ERRORS] = {.name = "cellgate_directory_errors_total",
                                   .help =
                                       "Lists and watches that the API server refused, broke off or did not "
                                       "answer.",
                                   .type = METRIC_COUNTER},
    [DIRECTORY_FOLLOWED_ODD] = {.name = "cellgate_directory_odd_objects_total",
                                .help = "Objects that make no sense, or that there is no room for.",
                                .type = METRIC_COUNTER},
    [AGENT_SUBSCRIPTIONS] = {.name = "cellgate_agent_subscriptions",
                             .help = "Of agent.max_subscriptions, what relays' subscriptions take.",
                             .type = METRIC_GAUGE},
    [AGENT_RELAY_REFUSED] = {.name = "cellgate_agent_relay_refused_total",
                             .help = "Questions of relays that were refused: for tunnels that no agent has "
                                     "admitted, too many subscriptions, too long.",
                             .type = METRIC_COUNTER,
                             .labels = {{"why", agent_relay_refusals}}},
    [AGENT_RENEW] = {.name = "cellgate_agent_renew_intents_total",
                     .help = "Renew intents for a control plane; dropped: not sent in time, or too many.",
                     .type = METRIC_COUNTER,
                     .labels = {{"outcome", renewed}}},
    [AGENT_RELOADS] = {.name = "cellgate_agent_reloads_total",
                       .help = "Reloads of configuration and keys; a bad one changes nothing.",
                       .type = METRIC_COUNTER,
                       .labels = {{"outcome", outcomes}}},
    [AGENT_RELOAD_GOOD] = {.name = "cellgate_agent_reload_good",
                           .help = "1 if the last reload of configuration and keys was taken over.",
                           .type = METRIC_GAUGE},
    [AGENT_RELOADED_AT] = {.name = "cellgate_agent_reload_good_timestamp_seconds",
                           .help = "When what is in force was read.",
                           .type = METRIC_GAUGE},
    [AGENT_REVOCATIONS] = {.name = "cellgate_agent_revocations_total",
                           .help = "Lists of revoked tokens that were pushed; a bad one changes nothing.",
                           .type = METRIC_COUNTER,
                           .labels = {{"outcome", outcomes}}},
    [AGENT_REVOKED] = {.name = "cellgate_agent_revoked_tokens",
                       .help =
                           "Tokens that are revoked one by one, by the directory and by tokens_revoked_file.",
                       .type = METRIC_GAUGE,
                       .labels = {{"by", revokers}}},
    [AGENT_AUDIT_DROPPED] = {.name = "cellgate_agent_audit_lines_dropped_total",
                             .help = "Audit lines that could not be written in time.",
                             .type = METRIC_COUNTER},
    [AGENT_LOG_DROPPED] = {.name = "cellgate_agent_log_lines_dropped_total",
                           .help = "Log lines that could not be written in time.",
                           .type = METRIC_COUNTER},
    [AGENT_LOG_HELD_BACK] = {.name = "cellgate_agent_log_lines_held_back_total",
                             .help = "Log lines not written because there were many like them.",
                             .type = METRIC_COUNTER},
};

void agent_metrics_fill(struct metric families[AGENT_METRICS], struct metric_names *routes)
{
    memcpy(families, all_families, sizeof all_families);
    families[AGENT_ROUTES].labels[0].values = metric_names_values(routes);
}

void agent_metrics_cache(struct metrics_shard *shard, const struct directory_cache_counts *counts)
{
    const struct {
        unsigned family, index;
        uint64_t value;
    } all[] = {
        {DIRECTORY_LOOK_UPS, 0, counts->found},  {DIRECTORY_LOOK_UPS, 1, counts->not_found},
        {DIRECTORY_LOOK_UPS, 2, counts->failed}, {DIRECTORY_FINDS, 0, counts->hits},
        {DIRECTORY_FINDS, 1, counts->stale},     {DIRECTORY_FINDS, 2, counts->absent},
        {DIRECTORY_FINDS, 3, counts->waits},     {DIRECTORY_FINDS, 4, counts->unavailable},
        {DIRECTORY_ENTRIES, 0, counts->records}, {DIRECTORY_ENTRIES, 1, counts->empty},
        {DIRECTORY_ENTRIES, 2, counts->pinned},  {DIRECTORY_BYTES, 0, counts->bytes},
        {DIRECTORY_PUSHES, 0, counts->pushed},   {DIRECTORY_BEHIND, 0, counts->behind},
        {DIRECTORY_EVICTED, 0, counts->evicted}, {DIRECTORY_CROWDED, 0, counts->crowded},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        metrics_set(shard, all[i].family, METRIC_INDEX(all[i].index), (int64_t)all[i].value);
}

void agent_metrics_followed(struct metrics_shard *shard, const uint64_t counts[DIRECTORY_FOLLOWED])
{
    static const struct {
        unsigned family, index;
    } all[DIRECTORY_FOLLOWED] = {
        [DIRECTORY_WATCHES_OPEN] = {DIRECTORY_FOLLOWED_WATCHES, 0},
        [DIRECTORY_WATCHES_CLOSED] = {DIRECTORY_FOLLOWED_WATCHES, 1},
        [DIRECTORY_OBJECTS] = {DIRECTORY_FOLLOWED_OBJECTS, 0},
        [DIRECTORY_OBJECTS_BYTES] = {DIRECTORY_FOLLOWED_BYTES, 0},
        [DIRECTORY_SILENT_SECONDS] = {DIRECTORY_FOLLOWED_SILENT, 0},
        [DIRECTORY_LISTS_GOOD] = {DIRECTORY_FOLLOWED_LISTS, 0},
        [DIRECTORY_LISTS_BAD] = {DIRECTORY_FOLLOWED_LISTS, 1},
        [DIRECTORY_EVENTS] = {DIRECTORY_FOLLOWED_EVENTS, 0},
        [DIRECTORY_ERRORS] = {DIRECTORY_FOLLOWED_ERRORS, 0},
        [DIRECTORY_ODD] = {DIRECTORY_FOLLOWED_ODD, 0},
    };
    for (size_t i = 0; i < DIRECTORY_FOLLOWED; i++)
        metrics_set(shard, all[i].family, METRIC_INDEX(all[i].index), (int64_t)counts[i]);
}

void agent_metrics_token(void *shard, const char *kind, enum refusal refusal)
{
    unsigned i = 0;
    while (kind && kinds[i] && strcmp(kinds[i], kind) != 0)
        i++;
    metrics_add(shard, AGENT_TOKENS, METRIC_INDEX(kinds[i] ? i : 0, refusal), 1);
}

void agent_metrics_decision(struct metrics_shard *shard, const struct verdict *verdict, double seconds)
{
    metrics_add(shard, AGENT_DECISIONS, METRIC_INDEX(verdict->kind, verdict->refusal), 1);
    metrics_add(shard, AGENT_ROUTES, METRIC_INDEX(verdict->route_label, verdict->kind), 1);
    metrics_observe(shard, AGENT_DECISION_SECONDS, METRIC_PLAIN, seconds);
}

void agent_metrics_egress(struct metrics_shard *shard, enum refusal refusal, bool audit)
{
    metrics_add(shard, AGENT_EGRESS, METRIC_INDEX(refusal), 1);
    if (audit)
        metrics_add(shard, AGENT_EGRESS_AUDITED, METRIC_PLAIN, 1);
}
