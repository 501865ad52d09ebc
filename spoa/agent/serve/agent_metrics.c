/* SPDX-License-Identifier: MIT */
#include "spoa/agent/serve/agent_metrics.h"

static const char *const verdicts[] = {
    [VERDICT_DENY] = "deny",         [VERDICT_DIRECT] = "direct",       [VERDICT_RELAY] = "relay",
    [VERDICT_REDIRECT] = "redirect", [VERDICT_PREFLIGHT] = "preflight", NULL};

static const char *const errors[] = {[REFUSAL_NONE] = "none",
#define X(name, status, retryable, after, sentence) [REFUSAL_##name] = #name,
                                     REFUSALS(X)
#undef X
                                         NULL};

/* as the kinds are called in the configuration; none: no credential, or one of no kind */
static const char *const kinds[] = {"none",     "jwt", "agent-sandbox", "opensandbox-route", "static",
                                    "file-url", NULL};

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
static const char *const cache[] = {"hit", "miss", NULL};

const struct metric agent_metrics[AGENT_METRICS] = {
    [AGENT_DECISIONS] = {.name = "cellgate_agent_decisions_total",
                         .help = "Decisions by verdict and error.",
                         .type = METRIC_COUNTER,
                         .labels = {{"verdict", verdicts}, {"error", errors}}},
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
    [AGENT_SUBSCRIPTIONS] = {.name = "cellgate_agent_subscriptions",
                             .help = "Of agent.max_subscriptions, what relays' subscriptions take.",
                             .type = METRIC_GAUGE},
    [AGENT_RELAY_REFUSED] = {.name = "cellgate_agent_relay_refused_total",
                             .help = "Questions of relays that were refused: for tunnels that no agent has "
                                     "admitted, too many subscriptions, too long.",
                             .type = METRIC_COUNTER,
                             .labels = {{"why", agent_relay_refusals}}},
    [AGENT_RENEW] = {.name = "cellgate_agent_renew_intents_total",
                     .help =
                         "Intents for OpenSandbox's control plane; dropped: not told in time, or too many.",
                     .type = METRIC_COUNTER,
                     .labels = {{"outcome", renewed}}},
    [AGENT_RELOADS] = {.name = "cellgate_agent_reloads_total",
                       .help = "Reloads of configuration and keys; a bad one changes nothing.",
                       .type = METRIC_COUNTER,
                       .labels = {{"outcome", outcomes}}},
    [AGENT_REVOCATIONS] = {.name = "cellgate_agent_revocations_total",
                           .help = "Lists of revoked tokens that were pushed; a bad one changes nothing.",
                           .type = METRIC_COUNTER,
                           .labels = {{"outcome", outcomes}}},
    [AGENT_REVOKED] = {.name = "cellgate_agent_revoked_tokens",
                       .help = "Tokens that are revoked one by one, by the directory and by tokens_revoked_file.",
                       .type = METRIC_GAUGE,
                       .labels = {{"by", revokers}}},
    [AGENT_AUDIT_DROPPED] = {.name = "cellgate_agent_audit_lines_dropped_total",
                             .help = "Audit lines that could not be written in time.",
                             .type = METRIC_COUNTER},
    [AGENT_LOG_DROPPED] = {.name = "cellgate_agent_log_lines_dropped",
                           .help = "Log lines that could not be written in time.",
                           .type = METRIC_GAUGE},
    [AGENT_LOG_HELD_BACK] = {.name = "cellgate_agent_log_lines_held_back",
                             .help = "Log lines not written because there were many like them.",
                             .type = METRIC_GAUGE},
};

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
    metrics_observe(shard, AGENT_DECISION_SECONDS, METRIC_PLAIN, seconds);
}
