/* SPDX-License-Identifier: MIT */
/* agent_keys: the keys agent.* of the configuration; agent_keys.c has their meaning. */
#ifndef CELLGATE_AGENT_STATE_AGENT_KEYS_H
#define CELLGATE_AGENT_STATE_AGENT_KEYS_H

#include "spoa/net/net.h"
#include "spoa/service/option_rows.h"

/* The values of agent.audit: which admissions are logged. */
enum settings_audit { SETTINGS_AUDIT_OFF, SETTINGS_AUDIT_UPGRADES, SETTINGS_AUDIT_ALL };

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

extern const struct option_part agent_keys;

#endif
