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
    struct metric_names *route_names;
    struct metric families[AGENT_METRICS];
    struct metrics *metrics;
    struct metrics_shard *shard; /* of the main thread */
    struct file_watch *keys;
    struct fail keys_reported; /* why they could not be read again; empty: they were */
    int listener, relay_listener;
    struct listener_share share, relay_share; /* of the decision threads */
    struct key *ticket_key;
    struct hash_secret owners;  /* tells apart those who share look-ups and what waits for them */
    struct token_store *tokens; /* that any decision thread has verified */
    struct pending_quota subscriptions;
    struct peer_user haproxy_user, relay_user;
    struct decision_thread **decision_threads;
    _Atomic size_t decision_thread_count;
    _Atomic size_t drained; /* decision threads that are */
    bool draining;
    bool stopped;
    struct loop_task all_drained, first_load, gone;

    struct loop_thread *io; /* asks others: the directory, name servers, the Redis of renew */
    /* begin and end on the I/O thread, while the main thread waits */
    struct directory *directory; /* the one that runs */
    bool directory_asked;        /* it is asked for each record */
    struct names *names;
    struct host_cache *hosts;    /* outside, of programs in sandboxes */
    struct renew *renew;         /* NULL: not wanted */
    struct policy *renew_policy; /* whose texts it uses */
    struct metrics_shard *renew_shard;
    struct loop_timer start_again;

    pthread_cond_t first_seen;             /* with the lock: directory_seen, names_settled */
    pthread_mutex_t lock;                  /* guards what follows; never held while a decision waits */
    struct metrics_shard *directory_shard; /* of the I/O thread */
    struct snapshot *snapshot;             /* the one in force */
    bool directory_seen;                   /* it was read once, well or badly */
    bool names_settled;                    /* the workers that its records name were looked up once */
    bool directory_known;                  /* and well */
    bool directory_up, directory_pushing;
    int64_t loaded_at;         /* Unix seconds; 0: never */
    char directory_error[256]; /* of the last load; empty when it was good */
};

/* Called with the lock held: puts a snapshot of these parts in force. False: out of memory. */
bool agent_use(struct agent *agent, const struct snapshot_parts *parts);

/* The bit of a decision thread, as of directory/cache.h. There are SETTINGS_THREADS_MAX at most. */
static inline uint64_t agent_waiter(size_t thread)
{
    return UINT64_C(1) << thread;
}

/* agent_directory.c: the directory that runs, and what it tells. Starting it puts the policy in force, too. */
bool agent_directory_start(struct agent *agent, struct policy *policy, struct fail *why);
/* To that of another policy, if it differs; on failure the old one is started again, at once or as soon as that can
 * be done. */
bool agent_directory_change(struct agent *agent, struct policy *from, struct policy *to, struct fail *why);
void agent_directory_stop(struct agent *agent);

/* Of a list of revoked tokens that was taken over: how many of its entries were left out, if any. */
void agent_tell_over(struct agent *agent, const char *list, size_t over);

#endif
