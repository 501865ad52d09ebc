/* SPDX-License-Identifier: MIT */
#include "spoa/agent/agent_metrics.h"

static const char *const verdicts[] = {
    [VERDICT_DENY] = "deny",         [VERDICT_DIRECT] = "direct",       [VERDICT_RELAY] = "relay",
    [VERDICT_REDIRECT] = "redirect", [VERDICT_PREFLIGHT] = "preflight", NULL};

static const char *const errors[] = {[REFUSAL_NONE] = "none",
#define X(name, status, retryable, after, sentence) [REFUSAL_##name] = #name,
                                     REFUSALS(X)
#undef X
                                         NULL};

/* the places of kinds that are not built yet are kept, so that series do not move */
static const char *const kinds[] = {"none",     "jwt", "agent-sandbox", "opensandbox-route", "static",
                                    "file-url", NULL};

static const char *const outcomes[] = {[AGENT_GOOD] = "good", [AGENT_BAD] = "bad", NULL};
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
    [AGENT_RELOADS] = {.name = "cellgate_agent_reloads_total",
                       .help = "Reloads of configuration and keys; a bad one changes nothing.",
                       .type = METRIC_COUNTER,
                       .labels = {{"outcome", outcomes}}},
    [AGENT_LOG_DROPPED] = {.name = "cellgate_agent_log_lines_dropped",
                           .help = "Log lines that could not be written in time.",
                           .type = METRIC_GAUGE},
};

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
