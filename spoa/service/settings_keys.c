/* SPDX-License-Identifier: MIT */
/* The one list of the configuration's keys. `cellgate options` and cellgate.json(5) are made from it. */
#include "spoa/service/seccomp.h"
#include "spoa/service/settings.h"

#define AT(member)    offsetof(struct settings, member)
#define SECONDS(n)    ((int64_t)(n)*OPTION_SECOND)
#define MINUTES(n)    ((int64_t)(n)*OPTION_MINUTE)
#define HOURS(n)      ((int64_t)(n)*OPTION_HOUR)
#define KIB(n)        ((int64_t)(n) << 10)
#define MIB(n)        ((int64_t)(n) << 20)
#define GIB(n)        ((int64_t)(n) << 30)
#define RANGE(lo, hi) .min = (lo), .max = (hi)
#define ANY           RANGE(0, 0)

static const char *const serves_names[] = {"management", "application", NULL};
static const char *const log_levels[] = {"debug", "info", "warn", "error", NULL};

/* In the order of enum settings_audit. */
static const char *const audits[] = {"off", "upgrades", "all", NULL};

/* Checks one of a list of networks. Returns the wanted form, or NULL. */
static const char *check_network(struct slice text)
{
    struct cidr cidr;
    if (!cidr_parse(text, &cidr))
        return "a list of networks such as \"10.0.0.0/8\", without bits after the prefix";
    return cidr_within_metadata(&cidr)
               ? "a list of networks without metadata services, which are never dialled"
               : NULL;
}

/* Returns whether the text is a label of a DNS name in lower case; *number tells whether it has only digits. */
static bool is_label(struct slice label, bool *number)
{
    bool good = label.len > 0 && label.len <= 63;
    *number = true;
    for (size_t i = 0; good && i < label.len; i++) {
        uint8_t c = label.at[i];
        bool digit = c >= '0' && c <= '9';
        good = digit || (c >= 'a' && c <= 'z') || c == '-' || c == '_';
        *number = *number && digit;
    }
    return good;
}

/* Checks a host name, which must be usable in a certificate and as the name of its file; an address is not. */
static const char *check_host(struct slice text)
{
    bool wild = slice_starts(text, "*."), good = text.len <= 250, number = true;
    struct slice rest = wild ? slice_from(text, 2) : text, label;
    size_t labels = 0;
    for (; good && slice_split(&rest, '.', &label); labels++)
        good = is_label(label, &number);
    return good && !number && labels >= (wild ? 2 : 1)
               ? NULL
               : "a list of names such as \"api.example.org\" or \"*.example.org\", in lower case";
}

/* Checks one of a list of folders. */
static const char *check_folder(struct slice text)
{
    bool good = text.len > 2 && text.len <= NET_PATH_MAX && text.at[0] == '/' &&
                text.at[text.len - 1] == '/' && net_path_plain(slice_sub(text, 0, text.len - 1));
    return good ? NULL : "a list of folders such as \"/run/cell/\", from the root, with a slash at the end";
}

/* Checks one of a list of pauses. */
static const char *check_backoff(struct slice text)
{
    int64_t ms;
    return options_duration(text, &ms) && ms > 0 && ms <= MINUTES(10) ? NULL
                                                                      : "a list of durations from 1ms to 10m";
}

/* Checks the cell's name, which stands in tokens, labels of metrics and headers without quoting. */
static const char *check_cell(struct slice text)
{
    for (size_t i = 0; i < text.len; i++) {
        uint8_t c = text.at[i];
        bool good = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
                    c == '_' || c == '.';
        if (!good)
            return "a name of letters, digits, '-', '_' and '.'";
    }
    return NULL;
}

static const struct option keys[] = {
    {"cell", OPTION_TEXT, AT(cell), "cell", "this cell's name, which tokens must have", RANGE(1, 128),
     .check = check_cell},
    {"directory", OPTION_NODE, AT(directory), NULL, "where sandboxes are looked up", ANY,
     .form = "an object, see below", .example = "{ \"kind\": \"file\", \"path\": \"sandboxes.json\" }"},
    {"tokens", OPTION_NODE, AT(tokens), OPTION_NONE, "accepted kinds of credentials; none only with `open`",
     ANY, .form = "a list of objects, see below",
     .example =
         "[{ \"kind\": \"jwt\", \"alg\": \"HS256\", \"kid\": \"k1\", \"secret_file\": \"k1.secret\" }]"},
    {"tokens_revoked_file", OPTION_PATH, AT(tokens_revoked_file), OPTION_NONE,
     "single revoked tokens, `{\"revoked\": {\"JTI\": EXP}}`; read again when it changes", ANY},
    {"open", OPTION_BOOL, AT(open), "false", "without `tokens`: let everybody in", ANY},
    {"systems", OPTION_NODE, AT(systems), OPTION_NONE,
     "systems whose clients come here; only their built-in routes are on", ANY, .form = "a list of systems",
     .example = "[\"opencomputer\", \"opensandbox\"]"},
    {"routes", OPTION_NODE, AT(routes), OPTION_NONE,
     "your routes; `\"defaults\"` places those of `systems` among them", ANY,
     .form = "a list of objects, see below, and `\"defaults\"` once"},
    {"domains", OPTION_NODE, AT(domains), OPTION_NONE,
     "domains by host form of `systems`; a form without one is off", ANY,
     .form = "an object of lists of DNS names"},
    {"services", OPTION_NODE, AT(services), OPTION_NONE,
     "upstreams by name, for routes with `to_service`: a control plane", ANY,
     .form = "an object of objects, see below"},
    {"management_ports", OPTION_TEXT, AT(management_ports), OPTION_NONE,
     "management ports of a sandbox with an address of its own, `\"44772,8888\"` or `\"none\"`; not set: "
     "those of `systems`, or of all systems if none is named",
     RANGE(1, 128)},
    {"serves", OPTION_ENUM, AT(serves), "management",
     "what a worker with a port serves, if its record does not say", ANY, .names = serves_names},
    {"worker_networks", OPTION_TEXTS, AT(worker_networks), "[\"127.0.0.0/8\", \"::1/128\"]",
     "where workers may be; never metadata services of clouds and link-local networks", RANGE(1, 64),
     .check = check_network},
    {"worker_sockets", OPTION_TEXTS, AT(worker_sockets), OPTION_NONE,
     "folders for sockets of `http+unix:` workers", RANGE(0, NET_FOLDERS_MAX), .check = check_folder,
     .example = "[\"/run/cell/\"]"},
    {"log_level", OPTION_ENUM, AT(log_level), "info", "lowest level that is logged", ANY,
     .names = log_levels},
    {"seccomp", OPTION_ENUM, AT(seccomp), "on",
     "an unneeded system call fails (`on`) or ends the process (`kill`); read at start only", ANY,
     .names = seccomp_modes},

    {"agent.audit", OPTION_ENUM, AT(agent.audit), "upgrades", "admissions that are logged", ANY,
     .names = audits},
    {"agent.listen", OPTION_ADDRESS, AT(agent.listen), "unix@/run/cellgate/agent.sock",
     "socket for HAProxy's questions", ANY},
    {"agent.trust_tcp", OPTION_BOOL, AT(agent.trust_tcp), "false",
     "`agent.listen` may be TCP: whoever reaches it counts as HAProxy", ANY},
    {"agent.haproxy_user", OPTION_TEXT, AT(agent.haproxy_user), OPTION_NONE,
     "HAProxy's account, by name or number: only it, root and the agent's own may ask on `listen`; not set: "
     "`haproxy`, if there is one; not with TCP; read at start only",
     RANGE(1, 32)},
    {"agent.relay_listen", OPTION_ADDRESS, AT(agent.relay_listen), "unix@/run/cellgate/agent-relay.sock",
     "socket for the relay's questions; a Unix socket", ANY},
    {"agent.relay_user", OPTION_TEXT, AT(agent.relay_user), OPTION_NONE,
     "the relay's account, by name or number: only it, root and the agent's own may ask on `relay_listen`, "
     "whose socket gets its group; read at start only",
     RANGE(1, 32)},
    {"agent.admin", OPTION_ADDRESS, AT(agent.admin), "127.0.0.1:9101",
     "metrics, health and views over HTTP; loopback or Unix socket", ANY},
    {"agent.monitor", OPTION_ADDRESS, AT(agent.monitor), OPTION_NONE,
     "`/metrics`, `/livez` and `/readyz` alone, for Prometheus and a kubelet; any address; not set: none; "
     "read at "
     "start only",
     ANY, .example = "\"0.0.0.0:9103\""},
    {"agent.monitor_token_file", OPTION_PATH, AT(agent.monitor_token_file), OPTION_NONE,
     "its first line is the bearer token that `/metrics` of `monitor` wants; not set: none", ANY,
     .secret = true},
    {"agent.control", OPTION_ADDRESS, AT(agent.control), "unix@/run/cellgate/agent.control.sock",
     "the operator's commands; a Unix socket", ANY},
    {"agent.threads", OPTION_INT, AT(agent.threads), "0", "decision threads; 0: one per processor",
     RANGE(0, SETTINGS_THREADS_MAX)},
    {"agent.lookup", OPTION_DURATION, AT(agent.lookup), "200ms", "longest wait of a decision for a look-up",
     RANGE(1, SECONDS(30))},
    {"agent.auth_failures", OPTION_INT, AT(agent.auth_failures), "20",
     "wrong credentials of each sort per second, thread and client address; 0: any number", RANGE(0, 1000000),
     .old = "agent.guesses"},
    {"agent.max_subscriptions", OPTION_INT, AT(agent.max_subscriptions), "200000",
     "tunnels' subscriptions, 512 bytes each, a larger one counts as several; one relay connection gets half "
     "at most; tunnels beyond poll",
     RANGE(1000, 10000000), .old = "agent.max_watches"},
    {"agent.drain", OPTION_DURATION, AT(agent.drain), "5s", "time after SIGTERM to answer earlier requests",
     RANGE(0, HOURS(1))},
    {"agent.name_servers", OPTION_TEXTS, AT(agent.name_servers), OPTION_NONE,
     "for workers' names, `\"10.0.0.10\"` or `\"127.0.0.1:5353\"`; not set: /etc/resolv.conf's; read at "
     "start "
     "only",
     RANGE(0, 8)},
    {"agent.ticket_secret_file", OPTION_PATH, AT(agent.ticket_secret_file), OPTION_NONE,
     "key of the relays' tickets, 32 bytes or more; made if missing, read at start only; not set: "
     "`relay_listen` with `.key` appended",
     ANY, .secret = true},

    {"relay.listen", OPTION_ADDRESS, AT(relay.listen), "unix@/run/cellgate/relay.sock",
     "where HAProxy hands over upgrades; a Unix socket", ANY},
    {"relay.agent", OPTION_ADDRESS, AT(relay.agent), "unix@/run/cellgate/agent-relay.sock",
     "the agent's relay_listen; a Unix socket", ANY},
    {"relay.egress_tls", OPTION_ADDRESS, AT(relay.egress_tls), "unix@/run/cellgate/egress-tls.sock",
     "HAProxy's listener for inspected TLS; a Unix socket", ANY},
    {"relay.egress_http", OPTION_ADDRESS, AT(relay.egress_http), "unix@/run/cellgate/egress-http.sock",
     "HAProxy's listener for inspected HTTP without TLS; a Unix socket", ANY},
    {"relay.egress_out", OPTION_ADDRESS, AT(relay.egress_out), "unix@/run/cellgate/egress-out.sock",
     "HAProxy's listener for inspected upgrades that go through the relay, on their way to an https "
     "destination; a Unix socket",
     ANY},
    {"relay.mux", OPTION_ADDRESS, AT(relay.mux), OPTION_NONE,
     "HAProxy's listener for requests of mux WebSockets; a Unix socket; not set: no mux", ANY,
     .example = "\"unix@/run/cellgate/mux.sock\""},
    {"relay.worker_tls", OPTION_ADDRESS, AT(relay.worker_tls), "unix@/run/cellgate/worker-tls.sock",
     "HAProxy's listener for https workers; a Unix socket", ANY},
    {"relay.admin", OPTION_ADDRESS, AT(relay.admin), "127.0.0.1:9102",
     "metrics, health and views over HTTP; loopback or Unix socket", ANY},
    {"relay.monitor", OPTION_ADDRESS, AT(relay.monitor), OPTION_NONE,
     "`/metrics`, `/livez` and `/readyz` alone, for Prometheus and a kubelet; any address; not set: none; "
     "read at "
     "start only",
     ANY, .example = "\"0.0.0.0:9104\""},
    {"relay.monitor_token_file", OPTION_PATH, AT(relay.monitor_token_file), OPTION_NONE,
     "its first line is the bearer token that `/metrics` of `monitor` wants; not set: none", ANY,
     .secret = true},
    {"relay.control", OPTION_ADDRESS, AT(relay.control), "unix@/run/cellgate/relay.control.sock",
     "the operator's commands; a Unix socket", ANY},
    {"relay.threads", OPTION_INT, AT(relay.threads), "0", "tunnel threads; 0: one per processor",
     RANGE(0, SETTINGS_THREADS_MAX)},

    {"relay.connect_budget", OPTION_DURATION, AT(relay.connect_budget), "5s",
     "retries of a tunnel's first dial", RANGE(0, MINUTES(10))},
    {"relay.dial_timeout", OPTION_DURATION, AT(relay.dial_timeout), "10s", "one dial: connect and handshake",
     RANGE(10, MINUTES(10))},
    {"relay.hold", OPTION_DURATION, AT(relay.hold), "30s",
     "longest wait of an opening client for a sandbox that wakes or moves", RANGE(0, HOURS(1))},
    {"relay.grace_period", OPTION_DURATION, AT(relay.grace_period), "500ms",
     "wait after a worker's Close for word of a move", RANGE(0, MINUTES(1)), .old = "relay.settle"},
    {"relay.redial_backoff", OPTION_TEXTS, AT(relay.redial_backoff_texts),
     "[\"1ms\", \"3ms\", \"10ms\", \"30ms\", \"100ms\", \"250ms\", \"500ms\", \"1s\", \"2s\", \"4s\"]",
     "pauses between redials, ±20 %; the last repeats", RANGE(1, SETTINGS_BACKOFF_MAX),
     .check = check_backoff},
    {"relay.redial_budget", OPTION_DURATION, AT(relay.redial_budget), "30s", "redials of a lost worker",
     RANGE(0, HOURS(24))},
    {"relay.migration_budget", OPTION_DURATION, AT(relay.migration_budget), "10m",
     "longest time without a worker in a move", RANGE(0, HOURS(24))},
    {"relay.flap_limit", OPTION_INT, AT(relay.flap_limit), "3",
     "short-lived worker connections that may be lost in `flap_window`", RANGE(1, 64)},
    {"relay.flap_window", OPTION_DURATION, AT(relay.flap_window), "60s", "see `flap_limit`",
     RANGE(SECONDS(1), HOURS(24))},

    {"relay.keepalive", OPTION_DURATION, AT(relay.keepalive), "25s", "silence on a leg before a ping",
     RANGE(50, HOURS(1))},
    {"relay.dead_after", OPTION_DURATION, AT(relay.dead_after), "60s",
     "silence after a ping before a leg counts as dead", RANGE(50, HOURS(1))},
    {"relay.stall", OPTION_DURATION, AT(relay.stall), "5m",
     "longest time a client may take nothing of what waits for it", RANGE(100, HOURS(24))},
    {"relay.idle", OPTION_DURATION, AT(relay.idle), "0s", "a tunnel without payload ends; 0s: never",
     RANGE(0, HOURS(24 * 30))},
    {"relay.max_age", OPTION_DURATION, AT(relay.max_age), "0s", "a tunnel ends at this age; 0s: never",
     RANGE(0, HOURS(24 * 365))},

    {"relay.buffer", OPTION_SIZE, AT(relay.buffer), "256KiB", "data held per direction of a tunnel",
     RANGE(KIB(16), MIB(64))},
    {"relay.memory", OPTION_SIZE, AT(relay.memory), "256MiB",
     "data held for all tunnels; beyond it the largest holders wait", RANGE(MIB(1), GIB(1024))},
    {"relay.max_message", OPTION_SIZE, AT(relay.max_message), "64MiB", "a longer message ends its tunnel",
     RANGE(KIB(1), GIB(1024))},
    {"relay.head_size", OPTION_SIZE, AT(relay.head_size), "16KiB", "largest HTTP head of client or worker",
     RANGE(KIB(1), KIB(16))},
    {"relay.head_time", OPTION_DURATION, AT(relay.head_time), "10s", "time for a client's HTTP head",
     RANGE(100, MINUTES(5))},
    {"relay.max_tunnels", OPTION_INT, AT(relay.max_tunnels), "0",
     "maximum number of tunnels; 0: as file descriptors allow", RANGE(0, 10000000)},
    {"relay.max_tunnels_per_sandbox", OPTION_INT, AT(relay.max_tunnels_per_sandbox), "-1",
     "maximum per sandbox; -1: an eighth of all, 256 at most; 0: no limit", RANGE(-1, 10000000)},
    {"relay.max_tunnels_per_org", OPTION_INT, AT(relay.max_tunnels_per_org), "-1",
     "maximum per organisation; -1: a quarter of all; 0: no limit", RANGE(-1, 10000000)},
    {"relay.max_tunnels_per_token", OPTION_INT, AT(relay.max_tunnels_per_token), "-1",
     "maximum per token; -1: an eighth of all; 0: no limit", RANGE(-1, 10000000)},
    {"relay.max_egress", OPTION_INT, AT(relay.max_egress), "-1",
     "connections of sandboxes to the outside; -1: half of all tunnels; 0: only the limit of all",
     RANGE(-1, 10000000)},
    {"relay.mux_grace", OPTION_DURATION, AT(relay.mux_grace), "60s",
     "how long a mux WebSocket waits for its lost client; 0s: none resumes", RANGE(0, HOURS(1))},
    {"relay.mux_requests", OPTION_INT, AT(relay.mux_requests), "64", "requests at once in a mux WebSocket",
     RANGE(1, 1024)},
    {"relay.drain", OPTION_DURATION, AT(relay.drain), "30s",
     "time over which a stopping relay closes its tunnels", RANGE(0, HOURS(24))},
    {"relay.max_restarts", OPTION_INT, AT(relay.max_restarts), "5",
     "servers of the relay that may die within a minute before its keeper gives up", RANGE(0, 60)},
    {"relay.upgrade_timeout", OPTION_DURATION, AT(relay.upgrade_timeout), "10s",
     "how long the new program may take to serve before the old one goes on", RANGE(100, MINUTES(5))},

    {"renew.redis", OPTION_TEXT, AT(renew.redis), OPTION_NONE,
     "the Redis of a control plane, told which sandboxes are in use: `HOST:PORT`, `[IPv6]:PORT` or "
     "`unix@/PATH`",
     RANGE(1, 300)},
    {"renew.user", OPTION_TEXT, AT(renew.user), OPTION_NONE, "user name; not set: Redis's default user",
     RANGE(1, 255)},
    {"renew.password_file", OPTION_PATH, AT(renew.password_file), OPTION_NONE,
     "its first line is the password; read for each connection", ANY, .secret = true},
    {"renew.database", OPTION_INT, AT(renew.database), "0", "number of the database", RANGE(0, 65535)},
    {"renew.key", OPTION_TEXT, AT(renew.key), "opensandbox:renew:intent", "the list's key", RANGE(1, 255)},
    {"renew.every", OPTION_DURATION, AT(renew.every), "60s", "at most one intent per sandbox in this time",
     RANGE(SECONDS(1), HOURS(1))},
    {"renew.max_length", OPTION_INT, AT(renew.max_length), "0", "length to which the list is cut; 0: not cut",
     RANGE(0, 10000000)},

    {"egress.default", OPTION_NODE, AT(egress_default), OPTION_NONE,
     "rules of sandboxes whose record has no `egress`; not set: nothing is allowed", ANY,
     .form = "an object, see below",
     .example = "{ \"rules\": [{ \"host\": \"*.example.org\", \"ports\": [443] }] }"},
    {"egress.hosts", OPTION_NODE, AT(egress_hosts), OPTION_NONE, "addresses of hosts outside, instead of DNS",
     ANY, .form = "an object of name: address", .example = "{ \"registry.example.org\": \"192.0.2.7\" }"},
    {"egress.lookup", OPTION_DURATION, AT(egress_lookup), "700ms",
     "longest wait of a CONNECT for DNS, after `agent.lookup`; both together below HAProxy's "
     "`CELLGATE_DECISION_TIMEOUT`; read at start only",
     RANGE(1, SECONDS(30))},
    {"egress.private_networks", OPTION_TEXTS, AT(egress_private_networks), OPTION_NONE,
     "loopback networks that a rule with `private` may reach", RANGE(0, 64), .check = check_network,
     .example = "[\"127.0.0.1\"]"},
    {"egress.sign_file", OPTION_PATH, AT(egress_sign_file), OPTION_NONE,
     "certificate and key of the authority for inspected connections (`CELLGATE_EGRESS_SIGN`); not set: "
     "nothing is inspected",
     ANY, .later = true},
    {"egress.http2", OPTION_TEXTS, AT(egress_http2), OPTION_NONE,
     "inspected hosts with which programs may speak HTTP/2, as gRPC does: `cellgate certificates` writes a "
     "certificate for each",
     RANGE(0, 256), .check = check_host, .example = "[\"api.example.org\", \"*.grpc.example.org\"]"},
    {"egress.http2_folder", OPTION_PATH, AT(egress_http2_folder), OPTION_NONE,
     "folder of these certificates, and of nothing else (`CELLGATE_EGRESS_HTTP2`)", ANY, .later = true},
    {"egress.ca_file", OPTION_PATH, AT(egress_ca_file), OPTION_NONE,
     "authorities of inspected hosts outside (`CELLGATE_EGRESS_CA`); not set: the system's", ANY,
     .later = true},
    {"egress.secrets", OPTION_NODE, AT(egress_secrets), OPTION_NONE,
     "values of headers that rules set, by name: the first line of each file", ANY,
     .form = "an object of name: file", .example = "{ \"registry\": \"registry.token\" }"},
};

const struct option *settings_options(size_t *count)
{
    *count = sizeof keys / sizeof *keys;
    return keys;
}
