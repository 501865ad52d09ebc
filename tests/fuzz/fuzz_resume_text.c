/* SPDX-License-Identifier: MIT */
/* Cell-Resume's header, query, Pongs and messages: whatever is taken keeps its bounds, and is put again as it was. */

#include "examples/worker/resume.h"
#include "examples/worker/resume_text.h"
#include "tests/fuzz/fuzz.h"

static void check_terms(enum resume_found found, const struct resume_terms *t)
{
    if (found != RESUME_FOUND)
        return;
    CHECK(t->tunnel.len == RESUME_ID_SIZE && t->attempt >= 1 && t->attempt <= RESUME_NUMBER_MAX);
    CHECK(t->recv <= RESUME_NUMBER_MAX && (t->has_recv || t->recv == 0));
    CHECK(t->buffer == 0 || (t->buffer >= RESUME_WINDOW_MIN && t->buffer <= RESUME_NUMBER_MAX));
}

static int read_input(const uint8_t *data, size_t size)
{
    uint8_t memory[RESUME_TEXT_MAX];
    struct slice in = slice_of(data, size);
    struct resume_terms terms;
    uint64_t number = 0;
    check_terms(resume_read_header(in, &terms), &terms);
    check_terms(resume_read_query(in, &terms), &terms);
    struct writer w = writer_of(memory, sizeof memory);
    enum resume_say say = resume_read_pong(in, &number);
    if (say != RESUME_SAYS_NOTHING) {
        resume_put_pong(&w, say, number);
        CHECK(slice_equal(writer_slice(&w), in) && resume_is_ours(in));
    }
    w = writer_of(memory, sizeof memory);
    say = resume_read_message(in, &number);
    if (say != RESUME_SAYS_NOTHING) {
        resume_put_message(&w, say, number);
        CHECK(slice_equal(writer_slice(&w), in) && resume_is_message(in));
    }
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    return fuzz_grown(read_input, data, size);
}
