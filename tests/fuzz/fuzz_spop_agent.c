/* SPDX-License-Identifier: MIT */
/*
 * The agent's end: whatever HAProxy's end sends, in one piece or in many, gives the same events and the same
 * answers, and every argument of a message that was handed out can be read. The first byte says how the rest
 * is cut.
 */

#include "spoa/spop/conversation.h"
#include "tests/fuzz/fuzz.h"

static uint8_t outputs[2][1 << 20];

static void acknowledge(struct spop_conversation *agent, const struct spop_frame *frame, struct writer *out)
{
    struct reader payload = reader_of(frame->payload);
    struct spop_message message;
    struct slice name;
    struct spop_value value;
    struct spop_actions actions = {.out = out, .prefix_len = 4};
    size_t begin = spop_frame_begin(out, SPOP_TYPE_ACK, frame->stream_id, frame->frame_id);
    while (spop_message_next(&payload, &message)) {
        unsigned count = message.args.left;
        while (spop_arg_next(&message.args, &name, &value)) {
            spop_set_var(&actions, SPOP_TRANSACTION, SLICE_LITERAL("v"), value);
            count--;
        }
        CHECK(count == 0);
    }
    if (payload.failed) {
        out->len = begin;
        out->full = false;
        spop_conversation_end(agent, SPOP_STATUS_INVALID, out);
    } else if (!spop_frame_end(out, begin, agent->agreed)) {
        CHECK(out->len == begin);
    }
}

/* What a client would read of it: whole frames, and every ACK's actions as they were written. */
static void check_output(struct slice out)
{
    struct spop_frame frame;
    size_t size;
    while (out.len) {
        CHECK(spop_frame_read(out, SPOP_FRAME_MAX, &frame, &size) == SPOP_STEP_FRAME);
        struct reader payload = reader_of(frame.payload);
        struct spop_action action;
        while (frame.type == SPOP_TYPE_ACK && spop_action_next(&payload, &action))
            ;
        CHECK(!payload.failed);
        out = slice_from(out, size);
    }
}

static size_t converse(struct slice in, size_t piece, struct writer out)
{
    struct spop_conversation agent = {.agreed = 0};
    struct spop_conversation_event event;
    enum spop_conversation_step step;
    for (size_t there = piece, taken = 0;; there += piece) {
        struct slice part = slice_sub(in, taken, there - taken);
        while (out.size - out.len > 2 * SPOP_FRAME_MAX &&
               (step = spop_conversation_next(&agent, &part, &event, &out)) != SPOP_CONVERSATION_MORE)
            if (step == SPOP_CONVERSATION_NOTIFY)
                acknowledge(&agent, &event.frame, &out);
        CHECK(!out.full);
        taken = (size_t)(part.at - in.at);
        if (there >= in.len || agent.state == SPOP_CONVERSATION_ENDED)
            break;
    }
    check_output(writer_slice(&out));
    return out.len;
}

static int read_input(const uint8_t *data, size_t size)
{
    if (size < 1 || size > 65536)
        return 0;
    struct slice in = slice_of(data + 1, size - 1);
    size_t whole = converse(in, size, writer_of(outputs[0], sizeof outputs[0]));
    size_t cut = converse(in, 1u + data[0], writer_of(outputs[1], sizeof outputs[1]));
    CHECK(whole == cut && memcmp(outputs[0], outputs[1], whole) == 0);
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    return fuzz_grown(read_input, data, size);
}
