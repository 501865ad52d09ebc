/* SPDX-License-Identifier: MIT */
/*
 * tunnel: the state machine of one tunnel, without I/O. Events go in (tunnel_read, tunnel_lost, tunnel_answered,
 * tunnel_dialled, tunnel_tick ...), commands come out (command.h). docs/relay.md says what it does and why; times are
 * microseconds of loop_clock.
 *
 * The caller owns the tunnel and the sockets. After every event it carries out the commands, then looks at the state (in
 * TUNNEL_ended the tunnel does nothing any more and is to be freed), at tunnel_due and, for both sides, at leg.reading and
 * send_queue_empty(&leg.out). Behind COMMAND_ACCEPT and COMMAND_ADOPT it calls tunnel_writable.
 */
#ifndef CELLGATE_RELAY_TUNNEL_TUNNEL_H
#define CELLGATE_RELAY_TUNNEL_TUNNEL_H

#include "spoa/relay/tunnel/connector.h"
#include "spoa/relay/tunnel/forward.h"
#include "spoa/relay/tunnel/state.h"

struct tunnel {
    struct forward forward;     /* its legs, and what goes between them */
    struct connector connector; /* finds its worker */

    /* ---- what the route and the worker's protocol say ---- */
    uint64_t idle, max_age; /* 0: no limit */
    enum close_reason ends_with;
    bool overlap; /* a new worker may be dialled while the old one serves */
    bool one_leg; /* the tunnel ends with its worker, with `ends_with` */
    bool outside; /* its worker is a destination of a program in a sandbox, whose Close its client answers */
    bool named;   /* the URL names the session: another dial does not begin another one */

    /* ---- its life ---- */
    enum tunnel_state state;
    bool strayed;   /* it went a way that state.h does not know: a defect, which tests look for */
    bool was_empty; /* the worker before said nothing of its session, and it is the same worker */
    enum loss loss;
    struct recheck *recheck; /* the second connection to the worker that serves; NULL: there is none */
    bool
        exit_held; /* that worker ended after the session's exit, before its output was confirmed: it is dialled again */
    unsigned exits_held; /* in a row */
    unsigned redials;
    uint64_t opened, expires, worker_since, lost_at, longest_gap;
    uint64_t progress_before; /* when the worker that serves, or served last, was found */
    unsigned gaps_before;     /* then */

    /* ---- its end ---- */
    enum close_reason reason; /* from TUNNEL_closing on */
    /* the Close that is sent when it is settled what the worker's, or the client's, means */
    unsigned pending_code;
    struct buffer pending_close;
    uint64_t close_at; /* TUNNEL_grace, TUNNEL_closing: until when */
};

struct tunnel_opening {
    struct tunnel_place place;
    const struct handover *handover; /* borrowed for the call, as is the target */
    struct slice target;             /* path and query towards the worker */
    bool client_resumes;             /* the client speaks Cell-Resume itself */
    uint64_t expires;                /* when the token that binds it does; 0: never */
    void *
        state; /* zeroed memory for its adapter's state (adapter_find), the caller's, as long as there is the tunnel */
};

/* A client wants a tunnel: starts to look for a worker, or refuses as the handover says. False: out of memory; it has ended,
 * and holds nothing. */
bool tunnel_open(struct tunnel *t, const struct tunnel_opening *opening, uint64_t now)
    __attribute__((warn_unused_result));
void tunnel_free(struct tunnel *t);
/* Sets the surroundings of a tunnel that was moved, or read from its image, and where its adapter's state is now. Invariant: between
 * events, no pointer refers into the tunnel or its adapter's state. */
void tunnel_place(struct tunnel *t, const struct tunnel_place *place, void *state);

/* ---- as an image (spoa/base/image.h) ----
 * An image has all of a tunnel's state between two events, when no command waits. The sockets, the upgrade and the settings are the
 * reader's to bring along. */
/* Before a tunnel is read by its table, its adapter is set and it is placed. */
extern const struct image_table tunnel_table;
/* Appends the image of a tunnel that has not ended, for another process. Returns false if the buffer's limit is reached, memory is short, or
 * the host's pipe holds some of what is sent (forward_gather). */
bool tunnel_save(const struct tunnel *t, struct buffer *to, uint64_t now) __attribute__((warn_unused_result));
/* Goes on with a tunnel that another process has saved; `opening` is the one it was opened by. Questions, watches, dials and second
 * connections of that process are begun anew. Returns false if the image cannot be, or memory is short; nothing was done then. */
bool tunnel_load(struct tunnel *t, const struct tunnel_opening *opening, struct slice saved, uint64_t now)
    __attribute__((warn_unused_result));

/* ---- events ---- */

/* Bytes from one side, at most LEG_FRAME_WHOLE of them those of leg.partial, which the caller has put in
 * front and consumed. They lie in writable memory with FORWARD_FRONT writable bytes in front of them and are
 * changed. False: all went on as it came, and the caller need not look at the tunnel: there is no command, what it holds and what
 * is read from it are as before, and nothing is due sooner. */
bool tunnel_read(struct tunnel *t, enum side from, struct slice bytes, uint64_t now);
/* So many bytes of the worker's, at most forward_unseen_most, are here, out of which it takes what it wants by host.peel and
 * host.pipe; the client's pipe is empty. What is left of them, behind those that it gives back in `seen`, of which it returns
 * how many there are, is to be told by tunnel_read. */
size_t tunnel_unseen(struct tunnel *t, size_t len, uint8_t seen[WS_HEAD_MAX], uint64_t now);
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
/* COMMAND_RECHECK has received these bytes, of which up to `frames` frames are handled. Returns the number of bytes handled. */
size_t tunnel_recheck_bytes(struct tunnel *t, struct slice bytes, unsigned frames, uint64_t now);
/* COMMAND_RECHECK has ended. */
void tunnel_recheck_over(struct tunnel *t, uint64_t now);
/* The worker that serves: the target of COMMAND_RECHECK. */
const struct target *tunnel_recheck_target(const struct tunnel *t);
/* The agent answers a question or, watch, tells of a change. */
void tunnel_answered(struct tunnel *t, const struct answer *answer, bool watch, uint64_t now);
/* Whether a watch's answer would make it leave a worker that serves for another one, which can wait. */
bool tunnel_would_move(const struct tunnel *t, const struct answer *answer);
/* The same, before the other one is dialled, which it is then. */
bool tunnel_would_leave(const struct tunnel *t, const struct answer *answer);
/* Something of it may be due. */
void tunnel_tick(struct tunnel *t, uint64_t now);
uint64_t tunnel_due(const struct tunnel *t);
/* When that may be more than an acknowledgement: what has come by then counts, and is to be handled first. */
uint64_t tunnel_judges_at(const struct tunnel *t);
/* The parts of tunnel_tick that judge nobody's silence: a caller that gives silent peers more time calls these on time. The first
 * ends a tunnel that is open beyond its token or `max_age`, the second one that has moved no data for `idle`. */
void tunnel_end_expired(struct tunnel *t, uint64_t now);
void tunnel_end_idle(struct tunnel *t, uint64_t now);
/* When one of the two ends the tunnel unless data moves; UINT64_MAX: never. */
uint64_t tunnel_limits_due(const struct tunnel *t);
/* From outside: CLOSE_restarting, CLOSE_kicked, CLOSE_held_too_much. One that is closing already is waited for no longer. */
void tunnel_end(struct tunnel *t, enum close_reason reason, uint64_t now);

/* It has been opened, and nobody closes it yet. */
bool tunnel_is_open(const struct tunnel *t);
/* The target that is known to the tunnel, for questions. */
const struct target *tunnel_target(const struct tunnel *t);

#endif
