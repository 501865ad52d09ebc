/* SPDX-License-Identifier: MIT */
/* connector: finds the worker of a tunnel. The connector asks the agent, watches for changes, dials, pauses, waits for a worker to exist,
 * and gives up. Actions are appended as commands (command.h); each function returns the consequence for the tunnel. No I/O; times are
 * microseconds of loop_clock. */
#ifndef CELLGATE_RELAY_TUNNEL_CONNECTOR_H
#define CELLGATE_RELAY_TUNNEL_CONNECTOR_H

#include "spoa/relay/tunnel/close_reason.h"
#include "spoa/relay/tunnel/host.h"
#include "spoa/relay/tunnel/target.h"

/* Reasons for a search. */
enum connector_purpose {
    CONNECT_FIRST, /* the client has no 101 yet */
    CONNECT_ASIDE, /* another worker serves during the search */
    CONNECT_GRACE, /* the worker has closed; the agent may announce a move */
    CONNECT_AGAIN, /* the worker was lost */
};

/* Phases of a search. */
enum connector_phase {
    CONNECTOR_IDLE,   /* no search is in progress */
    CONNECTOR_ASKING, /* a question to the agent is open */
    CONNECTOR_DIALLING,
    CONNECTOR_PAUSING, /* the next attempt is due at pause_until */
    CONNECTOR_WAITING, /* no worker exists yet; the agent notifies the relay when one does */
};

enum dial_outcome {
    DIAL_OPEN,        /* a valid 101 */
    DIAL_STATUS,      /* another status */
    DIAL_UNREACHABLE, /* no connection could be made */
    DIAL_TIMEOUT,
    DIAL_INVALID,   /* the answer was malformed, or the connection was lost within it */
    DIAL_FORBIDDEN, /* the address is outside of worker_networks */
    DIAL_ENDED,     /* the worker answered that the session has ended */
    DIAL_MEMORY,    /* the relay is short of memory */
    DIAL_NO_SOCKET, /* the relay could not open a socket; the worker saw nothing of the attempt */
};

struct connector {
    struct tunnel_place place;
    enum connector_purpose purpose;
    enum connector_phase phase;
    enum answer_state answer; /* state in the agent's last answer */
    enum refusal problem;     /* reason why the last attempt failed */
    bool resumes; /* true if the worker recognises a session after a first dial whose answer was lost */
    /* true if the agent must be asked before the next dial, e.g. because the record has secrets or the target is unknown */
    bool must_ask;
    bool fixed; /* true for an egress destination: the one address that was checked is dialled once */
    bool retried_absent; /* true if the single retry of a 404 or 410 after a change was used */
    bool watching;
    uint64_t hold; /* longest time that a client waits for a worker to exist (the route's), in µs */

    struct target target; /* target of the worker that serves, or served last */
    struct target *next;  /* target that is being dialled; NULL if there is none */
    int64_t epoch;        /* last reported epoch; -1 if there is none */

    struct redial redial;
    uint64_t pause_until; /* time of the next attempt, in CONNECTOR_PAUSING */
    uint64_t asked_at;    /* time of the question, in CONNECTOR_ASKING */
    uint64_t changed_at;  /* time of the target's last change */
    /* time when a dial was cancelled that its worker may still accept; 0 if there is none */
    uint64_t abandoned_at;
    int64_t watched;   /* epoch that the open watch was started with */
    uint64_t watch_at; /* time of the next watch; 0 means now */
};

/* The consequence of a call for the tunnel. */
struct connector_result {
    enum {
        CONNECTOR_GOES_ON,
        /* the sandbox has moved and no search is in progress: the tunnel decides, then calls connector_use */
        CONNECTOR_MOVED,
        CONNECTOR_STAYS, /* the agent knows of no change (CONNECT_GRACE only) */
        /* the search failed: `reason` closes an open tunnel, `refusal` answers a client without a 101 */
        CONNECTOR_HOPELESS
    } how;
    enum close_reason reason;
    enum refusal refusal; /* REFUSAL_NONE means that the client gets the worker's own answer */
};

void connector_free(struct connector *c);
/* Returns the target for dials and questions: the one being dialled, else the worker's. */
const struct target *connector_target(const struct connector *c);

/* ---- a search ---- */
struct connector_result connector_begin(struct connector *c, uint64_t budget, uint64_t now);
/* Prepares the times of a search after a worker was lost that had served for `lived`; connector_again begins the search. `moved` is true
 * if the tunnel left the worker for another one, `gets_on` if the session resumes exactly and makes progress. Returns false if the tunnel
 * flaps and should be closed. */
bool connector_lost(struct connector *c, uint64_t lived, bool moved, bool gets_on, uint64_t now);
/* Starts the next attempt now or after a pause, or gives up the search if its budget is spent. */
struct connector_result connector_again(struct connector *c, uint64_t now);
void connector_ask(struct connector *c, uint64_t now);
void connector_stop(struct connector *c);
/* Stops the search. A worker may still accept a dial that was in progress. */
void connector_abandon(struct connector *c, uint64_t now);
/* Returns true, once, if a worker's 4001 can come from a recently abandoned dial: the worker accepted that dial late and took the session
 * from the connection in use. */
bool connector_took_itself(struct connector *c, uint64_t now);

/* ---- events ---- */
/* Returns true if a watch's answer would make a tunnel replace its serving worker by another one. */
bool connector_would_move(const struct connector *c, const struct answer *answer);
/* Handles the agent's answer to a question or, if `watch`, its notification of a change. */
struct connector_result connector_answered(struct connector *c, const struct answer *answer, bool watch,
                                           uint64_t now);
/* Continues a search with the agent's answer. */
struct connector_result connector_use(struct connector *c, const struct answer *answer, uint64_t now);
/* Handles a failed dial. */
struct connector_result connector_failed(struct connector *c, enum dial_outcome outcome, unsigned status,
                                         uint64_t now);
/* Handles a successful dial: `next` becomes `target`. */
void connector_connected(struct connector *c);
struct connector_result connector_tick(struct connector *c, uint64_t now);
uint64_t connector_due(const struct connector *c);

/* ---- the watch ---- */
void connector_watch(struct connector *c, uint64_t now);
/* Watches at once, without the pause that follows a watch which reported nothing new, because the tunnel waits for a change. */
void connector_watch_now(struct connector *c, uint64_t now);
/* Renews the watch after an answer of the agent. */
void connector_watch_on(struct connector *c, bool watch, uint64_t now);

/* ---- in another process (tunnel_save, tunnel_load) ---- */
extern const struct image_table connector_table;
/* A question to the agent, a watch and a dial in progress stayed with the other process: they are begun anew. */
void connector_take_over(struct connector *c, uint64_t now);

#endif
