/* SPDX-License-Identifier: MIT */
/*
 * settings: the configuration file, which agent, relay and the operator's command share. Each of them reads the whole file and reports
 * any error in it. The parts of other modules (directory, tokens, routes, domains) are kept as nodes that these modules read. Times
 * are in milliseconds and sizes in bytes, unless a comment says otherwise.
 */
#ifndef CELLGATE_SERVICE_SETTINGS_H
#define CELLGATE_SERVICE_SETTINGS_H

#include "spoa/agent/egress/egress_keys.h"
#include "spoa/agent/state/agent_keys.h"
#include "spoa/agent/state/renew_keys.h"
#include "spoa/base/json/json.h"
#include "spoa/base/text/cidr.h"
#include "spoa/net/net.h"
#include "spoa/relay/thread/relay_keys.h"
#include "spoa/service/options.h"

struct log;

#define SETTINGS_PATH "/etc/cellgate/cellgate.json"

enum { SETTINGS_KEYS_MAX = 160 };

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
    struct settings_egress egress;
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

/* Marks of the values that the start has read (options_mark): a reload compares those of keys that need a restart. */
struct settings_marks {
    struct hash_secret secret;
    uint64_t of[SETTINGS_KEYS_MAX];
};
/* Returns false if the kernel provides no random bytes. */
bool settings_mark(const struct settings *settings, struct settings_marks *marks) MUST_CHECK;
enum settings_daemon { SETTINGS_OF_AGENT, SETTINGS_OF_RELAY };
/* Logs a warning for each key of this daemon whose value is not the one of the start, and which a reload does not change. */
void settings_log_ignored(const struct settings *settings, const struct settings_marks *start,
                          enum settings_daemon daemon, struct log *log);

/* Returns whether a worker may be reached at this address: in worker_networks, and never where clouds have metadata services. */
bool settings_worker_allowed(const struct settings *settings, const struct address *address);
/* Returns the folder of worker_sockets that the Unix socket is in, or NULL. Compares names only; net_connect_beneath makes sure that no
 * link leads out of the folder. */
const char *settings_socket_folder(const struct settings *settings, struct slice path);

/* Returns the table of keys, for -h, manual and documentation. */
const struct option *settings_options(size_t *count);

#endif
