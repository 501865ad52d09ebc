/* SPDX-License-Identifier: MIT */
/* agent_parts: the state that the files of the agent share (agent.c, agent_directory.c, agent_views.c). */
#ifndef CELLGATE_AGENT_SERVE_AGENT_PARTS_H
#define CELLGATE_AGENT_SERVE_AGENT_PARTS_H

#include <pthread.h>

#include "spoa/agent/decision_thread/decision_thread.h"
#include "spoa/agent/serve/agent.h"
#include "spoa/agent/state/agent_metrics.h"
#include "spoa/agent/token/ticket.h"
#include "spoa/base/table/hash.h"
#include "spoa/net/file_watch.h"
#include "spoa/net/loop_thread.h"
#include "spoa/service/metric_names.h"

struct agent {
    struct agent_options options;
    struct settings_marks start; /* of the settings that the agent has started with */
    struct metric_names *route_names;
    struct metric families[AGENT_METRICS];
    struct metrics *metrics;
    struct metrics_shard *shard; /* shard of the main thread */
    struct file_watch *keys;
    struct fail keys_reported; /* reason why the keys could not be read again; empty if they could */
    int listener, relay_listener;
    struct listener_share share, relay_share; /* shares of the decision threads */
    struct key *ticket_key;
    struct hash_secret owners; /* secret for the hashes of owners, who share look-ups and pending questions */
    struct token_store *tokens; /* tokens that any decision thread has verified */
    struct pending_quota subscriptions;
    struct peer_user haproxy_user, relay_user;
    struct decision_thread **decision_threads;
    _Atomic size_t decision_thread_count;
    _Atomic size_t drained; /* number of drained decision threads */
    bool draining;
    bool stopped;
    struct loop_task all_drained, first_load, gone;

    struct loop_thread
        *io; /* I/O thread, which talks to the directory, name servers, and the Redis of renew */
    /* The members up to start_again start and end on the I/O thread, while the main thread waits. */
    struct directory *directory; /* the running directory */
    bool directory_asked;        /* the directory is asked for each record */
    struct names *names;
    struct host_cache *hosts;    /* addresses of hosts outside, for programs in sandboxes */
    struct renew *renew;         /* NULL if not configured */
    struct policy *renew_policy; /* policy that owns the texts of `renew` */
    struct metrics_shard *renew_shard;
    struct loop_timer start_again;

    pthread_cond_t first_seen;             /* with the lock; signals directory_seen and names_settled */
    pthread_mutex_t lock;                  /* guards the members below; never held while a decision waits */
    struct metrics_shard *directory_shard; /* shard of the I/O thread */
    struct snapshot *snapshot;             /* the snapshot in force */
    bool directory_seen;                   /* the directory was read once, successfully or not */
    bool names_settled;                    /* the names of the workers in its records were looked up once */
    bool directory_known;                  /* the directory was read successfully */
    bool directory_up, directory_pushing;
    int64_t loaded_at;         /* Unix seconds; 0 if never loaded */
    char directory_error[256]; /* error of the last load; empty if it succeeded */
};

/* Makes a snapshot of these parts and puts it in force; the lock must be held. Returns false if memory is short. */
bool agent_use(struct agent *agent, const struct snapshot_parts *parts);

/* Returns the bit of a decision thread in directory/cache.h. There are at most SETTINGS_THREADS_MAX threads. */
static inline uint64_t agent_waiter(size_t thread)
{
    return UINT64_C(1) << thread;
}

/* agent_directory.c: runs the directory and handles its events. Starting the directory also puts the policy in force. */
bool agent_directory_start(struct agent *agent, struct policy *policy, struct fail *why);
/* Changes to the directory of another policy, if it differs. If that fails, the old directory is started again, now or as soon as
 * possible. */
bool agent_directory_change(struct agent *agent, struct policy *from, struct policy *to, struct fail *why);
void agent_directory_stop(struct agent *agent);

/* Logs the number of entries of a list of revoked tokens that were skipped, if any. */
void agent_tell_over(struct agent *agent, const char *list, size_t over);

#endif
