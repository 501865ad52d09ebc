/* SPDX-License-Identifier: MIT */
#include "spoa/relay/leg/leg.h"

#include "spoa/base/bytes/reader.h"
#include "spoa/base/bytes/writer.h"

static const char own_ping[] = "cellgate";

struct leg leg_of(enum ws_sender sender, size_t limit, uint32_t mark, uint64_t now)
{
    return (struct leg){
        .in = ws_decoder_of(sender, LEG_FRAME_WHOLE),
        .partial = buffer_with_limit(LEG_FRAME_WHOLE),
        .out = send_queue_with_limit(limit),
        .asked_at = now,
        .heard = now,
        .progress = now,
        .mark = mark,
    };
}

void leg_free(struct leg *leg)
{
    buffer_free(&leg->partial);
    send_queue_free(&leg->out);
}

void leg_renew(struct leg *leg, uint64_t now)
{
    struct leg fresh = leg_of(leg->in.sender, leg->out.frames.limit, leg->mark, now);

    fresh.out = leg->out;
    fresh.bytes_in = leg->bytes_in;
    fresh.bytes_out = leg->bytes_out;
    fresh.data = leg->data;
    fresh.read = leg->read;
    fresh.message_out = leg->message_out;
    buffer_free(&leg->partial);
    *leg = fresh;
}

/* ---- towards the peer ---- */
static bool is_control(const struct leg_batch *batch, size_t run)
{
    return batch->controls >> run & 1;
}

static bool hold(struct leg *leg, const struct leg_batch *batch, bool controls)
{
    for (size_t i = 0; i < batch->count; i++) {
        if (is_control(batch, i) && !controls)
            continue;
        if (leg_is_unseen(batch->runs[i]))
            send_queue_put_unseen(&leg->out);
        else if (!send_queue_put(&leg->out, batch->runs[i]))
            return false;
        if (is_control(batch, i))
            send_queue_put_controls(&leg->out, batch->runs[i].len);
    }
    return true;
}

static size_t batch_len(const struct leg_batch *batch)
{
    size_t len = 0;
    for (size_t i = 0; i < batch->count; i++)
        len += batch->runs[i].len;
    return len;
}

size_t leg_batch_data(const struct leg_batch *batch)
{
    size_t len = 0;
    for (size_t i = 0; i < batch->count; i++)
        len += is_control(batch, i) ? 0 : batch->runs[i].len;
    return len;
}

static void begin_batch(struct leg_batch *batch, const struct leg *leg)
{
    batch->count = batch->controls = 0;
    batch->message = leg->message_out;
}

/* Holds the unsent bytes, and sent data frames if the queue keeps them. */
static bool hold_rest(struct leg *leg, const struct leg_batch *batch, size_t len, size_t taken)
{
    bool rest = taken < len;

    if (!rest && !leg->out.keeps)
        return true;
    bool held = hold(leg, batch, rest);
    leg->cut = !held && taken;
    if (leg->cut)
        send_queue_free(&leg->out);
    else
        send_queue_sent(&leg->out, !held ? 0 : rest ? taken : leg_batch_data(batch));
    return held;
}

bool leg_flush(struct leg *leg, struct leg_batch *batch, leg_send *send, void *context, uint64_t now)
{
    size_t len = batch_len(batch), taken = 0;

    if (len == 0 || leg->cut) {
        begin_batch(batch, leg);
        return !leg->cut;
    }
    if (send_queue_empty(&leg->out)) {
        taken = send ? send(context, batch->runs, batch->count) : 0;
        leg->bytes_out += taken;
        leg->progress = now; /* the stall timer starts here if bytes are held */
        leg->out.message = leg->out.keeps ? 0 : taken == len ? leg->message_out : batch->message;
    }
    bool held = hold_rest(leg, batch, len, taken);
    begin_batch(batch, leg);
    return held;
}

bool leg_sent_of(struct leg *leg, struct slice messages, size_t taken, uint64_t now)
{
    struct leg_batch batch;

    leg->bytes_out += taken;
    leg->progress = now;
    if (taken == messages.len && !leg->out.keeps)
        return true;
    batch.runs[0] = messages;
    batch.count = 1;
    batch.controls = 0;
    return hold_rest(leg, &batch, messages.len, taken);
}

void leg_writable(struct leg *leg, leg_send *send, void *context, uint64_t now)
{
    struct slice runs[2];
    size_t count = send_queue_runs(&leg->out, runs), taken = count ? send(context, runs, count) : 0;

    if (taken == 0)
        return;
    leg->bytes_out += taken;
    leg->progress = now;
    send_queue_sent(&leg->out, taken);
    /* the Ping may have been queued after these bytes, so the peer had no chance to answer before */
    if (leg->pinged && send_queue_empty(&leg->out))
        leg->pinged = now;
}

/* ---- silence ---- */
static uint64_t later(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

uint64_t leg_due(const struct leg *leg, const struct leg_settings *settings)
{
    if (!send_queue_empty(&leg->out) && settings->stall)
        return leg->progress + settings->stall;
    /* the silence of a peer that is not read proves nothing; a Ping still discovers a lost connection */
    if (!leg->reading)
        return send_queue_empty(&leg->out) ? later(leg->heard, leg->pinged) + settings->keepalive
                                           : UINT64_MAX;
    if (!leg->pinged)
        return leg->heard + settings->keepalive;
    /* a Ping queued after held bytes has not even been sent */
    return (send_queue_empty(&leg->out) ? leg->pinged : later(leg->pinged, leg->progress)) +
           settings->dead_after;
}

enum leg_health leg_check(const struct leg *leg, const struct leg_settings *settings, uint64_t now)
{
    if (now < leg_due(leg, settings))
        return LEG_FINE;
    if (!send_queue_empty(&leg->out) && settings->stall)
        return LEG_STALLED;
    return leg->pinged && leg->reading ? LEG_DEAD : LEG_QUIET;
}

void leg_ping_payload(struct leg *leg, uint8_t payload[LEG_PING_LEN], uint64_t now)
{
    struct writer w = writer_of(payload, LEG_PING_LEN);

    leg->asked = leg->data;
    leg->asked_at = now;
    writer_text(&w, own_ping);
    writer_be(&w, leg->mark, 4);
    writer_be(&w, ++leg->pings, 4);
}

bool leg_own_pong(struct leg *leg, struct slice payload)
{
    if (payload.len != LEG_PING_LEN || !slice_starts(payload, own_ping))
        return false;
    struct reader r = reader_of(slice_from(payload, sizeof own_ping - 1));
    if (reader_u32(&r) != leg->mark)
        return false;
    uint32_t number = reader_u32(&r);
    if (number == leg->pings && leg->asked > leg->read)
        leg->read = leg->asked;
    return number > 0 && number <= leg->pings;
}

uint64_t leg_take_unread(struct leg *leg, bool all)
{
    uint64_t held = send_queue_payload(&leg->out), rest = all ? 0 : held, given = leg->data - rest;
    /* a peer may answer a Ping that has not been sent yet */
    uint64_t unread = given > leg->read ? given - leg->read : 0;

    leg->data = rest;
    leg->read = leg->asked = 0;
    return leg->out.keeps ? held : unread;
}

void leg_read(struct leg *leg, bool on, uint64_t now)
{
    if (on == leg->reading)
        return;
    if (on)
        leg->heard = now;
    if (leg->pinged)
        leg->pinged = now;
    leg->reading = on;
}

/* ---- as an image ---- */
static void derive(void *object)
{
    struct leg *leg = object;
    leg->in.whole = LEG_FRAME_WHOLE;
}

static const struct image_field fields[] = {
    IMAGE_ANY(struct leg, bytes_in),
    IMAGE_ANY(struct leg, bytes_out),
    IMAGE_ANY(struct leg, data),
    IMAGE_ANY(struct leg, message_len),
    IMAGE_TIME(struct leg, heard),
    IMAGE_TIME(struct leg, pinged),
    IMAGE_TIME(struct leg, progress),
    IMAGE_NUMBER(struct leg, message_in, WS_BINARY),
    IMAGE_NUMBER(struct leg, message_out, WS_BINARY),
    IMAGE_FLAG(struct leg, reading),
    IMAGE_FLAG(struct leg, pours),
    IMAGE_FLAG(struct leg, close_in),
    IMAGE_FLAG(struct leg, close_out),
    IMAGE_FLAG(struct leg, cut),
    IMAGE_ANY(struct leg, dropped),
    IMAGE_ANY(struct leg, read),
    IMAGE_ANY(struct leg, asked),
    IMAGE_TIME(struct leg, asked_at),
    IMAGE_PART(struct leg, in, &ws_decoder_table),
    IMAGE_BUFFER(struct leg, partial, LEG_FRAME_WHOLE),
    IMAGE_PART(struct leg, out, &send_queue_table),
    IMAGE_ANY(struct leg, pings),
    IMAGE_ANY(struct leg, mark),
};
IMAGE_TABLE(leg_table, struct leg, fields, .derive = derive);
