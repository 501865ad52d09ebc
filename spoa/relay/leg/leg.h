/* SPDX-License-Identifier: MIT */
/*
 * leg: one side of a tunnel, the client's or the worker's. The leg decodes what its peer sends, queues what the peer has not taken
 * yet, and decides when a silent peer is pinged or counts as dead. The leg does no I/O; times are microseconds of loop_clock.
 */
#ifndef CELLGATE_RELAY_LEG_LEG_H
#define CELLGATE_RELAY_LEG_LEG_H

#include "spoa/proto/ws.h"
#include "spoa/relay/leg/send_queue.h"

#define LEG_FRAME_WHOLE 16384 /* bytes; a longer frame is forwarded in fragments, as its bytes arrive */
/* bytes; if more are held for a connected peer, the relay stops reading their source */
#define LEG_PAUSE 65536
/* The number of bytes that may be held beyond the limit: the bytes of one read, and the control frames caused by a read. */
#define LEG_SLACK (2 * LEG_PAUSE + LEG_FRAME_WHOLE)
/* The share of LEG_SLACK for heads of fragments, and for control frames until reading stops. */
#define LEG_SPARE (LEG_PAUSE / 2)
#define LEG_RUNS  16

struct leg_settings {
    uint64_t keepalive;  /* silence after which the relay sends a Ping, in µs */
    uint64_t dead_after; /* silence after a Ping that makes the peer count as dead, in µs */
    /* longest time in which the peer takes none of the held bytes, in µs; 0 if unlimited */
    uint64_t stall;
    /* the relay sends an empty binary frame instead of a Ping, and the peer never counts as dead */
    bool empty_frame;
};

/* The members that every message needs come first, to share cache lines. */
struct leg {
    uint64_t bytes_in, bytes_out;
    uint64_t data;        /* bytes of payload sent to the peer, including those still held */
    uint64_t message_len; /* bytes received so far of the incoming message */
    uint64_t heard;       /* time of the last byte from the peer, or of the last resumption of reading */
    uint64_t pinged;      /* time since which a Ping of the relay has been unanswered; 0 if there is none */
    uint64_t progress;    /* time when the kernel last took held bytes, or a whole batch */
    uint8_t message_in;   /* opcode of the incoming message */
    uint8_t message_out;  /* opcode of the unfinished message towards the peer; 0 if there is none */
    bool reading;
    bool pours;               /* the peer sends in bulk: enough bytes at a time to be worth a pipe */
    bool close_in, close_out; /* a Close was received; a Close was sent */
    /* memory was short for the rest of a partly sent frame, so no further frame can be sent */
    bool cut;
    /* bytes read together with the ones that made the decoder fail, and never decoded */
    size_t dropped;

    uint64_t read;     /* bytes of `data` that the peer has certainly read */
    uint64_t asked;    /* bytes of `data` that a Pong to the last Ping of the relay proves read */
    uint64_t asked_at; /* time of the last Ping of the relay */
    struct ws_decoder in;
    struct buffer partial; /* the beginning of a frame from the peer that is forwarded only once complete */
    struct send_queue out;
    uint32_t pings; /* the number of Pings sent by the relay */
    uint32_t mark;  /* a secret in each of these Pings, which only this peer has seen */
};

/* Returns a leg that holds at most `limit` bytes for its peer. `mark` must be unpredictable. */
struct leg leg_of(enum ws_sender sender, size_t limit, uint32_t mark, uint64_t now);
void leg_free(struct leg *leg);
/* Resets the leg for another peer. Held bytes and counters are kept. */
void leg_renew(struct leg *leg, uint64_t now);

/* ---- towards the peer ---- */
/* Offers bytes to the kernel and returns the number taken; also returns 0 if the peer cannot be reached. */
typedef size_t leg_send(void *context, const struct slice *runs, size_t count);

/* Returns true if the run has no address: the run is then the only one, and its bytes lie in the host's pipe (host.h). */
static inline bool leg_is_unseen(struct slice run)
{
    return !run.at && run.len;
}

/* A batch of frames that are sent together, as runs of bytes. */
struct leg_batch {
    struct slice runs[LEG_RUNS];
    size_t count;
    uint8_t message;   /* leg.message_out before the first frame */
    uint32_t controls; /* a bit for each run of control frames, which a queue that keeps does not keep */
};

/* Returns the number of bytes in runs of data frames. */
size_t leg_batch_data(const struct leg_batch *batch);
/* Sends the bytes that `send` takes and holds the rest; `send` is NULL while there is no peer. Returns false if the limit is
 * exceeded or memory is short. The batch is empty afterwards. */
bool leg_flush(struct leg *leg, struct leg_batch *batch, leg_send *send, void *context, uint64_t now)
    __attribute__((warn_unused_result));
/* Like `leg_flush`, for whole messages of which the caller has sent the first `taken` bytes. The leg's queue must have nothing to
 * send. */
bool leg_sent_of(struct leg *leg, struct slice messages, size_t taken, uint64_t now)
    __attribute__((warn_unused_result));
/* Sends held bytes. Call if the peer can take more. */
void leg_writable(struct leg *leg, leg_send *send, void *context, uint64_t now);

/* ---- silence ---- */
enum leg_health { LEG_FINE, LEG_QUIET /* send a Ping */, LEG_DEAD, LEG_STALLED };
enum leg_health leg_check(const struct leg *leg, const struct leg_settings *settings, uint64_t now);
/* Returns the earliest time when leg_check may return anything but LEG_FINE. */
uint64_t leg_due(const struct leg *leg, const struct leg_settings *settings);

/* Writes the payload of the relay's next Ping. `leg_own_pong` recognises the Pong, which proves that the peer has read everything
 * sent before that Ping. The caller sets leg.pinged if the leg is to wait for the Pong. */
#define LEG_PING_LEN 16
void leg_ping_payload(struct leg *leg, uint8_t payload[LEG_PING_LEN], uint64_t now);
bool leg_own_pong(struct leg *leg, struct slice payload);
/* Returns the number of payload bytes that the peer may not have read, and begins a new count. With `all`, held bytes count, too;
 * otherwise they belong to the next peer and to the new count. If the leg's queue keeps sent frames, returns all bytes held. */
uint64_t leg_take_unread(struct leg *leg, bool all);

/* Starts or stops reading. The peer's silence, also after a Ping, is measured anew from then on. */
void leg_read(struct leg *leg, bool on, uint64_t now);

/* Returns the number of bytes of the current incoming frame that are still to be read from the socket. */
static inline uint64_t leg_announced(const struct leg *leg)
{
    uint64_t rest = ws_untold(&leg->in);
    return rest > leg->dropped ? rest - leg->dropped : 0;
}

extern const struct image_table leg_table;

#endif
