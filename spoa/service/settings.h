/* SPDX-License-Identifier: MIT */
/*
 * settings: the configuration file, which agent, relay and the operator's command share. Each reads it whole
 * and gets every error in it; what belongs to a module (directory, tokens, routes, domains) is kept
 * as a node that the module reads itself. Times are in milliseconds, sizes in bytes.
 */
#ifndef CELLGATE_SERVICE_SETTINGS_H
#define CELLGATE_SERVICE_SETTINGS_H

#include "spoa/base/json/json.h"
#include "spoa/base/text/cidr.h"
#include "spoa/net/net.h"
#include "spoa/service/options.h"

struct log;

#define SETTINGS_PATH "/etc/cellgate/cellgate.json"

enum { SETTINGS_BACKOFF_MAX = 16, SETTINGS_THREADS_MAX = 64 };

enum settings_audit { SETTINGS_AUDIT_OFF, SETTINGS_AUDIT_UPGRADES, SETTINGS_AUDIT_ALL };

struct settings_agent {
    int audit;                                                        /* enum settings_audit */
    struct net_address listen, relay_listen, admin, control, monitor; /* monitor.len 0: none */
    char *monitor_token_file;                                         /* NULL: its metrics are everybody's */
    bool trust_tcp;
    char *haproxy_user; /* HAProxy's account; NULL: `haproxy` if there is one, or else the agent's own */
    char *relay_user;   /* the account of the relay; NULL: the agent's own */
    int64_t threads;    /* never 0: the processors were counted */
    int64_t lookup;     /* what a look-up that the cache cannot answer may take */
    int64_t max_subscriptions;
    int64_t auth_failures; /* wrong credentials a second of one address; 0: any number */
    int64_t drain;
    struct texts name_servers; /* none: the system's */
    char *ticket_secret_file;  /* NULL: beside relay_listen */
};

struct settings_relay {
    struct net_address listen, agent, admin, control, worker_tls, egress_tls, egress_http, egress_out, mux,
        monitor;
    char *monitor_token_file;
    int64_t threads; /* never 0 */
    int64_t connect_budget, dial_timeout, hold, grace_period, mux_grace;
    int64_t redial_budget, migration_budget, flap_limit, flap_window;
    struct texts redial_backoff_texts;
    int64_t redial_backoff[SETTINGS_BACKOFF_MAX];
    size_t redial_backoff_count; /* never 0; the last repeats */
    int64_t keepalive, dead_after, stall;
    int64_t idle, max_age; /* 0: never */
    int64_t buffer, memory, max_message, head_size, head_time;
    int64_t max_tunnels; /* 0: as many as there are file descriptors for */
    /* 0: no limit, -1: a part of all */
    int64_t max_tunnels_per_sandbox, max_tunnels_per_org, max_tunnels_per_token, max_egress, mux_requests;
    int64_t drain;
    int64_t max_restarts, upgrade_timeout;
};

/* Where sandboxes in use are reported. */
struct settings_renew {
    char *redis; /* NULL: nobody */
    char *user, *password_file, *key;
    int64_t database, every, max_length; /* max_length 0: no limit */
};

struct settings {
    struct json *doc;      /* the nodes live in it */
    struct texts warnings; /* of former names of keys, for the operator */
    char *path;
    char *base_dir; /* the folder of the file, for relative paths */
    char *cell;
    char *tokens_revoked_file; /* NULL: none */
    bool open;                 /* an empty list of tokens is meant so */
    int log_level;             /* enum log_level */
    int seccomp;               /* enum seccomp_mode */
    const json_node *directory, *tokens, *systems, *routes, *domains,
        *services;          /* directory is an object, the others may be NULL */
    char *management_ports; /* NULL: those of `systems` */
    int serves;             /* what a worker does whose record does not say: 0 management, 1 application */
    struct texts worker_networks, worker_sockets;
    struct cidr *networks; /* the same, parsed */
    size_t networks_count;
    struct settings_agent agent;
    struct settings_relay relay;
    struct settings_renew renew;
    const json_node *egress_default, *egress_hosts, *egress_secrets; /* objects; may be NULL */
    char *egress_sign_file, *egress_ca_file;                         /* HAProxy's; may be NULL */
    struct texts egress_http2; /* names, in lower case; the first label may be `*` */
    char *egress_http2_folder; /* NULL: none */
    struct texts egress_private_networks;
    int64_t egress_lookup;
};

/* Reads and checks the file; `overrides` are texts "key=value" of -o. NULL and *why ("FILE:LINE:COLUMN:
 * what"). Reads files: not for a loop's thread. */
struct settings *settings_load(const char *path, const char *const *overrides, size_t count,
                               struct fail *why);
void settings_free(struct settings *settings); /* NULL is fine */
/* A line for each of the warnings. */
void settings_print_warnings(const struct settings *settings, FILE *to);
void settings_log_warnings(const struct settings *settings, struct log *log);

/* May a worker be reached at this address? Never, where a metadata service is. */
bool settings_worker_allowed(const struct settings *settings, const struct address *address);
/* The folder of worker_sockets in which the Unix socket lies; NULL: in none. By its name: net_connect_beneath sees to
 * it that no link leads out of there. */
const char *settings_socket_folder(const struct settings *settings, struct slice path);

/* The table of keys, for -h, manual and documentation. */
const struct option *settings_options(size_t *count);

#endif
