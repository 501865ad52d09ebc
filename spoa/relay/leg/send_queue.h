/* SPDX-License-Identifier: MIT */
/*
 * send_queue: holds the whole frames for one peer that the kernel has not taken yet. While there is no peer, the queue holds them
 * for the next one. Only the first frame can be partly sent; the queue keeps it whole, so that another peer can get that frame from
 * its beginning. The queue is bounded, and needs no memory while empty.
 *
 * Frames may lie in the host's pipe instead (`unseen`, host.h): the queue then holds no others, and later frames wait until the
 * host has returned these or sent them.
 *
 * A queue that `keeps` holds data frames after sending, too, until the caller releases them: all of them can be sent again to
 * another peer. The first frame of such a queue begins a message.
 */
#ifndef CELLGATE_RELAY_LEG_SEND_QUEUE_H
#define CELLGATE_RELAY_LEG_SEND_QUEUE_H

#include "spoa/base/bytes/buffer.h"
#include "spoa/base/bytes/image.h"
#include "spoa/proto/ws.h"

#define SEND_QUEUE_PARTS 8

struct send_queue {
    struct buffer frames;
    size_t sent;     /* bytes of the first frame that the kernel has taken; with `keeps`, of all frames */
    size_t unseen;   /* bytes of the frames in the host's pipe, including those `sent` */
    size_t controls; /* bytes of the control frames held between kept data frames; 0 without `keeps` */
    uint8_t message; /* opcode of the unfinished message that the first frame continues; 0 if there is none */
    bool keeps;
    uint8_t part_count;
    struct send_queue_part { /* a frame in the pipe */
        uint32_t payload;
        uint8_t start; /* its first byte */
    } parts[SEND_QUEUE_PARTS];
};

struct send_queue send_queue_with_limit(size_t limit);
void send_queue_free(struct send_queue *queue);

/* Returns true if there are no bytes to send. */
static inline bool send_queue_empty(const struct send_queue *queue)
{
    return buffer_len(&queue->frames) + queue->unseen == queue->sent;
}

/* Returns the number of bytes held, for limits and metrics. */
static inline size_t send_queue_len(const struct send_queue *queue)
{
    return buffer_len(&queue->frames) + queue->unseen;
}

/* Returns the number of bytes still in the pipe. */
static inline size_t send_queue_piped(const struct send_queue *queue)
{
    return queue->unseen ? queue->unseen - queue->sent : 0;
}

/* Returns the payload bytes of all held data frames, including the sent part of the first one. */
uint64_t send_queue_payload(const struct send_queue *queue);

/* Appends bytes of whole frames; the next call may complete the last one. Returns false if the limit is exceeded or memory is
 * short. */
bool send_queue_put(struct send_queue *queue, struct slice frames) __attribute__((warn_unused_result));
/* Notes a frame in the pipe, after those noted before, and writes its head, which the caller puts into the pipe in front of the
 * payload. The queue must be empty, and holds noted frames only after `send_queue_put_unseen`. Returns the head's length. */
size_t send_queue_note_part(struct send_queue *queue, const struct ws_frame *frame,
                            uint8_t head[WS_HEAD_MAX]);
/* Returns the number of bytes of all noted frames. */
size_t send_queue_noted(const struct send_queue *queue);
void send_queue_put_unseen(struct send_queue *queue);
/* Forgets the noted frames, because the caller sent them in another way. */
void send_queue_forget_parts(struct send_queue *queue);
/* Returns memory for all bytes still in the pipe, to be filled by the caller; the frames count as held in memory at once. Returns
 * NULL if the limit is exceeded or memory is short. */
uint8_t *send_queue_gather(struct send_queue *queue) __attribute__((warn_unused_result));
/* Declares `len` of the appended bytes to be control frames, which are not kept after sending. */
void send_queue_put_controls(struct send_queue *queue, size_t len);
/* Returns the unsent bytes in memory. */
struct slice send_queue_unsent(const struct send_queue *queue);
/* Writes the unsent bytes in memory, then those in the pipe as a run without address. Returns the number of runs. */
size_t send_queue_runs(const struct send_queue *queue, struct slice runs[2]);
/* Records that the kernel took `len` more bytes. */
void send_queue_sent(struct send_queue *queue, size_t len);
/* Returns true if a frame was partly sent: only the rest of that frame can follow. */
bool send_queue_cut(const struct send_queue *queue);
/* Releases the first `messages` kept messages and sets *payload to their payload bytes. Returns false and changes nothing if the
 * queue holds fewer messages, or if some are unsent and `unsent` is false. */
bool send_queue_release(struct send_queue *queue, uint64_t messages, bool unsent, uint64_t *payload)
    __attribute__((warn_unused_result));
/* Frees the memory that send_queue_release leaves to an empty queue. */
void send_queue_trim(struct send_queue *queue);

/* Prepares the queue for another peer after the first one was lost: a partly sent frame will be sent again whole, control frames
 * are dropped, and a message whose beginning went to the lost peer begins with its remaining frames. Returns false if no frame
 * is left. */
bool send_queue_salvage(struct send_queue *queue);

/* Describes a queue that has no frame in the pipe. */
extern const struct image_table send_queue_table;

#endif
