/* SPDX-License-Identifier: MIT */
/*
 * mux_numbers: the gate's side of Cell-Resume (docs/resume-protocol.md, "Browser binding") under cellgate.mux.v1, of one
 * socket over all its legs. An item is a message of v1: to the client a whole frame, kept until it is acknowledged; from the
 * client one that waits until it may be taken. Pure.
 */
#ifndef CELLGATE_RELAY_MUX_NUMBERS_H
#define CELLGATE_RELAY_MUX_NUMBERS_H

#include "spoa/base/bytes/buffer.h"
#include "spoa/proto/cell_resume.h"

#define MUX_PROTOCOL_RESUMED "cellgate.mux.v1.resume"

enum {
    MUX_NUMBERS_HIGH = 512 << 10,     /* bytes that are kept: from here on no answer is read */
    MUX_NUMBERS_LOW = 384 << 10,      /* and from here on again */
    MUX_NUMBERS_WINDOW_LEAST = 131072 /* of what a client may say that it keeps: two pieces of a body */
};

struct mux_numbers {
    uint64_t attempt; /* the highest seen */
    uint64_t window;  /* cost of what may be unacknowledged, each way */

    /* to the client */
    struct buffer kept;    /* frames, from item acknowledged + 1 on; who speaks appends them, one item each */
    uint64_t acknowledged; /* items */
    uint64_t sent;         /* the highest that any leg was given */
    uint64_t given;        /* the last that this leg was given, or acknowledged */
    size_t given_bytes;    /* of kept */
    uint64_t in_flight;    /* cost of what this leg was given and has not acknowledged */

    /* from the client */
    struct buffer waiting; /* messages, each behind its length */
    uint64_t waits;        /* how many */
    uint64_t taken, told;  /* items; acknowledged */
    uint64_t untold;       /* cost of those in between */
    uint64_t pending;      /* cost of all that came on this leg and is not acknowledged */
    bool marked;           /* its next Close is its end */
};

struct mux_numbers mux_numbers_of(void);
void mux_numbers_free(struct mux_numbers *r);
size_t mux_numbers_held(const struct mux_numbers *r); /* bytes of memory */

/* ---- legs ---- */

enum mux_numbers_answer { /* as HTTP says it */
                          MUX_NUMBERS_ACCEPTED = 101,
                          MUX_NUMBERS_IMPOSSIBLE = 400,
                          MUX_NUMBERS_LATE = 409,
};

/* Accepted: the older leg, if there is one, counts no more, and *greeting is what the new one is told first. */
enum mux_numbers_answer mux_numbers_request(struct mux_numbers *r, const struct cell_resume_terms *request,
                                            struct cell_resume_terms *greeting);
/* What came on that and is not taken comes again. */
void mux_numbers_left(struct mux_numbers *r);

/* ---- to the client ---- */

/* The next frame for this leg; absent: there is none, or the window is full, or *large: none that it could ever take. */
struct slice mux_numbers_next(const struct mux_numbers *r, bool *large);
/* That one has been given to it. */
void mux_numbers_give(struct mux_numbers *r);
/* False: there is no such item. */
bool mux_numbers_acknowledge(struct mux_numbers *r, uint64_t number);
/* Of the end, which nothing follows; 0: the leg was not given all yet. */
uint64_t mux_numbers_end(const struct mux_numbers *r);

/* ---- from the client ---- */

enum mux_numbers_verdict { MUX_NUMBERS_FINE, MUX_NUMBERS_TOO_BIG, MUX_NUMBERS_NO_MEMORY };

/* A message has come. It waits, until mux_numbers_first gives it. */
enum mux_numbers_verdict mux_numbers_put(struct mux_numbers *r, struct slice message);
/* Of those that wait; absent: none does. Until mux_numbers_take. */
struct slice mux_numbers_first(const struct mux_numbers *r);
void mux_numbers_take(struct mux_numbers *r);
/* False: the end has another number. */
bool mux_numbers_mark(struct mux_numbers *r, uint64_t number);
/* Whether something has to be acknowledged, and whether that is *now. */
bool mux_numbers_owes(const struct mux_numbers *r, bool *now);
/* The number to acknowledge, which is then told. */
uint64_t mux_numbers_tell(struct mux_numbers *r);

#endif
