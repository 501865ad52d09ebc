/* SPDX-License-Identifier: MIT */
/*
 * Random lives of one adapter: the first byte chooses it, then each event is a byte of what, a byte of length
 * and so many bytes; with LONG two more bytes make a long piece of these, and say how reads cut it. Whatever workers say,
 * what is passed on makes valid frames, what is passed of a replay goes up to its end, memory is bounded, and it is not said
 * to be short.
 */
#include <stdlib.h>

#include "spoa/base/bytes/reader.h"
#include "spoa/relay/resume/adapter.h"
#include "tests/fuzz/fuzz.h"

#define LONG      0x20
#define LONG_MOST (6 << 20) /* bytes of long pieces in a life */

struct life {
    const struct adapter *adapter;
    size_t long_bytes;
    bool rechecks; /* a second connection to the worker is opened where the adapter asks for it */
    void *state;
    struct send_queue kept;
    struct ws_decoder client;
    uint64_t now;
    bool in_message; /* of the worker */
    enum ws_opcode opcode;
    uint8_t open; /* towards the client */
    /* ---- of a replay that is collected ---- */
    uint8_t tag;
    struct end {
        uint8_t bytes[4];
        uint64_t len;
    } ends[2]; /* the last bytes of each stream */
};

static void client_gets(struct life *l, struct slice frames)
{
    struct ws_piece piece;
    enum ws_event event;

    while ((event = ws_decode(&l->client, &frames, &piece)) != WS_MORE)
        CHECK(event != WS_BAD);
}

static void client_gets_frame(struct life *l, enum ws_opcode opcode, bool fin, struct slice payload)
{
    struct buffer frame = buffer_with_limit(2 << 20);
    CHECK(adapter_put_frame(&frame, opcode, fin, payload));
    client_gets(l, buffer_slice(&frame));
    buffer_free(&frame);
}

static bool collects(const struct life *l)
{
    return !l->rechecks && l->adapter->collects && l->adapter->collects(l->state);
}

static void note_replay(struct life *l, const struct adapter_piece *piece)
{
    struct slice bytes = piece->bytes;

    if (!l->tag && piece->opcode == WS_BINARY && bytes.len) {
        l->tag = bytes.at[0];
        bytes = slice_from(bytes, 1);
    }
    if (l->tag != 1 && l->tag != 2)
        return;
    struct end *end = &l->ends[l->tag - 1];
    end->len += bytes.len;
    for (bytes = slice_from(bytes, bytes.len > 4 ? bytes.len - 4 : 0); bytes.len;
         bytes = slice_from(bytes, 1)) {
        memmove(end->bytes, end->bytes + 1, 3);
        end->bytes[3] = bytes.at[0];
    }
}

/* What is passed of a replay goes up to its end: the last message of it ends as the replay of its stream did. */
static void check_replay(struct life *l, struct slice frames)
{
    struct ws_decoder d = ws_decoder_of(WS_SERVER, SIZE_MAX);
    struct slice message = {NULL, 0};
    struct ws_piece piece;
    enum ws_event event;

    while ((event = ws_decode(&d, &frames, &piece)) != WS_MORE) {
        CHECK(event == WS_HEAD || event == WS_PIECE);
        if (event == WS_PIECE && d.frame.fin && piece.bytes.len > 1 && piece.bytes.at[0] <= 2)
            message = piece.bytes;
    }
    if (message.len > 1) {
        struct slice got = slice_from(message, message.len > 5 ? message.len - 4 : 1);
        const struct end *end = &l->ends[message.at[0] - 1];
        CHECK(end->len >= got.len && slice_equal(got, slice_of(end->bytes + 4 - got.len, got.len)));
    }
    memset(l->ends, 0, sizeof l->ends);
}

static bool worker_says(struct life *l, uint8_t what, struct slice bytes, bool last)
{
    bool collected = collects(l);
    struct adapter_edit edit = {.insert = buffer_with_limit(l->adapter->insert_max)};
    struct adapter_piece piece = {l->opcode, !l->in_message, last, bytes, l->now};

    if (piece.first)
        piece.opcode = l->opcode = what & 0x80 ? WS_TEXT : WS_BINARY;
    l->in_message = !piece.last;
    if (piece.first)
        l->tag = 0;
    enum adapter_verdict verdict = l->adapter->from_worker(l->state, &piece, &edit);
    CHECK(edit.skip <= bytes.len && verdict != ADAPTER_NO_MEMORY);
    CHECK(!buffer_len(&edit.insert) || !l->open);
    if (collected && verdict == ADAPTER_DROP)
        note_replay(l, &piece);
    if (collected && !collects(l))
        check_replay(l, buffer_slice(&edit.insert));
    if (buffer_len(&edit.insert)) {
        client_gets(l, buffer_slice(&edit.insert));
        l->open = edit.opened;
    }
    buffer_free(&edit.insert);
    if (verdict == ADAPTER_PASS) {
        client_gets_frame(l, l->open ? WS_CONTINUATION : l->opcode, piece.last, slice_from(bytes, edit.skip));
        l->open = piece.last ? 0 : (uint8_t)l->opcode;
    }
    return verdict <= ADAPTER_DROP;
}

/* The bytes, and made ones behind them up to a length. */
static bool worker_says_long(struct life *l, uint8_t what, struct slice bytes, struct slice choice)
{
    size_t len = fuzz_length(choice.at[0]), step = fuzz_length(choice.at[1]);
    uint8_t *memory = malloc(bytes.len + len);
    bool alive = true;

    CHECK(memory || !bytes.len);
    if (bytes.len)
        memcpy(memory, bytes.at, bytes.len);
    if (len)
        fuzz_fill(memory + bytes.len, len, bytes.len ? bytes.at[bytes.len - 1] : 0);
    struct slice rest = slice_of(memory, bytes.len + len), part;
    step = step < rest.len / 64 ? rest.len / 64 + 1 : step ? step : 1;
    do {
        part = slice_sub(rest, 0, step);
        rest = slice_from(rest, part.len);
        uint8_t *exact = malloc(part.len ? part.len : 1); /* one byte too far is noticed */
        CHECK(exact != NULL);
        if (part.len)
            memcpy(exact, part.at, part.len);
        alive = worker_says(l, what, slice_of(exact, part.len), !rest.len && what & 0x40);
        free(exact);
    } while (alive && rest.len);
    free(memory);
    l->long_bytes += len;
    return alive;
}

static void request(struct life *l)
{
    uint8_t memory[2][512];
    struct writer query = writer_of(memory[0], 512), fields = writer_of(memory[1], 512);

    if (l->adapter->request)
        l->adapter->request(l->state, &query, &fields);
    CHECK(!query.full && !fields.full);
}

static bool answered(struct life *l, struct slice text)
{
    static const char start[] = "HTTP/1.1 101 S\r\nCell-Resume: 1; ";
    uint8_t memory[512];
    struct writer w = writer_of(memory, sizeof memory);
    struct http_reader r = http_reader_of(HTTP_RESPONSE, HTTP_HEAD_MAX);
    static struct http_head head;

    request(l);
    writer_text(&w, start);
    writer_put(&w, text);
    writer_text(&w, "\r\n\r\n");
    return http_read(&r, writer_slice(&w), &head) == HTTP_DONE &&
           l->adapter->answered(l->state, &head) == ADAPTER_GOES_ON;
}

static bool joins(struct life *l, struct slice text)
{
    struct adapter_edit edit = {.outcome = ADAPTER_PENDING};

    if (l->adapter->answered && !answered(l, text))
        return true;
    if (l->open && !l->adapter->exact) {
        client_gets_frame(l, WS_CONTINUATION, true, slice_text(""));
        l->open = 0;
    }
    l->in_message = false;
    memset(l->ends, 0, sizeof l->ends);
    CHECK(send_queue_salvage(&l->kept) || !buffer_len(&l->kept.frames));
    l->adapter->joined(l->state, &l->kept, &edit);
    return true;
}

static bool client_says(struct life *l, struct slice bytes)
{
    uint8_t frame[WS_HEAD_MAX + 256] = {0x82, 0x80};
    size_t len = bytes.len % 100, window;

    if (!l->adapter->numbers)
        return true;
    l->adapter->numbers->room(l->state, &window);
    frame[1] = (uint8_t)(0x80 | len);
    CHECK(send_queue_put(&l->kept, slice_of(frame, 6 + len)));
    if (bytes.len & 1)
        send_queue_sent(&l->kept, send_queue_unsent(&l->kept).len);
    l->adapter->numbers->from_client(l->state, len);
    return true;
}

static bool numbers(struct life *l, struct slice bytes)
{
    uint8_t memory[300] = "cr", payload[WS_CONTROL_MAX];
    const struct adapter_numbers *n = l->adapter->numbers;
    struct reader r = reader_of(bytes);
    uint64_t now = 1 + reader_u8(&r) * UINT64_C(10000);

    if (!n)
        return true;
    CHECK(n->due_pong(l->state, now, payload) <= WS_CONTROL_MAX);
    CHECK(n->mark_end(l->state, payload) == 13);
    n->due(l->state);
    if (r.rest.len)
        memcpy(memory + 2, r.rest.at, r.rest.len);
    return n->pong(l->state, slice_of(memory, 2 + r.rest.len), &l->kept) <= ADAPTER_DROP;
}

static bool probes(struct life *l, uint8_t what, struct slice bytes)
{
    uint8_t memory[512];
    struct writer w = writer_of(memory, sizeof memory);
    uint64_t missing;

    if (!l->adapter->probe)
        return true;
    l->adapter->probe(l->state, bytes, &w);
    l->adapter->probed(l->state, what & 0x80 ? 404 : 200, bytes, &missing);
    return true;
}

/* The second connection: what is due, a message, its end. */
static bool rechecks(struct life *l, uint8_t what, struct slice bytes)
{
    struct adapter_edit edit = {.insert = buffer_with_limit(l->adapter->insert_max)};
    const struct adapter_piece piece = {WS_BINARY, true, true, bytes, l->now};
    bool begin;

    if (what & 0x80) {
        l->adapter->recheck_piece(l->state, &piece);
    } else if (what & 0x40) {
        l->adapter->recheck_ended(l->state, l->now);
    } else if (!l->open && l->adapter->recheck_at(l->state) <= (l->now += bytes.len * UINT64_C(20000))) {
        CHECK(l->adapter->recheck(l->state, l->now, &edit, &begin) == ADAPTER_DROP);
        CHECK(!begin || l->adapter->unsettled(l->state));
        client_gets(l, buffer_slice(&edit.insert));
    }
    buffer_free(&edit.insert);
    return true;
}

static bool time_passes(struct life *l, uint8_t what, struct slice bytes)
{
    struct adapter_edit edit = {.insert = buffer_with_limit(l->adapter->insert_max)};
    bool collected = collects(l);

    l->now += bytes.len * UINT64_C(50000);
    if (!l->adapter->tick || (l->adapter->due(l->state) > l->now && (!(what & 0x80) || l->open)))
        return true;
    CHECK(l->adapter->tick(l->state, what & 0x80 && !l->open ? ADAPTER_NO_MORE : l->now, &edit) ==
          ADAPTER_DROP);
    CHECK(!buffer_len(&edit.insert) || !l->open);
    CHECK(l->adapter->due(l->state) > l->now);
    if (collected && !collects(l))
        check_replay(l, buffer_slice(&edit.insert));
    client_gets(l, buffer_slice(&edit.insert));
    buffer_free(&edit.insert);
    return true;
}

static bool event(struct life *l, uint8_t what, struct slice bytes)
{
    switch (what & 7) {
    case 0:
        return joins(l, bytes);
    case 1:
        request(l);
        return true;
    case 2:
        return client_says(l, bytes);
    case 3:
        return l->adapter->numbers ? numbers(l, bytes) : time_passes(l, what, bytes);
    case 4:
        return l->adapter->recheck && l->rechecks ? rechecks(l, what, bytes) : probes(l, what, bytes);
    default:
        return worker_says(l, what, bytes, what & 0x40);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct reader r = reader_of(slice_of(data, size));
    uint8_t kind = reader_u8(&r);
    struct adapter_start start = {
        .target = SLICE_LITERAL("/pty/x/ws?since=3"), .buffer = 8192, .rechecks = kind >= 128};
    struct life l = {.adapter = adapter_find(1 + kind % 4, false),
                     .rechecks = kind >= 128,
                     .kept = send_queue_with_limit(1 << 20),
                     .client = ws_decoder_of(WS_SERVER, 0)};
    bool alive = size < 5000;

    l.state = calloc(1, l.adapter->state_len);
    CHECK(l.state != NULL);
    l.kept.keeps = l.adapter->numbers != NULL;
    if (l.adapter->start)
        l.adapter->start(l.state, &start);
    request(&l);
    joins(&l, SLICE_LITERAL("recv=0; next=1"));
    while (alive && r.rest.len) {
        uint8_t what = reader_u8(&r), len = reader_u8(&r);
        struct slice bytes = reader_take(&r, len < r.rest.len ? len : r.rest.len);
        uint8_t *copy = malloc(bytes.len + 1); /* one byte too far is noticed */
        CHECK(copy != NULL);
        if (bytes.len)
            memcpy(copy, bytes.at, bytes.len);
        uint8_t *exact = realloc(copy, bytes.len ? bytes.len : 1);
        bool is_long = (what & 7) > 4 && what & LONG && r.rest.len >= 2 && l.long_bytes < LONG_MOST;
        alive = is_long ? worker_says_long(&l, what, slice_of(exact, bytes.len), reader_take(&r, 2))
                        : event(&l, what, slice_of(exact, bytes.len));
        free(exact);
        CHECK(!l.adapter->held || l.adapter->held(l.state) < (9 << 20));
    }
    if (l.adapter->end)
        l.adapter->end(l.state);
    free(l.state);
    send_queue_free(&l.kept);
    return 0;
}
