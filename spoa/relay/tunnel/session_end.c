/* SPDX-License-Identifier: MIT */
#include "spoa/relay/tunnel/session_end.h"

#include "spoa/base/json/json.h"

static bool is_exit_frame(enum ws_opcode opcode, struct slice payload)
{
    return opcode == WS_BINARY && payload.len == 5 && payload.at[0] == 3;
}

static bool is_exit_json(enum ws_opcode opcode, struct slice payload)
{
    struct fail why;
    struct slice type;

    /* most messages are output, and this check spares them the parser */
    if (opcode != WS_TEXT || payload.len > SESSION_END_MAX || !memmem(payload.at, payload.len, "\"exit\"", 6))
        return false;
    struct json *doc = json_parse(payload, "message", 0, (struct json_limits){SESSION_END_MAX, 8}, &why);
    bool said = doc && json_text(json_member(json_root(doc), "type"), &type) && slice_is(type, "exit");
    json_free(doc);
    return said;
}

bool session_end_said(enum handover_end kind, enum ws_opcode opcode, struct slice payload)
{
    switch (kind) {
    case HANDOVER_END_EXIT_FRAME:
        return is_exit_frame(opcode, payload);
    case HANDOVER_END_EXIT_JSON:
        return is_exit_json(opcode, payload);
    default:
        return false;
    }
}
