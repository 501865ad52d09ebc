/* SPDX-License-Identifier: MIT */
/*
 * tunnel: the state machine of one tunnel, without I/O. Events go in (tunnel_read, tunnel_lost, tunnel_answered,
 * tunnel_dialled, tunnel_tick ...), commands come out (command.h). docs/relay.md says what it does and why; times are
 * microseconds of loop_clock.
 *
 * The caller owns the tunnel and the sockets. After every event it carries out the commands, then looks at the state (in
 * TUNNEL_ENDED the tunnel does nothing any more and is to be freed), at tunnel_due and, for both sides, at leg.reading and
 * send_queue_empty(&leg.out). Behind COMMAND_ACCEPT and COMMAND_ADOPT it calls tunnel_writable.
 */
#ifndef CELLGATE_RELAY_TUNNEL_TUNNEL_H
#define CELLGATE_RELAY_TUNNEL_TUNNEL_H

#include "spoa/relay/tunnel/adapter.h"
#include "spoa/relay/tunnel/close_reason.h"
#include "spoa/relay/tunnel/command.h"
#include "spoa/relay/tunnel/leg.h"
#include "spoa/relay/tunnel/pings.h"
#include "spoa/relay/tunnel/redial.h"
#include "spoa/relay/tunnel/target.h"

/* What a tagged message of the client's is, by its first byte. */
enum tunnel_input { INPUT_UNTOLD, INPUT_BYTES, INPUT_OTHER };

enum tunnel_state {
    TUNNEL_OPENING,    /* the client has no 101 yet, a worker is looked for */
    TUNNEL_SERVING,    /* both legs are there; another worker may be looked for meanwhile */
    TUNNEL_SETTLING,   /* the worker said goodbye: is it the session's end, or is a change announced? */
    TUNNEL_REDIALLING, /* no worker; the client is not told */
    TUNNEL_CLOSING,    /* a Close was sent or passed on, the answer is awaited */
    TUNNEL_ENDED,
};

/* How far the search for a worker has come. */
enum seek {
    SEEK_NOTHING, /* none is looked for */
    SEEK_ASKING,  /* the agent is asked */
    SEEK_DIALLING,
    SEEK_PAUSING, /* until the next attempt */
    SEEK_WAITING, /* for a worker to exist: the agent will tell */
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

/* What the tunnel asks of its owner while it works on an event. None of these may call the tunnel. */
struct tunnel_host {
    /* Sends what can be sent now. */
    size_t (*send)(void *io, enum side to, const struct slice *runs, size_t count);
    /* How many more bytes the memory of the process lets this tunnel hold. whole: what it holds cannot be given back
     * before more has come, a message that is acknowledged as one or a replay. */
    size_t (*may_hold)(void *io, bool whole);
    /* Whether it is this tunnel's turn to collect what its worker replays; then it remains so for this worker. */
    bool (*take_turn)(void *io);
    uint32_t (*random)(void *io); /* unpredictable: masks (RFC 6455 section 5.3) */
    struct commands *commands;
};

struct tunnel_limits { /* of its route; 0: none */
    uint64_t hold, idle, max_age, max_message;
};

struct tunnel_settings {
    struct tunnel_limits limits; /* where the handover has none */
    uint64_t keepalive, dead_after, stall, settle, close_timeout, connect_budget, migration_budget;
    size_t buffer; /* bytes held for one leg */
    struct redial_settings redial;
};

struct tunnel {
    const struct tunnel_host *host;
    void *io; /* for its functions */
    const struct tunnel_settings *settings;
    const struct adapter *adapter;
    void *adapter_state;

    enum tunnel_state state;
    enum seek seek;
    struct leg legs[2];
    bool worker_there; /* legs[WORKER] has a socket */
    bool client_there;

    struct tunnel_limits limits;
    enum handover_end end;
    bool stream, overlap, empty_frame;
    bool one_leg; /* the tunnel ends with its worker, with `ends_with` */
    bool named;   /* the URL names the session: another dial does not begin another one */
    enum close_reason ends_with;
    bool end_said;
    bool was_empty; /* the worker before said nothing of its session, and it is the same worker */

    struct target target;     /* of the worker that serves, or served last */
    struct target next;       /* of the one that is being dialled */
    int64_t epoch;            /* last one told; -1: none */
    bool must_ask;            /* before the first dial: the record has secrets, or the target is not known */
    enum answer_state answer; /* the last one's state */

    struct redial redial;
    bool retried_absent; /* the one retry of a 404 or 410 after a change */
    bool watching;
    int64_t watched;       /* the epoch that the watch knows */
    uint64_t watch_at;     /* when to watch again; 0: now */
    uint64_t changed_at;   /* of the target */
    uint64_t abandoned_at; /* a dial that its worker may get to all the same; 0: there is none */
    uint64_t seek_at;      /* SEEK_PAUSING: until when */
    uint64_t asked_at;     /* SEEK_ASKING: since when */
    uint64_t turn_at;      /* when to ask again whether its turn has come; 0: it does not wait for it */
    bool replay_short;     /* its turn has come, but there is no memory */
    bool looked[2], has_memory[2]; /* whether it may read from that side, in the decision that is being taken */
    uint64_t
        short_at; /* no memory for what nothing of its own will make room for: when to look again; 0: there is */
    uint64_t short_for;   /* how long that was so, up to TUNNEL_SHORT, less how long it was not */
    uint64_t short_noted; /* when that was last noted */
    uint64_t close_at;    /* TUNNEL_SETTLING, TUNNEL_CLOSING: until when */
    uint64_t opened, used, expires, worker_since, lost_at;
    enum loss loss;
    enum refusal problem; /* TUNNEL_OPENING: what the last attempt failed with */
    unsigned redials;
    uint64_t longest_gap;
    unsigned gaps;    /* declared: output may be missing, or be there twice */
    uint64_t missing; /* bytes, of those whose size is known */
    unsigned gaps_before;     /* when the worker that serves, or served last, was found */
    uint64_t progress_before; /* then */

    enum tunnel_input input; /* the message that is coming in */
    struct pings pings;
    struct buffer pending_close; /* reason of the worker's Close while it is settled what it means */
    unsigned pending_code;
    enum close_reason reason; /* from TUNNEL_CLOSING on */
};

#define TUNNEL_SHORT UINT64_C(2000000) /* microseconds that others have to give memory back */
#define TUNNEL_FRONT (WS_HEAD_MAX + 1) /* a head, and the tag that an adapter may put behind it */

struct tunnel_opening {
    const struct tunnel_host *host;
    void *io; /* for its functions */
    const struct tunnel_settings *settings;
    const struct handover *handover; /* borrowed for the call, as is the target */
    struct slice target;             /* path and query towards the worker */
    bool client_resumes;             /* the client speaks Cell-Resume itself */
    uint64_t expires;                /* when the token that binds it does; 0: never */
};

/* A client wants a tunnel: starts to look for a worker, or refuses as the handover says. False: out of
 * memory, nothing was done. */
bool tunnel_open(struct tunnel *t, const struct tunnel_opening *opening, uint64_t now)
    __attribute__((warn_unused_result));
void tunnel_free(struct tunnel *t);

/* Bytes from one side, at most LEG_FRAME_WHOLE of them those of leg.partial, which the caller has put in
 * front and consumed. They lie in writable memory with TUNNEL_FRONT writable bytes in front of them and are
 * changed. */
void tunnel_read(struct tunnel *t, enum side from, struct slice bytes, uint64_t now);
/* The side's socket can take more. */
void tunnel_writable(struct tunnel *t, enum side to, uint64_t now);
/* The side's socket has ended, LOSS_eof or LOSS_reset. */
void tunnel_lost(struct tunnel *t, enum side side, enum loss how, uint64_t now);
/* What the next worker is to be asked, with a GET, before it is dialled; absent: nothing. */
struct slice tunnel_probe(const struct tunnel *t, struct slice target, struct writer *w);
/* Its answer. DIAL_OPEN: dial now; else this is how the dial went. */
enum dial_outcome tunnel_probed(struct tunnel *t, unsigned status, struct slice body);
/* head: of the 101. */
void tunnel_dialled(struct tunnel *t, enum dial_outcome outcome, unsigned status,
                    const struct http_head *head, uint64_t now);
/* The agent answers a question or, watch, tells of a change. */
void tunnel_answered(struct tunnel *t, const struct answer *answer, bool watch, uint64_t now);
/* Something of it may be due. */
void tunnel_tick(struct tunnel *t, uint64_t now);
uint64_t tunnel_due(const struct tunnel *t);
/* When that may be more than an acknowledgement: what has come by then counts, and is to be told first. */
uint64_t tunnel_judges_at(const struct tunnel *t);
/* From outside: CLOSE_restarting, CLOSE_kicked. One that is closing already is waited for no longer. */
void tunnel_end(struct tunnel *t, enum close_reason reason, uint64_t now);

/* It has been opened, and nobody closes it yet. */
bool tunnel_is_open(const struct tunnel *t);
/* For longer than TUNNEL_SHORT there was no memory to make whole what it holds. */
bool tunnel_waits(const struct tunnel *t);
/* Whether what its worker replays is being collected. */
bool tunnel_needs_turn(const struct tunnel *t);
/* How many more bytes may be read from that side now. */
size_t tunnel_room(const struct tunnel *t, enum side from);
/* The target that is known to the tunnel, for questions. */
const struct target *tunnel_target(const struct tunnel *t);

#endif
