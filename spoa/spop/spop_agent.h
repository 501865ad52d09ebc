/* SPDX-License-Identifier: MIT */
/*
 * spop_agent: a library for writing agents that HAProxy asks with its Stream Processing Offload Protocol (SPOP 2.0). Section numbers
 * below are those of HAProxy's doc/SPOE.txt.
 *
 *     static void check(void *lists, struct spop_agent_message *message, struct spop_agent_answer *answer)
 *     {
 *         struct spop_agent_value ip;
 *         if (spop_agent_arg(message, "ip", &ip))
 *             spop_agent_set_text(answer, SPOP_AGENT_TXN, "standing", look_up(lists, &ip));
 *     }
 *
 *     struct spop_agent *agent = spop_agent_new("lists");
 *     bool ran = agent && spop_agent_on(agent, "check-address", check, lists) &&
 *                spop_agent_listen(agent, "unix@/run/lists.sock", 0660) && spop_agent_run(agent);
 *
 * An agent belongs to one thread: the one that calls spop_agent_run. Before that, any single thread may call its functions. Any thread
 * may call spop_agent_stop, spop_agent_post and spop_agent_counter. To use more threads, make an agent for each, and let them share
 * one socket (spop_agent_listen_on).
 *
 * Functions that can fail return false or NULL; spop_agent_error then returns the reason. The library logs nothing, and counts
 * instead. Every byte from a peer is checked before a handler sees it: a malformed frame ends its connection and has no other effect.
 * The memory of a connection is bounded (SPOP_AGENT_OUTPUT_BYTES).
 */
#ifndef SPOP_AGENT_H
#define SPOP_AGENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Marks functions whose failure the caller must not ignore. */
#define SPOP_AGENT_MUST_CHECK __attribute__((warn_unused_result))

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

struct spop_agent;         /* owned by the caller, from spop_agent_new to spop_agent_free */
struct spop_agent_message; /* owned by the library, valid until the handler returns */
/* owned by the library, valid until the handler returns or spop_agent_answer_end */
struct spop_agent_answer;

/* ---- values (section 3.1) ---- */
/* Borrowed bytes. They may contain NULs, and no NUL ends them. */
struct spop_agent_bytes {
    const char *at;
    size_t len;
};

/* The numbers are those on the wire. */
enum spop_agent_kind {
    SPOP_AGENT_NULL = 0, /* the value of a sample fetch that found nothing */
    SPOP_AGENT_BOOL = 1,
    SPOP_AGENT_INT32 = 2,
    SPOP_AGENT_UINT32 = 3,
    SPOP_AGENT_INT64 = 4, /* every integer that HAProxy sends */
    SPOP_AGENT_UINT64 = 5,
    SPOP_AGENT_IPV4 = 6,
    SPOP_AGENT_IPV6 = 7,
    SPOP_AGENT_TEXT = 8,
    SPOP_AGENT_BINARY = 9
};

struct spop_agent_value {
    enum spop_agent_kind kind;
    bool truth;     /* value of SPOP_AGENT_BOOL */
    int64_t number; /* value of an integer; the same 64 bits for SPOP_AGENT_UINT64 */
    /* value of SPOP_AGENT_TEXT and _BINARY; an address' 4 or 16 bytes, in network order */
    struct spop_agent_bytes bytes;
};

/* ---- an agent ---- */
/* Makes an agent. `var_prefix` is the `option var-prefix` of spoe.conf (section 2.2): variables are called scope.PREFIX.NAME, and
 * the library sends no name that is too long for HAProxy. Returns NULL if memory or descriptors are short. */
struct spop_agent *spop_agent_new(const char *var_prefix) SPOP_AGENT_MUST_CHECK;
/* Closes every connection at once and frees the agent. NULL is fine. Must not be called from a handler, and no other thread may use
 * the agent any more. */
void spop_agent_free(struct spop_agent *agent);
/* Returns the reason of the last failure, never NULL. For NULL, returns the reason for which spop_agent_new fails. */
const char *spop_agent_error(const struct spop_agent *agent);

/* A handler is called with each message of its name, on the agent's thread, and must not block. The variables that it sets are the
 * answer; the messages of one frame share one answer. */
typedef void spop_agent_handler(void *context, struct spop_agent_message *message,
                                struct spop_agent_answer *answer);
/* Sets the handler of a `spoe-message` by its name, or of all messages without a handler of their own if `message` is NULL. The name
 * is copied. A second handler for the same message replaces the first. Returns false if memory is short. */
bool spop_agent_on(struct spop_agent *agent, const char *message, spop_agent_handler *handler,
                   void *context) SPOP_AGENT_MUST_CHECK;

/* Sets the fallback: a variable of the transaction that becomes the whole answer if a handler sets nothing, or more than a frame or
 * HAProxy can take. HAProxy 3.1.0 needs it, because it takes an empty answer for a missing one. The default is txn.PREFIX.error =
 * "no_answer". Both texts are copied. Returns false if one is too long, or `name` is not the name of a variable. */
bool spop_agent_fallback(struct spop_agent *agent, const char *name, const char *value) SPOP_AGENT_MUST_CHECK;

/* The limits, with their defaults. Times are in seconds, from 0.001 to 86,400 unless 0 has a meaning. */
enum spop_agent_limit {
    /* open connections, 1 to 65,535; default 4096. Further ones wait in the backlog */
    SPOP_AGENT_CONNECTIONS = 0,
    /* Bytes of unsent answers of a connection, 1 to 2^30; default 262,144. From this number on, the connection is not read. Answers to
     * tickets can still exceed it: at 16 times the number, the connection is closed. */
    SPOP_AGENT_OUTPUT_BYTES = 1,
    SPOP_AGENT_HELLO_SECONDS = 2, /* longest time from accept to HAPROXY-HELLO; default 5 */
    SPOP_AGENT_FRAME_SECONDS = 3, /* longest time from the first byte of a frame to its last; default 5 */
    /* longest time in which a peer takes no byte of unsent answers; default 10 */
    SPOP_AGENT_WRITE_SECONDS = 4,
    /* longest time without a frame or an open ticket; default 0, no limit: HAProxy closes idle ones */
    SPOP_AGENT_IDLE_SECONDS = 5,
    SPOP_AGENT_GRACE_SECONDS = 6 /* time that open tickets have after spop_agent_stop, from 0; default 5 */
};
/* Sets a limit. Returns false if the value is out of range or the agent already listens. */
bool spop_agent_limit(struct spop_agent *agent, enum spop_agent_limit limit,
                      double value) SPOP_AGENT_MUST_CHECK;

/* Listens on unix@/PATH, 127.0.0.1:PORT or [::1]:PORT, once; names are not resolved. SPOP has no authentication: the agent answers
 * every peer that can connect. `mode` is the mode of a Unix socket, such as 0660; a stale socket is replaced, and one on which another
 * process listens is not. */
bool spop_agent_listen(struct spop_agent *agent, const char *address, unsigned mode) SPOP_AGENT_MUST_CHECK;
/* Like spop_agent_listen, on a socket that already listens, for example from systemd or shared by several agents. The socket stays
 * the caller's. */
bool spop_agent_listen_on(struct spop_agent *agent, int listener) SPOP_AGENT_MUST_CHECK;

/* Answers HAProxy until spop_agent_stop, once. Then the agent stops accepting, answers the frames that have arrived, disconnects
 * (section 3.2.9), and the function returns true. Returns false at once if the agent does not listen or has run before. */
bool spop_agent_run(struct spop_agent *agent) SPOP_AGENT_MUST_CHECK;
/* Ends spop_agent_run. Any thread and any signal handler may call this, before or during the run. */
void spop_agent_stop(struct spop_agent *agent);

/* ---- a message (section 3.2.6) ---- */
struct spop_agent_bytes spop_agent_name(const struct spop_agent_message *message);
/* Gives the first argument with this name; SPOP_AGENT_NULL if its sample fetch found nothing. Returns false if there is no such
 * argument. */
bool spop_agent_arg(const struct spop_agent_message *message, const char *name,
                    struct spop_agent_value *value);
/* Gives the next argument, in the order of `args`. The name may be empty. Returns false after the last argument. */
bool spop_agent_next_arg(struct spop_agent_message *message, struct spop_agent_bytes *name,
                         struct spop_agent_value *value);

/* ---- an answer (section 3.2.7) ---- */
/* The numbers are those on the wire. */
enum spop_agent_scope {
    SPOP_AGENT_PROC = 0,
    SPOP_AGENT_SESS = 1,
    SPOP_AGENT_TXN = 2,
    SPOP_AGENT_REQ = 3,
    SPOP_AGENT_RES = 4
};

/* Sets a variable. `name` is without scope and prefix, and consists of letters, digits, '_' and '.'; with scope and prefix it has at
 * most 63 bytes. HAProxy ignores a name that neither its configuration nor `register-var-names` mentions. Name and value are copied.
 * Returns false if HAProxy could not take them or the answer has grown too large; the fallback is then the whole answer. */
bool spop_agent_set(struct spop_agent_answer *answer, enum spop_agent_scope scope, const char *name,
                    const struct spop_agent_value *value);
bool spop_agent_set_text(struct spop_agent_answer *answer, enum spop_agent_scope scope, const char *name,
                         const char *text);
bool spop_agent_set_int(struct spop_agent_answer *answer, enum spop_agent_scope scope, const char *name,
                        int64_t number);
bool spop_agent_set_bool(struct spop_agent_answer *answer, enum spop_agent_scope scope, const char *name,
                         bool truth);
bool spop_agent_unset(struct spop_agent_answer *answer, enum spop_agent_scope scope, const char *name);

/* ---- an answer that comes later ---- */
/* Names an answer that the agent owes. A ticket may be copied, and stays safe to use after its connection is closed. */
struct spop_agent_ticket {
    uint64_t connection, stream, frame;
};

/* Defers the answer, from a handler. Variables that the handler has set are dropped, and later messages of the same frame are
 * skipped. HAProxy waits no longer than its `timeout processing`. */
struct spop_agent_ticket spop_agent_later(struct spop_agent_answer *answer);
/* Begins the answer to a ticket, on the agent's thread; set the variables, and end it before control returns to the agent. A ticket is
 * good for one answer. Returns NULL if HAProxy's connection is closed: nothing more must be done then. */
struct spop_agent_answer *spop_agent_answer_begin(
    struct spop_agent *agent, const struct spop_agent_ticket *ticket) SPOP_AGENT_MUST_CHECK;
void spop_agent_answer_end(struct spop_agent_answer *answer);

/* Calls run(context) on the agent's thread, in the order in which one thread posts. Any thread may post. A call-back that is posted
 * after the end of the run is called by spop_agent_free; the connections of all tickets are closed then. Returns false, and calls
 * nothing, if memory is short. */
bool spop_agent_post(struct spop_agent *agent, void (*run)(void *context),
                     void *context) SPOP_AGENT_MUST_CHECK;

/* ---- counters ---- */
/* Gives the counter with this index, from 0. Any thread may call this while the agent exists. All counters count from the start,
 * except "connections" and "waiting", which are present numbers. The texts are constants. Returns false after the last counter. */
bool spop_agent_counter(const struct spop_agent *agent, unsigned index, const char **name, const char **help,
                        uint64_t *value);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
