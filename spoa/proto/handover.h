/* SPDX-License-Identifier: MIT */
/*
 * handover: what the agent has decided about an upgrade that goes through the relay, as one header line
 * `X-Cell-Handover: key=value;key=value`. The agent writes it into the variable txn.cell.handover; HAProxy sets the header, after it
 * has deleted one that the client sent; the relay reads it. HANDOVER_FIELDS is the only list of its fields.
 *
 * A value is percent-encoded outside of [A-Za-z0-9._~-], so it may hold any bytes. Fields that are not present are not written.
 * Unknown keys are skipped, so an agent may be newer than its relay.
 */
#ifndef CELLGATE_PROTO_HANDOVER_H
#define CELLGATE_PROTO_HANDOVER_H

#include "spoa/base/bytes/slice.h"
#include "spoa/base/bytes/writer.h"
#include "spoa/base/os/fail.h"
#include "spoa/base/text/address.h"

#define HANDOVER_HEADER "X-Cell-Handover"

/* How a worker's output continues after a redial (docs/relay.md). */
enum handover_resume {
    HANDOVER_RESUME_NONE,
    HANDOVER_RESUME_SCROLLBACK,
    HANDOVER_RESUME_SINCE,
    HANDOVER_RESUME_CELL,
    HANDOVER_RESUME_CURSOR
};
/* How the relay recognises the end of a session. */
enum handover_end { HANDOVER_END_CLOSE, HANDOVER_END_EXIT_FRAME, HANDOVER_END_EXIT_JSON };
/* How the relay keeps an idle leg alive. */
enum handover_keepalive { HANDOVER_KEEPALIVE_PING, HANDOVER_KEEPALIVE_EMPTY_FRAME };

/* The names of these in the configuration, indexed by the enum; NULL ends each list. */
extern const char *const handover_resume_names[];
extern const char *const handover_end_names[];
extern const char *const handover_keepalive_names[];

/* X(kind, field, key). Present is a TEXT that is not absent, an INT that is not negative, a BOOL that is true, and an ADDRESS with a
 * family. A NAME is always written, and a missing one is read as the first of its names. */
#define HANDOVER_FIELDS(X)                                                                             \
    X(TEXT, id, "id") /* HAProxy's id of the request, for logs */                                      \
    X(TEXT, route, "route")                                                                            \
    X(TEXT, sandbox, "sandbox")                                                                        \
    X(TEXT, space, "namespace")                                                                        \
    X(INT, port, "port")           /* of the sandbox, if asked for; else none, or the worker's own */  \
    X(INT, pending, "pending")     /* 1 until a worker is found; that answer brings a new ticket */    \
    X(INT, host_only, "host_only") /* mask of systems: the path is for their host alone */             \
    X(TEXT, session, "session")                                                                        \
    X(TEXT, org, "org")                                                                                \
    X(INT, org_of_record, "org_of_record") /* 1 if org is of the sandbox's record, not the token */    \
    X(TEXT, sub, "sub")                    /* claims of the token, for the log and cell-resolve */     \
    X(TEXT, jti, "jti")                                                                                \
    X(TEXT, kid, "kid")                                                                                \
    X(INT, needs, "needs")    /* mask of enum need that the token grants; else none was needed */      \
    X(TEXT, ports, "ports")   /* ports that the token is limited to, two bytes each; else all */       \
    X(TEXT, bearer, "bearer") /* SHA-256, in hex, of the worker's Authorization; never logged */       \
    X(TEXT, token, "token")   /* digest of the credential, to count its tunnels; never logged */       \
    X(TEXT, key, "key")       /* fingerprint of the key that verified the token, if sent */            \
    X(INT, iat, "iat")                                                                                 \
    X(INT, exp, "exp")                                                                                 \
    X(INT, epoch, "epoch")                                                                             \
    X(ADDRESS, addr, "addr") /* the worker; without addr and unix the relay must ask the agent */      \
    X(INT, addr_port, "addr_port")                                                                     \
    X(BOOL, tls, "tls")                                                                                \
    X(TEXT, sni, "sni")                                                                                \
    X(TEXT, unix_path, "unix")                                                                         \
    X(TEXT, host, "host")       /* Host for the worker; else the client's */                           \
    X(BOOL, secrets, "secrets") /* the record has headers: ask the agent before the first dial */      \
    X(NAME, resume, "resume")                                                                          \
    X(NAME, end, "end")                                                                                \
    X(NAME, keepalive, "keepalive")                                                                    \
    X(BOOL, stream, "stream")          /* end a message that was cut by a redial, not the tunnel */    \
    X(BOOL, overlap, "overlap")        /* dial the new worker before the old one is closed */          \
    X(BOOL, one_leg, "one_leg")        /* the tunnel ends with its worker */                           \
    X(BOOL, waits, "waits")            /* repeat the first dial for `hold` if the worker refuses it */ \
    X(INT, hold, "hold")               /* milliseconds */                                              \
    X(INT, idle, "idle")               /* milliseconds */                                              \
    X(INT, max_age, "max_age")         /* milliseconds */                                              \
    X(INT, max_message, "max_message") /* bytes */                                                     \
    X(TEXT, strip, "strip")            /* comma-separated headers to strip for the worker */           \
    X(BOOL, close, "close")            /* answer a refusal of the relay with a 101 and a Close */      \
    X(INT, refuse, "refuse")           /* HTTP status: answer 101 and Close 4000 + this */             \
    X(TEXT, error, "error")            /* code of that refusal in refusal.h */                         \
    X(BOOL, select_cellgate, "select_cellgate") /* select `cellgate` if the worker selects none */     \
    X(TEXT, egress, "egress")                   /* "HOST:PORT" of a connection that a sandbox opens */ \
    X(INT, inspect, "inspect") /* egress: digest of the rule by which the requests are inspected */    \
    X(TEXT, inside, "inside")  /* egress: unique id of the PROXY header, with a proof; never logged */ \
    X(INT, most, "most")       /* egress: largest number of the sandbox's connections at once */       \
    X(TEXT, below, "below")    /* mux: prefix of the paths in the messages */                          \
    X(TEXT, mux, "mux")        /* mux: the system whose messages these are */                          \
    X(TEXT, source, "source")  /* mux: proof of the client's address, for HAProxy; never logged */     \
    X(TEXT, ticket, "ticket")  /* right of an admitted tunnel to ask where its sandbox is */

/* The fields that the relay returns with each question (cell-resolve, cell-watch), under the same keys: for whom the tunnel is and
 * which credential admits it. The agent decides by them, so the ticket authenticates all of them and the relay cannot change one.
 * A new field whose absence would allow more needs a new domain of tickets (agent/token/ticket.h), because older tickets lack it. */
#define HANDOVER_IDENTITY(X)               \
    X(TEXT, route, "route")                \
    X(TEXT, sandbox, "sandbox")            \
    X(TEXT, space, "namespace")            \
    X(INT, port, "port")                   \
    X(INT, pending, "pending")             \
    X(INT, host_only, "host_only")         \
    X(TEXT, org, "org")                    \
    X(INT, org_of_record, "org_of_record") \
    X(TEXT, jti, "jti")                    \
    X(TEXT, kid, "kid")                    \
    X(INT, needs, "needs")                 \
    X(TEXT, ports, "ports")                \
    X(TEXT, bearer, "bearer")              \
    X(TEXT, key, "key")                    \
    X(INT, iat, "iat")                     \
    X(INT, exp, "exp")                     \
    X(TEXT, egress, "egress")              \
    X(INT, inspect, "inspect")

#define HANDOVER_TYPE_TEXT    struct slice
#define HANDOVER_TYPE_INT     int64_t
#define HANDOVER_TYPE_BOOL    bool
#define HANDOVER_TYPE_ADDRESS struct address
#define HANDOVER_TYPE_NAME    unsigned

struct handover {
#define X(kind, field, key) HANDOVER_TYPE_##kind field;
    HANDOVER_FIELDS(X)
#undef X
};

/* Returns a handover in which no field is present. */
struct handover handover_none(void);
/* Appends the value of the header line; w->full is set if it does not fit. */
void handover_encode(const struct handover *handover, struct writer *w);
/* Appends the present fields of HANDOVER_IDENTITY, in the same form. */
void handover_encode_identity(const struct handover *handover, struct writer *w);
/* Reads the value of the header line. Texts are decoded into `memory`, at most text.len bytes of it, and point there. Returns false
 * and fills *why for a value that its field cannot hold, a key that comes twice, or broken encoding; *why names the key and never
 * contains a value. */
bool handover_decode(struct handover *handover, struct slice text, struct writer *memory, struct fail *why)
    MUST_CHECK;

/* Writes the present fields in few bytes, for a handover that is kept in memory. Only the same version of this program can unpack
 * them. w->full is set if they do not fit; HANDOVER_PACKED_MAX bytes in addition to the texts are always enough. */
enum { HANDOVER_PACKED_MAX = 512 };
void handover_pack(const struct handover *handover, struct writer *w);
/* Reads bytes that handover_pack has written. Texts point into `packed`. */
struct handover handover_unpack(struct slice packed);
/* Returns true if handover_pack may have written these bytes, which may be anything. */
bool handover_is_packed(struct slice packed);

#endif
