/* SPDX-License-Identifier: MIT */
#include "spoa/relay/leg/send_queue.h"

#include "spoa/base/bytes/reader.h"

#define MANY  16384 /* bytes of control frames that make a search for them worthwhile */
#define SPARE 16384 /* bytes of memory that an empty queue keeps for the next message */

struct send_queue send_queue_with_limit(size_t limit)
{
    return (struct send_queue){.frames = buffer_with_limit(limit)};
}

void send_queue_free(struct send_queue *queue)
{
    buffer_free(&queue->frames);
    queue->sent = queue->unseen = queue->controls = 0;
    queue->part_count = 0;
}

bool send_queue_put(struct send_queue *queue, struct slice frames)
{
    return buffer_put(&queue->frames, frames);
}

/* ---- frames in the pipe ---- */
static size_t head_of(const struct send_queue_part *part, uint8_t head[WS_HEAD_MAX])
{
    const struct ws_frame frame = {
        .opcode = part->start & 0x0f, .fin = part->start & 0x80, .length = part->payload};
    return ws_encode_head(head, &frame);
}

static size_t part_len(const struct send_queue_part *part)
{
    uint8_t head[WS_HEAD_MAX];
    return head_of(part, head) + part->payload;
}

size_t send_queue_note_part(struct send_queue *queue, const struct ws_frame *frame, uint8_t head[WS_HEAD_MAX])
{
    struct send_queue_part *part = &queue->parts[queue->part_count++];

    *part = (struct send_queue_part){.payload = (uint32_t)frame->length};
    part->start = (uint8_t)(frame->opcode | (frame->fin ? 0x80 : 0));
    return head_of(part, head);
}

size_t send_queue_noted(const struct send_queue *queue)
{
    size_t len = 0;
    for (size_t i = 0; i < queue->part_count; i++)
        len += part_len(&queue->parts[i]);
    return len;
}

void send_queue_put_unseen(struct send_queue *queue)
{
    queue->unseen = send_queue_noted(queue);
}

void send_queue_forget_parts(struct send_queue *queue)
{
    queue->unseen = 0;
    queue->part_count = 0;
}

/* The sent part of the first frame takes its place, too, because frames are held whole. */
uint8_t *send_queue_gather(struct send_queue *queue)
{
    uint8_t head[WS_HEAD_MAX], *at;
    size_t len = head_of(&queue->parts[0], head), room;

    if ((at = buffer_room(&queue->frames, queue->unseen, &room)) == NULL)
        return NULL;
    memset(at, 0, queue->sent);
    memcpy(at, head, queue->sent < len ? queue->sent : len);
    buffer_commit(&queue->frames, queue->unseen);
    send_queue_forget_parts(queue);
    return at + queue->sent;
}

void send_queue_put_controls(struct send_queue *queue, size_t len)
{
    if (queue->keeps)
        queue->controls += len;
}

struct slice send_queue_unsent(const struct send_queue *queue)
{
    return slice_from(buffer_slice(&queue->frames), queue->sent);
}

size_t send_queue_runs(const struct send_queue *queue, struct slice runs[2])
{
    size_t count = 0, piped = send_queue_piped(queue);

    runs[count] = send_queue_unsent(queue);
    count += runs[count].len > 0;
    runs[count] = slice_of(NULL, piped);
    return count + (piped > 0);
}

/* Returns the length of the frame at the start of `at`, head included; SIZE_MAX if the head is incomplete. */
static size_t measure(struct slice at, uint64_t *payload)
{
    struct reader r = reader_of(at);

    reader_u8(&r);
    uint8_t second = reader_u8(&r);
    *payload = second & 0x7f;
    if (*payload >= 126)
        *payload = reader_be(&r, *payload == 126 ? 2 : 8);
    if (second & 0x80)
        reader_take(&r, 4);
    /* an image may contain any length, and the sum must not wrap around */
    return r.failed || *payload > INT64_MAX ? SIZE_MAX : at.len - r.rest.len + (size_t)*payload;
}

static size_t frame_len(struct slice at)
{
    uint64_t payload;
    return measure(at, &payload);
}

uint64_t send_queue_payload(const struct send_queue *queue)
{
    uint64_t sum = 0, payload;

    for (struct slice rest = buffer_slice(&queue->frames); rest.len;) {
        size_t frame = measure(rest, &payload);
        sum += ws_is_control(rest.at[0] & 0x0f) ? 0 : payload;
        rest = slice_from(rest, frame);
    }
    for (size_t i = 0; queue->unseen && i < queue->part_count; i++)
        sum += queue->parts[i].payload;
    return sum;
}

static void note_message(struct send_queue *queue, uint8_t start)
{
    if (ws_is_control(start & 0x0f))
        return;
    if (start & 0x0f)
        queue->message = start & 0x0f;
    if (start & 0x80)
        queue->message = 0;
}

static void forget_controls(struct send_queue *queue, size_t len)
{
    queue->controls -= len < queue->controls ? len : queue->controls;
}

/* Removes control frames in place and returns the number of bytes left. If the first data frame continues a message, the frame
 * gets that message's opcode `message` and thus begins it; 0 leaves the frame unchanged. */
static size_t strip_controls(struct send_queue *queue, uint8_t message)
{
    struct slice rest = buffer_slice(&queue->frames);
    uint8_t *to = (uint8_t *)rest.at;
    size_t kept = 0;

    while (rest.len) {
        struct slice frame = slice_sub(rest, 0, frame_len(rest)); /* the last frame may still be incomplete */
        uint8_t start = rest.at[0];
        if (!ws_is_control(start & 0x0f)) {
            if (!kept && !(start & 0x0f))
                start |= message;
            memmove(to + kept, frame.at, frame.len);
            to[kept] = start;
            kept += frame.len;
        }
        rest = slice_from(rest, frame.len);
    }
    queue->controls = 0;
    buffer_cut(&queue->frames, kept);
    buffer_consume(&queue->frames, 0);
    return kept;
}

/* Drops sent control frames: those at the front at once, those between kept frames only if they are MANY. */
static void drop_controls(struct send_queue *queue)
{
    struct slice rest = buffer_slice(&queue->frames);
    size_t frame;

    while (rest.len && ws_is_control(rest.at[0] & 0x0f) && (frame = frame_len(rest)) <= queue->sent) {
        queue->sent -= frame;
        forget_controls(queue, frame);
        buffer_consume(&queue->frames, frame);
        rest = buffer_slice(&queue->frames);
    }
    if (queue->controls >= MANY && send_queue_empty(queue))
        queue->sent = strip_controls(queue, 0);
}

static void drop_parts(struct send_queue *queue)
{
    size_t gone = 0, len;

    while (gone < queue->part_count && (len = part_len(&queue->parts[gone])) <= queue->sent) {
        note_message(queue, queue->parts[gone++].start);
        queue->sent -= len;
        queue->unseen -= len;
    }
    queue->part_count -= (uint8_t)gone;
    memmove(queue->parts, queue->parts + gone, queue->part_count * sizeof queue->parts[0]);
}

void send_queue_sent(struct send_queue *queue, size_t len)
{
    struct slice rest = buffer_slice(&queue->frames);
    size_t consumed = 0, frame;

    queue->sent += len;
    if (queue->keeps) {
        drop_controls(queue);
        return;
    }
    if (queue->unseen) {
        drop_parts(queue);
        return;
    }
    while (rest.len && (frame = frame_len(rest)) <= queue->sent) {
        note_message(queue, rest.at[0]);
        queue->sent -= frame;
        consumed += frame;
        rest = slice_from(rest, frame);
    }
    buffer_consume(&queue->frames, consumed);
}

bool send_queue_cut(const struct send_queue *queue)
{
    struct slice rest = buffer_slice(&queue->frames);
    size_t sent = queue->sent, frame;

    while (rest.len && (frame = frame_len(rest)) <= sent) {
        sent -= frame;
        rest = slice_from(rest, frame);
    }
    return sent > 0;
}

bool send_queue_release(struct send_queue *queue, uint64_t messages, bool unsent, uint64_t *payload)
{
    struct slice all = buffer_slice(&queue->frames), rest = all;
    size_t controls = 0;
    uint64_t len;

    *payload = 0;
    while (messages && rest.len) {
        size_t frame = measure(rest, &len);
        if (frame > rest.len)
            return false;
        if (!ws_is_control(rest.at[0] & 0x0f)) {
            *payload += len;
            messages -= rest.at[0] >> 7;
        } else {
            controls += frame;
        }
        rest = slice_from(rest, frame);
    }
    size_t released = all.len - rest.len;
    if (messages || (!unsent && released > queue->sent))
        return false;
    queue->sent -= released < queue->sent ? released : queue->sent;
    forget_controls(queue, controls);
    if (rest.len || queue->frames.size > SPARE)
        buffer_consume(&queue->frames, released);
    else
        queue->frames.start = queue->frames.end = 0; /* the next message needs the memory again */
    drop_controls(queue);
    return true;
}

void send_queue_trim(struct send_queue *queue)
{
    if (buffer_len(&queue->frames) == 0)
        buffer_free(&queue->frames);
}

bool send_queue_salvage(struct send_queue *queue)
{
    size_t kept = strip_controls(queue, queue->message);

    queue->sent = 0;
    queue->message = 0;
    return kept > 0;
}

/* ---- as an image ---- */
enum { USUAL_LIMIT = (256 << 10) + 147456 /* the default of relay.buffer, and LEG_SLACK */ };

/* Writes the noted frames only to an image that stays in this process, as the host's pipe does. */
static void image_parts(struct image *image, void *object)
{
    struct send_queue *queue = object;
    uint64_t count = queue->part_count;

    if (!image->kept || !image_bit(image, count))
        return;
    image_number(image, &count, SEND_QUEUE_PARTS);
    for (size_t i = 0; i < count && !image->failed; i++) {
        uint64_t payload = queue->parts[i].payload, start = queue->parts[i].start;
        image_number(image, &payload, UINT32_MAX);
        image_number(image, &start, UINT8_MAX);
        queue->parts[i] = (struct send_queue_part){(uint32_t)payload, (uint8_t)start};
    }
    queue->part_count = image->failed ? 0 : (uint8_t)count;
}

static bool holds(const void *object)
{
    const struct send_queue *queue = object;
    size_t len = buffer_len(&queue->frames);

    return !queue->unseen && queue->sent <= len && queue->controls <= len;
}

static const struct image_field fields[] = {
    IMAGE_BUFFER_USUALLY(struct send_queue, frames, USUAL_LIMIT),
    IMAGE_NUMBER(struct send_queue, sent, UINT32_MAX),
    /* forward_gather makes this 0 before an image for another process */
    IMAGE_NUMBER(struct send_queue, unseen, UINT32_MAX),
    IMAGE_NUMBER(struct send_queue, controls, UINT32_MAX),
    IMAGE_NUMBER(struct send_queue, message, WS_BINARY), IMAGE_FLAG(struct send_queue, keeps),
    IMAGE_BY(struct send_queue, part_count, image_parts),
    IMAGE_DERIVED(struct send_queue, parts), /* written by image_parts */
};
IMAGE_TABLE(send_queue_table, struct send_queue, fields, .holds = holds);
