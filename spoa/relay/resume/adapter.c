/* SPDX-License-Identifier: MIT */
#include "spoa/relay/resume/adapter.h"

const struct adapter adapter_none = {.name = "none"};
/* The client itself numbers its messages, so it must learn of every loss. */
const struct adapter adapter_through = {.name = "cell", .one_leg = true};

const struct adapter *adapter_find(enum handover_resume resume, bool client_resumes)
{
    static const struct adapter *const adapters[] = {
        [HANDOVER_RESUME_NONE] = &adapter_none,
        [HANDOVER_RESUME_SCROLLBACK] = &adapter_scrollback,
        [HANDOVER_RESUME_SINCE] = &adapter_since,
        [HANDOVER_RESUME_CELL] = &adapter_cell,
        [HANDOVER_RESUME_CURSOR] = &adapter_cursor,
    };

    return client_resumes ? &adapter_through : adapters[resume];
}

bool adapter_put_frame(struct buffer *to, enum ws_opcode opcode, bool fin, struct slice payload)
{
    uint8_t head[WS_HEAD_MAX];
    struct ws_frame frame = {.opcode = opcode, .fin = fin, .length = payload.len};
    size_t len = ws_encode_head(head, &frame);

    return buffer_put(to, slice_of(head, len)) && buffer_put(to, payload);
}
