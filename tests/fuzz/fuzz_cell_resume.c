/* SPDX-License-Identifier: MIT */
/* Cell-Resume's header, query, Pongs and messages: whatever is taken keeps its bounds, and is put again as it was. */

#include "spoa/proto/cell_resume.h"
#include "tests/fuzz/fuzz.h"

static void check_terms(const struct cell_resume_terms *t)
{
    CHECK(t->attempt <= CELL_RESUME_NUMBER_MAX && t->next <= CELL_RESUME_NUMBER_MAX);
    CHECK(t->recv <= CELL_RESUME_NUMBER_MAX && (t->has_recv || t->recv == 0));
    CHECK(t->buffer == 0 || (t->buffer >= CELL_RESUME_WINDOW_MIN && t->buffer <= CELL_RESUME_NUMBER_MAX));
}

/* The line that says the same reads as the same. */
static void check_again(enum cell_resume_side side, const struct cell_resume_terms *t)
{
    uint8_t memory[CELL_RESUME_TEXT_MAX];
    struct writer w = writer_of(memory, sizeof memory);
    struct cell_resume_terms again;
    cell_resume_put_field(&w, t);
    struct slice value = slice_from(writer_slice(&w), sizeof CELL_RESUME_HEADER ": " - 1);
    CHECK(!w.full && slice_is(slice_from(value, value.len - 2), "\r\n"));
    CHECK(cell_resume_read_value(slice_sub(value, 0, value.len - 2), side, &again) == CELL_RESUME_FOUND);
    CHECK(slice_equal(again.tunnel, t->tunnel) && again.attempt == t->attempt && again.next == t->next);
    CHECK(again.has_recv == t->has_recv && again.recv == t->recv && again.buffer == t->buffer);
}

static void check_side(enum cell_resume_found found, enum cell_resume_side side,
                       const struct cell_resume_terms *t)
{
    bool request = side == CELL_RESUME_REQUEST;
    if (found != CELL_RESUME_FOUND)
        return;
    check_terms(t);
    CHECK(t->tunnel.len == (request ? CELL_RESUME_ID_LEN : 0));
    CHECK((t->attempt > 0) == request && (t->next == 0) == request && (request || t->has_recv));
    check_again(side, t);
}

static int read_input(const uint8_t *data, size_t size)
{
    uint8_t memory[CELL_RESUME_TEXT_MAX];
    struct slice in = slice_of(data, size);
    struct cell_resume_terms terms;
    uint64_t number = 0;
    for (int i = CELL_RESUME_REQUEST; i <= CELL_RESUME_ANSWER; i++) {
        enum cell_resume_side side = (enum cell_resume_side)i;
        check_side(cell_resume_read_value(in, side, &terms), side, &terms);
    }
    check_side(cell_resume_read_query(in, &terms), CELL_RESUME_REQUEST, &terms);
    struct writer w = writer_of(memory, sizeof memory);
    enum cell_resume_say say = cell_resume_read_pong(in, &number);
    if (say != CELL_RESUME_NOTHING) {
        cell_resume_put_pong(&w, say, number);
        CHECK(slice_equal(writer_slice(&w), in) && cell_resume_is_own(in));
    }
    w = writer_of(memory, sizeof memory);
    say = cell_resume_read_message(in, &number);
    if (say != CELL_RESUME_NOTHING) {
        cell_resume_put_message(&w, say, number);
        CHECK(slice_equal(writer_slice(&w), in) && cell_resume_is_message(in));
    }
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    return fuzz_grown(read_input, data, size);
}
