/* SPDX-License-Identifier: MIT */
/*
 * leg: one side of a tunnel, the client's or the worker's: what it sends is decoded, what is sent to it waits
 * in a send queue, and its silence is watched. Without I/O; times are microseconds of loop_clock.
 */
#ifndef CELLGATE_RELAY_LEG_LEG_H
#define CELLGATE_RELAY_LEG_LEG_H

#include "spoa/proto/ws.h"
#include "spoa/relay/leg/send_queue.h"

#define LEG_FRAME_WHOLE 16384 /* a longer frame goes on as fragments of the bytes at hand */
#define LEG_PAUSE       65536 /* more than this held for a peer that is there: its source is not read */
/* What may be held beyond the limit: what one read can bring, and one read's answers or control frames. */
#define LEG_SLACK (2 * LEG_PAUSE + LEG_FRAME_WHOLE)
/* Of it for heads of fragments, and for control frames before no more are read. */
#define LEG_SPARE (LEG_PAUSE / 2)
#define LEG_RUNS  16

struct leg_settings {
    uint64_t keepalive;  /* silence after which a Ping is sent */
    uint64_t dead_after; /* silence after a Ping after which the peer is dead */
    uint64_t stall;      /* bytes are held and none is taken for so long: the peer is too slow; 0: never */
    bool empty_frame;    /* an empty binary frame instead of a Ping; its silence is then not judged */
};

/* What every message needs of it stands in front. */
struct leg {
    uint64_t bytes_in, bytes_out;
    uint64_t data;        /* bytes of payload that it was given, what is held included */
    uint64_t message_len; /* bytes so far of the message that is coming in */
    uint64_t heard;       /* when the last byte came, or reading began again */
    uint64_t pinged;      /* a Ping of the relay's has been unanswered since; 0: none */
    uint64_t progress;    /* when the kernel last took some of what is held, or all */
    uint8_t message_in;   /* opcode of the message that is coming in */
    uint8_t message_out;  /* opcode of the message towards the peer that has no end yet; 0: none */
    bool reading;
    bool pours;               /* so much at a time comes from the peer that it is worth a pipe */
    bool close_in, close_out; /* a Close came, was sent */
    bool cut;                 /* there was no memory for the rest of a frame: nothing can follow */
    size_t dropped;           /* bytes that were read with what made it fail, and that nobody decodes */

    uint64_t read;     /* of `data`, what the peer has certainly read */
    uint64_t asked;    /* what it will have read when it answers the last Ping of the relay's */
    uint64_t asked_at; /* when that was sent */
    struct ws_decoder in;
    struct buffer partial; /* of a frame from the peer that is to go on whole */
    struct send_queue out;
    uint32_t pings; /* of the relay's */
    uint32_t mark;  /* in each of them: nobody but this peer has seen it */
};

/* limit: bytes held for it. mark: unpredictable. */
struct leg leg_of(enum ws_sender sender, size_t limit, uint32_t mark, uint64_t now);
void leg_free(struct leg *leg);
/* The peer is another one: everything but what is held for it and what was counted begins anew. */
void leg_renew(struct leg *leg, uint64_t now);

/* ---- towards the peer ---- */
/* Gives bytes to the kernel and says how many it took; 0 also when the peer cannot be reached. */
typedef size_t leg_send(void *context, const struct slice *runs, size_t count);

/* A run that is nowhere, and the only one, stands for as many bytes that lie in the host's pipe (host.h). */
static inline bool leg_is_unseen(struct slice run)
{
    return !run.at && run.len;
}

/* Frames that lie in memory as runs of bytes; they are sent together. */
struct leg_batch {
    struct slice runs[LEG_RUNS];
    size_t count;
    uint8_t message;   /* leg.message_out before the first of them */
    uint32_t controls; /* a bit for each run of control frames: nobody keeps them */
};

/* Bytes of those that are kept. */
size_t leg_batch_data(const struct leg_batch *batch);
/* Sends what send takes and holds the rest; send is NULL while there is no peer. False: over the limit or out
 * of memory. The batch is empty afterwards. */
bool leg_flush(struct leg *leg, struct leg_batch *batch, leg_send *send, void *context, uint64_t now)
    __attribute__((warn_unused_result));
/* The same of whole messages, to a leg that nothing waits for: send has taken so much of them. */
bool leg_sent_of(struct leg *leg, struct slice messages, size_t taken, uint64_t now)
    __attribute__((warn_unused_result));
/* The peer can take more of what is held. */
void leg_writable(struct leg *leg, leg_send *send, void *context, uint64_t now);

/* ---- silence ---- */
enum leg_health { LEG_FINE, LEG_QUIET /* send a Ping */, LEG_DEAD, LEG_STALLED };
enum leg_health leg_check(const struct leg *leg, const struct leg_settings *settings, uint64_t now);
/* When leg_check may say something else than LEG_FINE at the earliest. */
uint64_t leg_due(const struct leg *leg, const struct leg_settings *settings);

/* The payload of the relay's own next Ping; leg_own_pong knows its Pong: what was sent before that Ping has been
 * read. leg.pinged is the caller's to set, if an answer is to be waited for. */
#define LEG_PING_LEN 16
void leg_ping_payload(struct leg *leg, uint8_t payload[LEG_PING_LEN], uint64_t now);
bool leg_own_pong(struct leg *leg, struct slice payload);
/* Bytes that were sent to the peer and it may not have read; of a leg that keeps, all that it keeps. all: what is held
 * counts, too; else it is for the next peer, and from here on only that counts. */
uint64_t leg_take_unread(struct leg *leg, bool all);

/* Reading is switched; its silence, and that of a Ping, counts from when it is. */
void leg_read(struct leg *leg, bool on, uint64_t now);

/* Bytes of a frame in whose middle the peer is, and that are still to be read from its socket. */
static inline uint64_t leg_announced(const struct leg *leg)
{
    uint64_t rest = ws_untold(&leg->in);
    return rest > leg->dropped ? rest - leg->dropped : 0;
}

extern const struct image_table leg_table;

#endif
