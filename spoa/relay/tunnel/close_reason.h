/* SPDX-License-Identifier: MIT */
/*
 * close_reason: every way in which a tunnel ends, in one table that feeds the close codes, the log line, the
 * metric's label, the documentation and the tests.
 */
#ifndef CELLGATE_RELAY_TUNNEL_CLOSE_REASON_H
#define CELLGATE_RELAY_TUNNEL_CLOSE_REASON_H

#define CLOSE_PASSED 0 /* the relay passes on the code and reason of the side that closed */
#define CLOSE_NONE   1 /* no Close is sent, because the side is gone */

/*  X(name, code towards the client, code towards the worker, reason text) */
#define CLOSE_REASONS(X)                                                                                    \
    X(client_closed, CLOSE_PASSED, CLOSE_PASSED, "")  /* the client closed */                               \
    X(client_lost, CLOSE_NONE, 1001, "client lost")   /* the connection ended without a Close */            \
    X(client_silent, CLOSE_NONE, 1001, "client lost") /* no Pong for `dead_after` */                        \
    X(client_protocol, 1002, 1001, "protocol error")  /* the client broke RFC 6455 */                       \
    X(client_too_slow, 1013, 1001, "too slow")        /* no progress for `stall` */                         \
    X(session_ended, CLOSE_PASSED, CLOSE_PASSED, "")  /* the worker closed */                               \
    X(exec_completed, CLOSE_PASSED, CLOSE_PASSED, "exec completed") /* the session's process had exited */  \
    X(taken_over, CLOSE_PASSED, CLOSE_PASSED, "")                   /* 4001 from the worker */              \
    X(data_refused, CLOSE_PASSED, CLOSE_PASSED, "")                 /* 1002, 1003, 1007-1010 */             \
    X(worker_protocol, 1011, 1002, "worker protocol error")         /* the worker broke RFC 6455 */         \
    X(process_exited, 1000, CLOSE_NONE, "process exited")           /* a redial found the process ended */  \
    X(resume_expired, 1011, CLOSE_NONE, "resume expired")       /* the worker no longer knows the tunnel */ \
    X(worker_lost, 1011, CLOSE_NONE, "worker lost")             /* no adapter, and no session in its URL */ \
    X(client_resumes, 1012, 1001, "worker lost")                /* the client resumes by itself */          \
    X(not_redialled, 1012, 1001, "worker lost")                 /* the route says `redial: false` */        \
    X(session_not_found, 1000, CLOSE_NONE, "session not found") /* 404 or 410 at a redial */                \
    X(worker_refused, 1011, CLOSE_NONE, "worker refused")       /* another 4xx at a redial */               \
    X(sandbox_stopped, 1000, 1001, "sandbox stopped")           /* the directory says so */                 \
    X(sandbox_not_found, 1000, 1001, "sandbox not found")       /* the directory says so */                 \
    X(token_revoked, 1008, 1001, "token revoked")       /* the key is gone, or not_before is later */       \
    X(token_expired, 1008, 1001, "token expired")       /* expired, on an entry with `bind` */              \
    X(not_granted, 1008, 1001, "not granted")           /* the token does not grant this any more */        \
    X(not_admitted, 1011, 1001, "not admitted")         /* the agent does not know its ticket */            \
    X(too_many_tunnels, 1013, 1001, "too many tunnels") /* the sandbox's new owner has no slot left */      \
    X(unrecoverable, 1011, CLOSE_NONE, "upstream unrecoverable") /* no worker in time */                    \
    X(flapping, 1011, 1001, "upstream flapping")                 /* lost too often within `flap_window` */  \
    X(message_cut, 1012, CLOSE_NONE, "message cut")              /* a message to the client broke off */    \
    X(message_too_big, 1009, 1009, "message too big")            /* larger than `max_message` */            \
    X(idle, 1001, 1001, "idle")                                  /* no data for `idle` */                   \
    X(max_age, 1001, 1001, "max age")                            /* open for `max_age` */                   \
    X(restarting, 1012, 1001, "relay restarting")                /* SIGTERM or `cellgate drain` */          \
    X(kicked, 1008, 1001, "closed by the operator")              /* `cellgate kick` */                      \
    X(held_too_much, 1013, 1001, "relay memory short") /* the largest holder while others waited */         \
    X(no_memory, 1011, 1001, "out of memory")          /* the process has none */                           \
    X(refused, CLOSE_PASSED, CLOSE_NONE, "")           /* 4000 + status, on `refuse: close` */

enum close_reason {
#define X(name, client, worker, text) CLOSE_##name,
    CLOSE_REASONS(X)
#undef X
        CLOSE_REASON_COUNT
};

struct close_reason_info {
    const char *name; /* name in the log and the metric */
    unsigned client_code, worker_code;
    const char *text; /* reason text of the Close */
};

const struct close_reason_info *close_reason_info(enum close_reason reason);
/* Names in the order of the enum, as values of a metric's label; the last element is NULL. */
extern const char *const close_reason_names[];

#endif
