/* SPDX-License-Identifier: MIT */
/*
 * adapter_talk: one adapter without a tunnel. What workers say is given to it in pieces of any size, what the
 * client gets is written down as text, one word per message: T or B and its bytes (those that do not print as
 * <hex>), or, of a long one, its first bytes and its length. A message that has no end yet has a `...`.
 */
#ifndef CELLGATE_TESTS_ADAPTER_TALK_H
#define CELLGATE_TESTS_ADAPTER_TALK_H

#include <stdio.h>
#include <stdlib.h>

#include "spoa/relay/resume/adapter.h"

struct talk {
    const struct adapter *adapter;
    void *state;
    struct ws_decoder in; /* from the worker */
    uint8_t control[WS_CONTROL_MAX];
    struct ws_decoder out;  /* to the client */
    enum ws_opcode message; /* from the worker */
    uint8_t open;           /* towards the client */
    struct send_queue kept;
    struct buffer client; /* frames */
    struct buffer text;   /* of the message the client is in */
    struct buffer output; /* of all its messages, each without its first byte */
    enum ws_opcode heard;
    enum adapter_verdict verdict;
    unsigned exact, gaps;
    uint64_t gap; /* of the last one */
    uint64_t now;
    bool requested; /* the next worker */
    char said[65536];
};

static inline void talk_begin_with(struct talk *t, const struct adapter *adapter, const char *target,
                                   bool rechecks)
{
    struct slice copy = guarded(slice_text(target));
    struct adapter_start start = {
        .target = copy, .id = {1, 2, 3, 4}, .buffer = 1 << 18, .rechecks = rechecks};

    *t = (struct talk){.adapter = adapter,
                       .out = ws_decoder_of(WS_SERVER, 0),
                       .now = 1000000000,
                       .kept = send_queue_with_limit(1 << 20),
                       .client = buffer_with_limit(1 << 25),
                       .text = buffer_with_limit(1 << 25),
                       .output = buffer_with_limit(1 << 25)};
    t->kept.keeps = adapter->numbers != NULL;
    t->state = calloc(1, adapter->state_len);
    assert_non_null(t->state);
    if (adapter->start)
        adapter->start(t->state, &start);
    guarded_free(copy);
}

static inline void talk_begin(struct talk *t, const struct adapter *adapter, const char *target)
{
    talk_begin_with(t, adapter, target, false);
}

static inline void talk_end(struct talk *t)
{
    if (t->adapter->end)
        t->adapter->end(t->state);
    free(t->state);
    send_queue_free(&t->kept);
    buffer_free(&t->client);
    buffer_free(&t->text);
    buffer_free(&t->output);
}

static inline void talk_note(struct talk *t, const char *end)
{
    struct slice text = buffer_slice(&t->text);
    size_t at = strlen(t->said);

    assert_true(buffer_put(&t->output, slice_from(text, 1)));
    if (at + 256 >= sizeof t->said) { /* of many messages the beginning */
        buffer_free(&t->text);
        return;
    }
    at += (size_t)sprintf(t->said + at, "%s%c", at ? " " : "", t->heard == WS_TEXT ? 'T' : 'B');
    for (size_t i = 0; i < text.len && i < 40; i++)
        at += (size_t)sprintf(t->said + at, text.at[i] > ' ' && text.at[i] < 0x7f ? "%c" : "<%02x>",
                              text.at[i]);
    if (text.len > 40)
        at += (size_t)sprintf(t->said + at, "(%zu)", text.len);
    sprintf(t->said + at, "%s", end);
    buffer_free(&t->text);
}

static inline void talk_hear(struct talk *t)
{
    struct slice in = buffer_slice(&t->client);
    struct ws_piece piece;
    enum ws_event event;

    while ((event = ws_decode(&t->out, &in, &piece)) != WS_MORE) {
        assert_int_not_equal(event, WS_BAD);
        if (event == WS_HEAD && t->out.frame.opcode != WS_CONTINUATION)
            t->heard = t->out.frame.opcode;
        if (event != WS_PIECE)
            continue;
        assert_true(buffer_put(&t->text, piece.bytes));
        if (piece.last && t->out.frame.fin)
            talk_note(t, "");
    }
    buffer_free(&t->client);
}

static inline void talk_note_outcome(struct talk *t, const struct adapter_edit *edit)
{
    t->exact += edit->outcome == ADAPTER_EXACT;
    t->gaps += edit->outcome == ADAPTER_GAP;
    t->gap = edit->outcome == ADAPTER_GAP ? edit->gap : t->gap;
}

/* As the tunnel does it (forward.c). */
static inline void talk_piece(struct talk *t, const struct ws_piece *in)
{
    const struct ws_frame *frame = &t->in.frame;
    struct adapter_edit edit = {.insert = buffer_with_limit(t->adapter->insert_max)};
    struct adapter_piece piece = {t->message, frame->opcode != WS_CONTINUATION && in->offset == 0,
                                  frame->fin && in->last, in->bytes, t->now};

    t->verdict = t->adapter->from_worker(t->state, &piece, &edit);
    talk_note_outcome(t, &edit);
    if (buffer_len(&edit.insert)) {
        assert_int_equal(t->open, 0);
        assert_true(buffer_put(&t->client, buffer_slice(&edit.insert)));
        t->open = edit.opened;
    }
    buffer_free(&edit.insert);
    if (t->verdict != ADAPTER_PASS)
        return;
    assert_true(edit.skip <= in->bytes.len);
    assert_true(adapter_put_frame(&t->client, t->open ? WS_CONTINUATION : t->message, piece.last,
                                  slice_from(in->bytes, edit.skip)));
    t->open = piece.last ? 0 : (uint8_t)t->message;
}

/* The adapter is told the time. */
static inline void talk_tick(struct talk *t, uint64_t time)
{
    struct adapter_edit edit = {.insert = buffer_with_limit(t->adapter->insert_max)};

    assert_int_equal(t->adapter->tick(t->state, time, &edit), ADAPTER_DROP);
    talk_note_outcome(t, &edit);
    if (buffer_len(&edit.insert)) {
        assert_int_equal(t->open, 0);
        assert_true(buffer_put(&t->client, buffer_slice(&edit.insert)));
        t->open = edit.opened;
    }
    buffer_free(&edit.insert);
    talk_hear(t);
}

/* What was decided without output of the worker's. */
static inline void talk_decided(struct talk *t, struct adapter_edit *edit)
{
    talk_note_outcome(t, edit);
    if (buffer_len(&edit->insert)) {
        assert_int_equal(t->open, 0);
        assert_true(buffer_put(&t->client, buffer_slice(&edit->insert)));
        t->open = edit->opened;
    }
    buffer_free(&edit->insert);
    talk_hear(t);
}

/* The adapter decides what is due; returns true if a second connection is to be opened. */
static inline bool talk_recheck(struct talk *t)
{
    struct adapter_edit edit = {.insert = buffer_with_limit(t->adapter->insert_max)};
    bool begin;

    assert_int_equal(t->adapter->recheck(t->state, t->now, &edit, &begin), ADAPTER_DROP);
    talk_decided(t, &edit);
    return begin;
}

/* A message that the second connection receives. */
static inline bool talk_second(struct talk *t, struct slice message)
{
    uint8_t *copy = malloc(message.len);
    assert_non_null(copy);
    memcpy(copy, message.at, message.len);
    const struct adapter_piece piece = {WS_BINARY, true, true, slice_of(copy, message.len), t->now};
    bool on = t->adapter->recheck_piece(t->state, &piece);

    free(copy);
    return on;
}

/* Microseconds pass without a word of the worker's. */
static inline void talk_pass(struct talk *t, uint64_t time)
{
    uint64_t until = t->now + time;

    for (uint64_t due; (due = t->adapter->due(t->state)) <= until;) {
        t->now = due > t->now ? due : t->now;
        talk_tick(t, t->now);
        assert_true(t->adapter->due(t->state) > t->now); /* it has done what was due */
    }
    t->now = until;
}

/* Bytes of the worker's, told to the adapter in pieces of at most `step`; false: it did not like them. */
static inline bool talk_bytes(struct talk *t, struct slice bytes, size_t step)
{
    while (bytes.len) {
        struct slice part = guarded(slice_sub(bytes, 0, step)), in = part;
        struct ws_piece piece;
        enum ws_event event;
        bytes = slice_from(bytes, step);
        while ((event = ws_decode(&t->in, &in, &piece)) != WS_MORE && t->verdict <= ADAPTER_DROP) {
            assert_int_not_equal(event, WS_BAD);
            if (event == WS_HEAD && t->in.frame.opcode != WS_CONTINUATION)
                t->message = t->in.frame.opcode;
            if (event == WS_PIECE)
                talk_piece(t, &piece);
        }
        guarded_free(part);
        talk_hear(t);
    }
    return t->verdict <= ADAPTER_DROP;
}

static inline struct slice talk_frame(uint8_t *to, unsigned start, struct slice payload)
{
    struct ws_frame frame = {.opcode = start & 15, .fin = start & 0x80, .length = payload.len};
    size_t head = ws_encode_head(to, &frame);

    if (payload.len)
        memcpy(to + head, payload.at, payload.len);
    return slice_of(to, head + payload.len);
}

/* One frame; start is its first byte. */
static inline bool talk_says(struct talk *t, unsigned start, struct slice payload)
{
    uint8_t *memory = malloc(payload.len + WS_HEAD_MAX);
    assert_non_null(memory);
    bool fine = talk_bytes(t, talk_frame(memory, start, payload), SIZE_MAX);
    free(memory);
    return fine;
}

/* What the next request adds. */
static inline const char *talk_request(struct talk *t)
{
    static char text[1024];
    uint8_t memory[2][400];
    struct writer query = writer_of(memory[0], sizeof memory[0]),
                  fields = writer_of(memory[1], sizeof memory[1]);

    t->requested = true;
    if (t->adapter->request)
        t->adapter->request(t->state, &query, &fields);
    snprintf(text, sizeof text, "%.*s|%.*s", (int)query.len, (const char *)query.at, (int)fields.len,
             (const char *)fields.at);
    return text;
}

/* The worker that was dialled serves from now on; the one before is lost. */
static inline void talk_join(struct talk *t)
{
    struct adapter_edit edit = {.outcome = ADAPTER_PENDING};

    if (t->open && !t->adapter->exact) {
        assert_true(adapter_put_frame(&t->client, WS_CONTINUATION, true, slice_text("")));
        t->open = 0;
        talk_hear(t);
    }
    if (!t->requested && !t->adapter->numbers)
        talk_request(t);
    t->requested = false;
    t->in = ws_decoder_with(WS_SERVER, t->control);
    if (send_queue_salvage(&t->kept))
        send_queue_sent(&t->kept, 0);
    t->adapter->joined(t->state, &t->kept, &edit);
    talk_note_outcome(t, &edit);
}

/* By its image another process has the same state; of an adapter whose state owns no memory. */
static inline bool talk_state_moves(const struct talk *t)
{
    struct buffer bytes = buffer_with_limit(1 << 20);
    struct image write = image_to(&bytes, 1, 0);
    void *back = calloc(1, t->adapter->state_len);
    assert_non_null(back);
    image_part(&write, t->adapter->image, t->state);
    struct image read = image_from(buffer_slice(&bytes), 1, 0);
    image_part(&read, t->adapter->image, back);
    bool moves = image_done(&write) && image_done(&read) && !memcmp(back, t->state, t->adapter->state_len);
    buffer_free(&bytes);
    free(back);
    return moves;
}

#endif
