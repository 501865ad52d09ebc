/* SPDX-License-Identifier: MIT */
#include "spoa/relay/thread/relay_keys.h"

enum { TUNNELS_MAX = 10000000 };

#define AT(member) offsetof(struct settings_relay, member)

/* Checks one of a list of pauses. */
static const char *check_backoff(struct slice text)
{
    int64_t ms;
    return options_duration(text, &ms) && ms > 0 && ms <= MINUTES(10) ? NULL
                                                                      : "a list of durations from 1ms to 10m";
}

static const struct option rows[] = {
    {"relay.listen", OPTION_ADDRESS, AT(listen), "unix@/run/cellgate/relay.sock",
     "where HAProxy hands over upgrades; a Unix socket", ANY, .restart = true},
    {"relay.agent", OPTION_ADDRESS, AT(agent), "unix@/run/cellgate/agent-relay.sock",
     "the agent's relay_listen; a Unix socket", ANY, .restart = true},
    {"relay.egress_tls", OPTION_ADDRESS, AT(egress_tls), "unix@/run/cellgate/egress-tls.sock",
     "HAProxy's listener for inspected TLS; a Unix socket", ANY},
    {"relay.egress_http", OPTION_ADDRESS, AT(egress_http), "unix@/run/cellgate/egress-http.sock",
     "HAProxy's listener for inspected HTTP without TLS; a Unix socket", ANY},
    {"relay.egress_out", OPTION_ADDRESS, AT(egress_out), "unix@/run/cellgate/egress-out.sock",
     "HAProxy's listener for inspected upgrades that go through the relay, on their way to an https "
     "destination; a Unix socket",
     ANY},
    {"relay.mux", OPTION_ADDRESS, AT(mux), OPTION_NONE,
     "HAProxy's listener for requests of mux WebSockets; a Unix socket; not set: no mux", ANY,
     .example = "\"unix@/run/cellgate/mux.sock\""},
    {"relay.worker_tls", OPTION_ADDRESS, AT(worker_tls), "unix@/run/cellgate/worker-tls.sock",
     "HAProxy's listener for https workers; a Unix socket", ANY},
    {"relay.admin", OPTION_ADDRESS, AT(admin), "127.0.0.1:9102",
     "metrics, health and views over HTTP; loopback or Unix socket", ANY, .restart = true},
    {"relay.monitor", OPTION_ADDRESS, AT(monitor), OPTION_NONE,
     "`/metrics`, `/livez` and `/readyz` alone, for Prometheus and a kubelet; any address; not set: none",
     ANY, .example = "\"0.0.0.0:9104\"", .restart = true},
    {"relay.monitor_token_file", OPTION_PATH, AT(monitor_token_file), OPTION_NONE,
     "its first line is the bearer token that `/metrics` of `monitor` wants; not set: none", ANY,
     .secret = true, .restart = true},
    {"relay.control", OPTION_ADDRESS, AT(control), "unix@/run/cellgate/relay.control.sock",
     "the operator's commands; a Unix socket", ANY, .restart = true},
    {"relay.threads", OPTION_INT, AT(threads), "0", "tunnel threads; 0: one per processor",
     RANGE(0, SETTINGS_THREADS_MAX), .restart = true},

    {"relay.connect_budget", OPTION_DURATION, AT(connect_budget), "5s", "retries of a tunnel's first dial",
     RANGE(0, MINUTES(10))},
    {"relay.dial_timeout", OPTION_DURATION, AT(dial_timeout), "10s", "one dial: connect and handshake",
     RANGE(10, MINUTES(10))},
    {"relay.hold", OPTION_DURATION, AT(hold), "30s",
     "longest wait of an opening client for a sandbox that wakes or moves", RANGE(0, HOURS(1))},
    {"relay.grace_period", OPTION_DURATION, AT(grace_period), "500ms",
     "wait after a worker's Close for word of a move", RANGE(0, MINUTES(1)), .old = "relay.settle"},
    {"relay.redial_backoff", OPTION_TEXTS, AT(redial_backoff_texts),
     "[\"1ms\", \"3ms\", \"10ms\", \"30ms\", \"100ms\", \"250ms\", \"500ms\", \"1s\", \"2s\", \"4s\"]",
     "pauses between redials, ±20 %; the last repeats", RANGE(1, SETTINGS_BACKOFF_MAX),
     .check = check_backoff},
    {"relay.redial_budget", OPTION_DURATION, AT(redial_budget), "30s", "redials of a lost worker",
     RANGE(0, HOURS(24))},
    {"relay.migration_budget", OPTION_DURATION, AT(migration_budget), "10m",
     "longest time without a worker in a move", RANGE(0, HOURS(24))},
    {"relay.flap_limit", OPTION_INT, AT(flap_limit), "3",
     "short-lived worker connections that may be lost in `flap_window`", RANGE(1, 64)},
    {"relay.flap_window", OPTION_DURATION, AT(flap_window), "60s", "see `flap_limit`",
     RANGE(SECONDS(1), HOURS(24))},

    {"relay.keepalive", OPTION_DURATION, AT(keepalive), "25s", "silence on a leg before a ping",
     RANGE(50, HOURS(1))},
    {"relay.dead_after", OPTION_DURATION, AT(dead_after), "60s",
     "silence after a ping before a leg counts as dead", RANGE(50, HOURS(1))},
    {"relay.stall", OPTION_DURATION, AT(stall), "5m",
     "longest time a client may take nothing of what waits for it", RANGE(100, HOURS(24))},
    {"relay.idle", OPTION_DURATION, AT(idle), "0s", "a tunnel without payload ends; 0s: never",
     RANGE(0, HOURS(24 * 30))},
    {"relay.max_age", OPTION_DURATION, AT(max_age), "0s", "a tunnel ends at this age; 0s: never",
     RANGE(0, HOURS(24 * 365))},

    {"relay.buffer", OPTION_SIZE, AT(buffer), "256KiB", "data held per direction of a tunnel",
     RANGE(KIB(16), MIB(64)), .restart = true},
    {"relay.memory", OPTION_SIZE, AT(memory), "256MiB",
     "data held for all tunnels; beyond it the largest holders wait", RANGE(MIB(1), GIB(1024))},
    {"relay.max_message", OPTION_SIZE, AT(max_message), "64MiB", "a longer message ends its tunnel",
     RANGE(KIB(1), GIB(1024))},
    {"relay.head_size", OPTION_SIZE, AT(head_size), "16KiB", "largest HTTP head of client or worker",
     RANGE(KIB(1), KIB(16))},
    {"relay.head_time", OPTION_DURATION, AT(head_time), "10s", "time for a client's HTTP head",
     RANGE(100, MINUTES(5))},
    {"relay.max_tunnels", OPTION_INT, AT(max_tunnels), "0",
     "maximum number of tunnels; 0: as file descriptors allow", RANGE(0, TUNNELS_MAX)},
    {"relay.max_tunnels_per_sandbox", OPTION_INT, AT(max_tunnels_per_sandbox), "-1",
     "maximum per sandbox; -1: an eighth of all, 256 at most; 0: no limit", RANGE(-1, TUNNELS_MAX)},
    {"relay.max_tunnels_per_org", OPTION_INT, AT(max_tunnels_per_org), "-1",
     "maximum per organisation; -1: a quarter of all; 0: no limit", RANGE(-1, TUNNELS_MAX)},
    {"relay.max_tunnels_per_token", OPTION_INT, AT(max_tunnels_per_token), "-1",
     "maximum per token; -1: an eighth of all; 0: no limit", RANGE(-1, TUNNELS_MAX)},
    {"relay.max_egress", OPTION_INT, AT(max_egress), "-1",
     "connections of sandboxes to the outside; -1: half of all tunnels; 0: only the limit of all",
     RANGE(-1, TUNNELS_MAX)},
    {"relay.mux_grace", OPTION_DURATION, AT(mux_grace), "60s",
     "how long a mux WebSocket waits for its lost client; 0s: none resumes", RANGE(0, HOURS(1))},
    {"relay.mux_requests", OPTION_INT, AT(mux_requests), "64", "requests at once in a mux WebSocket",
     RANGE(1, 1024)},
    {"relay.drain", OPTION_DURATION, AT(drain), "30s", "time over which a stopping relay closes its tunnels",
     RANGE(0, HOURS(24))},
    {"relay.max_restarts", OPTION_INT, AT(max_restarts), "5",
     "servers of the relay that may die within a minute before its keeper gives up", RANGE(0, 60),
     .restart = true},
    {"relay.upgrade_timeout", OPTION_DURATION, AT(upgrade_timeout), "10s",
     "how long the new program may take to serve before the old one goes on", RANGE(100, MINUTES(5)),
     .restart = true},
};

const struct option_part relay_keys = OPTION_PART(rows);
