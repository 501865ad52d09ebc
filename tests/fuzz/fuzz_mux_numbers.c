/* SPDX-License-Identifier: MIT */
/* A mux's socket that is resumed, whatever its client says and in whatever order: what the gate keeps and counts agrees with a
 * list of all that was said. Two bytes a step: what is done, and how much of it. */

#include "spoa/relay/mux/numbers.h"

#include "spoa/base/bytes/reader.h"
#include "spoa/proto/ws.h"
#include "spoa/relay/mux/frame.h"
#include "tests/fuzz/fuzz.h"

enum { STEPS_MOST = 4096 };

struct world {
    struct mux_numbers gate;
    uint64_t spoken;            /* messages to the client */
    size_t arrived[STEPS_MOST]; /* lengths of messages that wait; each is filled by its place */
    size_t first, last, taken;  /* of those; and of all the socket's */
    bool over;
};

static uint8_t bytes[1 << 20];

static struct slice message_of(size_t len, size_t place)
{
    fuzz_fill(bytes, len, (uint8_t)place);
    return slice_of(bytes, len);
}

/* A number that is near one that counts, or far from all. */
static uint64_t number_of(const struct world *w, uint8_t choice)
{
    uint64_t step = choice >> 3 & 15;
    switch (choice & 7) {
    case 0:
        return w->gate.acknowledged + step;
    case 1:
        return w->gate.sent + 2 - step;
    case 2:
        return w->gate.given + step;
    case 3:
        return w->gate.taken + w->gate.waits + step;
    case 4:
        return UINT64_MAX - step;
    case 5:
        return UINT64_C(1) << (choice >> 3);
    default:
        return step;
    }
}

static void check(const struct world *w)
{
    const struct mux_numbers *r = &w->gate;
    CHECK(r->acknowledged <= r->given && r->given <= r->sent && r->sent <= w->spoken);
    CHECK(r->given_bytes <= buffer_len(&r->kept) && r->in_flight <= r->window);
    CHECK((r->given == r->acknowledged) == (r->given_bytes == 0));
    CHECK((r->acknowledged == w->spoken) == (buffer_len(&r->kept) == 0));
    CHECK(mux_numbers_end(r) == (r->given == w->spoken ? r->given + 1 : 0));
    CHECK(r->waits == w->last - w->first && r->taken == w->taken && r->told <= r->taken);
    CHECK(w->over || r->pending <= CELL_RESUME_WINDOW);
    CHECK(buffer_len(&r->waiting) <= CELL_RESUME_WINDOW + 4 * STEPS_MOST);
}

static void lose(struct world *w)
{
    w->first = w->last; /* they come again */
}

static void request(struct world *w, uint8_t choice, uint8_t more)
{
    struct mux_numbers *r = &w->gate;
    uint64_t attempt = r->attempt, sent = r->sent, acknowledged = r->acknowledged;
    struct cell_resume_terms greeting, terms = {.attempt = choice & 1 ? attempt + 1 : number_of(w, more),
                                                .recv = number_of(w, choice),
                                                .has_recv = true,
                                                .buffer = more & 1 ? fuzz_length(more >> 1) : 0};
    enum mux_numbers_answer answer = mux_numbers_request(r, &terms, &greeting);
    CHECK((answer == MUX_NUMBERS_LATE) == (terms.attempt <= attempt));
    if (answer == MUX_NUMBERS_LATE)
        return;
    CHECK(r->attempt == terms.attempt);
    if (answer == MUX_NUMBERS_IMPOSSIBLE) {
        CHECK(terms.recv > sent || (terms.buffer && terms.buffer < MUX_NUMBERS_WINDOW_LEAST));
        return;
    }
    CHECK(terms.recv <= sent && greeting.recv == w->taken && greeting.next == r->acknowledged + 1);
    CHECK(r->acknowledged == (terms.recv > acknowledged ? terms.recv : acknowledged));
    CHECK(r->given == r->acknowledged && !r->in_flight && !r->pending);
    lose(w);
}

static void speak(struct world *w, uint8_t choice)
{
    size_t len = fuzz_length(choice);
    if (buffer_len(&w->gate.kept) >= MUX_NUMBERS_HIGH)
        return;
    w->spoken++;
    CHECK(mux_frame_put(&w->gate.kept, MUX_FRAME_DATA, (uint32_t)w->spoken,
                        message_of(len < 65535 ? len : 65535, w->spoken)));
}

static void give(struct world *w)
{
    bool large;
    struct slice frame = mux_numbers_next(&w->gate, &large);
    struct ws_decoder d = ws_decoder_of(WS_SERVER, 0);
    struct ws_piece piece;
    struct mux_frame message;
    CHECK(!large);
    if (!frame.len) {
        CHECK(w->gate.given == w->spoken || w->gate.in_flight);
        return;
    }
    CHECK(ws_decode(&d, &frame, &piece) == WS_HEAD && ws_decode(&d, &frame, &piece) == WS_PIECE);
    CHECK(piece.last && d.frame.fin && d.frame.opcode == WS_BINARY && !frame.len);
    CHECK(mux_frame_read(piece.bytes, &message) && message.number == (uint32_t)(w->gate.given + 1));
    CHECK(slice_equal(message.payload, message_of(message.payload.len, w->gate.given + 1)));
    mux_numbers_give(&w->gate);
}

static void arrive(struct world *w, uint8_t choice)
{
    size_t len = fuzz_length(choice);
    uint64_t cost = w->gate.pending + len + CELL_RESUME_COST;
    enum mux_numbers_verdict verdict =
        mux_numbers_put(&w->gate, message_of(len, w->taken + w->gate.waits + 1));
    CHECK(verdict == (cost > CELL_RESUME_WINDOW ? MUX_NUMBERS_TOO_BIG : MUX_NUMBERS_FINE));
    w->over = verdict == MUX_NUMBERS_TOO_BIG;
    if (!w->over)
        w->arrived[w->last++] = len;
}

static void take(struct world *w)
{
    struct slice message = mux_numbers_first(&w->gate);
    CHECK(slice_present(message) == (w->first < w->last));
    if (!slice_present(message))
        return;
    CHECK(message.len == w->arrived[w->first++]);
    CHECK(slice_equal(message, message_of(message.len, ++w->taken)));
    mux_numbers_take(&w->gate);
}

static void tell(struct world *w)
{
    bool now;
    if (!mux_numbers_owes(&w->gate, &now))
        return;
    CHECK(mux_numbers_tell(&w->gate) == w->taken && !mux_numbers_owes(&w->gate, &now));
}

static void step(struct world *w, uint8_t what, uint8_t choice)
{
    uint64_t number = number_of(w, choice), sent = w->gate.sent;
    switch (what & 15) {
    case 0:
    case 1:
        request(w, choice, what >> 4 | (choice & 0xf0));
        break;
    case 2:
        mux_numbers_left(&w->gate);
        lose(w);
        break;
    case 3:
        CHECK(mux_numbers_acknowledge(&w->gate, number) == (number <= sent));
        break;
    case 4:
        CHECK(mux_numbers_mark(&w->gate, number) == (number == w->taken + w->gate.waits + 1));
        break;
    case 5:
    case 6:
        tell(w);
        break;
    case 7:
    case 8:
    case 9:
        arrive(w, choice);
        break;
    case 10:
    case 11:
        take(w);
        break;
    case 12:
    case 13:
        speak(w, choice);
        break;
    default:
        give(w);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct world *w = calloc(1, sizeof *w);
    CHECK(w);
    w->gate = mux_numbers_of();
    for (size_t i = 0; i + 1 < size && i / 2 < STEPS_MOST && !w->over; i += 2) {
        step(w, data[i], data[i + 1]);
        check(w);
    }
    mux_numbers_free(&w->gate);
    free(w);
    return 0;
}
