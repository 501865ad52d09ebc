/* SPDX-License-Identifier: MIT */
/*
 * outbox: whole frames on their way to one peer, those that the kernel has not taken yet. While there is no
 * peer it is what is held for the next one. Only the first frame can be partly sent; it is kept whole, so
 * that another peer can get it from its beginning. Bounded; no memory while it holds nothing.
 *
 * One that `keeps` holds data frames also after they were sent, until they are released: all of them can be
 * sent again to another peer. The first it holds then begins a message.
 */
#ifndef CELLGATE_RELAY_TUNNEL_OUTBOX_H
#define CELLGATE_RELAY_TUNNEL_OUTBOX_H

#include "spoa/base/buffer.h"

struct outbox {
    struct buffer frames;
    size_t sent;     /* bytes of the first frame that the kernel has taken; `keeps`: of all of them */
    size_t controls; /* `keeps`: bytes of control frames that are held, between what is kept */
    uint8_t message; /* opcode of the message that is open in front of the first frame; 0: none */
    bool keeps;
};

struct outbox outbox_with_limit(size_t limit);
void outbox_free(struct outbox *outbox);

/* Nothing is to be sent. */
static inline bool outbox_empty(const struct outbox *outbox)
{
    return buffer_len(&outbox->frames) == outbox->sent;
}

/* Bytes held, for limits and metrics. */
static inline size_t outbox_len(const struct outbox *outbox)
{
    return buffer_len(&outbox->frames);
}

/* Bytes of payload in data frames held, what was sent of the first one included. */
uint64_t outbox_payload(const struct outbox *outbox);

/* Appends bytes of whole frames (the last may be completed by the next call); false: over the limit or out of
 * memory. */
bool outbox_put(struct outbox *outbox, struct slice frames) __attribute__((warn_unused_result));
/* So many bytes of what was put are control frames, which nobody keeps. */
void outbox_put_controls(struct outbox *outbox, size_t len);
/* What is to be sent next. */
struct slice outbox_unsent(const struct outbox *outbox);
/* The kernel took so many bytes of it. */
void outbox_sent(struct outbox *outbox, size_t len);
/* A frame was partly sent: only its rest can follow. */
bool outbox_cut(const struct outbox *outbox);
/* Lets go of the first messages that are kept, *payload bytes in all; false, and nothing happens, when there
 * are not so many, or, unless unsent, when they were not all sent. */
bool outbox_release(struct outbox *outbox, uint64_t messages, bool unsent, uint64_t *payload)
    __attribute__((warn_unused_result));
/* Gives back the memory that outbox_release leaves to an empty one. */
void outbox_trim(struct outbox *outbox);

/* The peer is lost and there will be another one: a frame that was partly sent is to be sent again whole,
 * control frames go, and a message whose beginning went to the lost peer begins anew with what is left of it.
 * False: nothing is left of a message. */
bool outbox_salvage(struct outbox *outbox);

#endif
