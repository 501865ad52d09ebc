/* SPDX-License-Identifier: MIT */
/* forward: moves data between the two legs of a tunnel: frames, the relay's own Pings and Pongs, and the adapter's insertions and removals
 * (forward.c); whole messages that pass unchanged, which is the fast path (forward_whole.c); payload that is spliced without being read
 * (forward_unseen.c); and back-pressure (forward_flow.c). This part neither finds workers nor closes tunnels: it returns how a read ended,
 * and the tunnel decides what follows. */
#ifndef CELLGATE_RELAY_TUNNEL_FORWARD_H
#define CELLGATE_RELAY_TUNNEL_FORWARD_H

#include "spoa/relay/leg/leg.h"
#include "spoa/relay/leg/pings.h"
#include "spoa/relay/resume/adapter.h"
#include "spoa/relay/tunnel/close_reason.h"
#include "spoa/relay/tunnel/host.h"

/* bytes for a frame head and the tag that an adapter may insert after it */
#define FORWARD_FRONT       (WS_HEAD_MAX + 1)
#define FORWARD_SHORT       (2 * SECOND) /* time that other tunnels have to free memory */
#define FORWARD_POURS       (32 << 10)   /* bytes of one read from which on large frames are worth a pipe */
#define FORWARD_UNSEEN      (48 << 10)   /* smallest payload that is spliced */
#define FORWARD_UNSEEN_MOST (256 << 10)  /* most bytes that are spliced at a time */
/* bytes that may be read from a side that holds nothing, even if memory is short */
#define READ_LEAST 4096

/* Kind of a tagged message of the client, known from its first byte. */
enum forward_input { INPUT_UNTOLD, INPUT_BYTES, INPUT_OTHER };

enum forward_mode {
    FORWARD_WAITING, /* no worker is attached */
    FORWARD_SERVING,
    FORWARD_CLOSING, /* input from the client is discarded */
    FORWARD_HEARING, /* the client is read until the worker is gone; the worker is not read */
};

struct forward {
    struct tunnel_place place;
    bool there[2];            /* per side: true if the leg has a socket */
    bool steady[2];           /* per side that is read: true if forward_pass_whole may be called */
    bool end_said;            /* true if the worker has announced its session's end */
    bool stream, empty_frame; /* settings of the handover */
    enum forward_mode mode;
    enum handover_end end;
    uint64_t max_message; /* largest message, in bytes; 0 means unlimited */
    uint64_t used;        /* time of the last data */
    struct leg legs[2];
    const struct adapter *adapter;
    void *adapter_state;
    enum forward_input input; /* kind of the message that is being received from the client */
    struct pings pings;
    uint64_t missing; /* bytes missing in all gaps whose size is known */
    unsigned gaps;    /* number of declared gaps: output may be missing or duplicated */

    /* ---- memory ---- */
    bool replay_short; /* true if the replay is permitted but memory is short */
    /* per side: result of the memory check, cached for one decision; valid if looked[side] */
    bool looked[2], has_memory[2];
    uint64_t permit_at; /* time of the next request for a replay permit; 0 if none is pending */
    /* time of the next memory check if only memory freed by others lets the tunnel continue; 0 if there is memory */
    uint64_t short_at;
    /* time for which memory was short, less the time for which it was not, at most FORWARD_SHORT */
    uint64_t short_for;
    uint64_t short_noted; /* time when short_for was last updated */
};

/* The result of a read. */
struct forward_end {
    enum {
        FORWARD_GOES_ON,
        FORWARD_CLOSED, /* the side sent a Close with `code` and `text` */
        FORWARD_FAILED, /* the side broke its protocol or a limit; the relay does not wait for its Close */
        FORWARD_NO_MEMORY,
    } how;
    enum close_reason reason; /* FORWARD_FAILED */
    unsigned code;            /* FORWARD_CLOSED */
    size_t text_len;
    uint8_t text[WS_CONTROL_MAX];
};

/* Returns true if the client is still read although the tunnel is closing: the worker gets its Close after the client's last data. */
static inline bool forward_hears_client(const struct forward *f)
{
    return f->mode == FORWARD_HEARING && f->there[WORKER];
}

/* ---- events ---- */
/* Handles bytes from a side, like tunnel_read. The side must have a socket, and must not be the worker while forward_hears_client. */
struct forward_end forward_read(struct forward *f, enum side from, struct slice bytes, uint64_t now);
void forward_writable(struct forward *f, enum side to, uint64_t now);

/* ---- fast path: whole small messages that pass unchanged to a side that can take them at once ---- */
/* Returns true if the next read from that side may use the fast path. Call after each event. */
bool forward_is_steady(const struct forward *f, enum side from);
/* Forwards the whole messages at the front of `bytes` unchanged and removes them from `bytes`. Returns false if memory is short. */
bool forward_pass_whole(struct forward *f, enum side from, struct slice *bytes, uint64_t now)
    __attribute__((warn_unused_result));

/* ---- spliced payload ----
 * The payload of large frames from the worker that nobody changes or searches. The host sends it to the client without copying it to
 * memory, as fragments of the bytes that have arrived; several frames may go at once. */
/* Returns the number of bytes from the worker that the host may splice without reading; 0 if they must be read. */
size_t forward_unseen_most(const struct forward *f);
/* Splices bytes from the worker, like tunnel_unseen. Returns false if memory is short. */
bool forward_pass_unseen(struct forward *f, size_t len, uint8_t seen[WS_HEAD_MAX], size_t *seen_len,
                         uint64_t now) __attribute__((warn_unused_result));
/* Moves the pipe's contents to memory, because other output must follow them. Returns false if memory is short. */
bool forward_gather(struct forward *f, enum side to) __attribute__((warn_unused_result));

/* ---- to one side; each function that returns bool returns false if memory is short ---- */
/* Sends the batch after all output that is held for that side. */
bool forward_flush(struct forward *f, enum side to, struct leg_batch *batch, uint64_t now)
    __attribute__((warn_unused_result));
bool forward_send_control(struct forward *f, enum side to, enum ws_opcode opcode, struct slice payload,
                          uint64_t now);
bool forward_send_close(struct forward *f, enum side to, unsigned code, struct slice text, uint64_t now);
/* Like forward_send_close for a side that is detached next: the Close joins the held output, and the FIN follows in the same packet. */
bool forward_hold_close(struct forward *f, enum side to, unsigned code, struct slice text, uint64_t now);
bool forward_keep_alive(struct forward *f, enum side to, uint64_t now);
/* forward_may_ask_how_far returns true if a Ping should ask the worker how far it has read; forward_ask_how_far sends that Ping. */
bool forward_may_ask_how_far(const struct forward *f, uint64_t now);
bool forward_ask_how_far(struct forward *f, uint64_t now);
/* Completes a message to the client that the worker has left unfinished. Returns false if that is impossible. */
bool forward_mend_message(struct forward *f, uint64_t now);

/* ---- the adapter ---- */
void forward_declare(struct forward *f, enum adapter_outcome outcome, uint64_t gap);
/* Passes the time, or ADAPTER_NO_MORE, to the adapter. */
bool forward_tell_adapter(struct forward *f, uint64_t time, uint64_t now);
/* Lets the adapter use what its second connection has received. `*begin` is set to true if a second connection should be opened now.
 * Returns false if memory is short. */
bool forward_recheck(struct forward *f, uint64_t now, bool *begin);
/* Returns true while the adapter holds output that a second connection is to confirm. */
bool forward_is_unsettled(const struct forward *f);
/* Sends the Pong by which the adapter acknowledges, if one is due and the client is not too slow. */
bool forward_acknowledge(struct forward *f, uint64_t now);
/* Sends that Pong even if the client is slow: the session has ended, and back-pressure has no purpose any more. */
bool forward_acknowledge_all(struct forward *f, uint64_t now);
/* Announces the client's Close to workers that number input. */
void forward_mark_end(struct forward *f, uint64_t now);
/* Returns true while the output held for the client is too long for the relay to acknowledge received output to the worker. */
bool forward_withholds(const struct forward *f);

/* ---- back-pressure ---- */
/* Decides which side is read from now on (leg.reading). Call after each event. */
void forward_decide(struct forward *f, uint64_t now);
/* Returns the number of bytes that may be read from that side now. */
size_t forward_room(const struct forward *f, enum side from);
/* Returns the number of bytes from that side that memory allows to hold; may be 0. */
size_t forward_memory(const struct forward *f, enum side from);
/* Returns true if the adapter is collecting the worker's replay. */
bool forward_needs_permit(const struct forward *f);
/* Returns true if memory was too short for longer than FORWARD_SHORT to complete what the tunnel holds. */
bool forward_waits(const struct forward *f);
/* Returns the time of the next check for a replay permit or for memory, or UINT64_MAX if there is none. */
uint64_t forward_looks_at(const struct forward *f);

#endif
