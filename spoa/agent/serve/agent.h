/* SPDX-License-Identifier: MIT */
/*
 * agent: the whole of cellgate-agent but its command line: decision threads, directory, resolver, reloads. The
 * functions are for the main thread.
 */
#ifndef CELLGATE_AGENT_SERVE_AGENT_H
#define CELLGATE_AGENT_SERVE_AGENT_H

#include "spoa/agent/state/policy.h"
#include "spoa/base/bytes/buffer.h"
#include "spoa/net/loop.h"
#include "spoa/service/log.h"

struct agent;

struct agent_options {
    struct loop *loop; /* of the main thread */
    struct log *log;
    struct log *audit; /* for audit lines alone; NULL: none are written */
    const char *config;
    const char *const *overrides; /* of -o, for reloads */
    size_t override_count;
    /* On the main thread: once the directory was read for the first time, well or badly. */
    void (*started)(void *context);
    void (*drained)(void *context); /* after agent_drain: no connection is left */
    void *context;
};

/* Takes the caller's reference of policy. Listens and starts
 * all threads. NULL and *why (which names the socket). */
struct agent *agent_start(const struct agent_options *options, struct policy *policy, struct fail *why);
/* Reads configuration and keys again. When something is not
 * in order the old ones stay in force, and it is logged. */
bool agent_reload(struct agent *agent, struct fail *why);
/* No new connections; readiness ends; those that are there
 * get their answers, for at most the configured time. */
void agent_drain(struct agent *agent); /* a second call does nothing */
/* Ends its threads and closes everything. Its memory goes back in the loop's next turn, or with loop_free. */
void agent_stop(struct agent *agent); /* NULL is fine */

/* ---- views ---- */
/* The directory is loaded and the agent is not draining; *why (static) says what is missing. */
bool agent_ready(struct agent *agent, const char **why);
bool agent_write_metrics(struct agent *agent, struct buffer *to); /* Prometheus text */
bool agent_write_status(struct agent *agent, struct buffer *to);  /* one JSON object */
void agent_log_status(struct agent *agent);                       /* for SIGUSR1 */

#endif
