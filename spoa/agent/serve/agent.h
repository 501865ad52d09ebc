/* SPDX-License-Identifier: MIT */
/*
 * agent: cellgate-agent without its command line: decision threads, directory, resolver, reloads. The functions are for the main thread.
 */
#ifndef CELLGATE_AGENT_SERVE_AGENT_H
#define CELLGATE_AGENT_SERVE_AGENT_H

#include "spoa/agent/state/policy.h"
#include "spoa/base/bytes/buffer.h"
#include "spoa/net/loop.h"
#include "spoa/service/log.h"

struct agent;

struct agent_options {
    struct loop *loop; /* loop of the main thread */
    struct log *log;
    struct log *audit; /* for audit lines only; NULL if none are written */
    const char *config;
    const char *const *overrides; /* values of -o, for reloads */
    size_t override_count;
    /* Called on the main thread when the directory was read for the first time, successfully or not. */
    void (*started)(void *context);
    void (*drained)(void *context); /* called after agent_drain, when no connection is left */
    void *context;
};

/* Takes over the caller's reference of the policy, listens and starts all threads. Returns NULL and *why, which names the socket, if
 * that fails. */
struct agent *agent_start(const struct agent_options *options, struct policy *policy, struct fail *why);
/* Reads configuration and keys again. If anything is invalid, the old ones stay in force, and the error is logged. */
bool agent_reload(struct agent *agent, struct fail *why);
/* Stops accepting connections and ends readiness. Existing connections get their answers, for at most the configured time. */
void agent_drain(struct agent *agent); /* a second call does nothing */
/* Ends the agent's threads and closes everything. The memory is freed in the loop's next turn, or by loop_free. */
void agent_stop(struct agent *agent); /* agent may be NULL */

/* ---- views ---- */
/* Returns whether the directory is loaded and the agent is not draining; *why is a static reason. */
bool agent_ready(struct agent *agent, const char **why);
bool agent_write_metrics(struct agent *agent, struct buffer *to); /* in Prometheus text format */
bool agent_write_status(struct agent *agent, struct buffer *to);  /* one JSON object */
void agent_log_status(struct agent *agent);                       /* for SIGUSR1 */

#endif
