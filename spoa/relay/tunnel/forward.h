/* SPDX-License-Identifier: MIT */
/*
 * forward: the two legs of a tunnel and what goes from one to the other: frames, the relay's own Pings and Pongs, what
 * the adapter of the worker's protocol inserts or drops (forward.c), whole messages that pass as they came, which is most of what
 * goes on (forward_whole.c), payload that nobody looks at (forward_unseen.c), and
 * which side is read, and how much (forward_flow.c). It knows nothing of searching a worker and of closing a tunnel: it
 * tells how a read ended, and the tunnel says what follows.
 */
#ifndef CELLGATE_RELAY_TUNNEL_FORWARD_H
#define CELLGATE_RELAY_TUNNEL_FORWARD_H

#include "spoa/relay/leg/leg.h"
#include "spoa/relay/leg/pings.h"
#include "spoa/relay/resume/adapter.h"
#include "spoa/relay/tunnel/close_reason.h"
#include "spoa/relay/tunnel/host.h"

#define FORWARD_FRONT       (WS_HEAD_MAX + 1) /* a head, and the tag that an adapter may put behind it */
#define FORWARD_SHORT       (2 * SECOND)      /* that others have to give memory back */
#define FORWARD_POURS       (32 << 10)  /* bytes of one read, behind which a large frame is worth a pipe */
#define FORWARD_UNSEEN      (48 << 10)  /* bytes of such a frame */
#define FORWARD_UNSEEN_MOST (256 << 10) /* at a time */
#define READ_LEAST          4096 /* bytes of a side that are read however short memory is, if nothing of it is held */

/* What a tagged message of the client's is, by its first byte. */
enum forward_input { INPUT_UNTOLD, INPUT_BYTES, INPUT_OTHER };

enum forward_mode {
    FORWARD_WAITING, /* no worker yet, or none any more */
    FORWARD_SERVING,
    FORWARD_CLOSING, /* what the client still says is read away */
    FORWARD_HEARING, /* the client is read until the worker is gone; the worker is not read */
};

struct forward {
    struct tunnel_place place;
    bool there[2];            /* the leg has a socket */
    bool steady[2];           /* by who is read: forward_pass_whole may be asked */
    bool end_said;            /* the worker has said its session's end */
    bool stream, empty_frame; /* as the handover says */
    enum forward_mode mode;
    enum handover_end end;
    uint64_t max_message; /* 0: no limit */
    uint64_t used;        /* when data last came */
    struct leg legs[2];
    const struct adapter *adapter;
    void *adapter_state;
    enum forward_input input; /* the message that is coming in */
    struct pings pings;
    uint64_t missing; /* bytes, of those gaps whose size is known */
    unsigned gaps;    /* declared: output may be missing, or be there twice */

    /* ---- memory ---- */
    bool replay_short; /* its replay is permitted, but there is no memory */
    /* whether it may read from a side, in the decision that is being taken */
    bool looked[2], has_memory[2];
    uint64_t permit_at; /* when to ask again whether its replay is permitted; 0: it does not wait for that */
    /* no memory for what nothing of its own will make room for: when to look again; 0: there is */
    uint64_t short_at;
    uint64_t short_for;   /* how long that was so, up to FORWARD_SHORT, less how long it was not */
    uint64_t short_noted; /* when that was last noted */
};

/* How a read ended. */
struct forward_end {
    enum {
        FORWARD_GOES_ON,
        FORWARD_CLOSED, /* by a Close, with code and text */
        FORWARD_FAILED, /* the side has broken its protocol, or a limit; its Close is not waited for */
        FORWARD_NO_MEMORY,
    } how;
    enum close_reason reason; /* FORWARD_FAILED */
    unsigned code;            /* FORWARD_CLOSED */
    size_t text_len;
    uint8_t text[WS_CONTROL_MAX];
};

/* The client is heard although the tunnel is closing: the worker gets its Close behind what the client says. */
static inline bool forward_hears_client(const struct forward *f)
{
    return f->mode == FORWARD_HEARING && f->there[WORKER];
}

/* ---- events ---- */
/* As tunnel_read; the side is there, and is not a worker while the client is heard. */
struct forward_end forward_read(struct forward *f, enum side from, struct slice bytes, uint64_t now);
void forward_writable(struct forward *f, enum side to, uint64_t now);

/* ---- what most reads bring: whole small messages, which nobody changes, for a side that takes them at once ---- */
/* Whether a read of that side can begin with these. Behind every event. */
bool forward_is_steady(const struct forward *f, enum side from);
/* Takes those off that stand in front, and passes them on as they are. False: there is no memory. */
bool forward_pass_whole(struct forward *f, enum side from, struct slice *bytes, uint64_t now)
    __attribute__((warn_unused_result));

/* ---- what need not be looked at ----
 * The payload of large frames from the worker that nobody changes, or looks for something in. Without it in memory it
 * goes to the client as fragments, each with as many bytes as are there already; several frames go at once. */
/* How many bytes of the worker's the host may take without reading them; 0: what comes is to be read. */
size_t forward_unseen_most(const struct forward *f);
/* As tunnel_unseen. False: there is no memory. */
bool forward_pass_unseen(struct forward *f, size_t len, uint8_t seen[WS_HEAD_MAX], size_t *seen_len,
                         uint64_t now) __attribute__((warn_unused_result));
/* What is in the pipe goes on from memory: something is to follow it. */
bool forward_gather(struct forward *f, enum side to) __attribute__((warn_unused_result));

/* ---- to one side; false: there is no memory ---- */
/* The batch, behind all that is held. */
bool forward_flush(struct forward *f, enum side to, struct leg_batch *batch, uint64_t now)
    __attribute__((warn_unused_result));
bool forward_send_control(struct forward *f, enum side to, enum ws_opcode opcode, struct slice payload,
                          uint64_t now);
bool forward_send_close(struct forward *f, enum side to, unsigned code, struct slice text, uint64_t now);
/* The same for a side that is left next: it goes with what is held, and our FIN follows in the same packet. */
bool forward_hold_close(struct forward *f, enum side to, unsigned code, struct slice text, uint64_t now);
bool forward_keep_alive(struct forward *f, enum side to, uint64_t now);
/* Asks the worker how far it has read, if that is worth a Ping; whether it is. */
bool forward_may_ask_how_far(const struct forward *f, uint64_t now);
bool forward_ask_how_far(struct forward *f, uint64_t now);
/* Ends a message towards the client that the worker has left open; false: that is not possible. */
bool forward_mend_message(struct forward *f, uint64_t now);

/* ---- the adapter ---- */
void forward_declare(struct forward *f, enum adapter_outcome outcome, uint64_t gap);
/* Tells the adapter the time, or ADAPTER_NO_MORE. */
bool forward_tell_adapter(struct forward *f, uint64_t time, uint64_t now);
/* Lets the adapter decide what its second connection has shown. *begin: one is to be opened now. Returns false if memory is
 * short. */
bool forward_recheck(struct forward *f, uint64_t now, bool *begin);
/* Returns true while the adapter holds output that a second connection is to confirm. */
bool forward_is_unsettled(const struct forward *f);
/* A Pong by which the adapter acknowledges, if one is due and the client is not too slow. */
bool forward_acknowledge(struct forward *f, uint64_t now);
/* However slow the client is: the session has ended, there is nothing more to hold back. */
bool forward_acknowledge_all(struct forward *f, uint64_t now);
/* Says that the client's Close comes next, to workers that number it. */
void forward_mark_end(struct forward *f, uint64_t now);
/* So much is held for the client that what was received is not acknowledged to the worker yet. */
bool forward_withholds(const struct forward *f);

/* ---- back-pressure ---- */
/* Behind every event: which side is read from now on (leg.reading). */
void forward_decide(struct forward *f, uint64_t now);
/* How many more bytes may be read from that side now. */
size_t forward_room(const struct forward *f, enum side from);
/* How many more bytes of that side may be held, as far as memory goes; may be 0. */
size_t forward_memory(const struct forward *f, enum side from);
/* Whether what its worker replays is being collected. */
bool forward_needs_permit(const struct forward *f);
/* For longer than FORWARD_SHORT there was no memory to make whole what it holds. */
bool forward_waits(const struct forward *f);
/* When it is to be looked again whether its replay is permitted, or for memory; UINT64_MAX: not at all. */
uint64_t forward_looks_at(const struct forward *f);

#endif
