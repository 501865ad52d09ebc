/* SPDX-License-Identifier: MIT */
/* relay_keys: the keys relay.* of the configuration; relay_keys.c has their meaning. */
#ifndef CELLGATE_RELAY_THREAD_RELAY_KEYS_H
#define CELLGATE_RELAY_THREAD_RELAY_KEYS_H

#include "spoa/net/net.h"
#include "spoa/service/option_rows.h"

enum { SETTINGS_BACKOFF_MAX = 16 };

struct settings_relay {
    struct net_address listen, agent, admin, control, worker_tls, egress_tls, egress_http, egress_out, mux,
        monitor;
    char *monitor_token_file;
    int64_t threads; /* number of threads, at least 1 */
    int64_t connect_budget, dial_timeout, hold, grace_period, mux_grace;
    int64_t redial_budget, migration_budget, flap_limit, flap_window;
    struct texts redial_backoff_texts;
    int64_t redial_backoff[SETTINGS_BACKOFF_MAX];
    size_t redial_backoff_count; /* at least 1; the last pause repeats */
    int64_t keepalive, dead_after, stall;
    int64_t idle, max_age; /* 0 for no limit */
    int64_t buffer, memory, max_message, head_size, head_time;
    int64_t max_tunnels; /* 0 for the number that file descriptors allow */
    /* 0 for no limit, -1 for a part of max_tunnels */
    int64_t max_tunnels_per_sandbox, max_tunnels_per_org, max_tunnels_per_token, max_egress, mux_requests;
    int64_t drain;
    int64_t max_restarts, upgrade_timeout;
};

extern const struct option_part relay_keys;

#endif
