/* SPDX-License-Identifier: MIT */
/*
 * tunnel: the state machine of one tunnel, without I/O. Events go in (tunnel_read, tunnel_lost, tunnel_answered, tunnel_dialled,
 * tunnel_tick ...), commands come out (command.h). docs/relay.md describes the behaviour and its reasons; times are microseconds of
 * loop_clock.
 *
 * The caller owns the tunnel and the sockets. After each event the caller carries out the commands, then reads the state (a tunnel in
 * TUNNEL_ended does nothing any more and must be freed), tunnel_due and, for both sides, leg.reading and send_queue_empty(&leg.out).
 * After COMMAND_ACCEPT and COMMAND_ADOPT the caller calls tunnel_writable.
 */
#ifndef CELLGATE_RELAY_TUNNEL_TUNNEL_H
#define CELLGATE_RELAY_TUNNEL_TUNNEL_H

#include "spoa/relay/tunnel/connector.h"
#include "spoa/relay/tunnel/forward.h"
#include "spoa/relay/tunnel/state.h"

struct tunnel {
    struct forward forward;     /* the two legs and the data between them */
    struct connector connector; /* search for a worker */

    /* ---- what the route and the worker's protocol say ---- */
    uint64_t idle, max_age; /* longest time without data, and longest life, in µs; 0 means unlimited */
    enum close_reason ends_with;
    bool overlap; /* true if a new worker may be dialled while the old one serves */
    bool one_leg; /* true if the tunnel ends with its worker, for the reason `ends_with` */
    /* true for egress: the "worker" is a destination outside, and the program in the sandbox answers its Close */
    bool outside;
    bool named; /* true if the URL names the session, so that another dial does not begin a new session */

    /* ---- its life ---- */
    enum tunnel_state state;
    /* true if a transition was attempted that state.h does not list: a defect, which tests check */
    bool strayed;
    bool was_empty; /* true if the previous connection to the same worker carried nothing of the session */
    enum loss loss;
    struct recheck *recheck; /* second connection to the serving worker; NULL if there is none */
    /* true if the worker ended after the session's exit, before its output was confirmed: it is dialled again */
    bool exit_held;
    unsigned exits_held; /* number of consecutive exits held so */
    unsigned redials;
    uint64_t opened, expires, worker_since, lost_at, longest_gap;
    uint64_t progress_before; /* the adapter's progress when the current or last worker was found */
    unsigned gaps_before;     /* number of declared gaps at that time */

    /* ---- its end ---- */
    enum close_reason reason; /* reason of the end, from TUNNEL_closing on */
    /* Close to send once the meaning of the worker's, or the client's, Close is known */
    unsigned pending_code;
    struct buffer pending_close;
    uint64_t close_at; /* end of the wait in TUNNEL_grace and TUNNEL_closing */
};

struct tunnel_opening {
    struct tunnel_place place;
    const struct handover *handover; /* handover, borrowed for the call like the target */
    struct slice target;             /* path and query towards the worker */
    bool client_resumes;             /* true if the client speaks Cell-Resume itself */
    uint64_t expires;                /* time when the token that binds the tunnel expires; 0 means never */
    void *
        state; /* zeroed memory for its adapter's state (adapter_find), the caller's, as long as there is the tunnel */
};

/* Opens a tunnel for a client: begins to search for a worker, or refuses as the handover says. Returns false if memory is short; the
 * tunnel has then ended and holds nothing. */
bool tunnel_open(struct tunnel *t, const struct tunnel_opening *opening, uint64_t now)
    __attribute__((warn_unused_result));
void tunnel_free(struct tunnel *t);
/* Sets the surroundings of a tunnel that was moved, or read from its image, and where its adapter's state is now. Invariant: between
 * events, no pointer refers into the tunnel or its adapter's state. */
void tunnel_place(struct tunnel *t, const struct tunnel_place *place, void *state);

/* ---- as an image (spoa/base/image.h) ----
 * An image has all of a tunnel's state between two events, when no command waits. The sockets, the upgrade and the settings are the
 * reader's to bring along. */
/* Set the adapter and call tunnel_place before reading a tunnel by its table. */
extern const struct image_table tunnel_table;
/* Appends the image of a tunnel that has not ended, for another process. Returns false if the buffer's limit is reached, memory is short,
 * or the host's pipe holds some of the output (forward_gather). */
bool tunnel_save(const struct tunnel *t, struct buffer *to, uint64_t now) __attribute__((warn_unused_result));
/* Continues a tunnel that another process has saved; `opening` is the one that opened the tunnel. Questions, watches, dials and second
 * connections of that process are started again. Returns false if the image is invalid or memory is short; nothing was done then. */
bool tunnel_load(struct tunnel *t, const struct tunnel_opening *opening, struct slice saved, uint64_t now)
    __attribute__((warn_unused_result));

/* ---- events ---- */

/* Handles bytes from one side. At most LEG_FRAME_WHOLE of them are those of leg.partial, which the caller has put in front and consumed.
 * The bytes must lie in writable memory, after FORWARD_FRONT further writable bytes, and are changed. Returns false if all bytes were
 * forwarded unchanged: there is no command, no change of what the tunnel holds or reads, and no earlier deadline. */
bool tunnel_read(struct tunnel *t, enum side from, struct slice bytes, uint64_t now);
/* Handles `len` bytes from the worker that wait in the socket (at most forward_unseen_most). The tunnel reads frame heads with host.peel
 * and splices payloads with host.pipe. The client's pipe must be empty. Returns the number of bytes written to `seen`; the caller passes
 * these, then the remaining bytes, to tunnel_read. */
size_t tunnel_unseen(struct tunnel *t, size_t len, uint8_t seen[WS_HEAD_MAX], uint64_t now);
/* Handles a socket that can take more. */
void tunnel_writable(struct tunnel *t, enum side to, uint64_t now);
/* Handles the end of a side's socket; `how` is LOSS_eof or LOSS_reset. */
void tunnel_lost(struct tunnel *t, enum side side, enum loss how, uint64_t now);
/* Returns the target of a GET that the caller sends to the next worker before the dial, written to `w`; absent if no GET is needed. */
struct slice tunnel_probe(const struct tunnel *t, struct slice target, struct writer *w);
/* Handles the answer to that GET. Returns DIAL_OPEN if the caller should dial now; otherwise the value is the outcome of the dial. */
enum dial_outcome tunnel_probed(struct tunnel *t, unsigned status, struct slice body);
/* Handles the outcome of a dial; `head` is the head of the 101. */
void tunnel_dialled(struct tunnel *t, enum dial_outcome outcome, unsigned status,
                    const struct http_head *head, uint64_t now);
/* Handles bytes from the second connection, at most `frames` frames of them. Returns the number of bytes handled. */
size_t tunnel_recheck_bytes(struct tunnel *t, struct slice bytes, unsigned frames, uint64_t now);
/* Handles the end of the second connection. */
void tunnel_recheck_over(struct tunnel *t, uint64_t now);
/* Returns the serving worker, which is the target of COMMAND_RECHECK. */
const struct target *tunnel_recheck_target(const struct tunnel *t);
/* Handles the agent's answer to a question or, if `watch`, its notification of a change. */
void tunnel_answered(struct tunnel *t, const struct answer *answer, bool watch, uint64_t now);
/* Returns true if a watch's answer would make the tunnel replace its serving worker by another one; the caller may delay such an answer. */
bool tunnel_would_move(const struct tunnel *t, const struct answer *answer);
/* Returns true if, in addition, the tunnel would detach its worker before it dials the other one. */
bool tunnel_would_leave(const struct tunnel *t, const struct answer *answer);
/* Handles all deadlines that have passed. */
void tunnel_tick(struct tunnel *t, uint64_t now);
uint64_t tunnel_due(const struct tunnel *t);
/* Returns the next time at which tunnel_tick may do more than acknowledge. The caller must first handle data that has arrived by then,
 * because it counts. */
uint64_t tunnel_judges_at(const struct tunnel *t);
/* The parts of tunnel_tick that do not depend on a peer's silence: a caller that gives silent peers more time calls these on time.
 * tunnel_end_expired ends a tunnel that is open beyond its token or `max_age`, tunnel_end_idle one that has moved no data for `idle`. */
void tunnel_end_expired(struct tunnel *t, uint64_t now);
void tunnel_end_idle(struct tunnel *t, uint64_t now);
/* Returns the time when one of these two ends the tunnel unless data moves; UINT64_MAX for never. */
uint64_t tunnel_limits_due(const struct tunnel *t);
/* Ends the tunnel from outside (CLOSE_restarting, CLOSE_kicked, CLOSE_held_too_much). A tunnel that is closing already stops waiting. */
void tunnel_end(struct tunnel *t, enum close_reason reason, uint64_t now);

/* Returns true if the tunnel was opened and is not closing. */
bool tunnel_is_open(const struct tunnel *t);
/* Returns the tunnel's current target, for questions to the agent. */
const struct target *tunnel_target(const struct tunnel *t);

#endif
