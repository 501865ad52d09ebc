/* SPDX-License-Identifier: MIT */
/*
 * resume: the session's side of one Cell-Resume tunnel (docs/resume-protocol.md) without sockets, clocks or output: the attempts, the
 * numbers of both directions, the items to keep and the items to send.
 *
 * An item of output is a range of the session's output, or the session's exit, or its end. An item is numbered just before it is sent, and
 * never changes after that. The owner must keep the output itself from resume_kept on. Input is held here until the session consumes it,
 * and is dropped with the leg (the connection) on which it came.
 */
#ifndef CELLGATE_WORKER_RESUME_RESUME_H
#define CELLGATE_WORKER_RESUME_RESUME_H

#include "spoa/base/bytes/buffer.h"
#include "spoa/proto/cell_resume.h"

#define RESUME_WINDOW \
    CELL_RESUME_WINDOW /* bytes unacknowledged, each way, if the other side does not want less */

enum resume_state {
    RESUME_AWAY, /* the tunnel has no leg */
    RESUME_LIVE,
    RESUME_OVER, /* the end was acknowledged, or the caller did not come back in time: only requests are answered */
};

struct resume_request {
    uint64_t attempt, recv;
    uint64_t buffer; /* the caller's window in bytes; 0 for the default */
    bool has_recv;
};

enum resume_answer { /* statuses of HTTP */
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
    uint64_t offset; /* position of the item's first byte in the session's output */
    uint32_t length;
    enum resume_kind kind;
};

/* An item of input: a message of the caller, or the caller's end. */
struct resume_message {
    uint32_t length;     /* number of its bytes that the session gets */
    uint32_t size;       /* size of its payload on the connection, which counts in the window */
    uint16_t cols, rows; /* new size of the terminal, or 0 */
    bool end;            /* the item is the caller's end */
};

struct resume {
    enum resume_state state;
    uint64_t attempt; /* highest number of an attempt so far */
    uint64_t window;  /* largest cost of unacknowledged items, in bytes */

    /* output */
    uint64_t acknowledged;    /* number of items that the caller has acknowledged */
    uint64_t numbered;        /* number of items that have a number */
    uint64_t sent;            /* number of items that were sent completely, on any leg */
    uint64_t next;            /* number of the next item to send on this leg */
    uint64_t cut;             /* offset up to which output is numbered */
    uint64_t in_flight;       /* cost of the items that were sent on this leg and are not acknowledged */
    struct resume_item *kept; /* item n is kept[n % capacity] */
    size_t capacity;          /* a power of two */
    bool ended;               /* the last item is the end */

    /* input */
    uint64_t consumed, told; /* number of consumed items; of acknowledged items */
    uint64_t untold;         /* cost of the items that are consumed and not acknowledged */
    uint64_t pending;        /* cost of all items that came on this leg and are not acknowledged */
    struct buffer held;      /* a resume_message and its bytes, per item that is not consumed */
    uint64_t waiting;        /* number of complete items in `held` */
    size_t open;             /* bytes of the incomplete item at the end of `held` */
    bool begun, closing;     /* `held` has an incomplete item; `held` has the caller's end */
};

void resume_init(struct resume *r);
/* Frees the memory of *r. */
void resume_free(struct resume *r);

/* ---- legs ---- */
/* Judges a request. After RESUME_ACCEPTED the new leg is the only one; the owner must detach an older leg first. The answer to the caller
 * has r->consumed and r->acknowledged + 1. */
enum resume_answer resume_request(struct resume *r, const struct resume_request *request);
/* Call when the leg is lost. */
void resume_left(struct resume *r);
/* Ends the tunnel. */
void resume_over(struct resume *r);

/* ---- output ---- */
/* Returns the largest number of bytes for a new item; 0 if the item must wait. */
size_t resume_room(const struct resume *r);
/* Numbers the next `length` bytes of output, or an exit or the end. Returns false if memory is short. */
bool resume_number(struct resume *r, enum resume_kind kind, uint32_t length);
/* Returns the item to send now; NULL if none is numbered or the window is full. */
const struct resume_item *resume_to_send(const struct resume *r);
/* Call when that item was sent completely. */
void resume_was_sent(struct resume *r);
/* Handles the caller's acknowledgement of all items up to `number`. */
enum resume_verdict resume_acknowledge(struct resume *r, uint64_t number);
/* Returns the offset from which on the owner must keep the output. */
uint64_t resume_kept(const struct resume *r);

/* ---- input ---- */
/* Takes some bytes of a message. `m` is only read with the last of them. */
enum resume_verdict resume_piece(struct resume *r, struct slice bytes, const struct resume_message *m,
                                 bool last);
/* Takes the caller's end, which must have this number. */
enum resume_verdict resume_close(struct resume *r, uint64_t number);
/* Fills in the first item that is not consumed. Returns false if there is none. */
bool resume_waiting(const struct resume *r, struct resume_message *m, struct slice *bytes);
/* Consumes that item. */
void resume_consume(struct resume *r);
/* Returns true if consumed input is unacknowledged. Sets *now if the acknowledgement must not be delayed. */
bool resume_owes(const struct resume *r, bool *now);
/* Call when an acknowledgement is sent. */
void resume_tell(struct resume *r);

#endif
