/* SPDX-License-Identifier: MIT */
/*
 * send_queue: whole frames on their way to one peer, those that the kernel has not taken yet. While there is no
 * peer it is what is held for the next one. Only the first frame can be partly sent; it is kept whole, so
 * that another peer can get it from its beginning. Bounded; no memory while it holds nothing.
 *
 * Frames may lie in the host's pipe instead (`unseen`, host.h): then it holds no others, and what follows them waits until the
 * host has given them back or sent them.
 *
 * One that `keeps` holds data frames also after they were sent, until they are released: all of them can be
 * sent again to another peer. The first it holds then begins a message.
 */
#ifndef CELLGATE_RELAY_LEG_SEND_QUEUE_H
#define CELLGATE_RELAY_LEG_SEND_QUEUE_H

#include "spoa/base/bytes/buffer.h"
#include "spoa/base/bytes/image.h"
#include "spoa/proto/ws.h"

#define SEND_QUEUE_PARTS 8

struct send_queue {
    struct buffer frames;
    size_t sent;     /* bytes of the first frame that the kernel has taken; `keeps`: of all of them */
    size_t unseen;   /* bytes of the frames that lie in the host's pipe; `sent` counts them, too */
    size_t controls; /* `keeps`: bytes of control frames that are held, between what is kept */
    uint8_t message; /* opcode of the message that is open in front of the first frame; 0: none */
    bool keeps;
    uint8_t part_count;
    struct send_queue_part { /* a frame in the pipe */
        uint32_t payload;
        uint8_t start; /* its first byte */
    } parts[SEND_QUEUE_PARTS];
};

struct send_queue send_queue_with_limit(size_t limit);
void send_queue_free(struct send_queue *queue);

/* Nothing is to be sent. */
static inline bool send_queue_empty(const struct send_queue *queue)
{
    return buffer_len(&queue->frames) + queue->unseen == queue->sent;
}

/* Bytes held, for limits and metrics. */
static inline size_t send_queue_len(const struct send_queue *queue)
{
    return buffer_len(&queue->frames) + queue->unseen;
}

/* Bytes of it that are still in the pipe. */
static inline size_t send_queue_piped(const struct send_queue *queue)
{
    return queue->unseen ? queue->unseen - queue->sent : 0;
}

/* Bytes of payload in data frames held, what was sent of the first one included. */
uint64_t send_queue_payload(const struct send_queue *queue);

/* Appends bytes of whole frames (the last may be completed by the next call); false: over the limit or out of
 * memory. */
bool send_queue_put(struct send_queue *queue, struct slice frames) __attribute__((warn_unused_result));
/* Into an empty one: a frame's head is written, and is in the pipe with its payload, behind those that were noted before. All of
 * them are held once they are put. Returns the head's length. */
size_t send_queue_note_part(struct send_queue *queue, const struct ws_frame *frame,
                            uint8_t head[WS_HEAD_MAX]);
/* Bytes of all that was noted. */
size_t send_queue_noted(const struct send_queue *queue);
void send_queue_put_unseen(struct send_queue *queue);
/* It was sent otherwise. */
void send_queue_forget_parts(struct send_queue *queue);
/* Memory for all that is still in the pipe, which the caller fills: from then on nothing of it is unseen. NULL: over the limit
 * or out of memory. */
uint8_t *send_queue_gather(struct send_queue *queue) __attribute__((warn_unused_result));
/* So many bytes of what was put are control frames, which nobody keeps. */
void send_queue_put_controls(struct send_queue *queue, size_t len);
/* What is to be sent next, of what is in memory. */
struct slice send_queue_unsent(const struct send_queue *queue);
/* The same, and behind it what is in the pipe, as a run that is nowhere. Returns how many runs. */
size_t send_queue_runs(const struct send_queue *queue, struct slice runs[2]);
/* The kernel took so many bytes of it. */
void send_queue_sent(struct send_queue *queue, size_t len);
/* A frame was partly sent: only its rest can follow. */
bool send_queue_cut(const struct send_queue *queue);
/* Lets go of the first messages that are kept, *payload bytes in all; false, and nothing happens, when there
 * are not so many, or, unless unsent, when they were not all sent. */
bool send_queue_release(struct send_queue *queue, uint64_t messages, bool unsent, uint64_t *payload)
    __attribute__((warn_unused_result));
/* Gives back the memory that send_queue_release leaves to an empty one. */
void send_queue_trim(struct send_queue *queue);

/* The peer is lost and there will be another one: a frame that was partly sent is to be sent again whole,
 * control frames go, and a message whose beginning went to the lost peer begins anew with what is left of it.
 * False: nothing is left of a message. */
bool send_queue_salvage(struct send_queue *queue);

/* Nothing of it is in the pipe. */
extern const struct image_table send_queue_table;

#endif
