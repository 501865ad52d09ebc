/* SPDX-License-Identifier: MIT */
/*
 * resume: the session's side of one Cell-Resume tunnel (docs/resume-protocol.md) without sockets, clocks or
 * output: attempts, the numbers of both directions, what has to be kept and what may be sent.
 *
 * An item of the output is a piece of the session's output, by offset, or its exit, or its end. It is numbered
 * when it is about to be sent, and never changes from then on; the output itself is kept by its owner from
 * resume_kept on. Input is held here until it is consumed, and dropped with the leg on which it came.
 */
#ifndef CELLGATE_WORKER_RESUME_RESUME_H
#define CELLGATE_WORKER_RESUME_RESUME_H

#include "spoa/base/bytes/buffer.h"
#include "spoa/proto/cell_resume.h"

#define RESUME_WINDOW \
    CELL_RESUME_WINDOW /* bytes unacknowledged, each way, if the other side does not want less */

enum resume_state {
    RESUME_AWAY, /* no leg */
    RESUME_LIVE,
    RESUME_OVER, /* its end is acknowledged, or nobody came back for it: it answers requests and no more */
};

struct resume_request {
    uint64_t attempt, recv;
    uint64_t buffer; /* 0: not said */
    bool has_recv;
};

enum resume_answer { /* as HTTP says it */
                     RESUME_ACCEPTED = 101,
                     RESUME_IMPOSSIBLE = 400,
                     RESUME_LATE = 409,
                     RESUME_EXPIRED = 410,
};

enum resume_verdict {
    RESUME_FINE,
    RESUME_WRONG,   /* the caller has broken the protocol: 1002 */
    RESUME_TOO_BIG, /* more than the window: 1009 */
    RESUME_NO_MEMORY,
};

enum resume_kind { RESUME_BYTES, RESUME_EXIT, RESUME_END };

struct resume_item {
    uint64_t offset; /* of its first byte in the session's output */
    uint32_t length;
    enum resume_kind kind;
};

/* A message of the caller's. */
struct resume_message {
    uint32_t length;     /* of its bytes */
    uint32_t size;       /* of its payload on the wire, of which `length` bytes matter */
    uint16_t cols, rows; /* not 0: the terminal gets this size */
    bool end;            /* it is the caller's end, and no message */
};

struct resume {
    enum resume_state state;
    uint64_t attempt; /* the highest seen */
    uint64_t window;

    /* output */
    uint64_t acknowledged; /* items */
    uint64_t numbered;
    uint64_t sent;            /* completely, on any leg */
    uint64_t next;            /* to be sent on this leg */
    uint64_t cut;             /* offset up to which output is numbered */
    uint64_t in_flight;       /* cost of what was sent on this leg and is not acknowledged */
    struct resume_item *kept; /* item n is kept[n % capacity]; a power of two */
    size_t capacity;
    bool ended; /* the last item is the end */

    /* input */
    uint64_t consumed, told; /* items: taken, and acknowledged */
    uint64_t untold;         /* cost of those in between */
    uint64_t pending;        /* cost of all that came on this leg and is not acknowledged */
    struct buffer held;      /* a resume_message and its bytes, for each that is not consumed */
    uint64_t waiting;        /* complete ones in it */
    size_t open;             /* bytes of the incomplete one at its end */
    bool begun, closing;     /* there is an incomplete one; the caller's end is in it */
};

void resume_init(struct resume *r);
void resume_free(struct resume *r);

/* ---- legs ---- */
/* After RESUME_ACCEPTED this leg is the current one and no other counts: the owner fences that first. The
 * answer holds r->consumed and r->acknowledged + 1. */
enum resume_answer resume_request(struct resume *r, const struct resume_request *request);
void resume_left(struct resume *r);
void resume_over(struct resume *r);

/* ---- output ---- */
/* Of a new item of bytes: how many it may have now; 0: it has to wait. */
size_t resume_room(const struct resume *r);
/* Numbers the next `length` bytes, or an exit or the end; false when out of memory. */
bool resume_number(struct resume *r, enum resume_kind kind, uint32_t length);
/* The item to send now; NULL: none is numbered, or the window is full. */
const struct resume_item *resume_to_send(const struct resume *r);
/* It was sent completely. */
void resume_was_sent(struct resume *r);
enum resume_verdict resume_acknowledge(struct resume *r, uint64_t number);
/* Output before this offset is not needed any more. */
uint64_t resume_kept(const struct resume *r);

/* ---- input ---- */
/* Some bytes of a message; `m` counts with the last of them. */
enum resume_verdict resume_piece(struct resume *r, struct slice bytes, const struct resume_message *m,
                                 bool last);
enum resume_verdict resume_close(struct resume *r, uint64_t number);
/* The first message that is not consumed; false: none. */
bool resume_waiting(const struct resume *r, struct resume_message *m, struct slice *bytes);
void resume_consume(struct resume *r);
/* Whether consumed input is unacknowledged, and whether it is so much that it must be said now. */
bool resume_owes(const struct resume *r, bool *now);
void resume_tell(struct resume *r);

#endif
