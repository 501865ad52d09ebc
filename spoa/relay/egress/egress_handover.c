/* SPDX-License-Identifier: MIT */
#include "spoa/relay/egress/egress_handover.h"

#include <stdlib.h>

#include "spoa/base/bytes/image.h"
#include "spoa/relay/egress/egress_parts.h"

enum {
    VERSION = 1,
    HEAD = 5,            /* bytes of a TLS record's head */
    OUTSIDE = 1 - CLIENT /* the destination's place beside CLIENT's */
};

/* What a record has. It does not say whether a side has ended: the side's socket says so again. */
struct egress_record {
    struct buffer handover;      /* in the form of HAProxy's header */
    struct buffer in[2], out[2]; /* of the client and of the destination */
    struct hello_watch hello;
    uint64_t cleared, heard, began, sent, received;
    bool fast;
};

static const struct image_field hello_fields[] = {
    IMAGE_FLAG(struct hello_watch, begun),
    IMAGE_FLAG(struct hello_watch, retried),
    IMAGE_FLAG(struct hello_watch, done),
    IMAGE_FLAG(struct hello_watch, other),
    IMAGE_ANY(struct hello_watch, left),
    IMAGE_ANY(struct hello_watch, needs),
    IMAGE_NUMBER(struct hello_watch, head_len, HEAD),
    IMAGE_NUMBER(struct hello_watch, answer_len, HELLO_WATCH_ANSWER),
    IMAGE_ANY(struct hello_watch, answer_left),
    IMAGE_FLAG(struct hello_watch, alert),
    IMAGE_BYTES(struct hello_watch, head),
    IMAGE_BYTES(struct hello_watch, answer),
};
static IMAGE_TABLE(hello_table, struct hello_watch, hello_fields);

static const struct image_field fields[] = {
    IMAGE_BUFFER(struct egress_record, handover, UPGRADE_HEAD_MAX),
    IMAGE_BUFFERS(struct egress_record, in, BUFFER_LIMIT_MAX),
    IMAGE_BUFFERS(struct egress_record, out, BUFFER_LIMIT_MAX),
    IMAGE_PART(struct egress_record, hello, &hello_table),
    IMAGE_ANY(struct egress_record, cleared),
    IMAGE_ANY(struct egress_record, heard),
    IMAGE_TIME(struct egress_record, began),
    IMAGE_ANY(struct egress_record, sent),
    IMAGE_ANY(struct egress_record, received),
    IMAGE_FLAG(struct egress_record, fast),
};
static IMAGE_TABLE(record_table, struct egress_record, fields);

struct egress_io *egress_io_next(const struct relay_thread *thread, const struct egress_io *io)
{
    return io ? io->next : thread->egress;
}

/* ---- to hand over ---- */

static bool can_go_on(const struct egress_io *io)
{
    return io->connected && !io->over && !io->denied && io->handshake.done && stream_is_open(&io->client) &&
           stream_is_open(&io->destination);
}

static bool put_handover(const struct egress_io *io, struct buffer *to)
{
    static _Thread_local uint8_t memory[UPGRADE_HEAD_MAX];
    struct writer w = writer_of(memory, sizeof memory);

    handover_encode(&io->handover, &w);
    return !w.full && buffer_put(to, writer_slice(&w));
}

bool egress_hand_over(struct egress_io *io, struct buffer *to, int fds[2])
{
    struct image image = image_to(to, VERSION, loop_clock());
    struct egress_record record = {.handover = buffer_with_limit(UPGRADE_HEAD_MAX),
                                   .in = {[CLIENT] = io->client.in, [OUTSIDE] = io->destination.in},
                                   .out = {[CLIENT] = io->client.out, [OUTSIDE] = io->destination.out},
                                   .hello = io->hello,
                                   .cleared = io->cleared,
                                   .heard = io->heard,
                                   .began = io->began,
                                   .sent = io->sent,
                                   .received = io->received,
                                   .fast = io->fast};

    bool good = can_go_on(io) && put_handover(io, &record.handover);
    if (good) {
        fds[CLIENT] = stream_fd(&io->client);
        fds[OUTSIDE] = stream_fd(&io->destination);
        image_part(&image, &record_table, &record);
    }
    buffer_free(&record.handover);
    return image_done(&image) && good;
}

/* ---- to take over ---- */

static void take_bytes(struct buffer *to, struct buffer *from)
{
    uint32_t limit = to->limit;

    *to = *from;
    to->limit = limit;
    *from = buffer_with_limit(0);
}

/* Nothing is sent before the loop runs: bytes that wait leave, or are looked at, in its next turn. */
static bool make(struct relay_thread *thread, struct egress_record *record, const int fds[2])
{
    struct egress_io *io = egress_io_new(thread);
    struct fail why;

    if (!io)
        return false;
    if (!egress_io_read(io, buffer_slice(&record->handover), &why) || !egress_io_enter(io)) {
        egress_io_forget(io);
        return false;
    }
    io->connected = true;
    io->hello = record->hello;
    io->cleared = record->cleared;
    io->heard = record->heard;
    io->began = record->began;
    io->sent = record->sent;
    io->received = record->received;
    io->fast = record->fast;
    take_bytes(&io->client.in, &record->in[CLIENT]);
    take_bytes(&io->client.out, &record->out[CLIENT]);
    take_bytes(&io->destination.in, &record->in[OUTSIDE]);
    take_bytes(&io->destination.out, &record->out[OUTSIDE]);
    egress_io_open(io, fds[CLIENT], fds[OUTSIDE]);
    stream_offer_again(&io->client);
    stream_send_soon(&io->client);
    stream_send_soon(&io->destination);
    egress_io_watch(io);
    return true;
}

/* The server before may have been taken over: it could have written any number. */
static bool is_sane(const struct egress_record *r)
{
    return r->cleared <= buffer_len(&r->in[CLIENT]) && r->heard <= buffer_len(&r->in[OUTSIDE]) &&
           r->hello.head_len <= sizeof r->hello.head;
}

bool egress_take_over(struct relay_thread *thread, struct slice bytes, const int fds[2])
{
    struct egress_record record = {.fast = false};
    struct image image = image_from(bytes, VERSION, loop_clock());

    image_part(&image, &record_table, &record);
    bool good = image_done(&image) && is_sane(&record) && fds[CLIENT] >= 0 && fds[OUTSIDE] >= 0 &&
                make(thread, &record, fds);
    for (size_t i = 0; i < 2; i++) {
        buffer_free(&record.in[i]);
        buffer_free(&record.out[i]);
    }
    buffer_free(&record.handover);
    return good;
}
