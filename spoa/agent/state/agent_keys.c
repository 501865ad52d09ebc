/* SPDX-License-Identifier: MIT */
#include "spoa/agent/state/agent_keys.h"

#define AT(member) offsetof(struct settings_agent, member)

/* In the order of enum settings_audit. */
static const char *const audits[] = {"off", "upgrades", "all", NULL};

static const struct option rows[] = {
    {"agent.audit", OPTION_ENUM, AT(audit), "upgrades", "admissions that are logged", ANY, .names = audits},
    {"agent.listen", OPTION_ADDRESS, AT(listen), "unix@/run/cellgate/agent.sock",
     "socket for HAProxy's questions", ANY, .restart = true},
    {"agent.trust_tcp", OPTION_BOOL, AT(trust_tcp), "false",
     "`agent.listen` may be TCP: whoever reaches it counts as HAProxy", ANY},
    {"agent.haproxy_user", OPTION_TEXT, AT(haproxy_user), OPTION_NONE,
     "HAProxy's account, by name or number: only it, root and the agent's own may ask on `listen`; not set: "
     "`haproxy`, if there is one; not with TCP",
     RANGE(1, 32), .restart = true},
    {"agent.relay_listen", OPTION_ADDRESS, AT(relay_listen), "unix@/run/cellgate/agent-relay.sock",
     "socket for the relay's questions; a Unix socket", ANY, .restart = true},
    {"agent.relay_user", OPTION_TEXT, AT(relay_user), OPTION_NONE,
     "the relay's account, by name or number: only it, root and the agent's own may ask on `relay_listen`, "
     "whose socket gets its group",
     RANGE(1, 32), .restart = true},
    {"agent.admin", OPTION_ADDRESS, AT(admin), "127.0.0.1:9101",
     "metrics, health and views over HTTP; loopback or Unix socket", ANY, .restart = true},
    {"agent.monitor", OPTION_ADDRESS, AT(monitor), OPTION_NONE,
     "`/metrics`, `/livez` and `/readyz` alone, for Prometheus and a kubelet; any address; not set: none",
     ANY, .example = "\"0.0.0.0:9103\"", .restart = true},
    {"agent.monitor_token_file", OPTION_PATH, AT(monitor_token_file), OPTION_NONE,
     "its first line is the bearer token that `/metrics` of `monitor` wants; not set: none", ANY,
     .secret = true, .restart = true},
    {"agent.control", OPTION_ADDRESS, AT(control), "unix@/run/cellgate/agent.control.sock",
     "the operator's commands; a Unix socket", ANY, .restart = true},
    {"agent.threads", OPTION_INT, AT(threads), "0", "decision threads; 0: one per processor",
     RANGE(0, SETTINGS_THREADS_MAX), .restart = true},
    {"agent.lookup", OPTION_DURATION, AT(lookup), "200ms", "longest wait of a decision for a look-up",
     RANGE(1, SECONDS(30)), .restart = true},
    {"agent.auth_failures", OPTION_INT, AT(auth_failures), "20",
     "wrong credentials of each sort per second, thread and client address; 0: any number", RANGE(0, 1000000),
     .old = "agent.guesses"},
    {"agent.max_subscriptions", OPTION_INT, AT(max_subscriptions), "200000",
     "tunnels' subscriptions, 512 bytes each, a larger one counts as several; one relay connection gets half "
     "at most; tunnels beyond poll",
     RANGE(1000, 10000000), .old = "agent.max_watches", .restart = true},
    {"agent.drain", OPTION_DURATION, AT(drain), "5s", "time after SIGTERM to answer earlier requests",
     RANGE(0, HOURS(1))},
    {"agent.name_servers", OPTION_TEXTS, AT(name_servers), OPTION_NONE,
     "for workers' names, `\"10.0.0.10\"` or `\"127.0.0.1:5353\"`; not set: /etc/resolv.conf's", RANGE(0, 8),
     .restart = true},
    {"agent.ticket_secret_file", OPTION_PATH, AT(ticket_secret_file), OPTION_NONE,
     "key of the relays' tickets, 32 bytes or more; made if missing; not set: `relay_listen` with `.key` "
     "appended",
     ANY, .secret = true, .restart = true},
};

const struct option_part agent_keys = OPTION_PART(rows);
