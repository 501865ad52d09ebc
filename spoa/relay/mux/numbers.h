/* SPDX-License-Identifier: MIT */
/*
 * mux_numbers: the gate's side of Cell-Resume (docs/resume-protocol.md, "Browser binding") under cellgate.mux.v1, for one
 * socket over all its legs. An item is a message of v1. An item to the client is a whole frame, kept until the client
 * acknowledges it; an item from the client waits until the owner takes it. The functions are pure.
 */
#ifndef CELLGATE_RELAY_MUX_NUMBERS_H
#define CELLGATE_RELAY_MUX_NUMBERS_H

#include "spoa/base/bytes/buffer.h"
#include "spoa/proto/cell_resume.h"

#define MUX_PROTOCOL_RESUMED "cellgate.mux.v1.resume"

enum {
    MUX_NUMBERS_HIGH = 512 << 10, /* kept bytes at which the owner stops reading answers */
    MUX_NUMBERS_LOW = 384 << 10,  /* kept bytes at which the owner reads answers again */
    /* smallest buffer that a client may announce, in bytes: two pieces of a body */
    MUX_NUMBERS_WINDOW_LEAST = 131072
};

struct mux_numbers {
    uint64_t attempt; /* highest attempt seen */
    uint64_t window;  /* highest cost of unacknowledged items, in each direction */

    /* to the client */
    /* frames of the items after `acknowledged`; the owner appends each item as one frame */
    struct buffer kept;
    uint64_t acknowledged; /* number of the last item that the client acknowledged */
    uint64_t sent;         /* highest item given to any leg */
    uint64_t given;        /* last item given to this leg, or acknowledged */
    size_t given_bytes;    /* bytes of `kept` given to this leg */
    uint64_t in_flight;    /* cost of the items given to this leg and not acknowledged */

    /* from the client */
    struct buffer waiting; /* messages, each preceded by its length */
    uint64_t waits;        /* the number of waiting messages */
    uint64_t taken, told;  /* last item taken by the owner; last item acknowledged to the client */
    uint64_t untold;       /* cost of the items after `told` up to `taken` */
    uint64_t pending;      /* cost of all items received on this leg and not acknowledged */
    bool marked;           /* the client's next Close ends the session */
};

struct mux_numbers mux_numbers_of(void);
void mux_numbers_free(struct mux_numbers *r);
size_t mux_numbers_held(const struct mux_numbers *r); /* in bytes of memory */

/* ---- legs ---- */

enum mux_numbers_answer { /* HTTP status codes */
                          MUX_NUMBERS_ACCEPTED = 101,
                          MUX_NUMBERS_IMPOSSIBLE = 400,
                          MUX_NUMBERS_LATE = 409,
};

/* Judges the request for a new leg. If accepted, the new leg replaces the older one, and the owner sends *greeting first. */
enum mux_numbers_answer mux_numbers_request(struct mux_numbers *r, const struct cell_resume_terms *request,
                                            struct cell_resume_terms *greeting);
/* Detaches the leg. Messages received on the leg and not taken are dropped, because the client sends them again. */
void mux_numbers_left(struct mux_numbers *r);

/* ---- to the client ---- */

/* Returns the next frame for this leg; absent if there is none or the window is full. Sets *large if the frame can never fit. */
struct slice mux_numbers_next(const struct mux_numbers *r, bool *large);
/* Records that the frame from mux_numbers_next was sent on this leg. */
void mux_numbers_give(struct mux_numbers *r);
/* Frees the items up to `number`. Returns false if no such item was sent. */
bool mux_numbers_acknowledge(struct mux_numbers *r, uint64_t number);
/* Returns the number of the end, an item that nothing follows; 0 if the leg was not given all items yet. */
uint64_t mux_numbers_end(const struct mux_numbers *r);

/* ---- from the client ---- */

enum mux_numbers_verdict { MUX_NUMBERS_FINE, MUX_NUMBERS_TOO_BIG, MUX_NUMBERS_NO_MEMORY };

/* Appends a received message to the waiting ones. */
enum mux_numbers_verdict mux_numbers_put(struct mux_numbers *r, struct slice message);
/* Returns the first waiting message, valid until mux_numbers_take; absent if none waits. */
struct slice mux_numbers_first(const struct mux_numbers *r);
void mux_numbers_take(struct mux_numbers *r);
/* Records that the client marked the end. Returns false if `number` is not the number of the end. */
bool mux_numbers_mark(struct mux_numbers *r, uint64_t number);
/* Returns true if there are items to acknowledge. Sets *now if the acknowledgement must not be delayed. */
bool mux_numbers_owes(const struct mux_numbers *r, bool *now);
/* Returns the number to acknowledge, and records that it is acknowledged. */
uint64_t mux_numbers_tell(struct mux_numbers *r);

#endif
