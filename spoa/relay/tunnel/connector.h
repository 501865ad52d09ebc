/* SPDX-License-Identifier: MIT */
/*
 * connector: finds the worker of a tunnel: asks the agent, watches for changes, dials, pauses, waits for a worker to exist,
 * and gives up. What it wants done it commands (command.h); what that means for the tunnel it returns. Without I/O; times
 * are microseconds of loop_clock.
 */
#ifndef CELLGATE_RELAY_TUNNEL_CONNECTOR_H
#define CELLGATE_RELAY_TUNNEL_CONNECTOR_H

#include "spoa/relay/tunnel/close_reason.h"
#include "spoa/relay/tunnel/host.h"
#include "spoa/relay/tunnel/target.h"

/* What a worker is looked for. */
enum connector_purpose {
    CONNECT_FIRST, /* a client that has no 101 yet */
    CONNECT_ASIDE, /* another worker serves meanwhile */
    CONNECT_GRACE, /* the worker has closed: is a change announced? */
    CONNECT_AGAIN, /* the worker was lost */
};

/* How far the search has come. */
enum connector_phase {
    CONNECTOR_IDLE,   /* nothing is looked for */
    CONNECTOR_ASKING, /* the agent is asked */
    CONNECTOR_DIALLING,
    CONNECTOR_PAUSING, /* until the next attempt */
    CONNECTOR_WAITING, /* for a worker to exist: the agent will tell */
};

enum dial_outcome {
    DIAL_OPEN,        /* a valid 101 */
    DIAL_STATUS,      /* another status */
    DIAL_UNREACHABLE, /* no connection */
    DIAL_TIMEOUT,
    DIAL_INVALID,   /* nonsense instead of an answer, or the connection was lost within it */
    DIAL_FORBIDDEN, /* the address is outside of worker_networks */
    DIAL_ENDED,     /* the worker says that the session has ended */
    DIAL_MEMORY,    /* there is none, here */
    DIAL_NO_SOCKET, /* none could be had, here; the worker knows nothing of it */
};

struct connector {
    struct tunnel_place place;
    enum connector_purpose purpose;
    enum connector_phase phase;
    enum answer_state answer; /* the last one's state */
    enum refusal problem;     /* what the last attempt failed with */
    bool resumes;             /* the worker knows a session again of which it has seen the first dial */
    bool must_ask;            /* before the first dial: the record has secrets, or the target is not known */
    bool fixed;               /* a destination outside: the one address that was checked, once */
    bool retried_absent;      /* the one retry of a 404 or 410 after a change */
    bool watching;
    uint64_t hold; /* of the route: how long a client waits for a worker to exist */

    struct target target; /* of the worker that serves, or served last */
    struct target *next;  /* of the one that is being dialled; NULL: none */
    int64_t epoch;        /* last one reported; -1: none */

    struct redial redial;
    uint64_t pause_until;  /* CONNECTOR_PAUSING */
    uint64_t asked_at;     /* CONNECTOR_ASKING: since when */
    uint64_t changed_at;   /* of the target */
    uint64_t abandoned_at; /* a dial that its worker may get to all the same; 0: there is none */
    int64_t watched;       /* the epoch that the watch knows */
    uint64_t watch_at;     /* when to watch again; 0: now */
};

/* What has come of it. */
struct connector_result {
    enum {
        CONNECTOR_GOES_ON,
        CONNECTOR_MOVED, /* the sandbox is elsewhere, and nothing is looked for: the tunnel decides, then connector_use */
        CONNECTOR_STAYS,   /* CONNECT_GRACE: the agent knows of no change */
        CONNECTOR_HOPELESS /* `reason` for what is open, `refusal` for a client without its 101 */
    } how;
    enum close_reason reason;
    enum refusal refusal; /* REFUSAL_NONE: the worker's own answer */
};

void connector_free(struct connector *c);
/* The target that is known, for dials and questions. */
const struct target *connector_target(const struct connector *c);

/* ---- a search ---- */
struct connector_result connector_begin(struct connector *c, uint64_t budget, uint64_t now);
/* Behind a worker that was lost after `lived`: the times of the search, which begins with connector_again. False: the tunnel
 * flaps, and it is not worth it. moved: it was left for another one. gets_on: resumes exactly, and goes on. */
bool connector_lost(struct connector *c, uint64_t lived, bool moved, bool gets_on, uint64_t now);
/* The next attempt, now or after a pause; without budget the search is given up. */
struct connector_result connector_again(struct connector *c, uint64_t now);
void connector_ask(struct connector *c, uint64_t now);
void connector_stop(struct connector *c);
/* A dial in progress is given up, and its worker may get to it all the same. */
void connector_abandon(struct connector *c, uint64_t now);
/* A worker got to an abandoned dial late, and took the session from the one that was dialled instead. Once. */
bool connector_took_itself(struct connector *c, uint64_t now);

/* ---- events ---- */
/* Whether a watch's answer would make a tunnel leave a worker that serves for another one. */
bool connector_would_move(const struct connector *c, const struct answer *answer);
/* The agent answers a question or, watch, tells of a change. */
struct connector_result connector_answered(struct connector *c, const struct answer *answer, bool watch,
                                           uint64_t now);
/* An answer that a search goes on with. */
struct connector_result connector_use(struct connector *c, const struct answer *answer, uint64_t now);
/* The dial has failed. */
struct connector_result connector_failed(struct connector *c, enum dial_outcome outcome, unsigned status,
                                         uint64_t now);
/* It is open, and takes the place of the worker: `next` becomes `target`. */
void connector_connected(struct connector *c);
struct connector_result connector_tick(struct connector *c, uint64_t now);
uint64_t connector_due(const struct connector *c);

/* ---- the watch ---- */
void connector_watch(struct connector *c, uint64_t now);
/* Without a pause behind a watch that reported nothing new: a change is waited for. */
void connector_watch_now(struct connector *c, uint64_t now);
/* Behind an answer. */
void connector_watch_on(struct connector *c, bool watch, uint64_t now);

/* ---- in another process (tunnel_save, tunnel_load) ---- */
extern const struct image_table connector_table;
/* A question to the agent, a watch and a dial in progress stayed with the other process: they are begun anew. */
void connector_take_over(struct connector *c, uint64_t now);

#endif
