/* SPDX-License-Identifier: MIT */
/*
 * settings: the configuration file, which agent, relay and the operator's command share. Each of them reads the whole file and reports
 * any error in it. The parts of other modules (directory, tokens, routes, domains) are kept as nodes that these modules read. Times
 * are in milliseconds and sizes in bytes, unless a comment says otherwise.
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

/* The values of agent.audit: which admissions are logged. */
enum settings_audit { SETTINGS_AUDIT_OFF, SETTINGS_AUDIT_UPGRADES, SETTINGS_AUDIT_ALL };

/* The keys agent.*; settings_keys.c has their meaning. */
struct settings_agent {
    int audit;                                                        /* enum settings_audit */
    struct net_address listen, relay_listen, admin, control, monitor; /* monitor.len is 0 if there is none */
    char *monitor_token_file; /* NULL if everybody may read its metrics */
    bool trust_tcp;
    char *haproxy_user; /* HAProxy's account; NULL for `haproxy` if there is one, or else the agent's own */
    char *relay_user;   /* the relay's account; NULL for the agent's own */
    int64_t threads;    /* number of threads, at least 1 */
    int64_t lookup;     /* maximum time of a decision for a look-up */
    int64_t max_subscriptions;
    int64_t auth_failures; /* wrong credentials per second of one address; 0 for any number */
    int64_t drain;
    struct texts name_servers; /* empty for the system's */
    char *ticket_secret_file;  /* NULL for a file beside relay_listen */
};

/* The keys relay.*; settings_keys.c has their meaning. */
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

/* The keys renew.*: where the agent reports sandboxes that are in use. */
struct settings_renew {
    char *redis; /* address of the Redis; NULL if nothing is reported */
    char *user, *password_file, *key;
    int64_t database, every, max_length; /* max_length is 0 for no limit */
};

/* The whole configuration. */
struct settings {
    struct json *doc;      /* the document of the nodes below */
    struct texts warnings; /* about former names of keys, for the operator */
    char *path;
    char *base_dir; /* folder of the file, for relative paths */
    char *cell;
    char *tokens_revoked_file; /* NULL if there is none */
    bool open;                 /* an empty list of tokens is intended */
    int log_level;             /* enum log_level */
    int seccomp;               /* enum seccomp_mode */
    const json_node *directory, *tokens, *systems, *routes, *domains,
        *services;          /* directory is an object, the others may be NULL */
    char *management_ports; /* NULL for those of `systems` */
    int serves;             /* default of a record's `serves`: 0 for management, 1 for application */
    struct texts worker_networks, worker_sockets;
    struct cidr *networks; /* worker_networks, parsed */
    size_t networks_count;
    struct settings_agent agent;
    struct settings_relay relay;
    struct settings_renew renew;
    const json_node *egress_default, *egress_hosts, *egress_secrets; /* objects; may be NULL */
    char *egress_sign_file, *egress_ca_file;                         /* files of HAProxy; may be NULL */
    struct texts egress_http2; /* names in lower case; the first label may be `*` */
    char *egress_http2_folder; /* NULL if there is none */
    struct texts egress_private_networks;
    int64_t egress_lookup;
};

/* Reads and checks the file. `overrides` are texts "KEY=VALUE" of -o. Returns NULL with *why ("FILE:LINE:COLUMN: what"). Reads files, so
 * it is not for a loop's thread. */
struct settings *settings_load(const char *path, const char *const *overrides, size_t count, struct fail *why)
    MUST_CHECK;
/* Frees the settings; NULL is fine. */
void settings_free(struct settings *settings);
/* Print or log each warning. */
void settings_print_warnings(const struct settings *settings, FILE *to);
void settings_log_warnings(const struct settings *settings, struct log *log);

/* Returns whether a worker may be reached at this address: in worker_networks, and never where clouds have metadata services. */
bool settings_worker_allowed(const struct settings *settings, const struct address *address);
/* Returns the folder of worker_sockets that the Unix socket is in, or NULL. Compares names only; net_connect_beneath makes sure that no
 * link leads out of the folder. */
const char *settings_socket_folder(const struct settings *settings, struct slice path);

/* Returns the table of keys, for -h, manual and documentation. */
const struct option *settings_options(size_t *count);

#endif
