/* SPDX-License-Identifier: MIT */
/*
 * spop_agent: write an agent that HAProxy asks by its Stream Processing Offload Protocol (SPOP 2.0). Section
 * numbers below are those of HAProxy's doc/SPOE.txt.
 *
 *     static void check(void *lists, struct spop_agent_message *message, struct spop_agent_answer *answer)
 *     {
 *         struct spop_agent_value ip;
 *         if (spop_agent_arg(message, "ip", &ip))
 *             spop_agent_set_text(answer, SPOP_AGENT_TXN, "standing", look_up(lists, &ip));
 *     }
 *
 *     struct spop_agent *agent = spop_agent_new("lists");
 *     if (spop_agent_on(agent, "check-address", check, lists) &&
 *         spop_agent_listen(agent, "unix@/run/lists.sock", 0660))
 *         spop_agent_run(agent);
 *
 * One agent is one thread: the one that calls spop_agent_run. Every function is for that thread, or for any
 * single thread before it runs. spop_agent_stop, spop_agent_post and spop_agent_counter are for any thread.
 * For more threads, make an agent for each and let them share one socket (spop_agent_listen_on).
 *
 * Functions that can fail return false; spop_agent_error then says why. The library logs nothing, it counts.
 * Whatever a peer sends is judged before a handler sees it: a bad frame ends its connection and nothing else.
 * Memory of a connection is bounded (SPOP_AGENT_OUTPUT_BYTES).
 */
#ifndef SPOP_AGENT_H
#define SPOP_AGENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

struct spop_agent;         /* yours, from spop_agent_new to spop_agent_free */
struct spop_agent_message; /* the library's, until the handler returns */
struct spop_agent_answer;  /* the library's, until the handler returns or spop_agent_answer_end */

/* ---- values (section 3.1) ---- */
/* Borrowed bytes, without a NUL behind them; they may hold NULs. */
struct spop_agent_bytes {
    const char *at;
    size_t len;
};

/* The numbers are those on the wire. */
enum spop_agent_kind {
    SPOP_AGENT_NULL = 0, /* a sample fetch that found nothing */
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
    bool truth;                    /* SPOP_AGENT_BOOL */
    int64_t number;                /* integers; of SPOP_AGENT_UINT64 the same 64 bits */
    struct spop_agent_bytes bytes; /* SPOP_AGENT_TEXT, _BINARY; an address' 4 or 16, network order */
};

/* ---- an agent ---- */
/* var_prefix: what `option var-prefix` of spoe.conf says (section 2.2); variables are scope.PREFIX.NAME.
 * HAProxy gets no name that is longer than it can take. NULL when out of memory or descriptors. */
struct spop_agent *spop_agent_new(const char *var_prefix);
/* Closes every connection at once. NULL is fine. Not within a handler; no other thread may use the agent
 * any more. */
void spop_agent_free(struct spop_agent *agent);
/* Why the last function that failed did. Never NULL; NULL as agent: why spop_agent_new gave none. */
const char *spop_agent_error(const struct spop_agent *agent);

/* Called for each message of that name, on the agent's thread: it must not block. What it sets is the answer,
 * which the messages of one frame share. */
typedef void spop_agent_handler(void *context, struct spop_agent_message *message,
                                struct spop_agent_answer *answer);
/* message: the name of a `spoe-message`, or NULL for all that have no handler of their own. The name is
 * copied. A second handler for the same message replaces the first. False when out of memory. */
bool spop_agent_on(struct spop_agent *agent, const char *message, spop_agent_handler *handler, void *context);

/* An answer must set something: HAProxy 3.1.0 takes an empty one for none. Where a handler sets nothing,
 * or more than a frame or HAProxy can take, this variable of the transaction is the whole answer;
 * txn.PREFIX.error = "no_answer" unless said otherwise. Both texts are copied. False when they are too
 * long, or name is no name of a variable. */
bool spop_agent_fallback(struct spop_agent *agent, const char *name, const char *value);

/* Seconds are 0.001 to 86,400; what is out of range is refused, as is all of it once the agent listens. */
enum spop_agent_limit {
    SPOP_AGENT_CONNECTIONS = 0, /* at once, 1 to 65,535; 4096. More wait in the backlog */
    /* Unsent answers of a connection, 1 to 2^30; 262,144. From there on it is not read; at 16 times this, to
     * which only answers that were given later come, it is closed. */
    SPOP_AGENT_OUTPUT_BYTES = 1,
    SPOP_AGENT_HELLO_SECONDS = 2, /* from accept to HAPROXY-HELLO; 5 */
    SPOP_AGENT_FRAME_SECONDS = 3, /* from the first byte of a frame to its last; 5 */
    SPOP_AGENT_WRITE_SECONDS = 4, /* without any progress of unsent answers; 10 */
    SPOP_AGENT_IDLE_SECONDS = 5, /* without a frame and an open ticket; 0: for ever, as HAProxy closes them */
    SPOP_AGENT_GRACE_SECONDS = 6 /* that open tickets have after spop_agent_stop, from 0; 5 */
};
bool spop_agent_limit(struct spop_agent *agent, enum spop_agent_limit limit, double value);

/* address: unix@/PATH, 127.0.0.1:PORT or [::1]:PORT; names are not resolved. SPOP has no password: whoever
 * can connect is answered. mode: of a Unix socket, such as 0660; a stale one is replaced, one that is
 * listened on is not. Once. */
bool spop_agent_listen(struct spop_agent *agent, const char *address, unsigned mode);
/* The same on a socket that listens already, which stays yours: from systemd, or shared by several agents. */
bool spop_agent_listen_on(struct spop_agent *agent, int listener);

/* Answers until spop_agent_stop; then it lets no more connections in, answers what has arrived, says
 * goodbye (section 3.2.9) and returns true. Once. */
bool spop_agent_run(struct spop_agent *agent);
/* Any thread, and a signal handler, before spop_agent_run or while it runs. */
void spop_agent_stop(struct spop_agent *agent);

/* ---- a message (section 3.2.6) ---- */
struct spop_agent_bytes spop_agent_name(const struct spop_agent_message *message);
/* The first argument of that name; false when there is none. An argument whose fetch found nothing is
 * SPOP_AGENT_NULL. */
bool spop_agent_arg(const struct spop_agent_message *message, const char *name,
                    struct spop_agent_value *value);
/* One argument after the other, in the order of `args`; false behind the last one. A name may be empty. */
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

/* name: without scope and prefix; letters, digits, '_' and '.', and with both at most 63 bytes. HAProxy
 * ignores names that neither its configuration nor `register-var-names` mentions. What is given is copied.
 * False, and the fallback is the whole answer, where HAProxy could not take the name or the value, or the
 * answer has grown too large. */
bool spop_agent_set(struct spop_agent_answer *answer, enum spop_agent_scope scope, const char *name,
                    const struct spop_agent_value *value);
bool spop_agent_set_text(struct spop_agent_answer *answer, enum spop_agent_scope scope, const char *name,
                         const char *text);
bool spop_agent_set_int(struct spop_agent_answer *answer, enum spop_agent_scope scope, const char *name,
                        int64_t number);
bool spop_agent_set_bool(struct spop_agent_answer *answer, enum spop_agent_scope scope, const char *name,
                         bool truth);
bool spop_agent_unset(struct spop_agent_answer *answer, enum spop_agent_scope scope, const char *name);

/* ---- answering later ---- */
/* Names an answer that is owed. Copies are fine, and safe after the connection is gone. */
struct spop_agent_ticket {
    uint64_t connection, stream, frame;
};

/* In a handler: what it has set is dropped, and the ticket gives the whole answer. Messages behind this
 * one in the same frame are not looked at. HAProxy waits no longer than its `timeout processing`. */
struct spop_agent_ticket spop_agent_later(struct spop_agent_answer *answer);
/* On the agent's thread: begin, set, end, without returning in between. NULL when HAProxy's connection is
 * gone: nothing is to be done then. A ticket is good for one answer. */
struct spop_agent_answer *spop_agent_answer_begin(struct spop_agent *agent,
                                                  const struct spop_agent_ticket *ticket);
void spop_agent_answer_end(struct spop_agent_answer *answer);

/* Any thread: run(context) is called on the agent's thread, in the order in which one thread posts. What
 * is posted after the end is called by spop_agent_free, where each ticket's connection is gone. False when
 * out of memory: it is not. */
bool spop_agent_post(struct spop_agent *agent, void (*run)(void *context), void *context);

/* ---- counters ---- */
/* The index-th of them, from 0; false behind the last one. Any thread, while the agent is there. All count
 * from the start, but "connections" and "waiting", which are how many there are now. The texts are
 * constants. */
bool spop_agent_counter(const struct spop_agent *agent, unsigned index, const char **name, const char **help,
                        uint64_t *value);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
