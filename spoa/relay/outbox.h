/* SPDX-License-Identifier: MIT */
/*
 * outbox: whole frames on their way to one peer, those that the kernel has not taken yet. While there is no
 * peer it is what is held for the next one. Only the first frame can be partly sent; it is kept whole, so
 * that another peer can get it from its beginning. Bounded; no memory while empty.
 */
#ifndef CELLGATE_RELAY_OUTBOX_H
#define CELLGATE_RELAY_OUTBOX_H

#include "spoa/lib/buffer.h"

struct outbox {
    struct buffer frames;
    size_t sent;     /* bytes of the first frame that the kernel has taken */
    uint8_t message; /* opcode of the message that is open in front of the first frame; 0: none */
};

struct outbox outbox_with_limit(size_t limit);
void outbox_free(struct outbox *outbox);

static inline bool outbox_empty(const struct outbox *outbox)
{
    return buffer_len(&outbox->frames) == 0;
}

/* Bytes held, for limits and metrics. */
static inline size_t outbox_len(const struct outbox *outbox)
{
    return buffer_len(&outbox->frames);
}

/* Appends bytes of whole frames (the last may be completed by the next call); false: over the limit or out of
 * memory. */
bool outbox_put(struct outbox *outbox, struct slice frames) __attribute__((warn_unused_result));
/* What is to be sent next. */
struct slice outbox_unsent(const struct outbox *outbox);
/* The kernel took so many bytes of it. */
void outbox_sent(struct outbox *outbox, size_t len);

/* The peer is lost and there will be another one: a frame that was partly sent is to be sent again whole,
 * control frames go, and a message whose beginning went to the lost peer begins anew with what is left of it.
 * False: nothing is left of a message. */
bool outbox_salvage(struct outbox *outbox);

#endif
