/* SPDX-License-Identifier: MIT */
/*
 * The client's end: whatever an agent sends, in one piece or in many, gives the same events; every question
 * comes back exactly once, answered or lost. The first byte says how the rest is cut.
 */

#include "spoa/spop/client.h"
#include "tests/fuzz/fuzz.h"

#define QUESTIONS 6u

struct outcome {
    size_t said;
    uint64_t status;
    unsigned answers, lost, actions;
};

static void ask_all(struct spop_client *client, unsigned came_back[QUESTIONS + 1], struct writer *out)
{
    struct spop_ask ask;
    for (unsigned i = 0; i < QUESTIONS && spop_client_ready(client); i++) {
        if (came_back[i] == 0)
            continue;
        came_back[i] = 0;
        CHECK(spop_client_ask_begin(client, SLICE_LITERAL("cell-resolve"), &came_back[i], out, &ask));
        spop_client_ask_arg(&ask, SLICE_LITERAL("sandbox"), spop_text(SLICE_LITERAL("sb-1")));
        CHECK(spop_client_ask_end(client, &ask));
        if (i == QUESTIONS - 1) {
            spop_client_forget(client, ask.id);
            came_back[i] = 1;
        }
    }
}

static struct outcome converse(struct slice in, size_t piece)
{
    static uint8_t memory[1 << 20];
    struct writer out = writer_of(memory, sizeof memory);
    struct outcome outcome = {0};
    unsigned came_back[QUESTIONS + 1] = {1, 1, 1, 1, 1, 1};
    struct spop_client *client = spop_client_new(QUESTIONS);
    struct spop_client_event event;
    struct spop_action action;
    enum spop_client_step step;
    spop_client_hello(client, &(struct spop_offer){.frame_size = 16380, .pipelining = true}, &out);
    for (size_t there = piece, taken = 0;; there += piece) {
        struct slice part = slice_sub(in, taken, there - taken);
        while (out.len < sizeof memory / 2 &&
               (step = spop_client_next(client, &part, &event, &out)) != SPOP_CLIENT_MORE) {
            if (step == SPOP_CLIENT_READY)
                ask_all(client, came_back, &out);
            if (step == SPOP_CLIENT_ENDED)
                outcome.status = event.status;
            if (step != SPOP_CLIENT_ANSWER)
                continue;
            CHECK((*(unsigned *)event.context)++ == 0);
            outcome.answers++;
            while (spop_action_next(&event.actions, &action))
                outcome.actions++;
            CHECK(!event.actions.failed);
            if (outcome.answers % 3 == 0)
                ask_all(client, came_back, &out);
        }
        CHECK(!out.full);
        taken = (size_t)(part.at - in.at);
        if (there >= in.len)
            break;
    }
    void *context;
    while (spop_client_lost(client, &context)) {
        CHECK((*(unsigned *)context)++ == 0);
        outcome.lost++;
    }
    CHECK(spop_client_waiting(client) == 0);
    for (unsigned i = 0; i < QUESTIONS; i++)
        CHECK(came_back[i] == 1);
    spop_client_free(client);
    outcome.said = out.len;
    return outcome;
}

static int read_input(const uint8_t *data, size_t size)
{
    if (size < 1 || size > 65536)
        return 0;
    struct slice in = slice_of(data + 1, size - 1);
    struct outcome whole = converse(in, size), cut = converse(in, 1u + data[0]);
    CHECK(whole.said == cut.said && whole.status == cut.status && whole.answers == cut.answers &&
          whole.lost == cut.lost && whole.actions == cut.actions);
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    return fuzz_grown(read_input, data, size);
}
