/* SPDX-License-Identifier: MIT */
/*
 * handover: what the agent decided about an upgrade that goes through the relay, as one header line
 * `X-Cell-Handover: key=value;key=value`. The agent writes it into the variable txn.cell.handover, HAProxy
 * sets the header (a client's own was deleted), the relay reads it. The table is the one list of its fields.
 *
 * A value is percent-encoded outside of [A-Za-z0-9._~-], so that it may hold anything. Fields that are not
 * present are left out; keys that are not known are skipped, so that an agent may be newer than its relay.
 */
#ifndef CELLGATE_PROTO_HANDOVER_H
#define CELLGATE_PROTO_HANDOVER_H

#include "spoa/base/bytes/slice.h"
#include "spoa/base/bytes/writer.h"
#include "spoa/base/os/fail.h"
#include "spoa/base/text/address.h"

#define HANDOVER_HEADER "X-Cell-Handover"

enum handover_resume {
    HANDOVER_RESUME_NONE,
    HANDOVER_RESUME_SCROLLBACK,
    HANDOVER_RESUME_SINCE,
    HANDOVER_RESUME_CELL
};
enum handover_end { HANDOVER_END_CLOSE, HANDOVER_END_EXIT_FRAME, HANDOVER_END_EXIT_JSON };
enum handover_keepalive { HANDOVER_KEEPALIVE_PING, HANDOVER_KEEPALIVE_EMPTY_FRAME };

extern const char *const handover_resume_names[]; /* NULL behind the last; as in the configuration */
extern const char *const handover_end_names[];
extern const char *const handover_keepalive_names[];

/* X(kind, field, key): present is a TEXT that is not absent, an INT that
 * is not negative, a BOOL that is true, an ADDRESS with a family; a NAME
 * is always written and is the first of its names where it is missing. */
#define HANDOVER_FIELDS(X)                                                                                  \
    X(TEXT, id, "id") /* the request's, as HAProxy made it: for logs */                                     \
    X(TEXT, route, "route")                                                                                 \
    X(TEXT, sandbox, "sandbox")                                                                             \
    X(TEXT, space, "namespace")                                                                             \
    X(INT, port, "port") /* the sandbox's, asked for; not present: none, or the worker's own */             \
    X(INT, pending,                                                                                         \
      "pending") /* 1: no place is judged yet; the answer that names one brings a new ticket */             \
    X(INT, host_only, "host_only") /* mask of systems: the path names what is for their host alone */       \
    X(TEXT, session, "session")                                                                             \
    X(TEXT, org, "org")                                                                                     \
    X(INT, org_of_record, "org_of_record") /* 1: the token names none, the sandbox's record does */         \
    X(TEXT, sub, "sub")                    /* the token's claims, for the log and for cell-resolve */       \
    X(TEXT, jti, "jti")                                                                                     \
    X(TEXT, kid, "kid")                                                                                     \
    X(INT, needs, "needs")    /* what the token grants, of enum need; not present: none was needed */       \
    X(TEXT, ports, "ports")   /* that the token is limited to, two bytes each; not present: every one */    \
    X(TEXT, bearer, "bearer") /* SHA-256, in hex, of what Authorization has for the worker; never logged */ \
    X(TEXT, token, "token")   /* digest of the credential, to count its tunnels; never logged */            \
    X(TEXT, key, "key") /* fingerprint of the key that verified the token; an older agent sends none */     \
    X(INT, iat, "iat")                                                                                      \
    X(INT, exp, "exp")                                                                                      \
    X(INT, epoch, "epoch")                                                                                  \
    X(ADDRESS, addr, "addr") /* the worker; neither addr nor unix: not known yet, ask */                    \
    X(INT, addr_port, "addr_port")                                                                          \
    X(BOOL, tls, "tls")                                                                                     \
    X(TEXT, sni, "sni")                                                                                     \
    X(TEXT, unix_path, "unix")                                                                              \
    X(TEXT, host, "host")       /* Host towards the worker; absent: keep the client's */                    \
    X(BOOL, secrets, "secrets") /* the record has headers: ask before the first dial */                     \
    X(NAME, resume, "resume")                                                                               \
    X(NAME, end, "end")                                                                                     \
    X(NAME, keepalive, "keepalive")                                                                         \
    X(BOOL, stream, "stream")          /* a message that was cut is ended, not the tunnel */                \
    X(BOOL, overlap, "overlap")        /* the new worker is dialled before the old one is left */           \
    X(BOOL, one_leg, "one_leg")        /* the tunnel ends with its worker */                                \
    X(BOOL, waits, "waits")            /* the first dial is repeated for `hold` if the worker refuses it */ \
    X(INT, hold, "hold")               /* milliseconds */                                                   \
    X(INT, idle, "idle")               /* milliseconds */                                                   \
    X(INT, max_age, "max_age")         /* milliseconds */                                                   \
    X(INT, max_message, "max_message") /* bytes */                                                          \
    X(TEXT, strip, "strip")            /* names of headers that the worker does not get, comma-separated */ \
    X(BOOL, close, "close")            /* what the relay refuses it accepts and closes, too */              \
    X(INT, refuse, "refuse")           /* HTTP status: accept the upgrade and close it with 4000 + this */  \
    X(TEXT, error, "error")            /* of a refusal: its code in refusal.h */                            \
    X(BOOL, select_cellgate, "select_cellgate") /* select `cellgate` if the worker selects none */          \
    X(TEXT, egress, "egress")                   /* "HOST:PORT", of a connection that a sandbox opens */     \
    X(INT, inspect, "inspect") /* the same: the digest of the rule that its requests are inspected by */    \
    X(TEXT, inside, "inside")  /* the same: its PROXY header's unique id, with a proof; never logged */     \
    X(INT, most, "most")       /* of an egress connection: those of its sandbox at once */                  \
    X(TEXT, below, "below")    /* of a mux: what stands in front of its messages' paths */                  \
    X(TEXT, mux, "mux")        /* of a mux: whose messages these are, as in the configuration */            \
    X(TEXT, ticket, "ticket")  /* of a tunnel that was admitted: the right to ask where its sandbox is */

/* What the relay hands back with each question (cell-resolve, cell-watch) under the same keys: who the tunnel is for and
 * what lets it in, all that the agent judges by and the relay must not change. The ticket is for all of it. Whoever adds a field
 * without which more would be allowed gives tickets a new domain (agent/token/ticket.h): those of before lack it. */
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

/* Nothing is present. */
struct handover handover_none(void);
/* The value of the header line; w->full when it does not fit. */
void handover_encode(const struct handover *handover, struct writer *w);
/* Appends what is present of HANDOVER_IDENTITY, in the same form. */
void handover_encode_identity(const struct handover *handover, struct writer *w);
/* Texts are decoded into memory, at most text.len bytes of it, and point there. False on a value that does
 * not fit its field, a key that comes twice or broken encoding; why holds the key but no value. */
bool handover_decode(struct handover *handover, struct slice text, struct writer *memory, struct fail *why)
    __attribute__((warn_unused_result));

/* What is present, in few bytes, for one that is kept: of the same version of this program only. w->full when it does not
 * fit; HANDOVER_PACKED_MAX bytes beside its texts are enough. */
enum { HANDOVER_PACKED_MAX = 512 };
void handover_pack(const struct handover *handover, struct writer *w);
/* Of bytes that handover_pack wrote; texts point there. */
struct handover handover_unpack(struct slice packed);

#endif
