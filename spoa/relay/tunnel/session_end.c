/* SPDX-License-Identifier: MIT */
#include "spoa/relay/tunnel/session_end.h"

#include "spoa/base/json/json.h"

static bool is_exit_frame(enum ws_opcode opcode, struct slice payload)
{
    return opcode == WS_BINARY && payload.len == 5 && payload.at[0] == 3;
}

/* Spares most messages the parser. */
static bool may_be_exit_json(struct slice text)
{
    return memmem(text.at, text.len, "\"exit\"", 6) || memmem(text.at, text.len, "\"error\"", 7);
}

static bool is_exit_json(enum ws_opcode opcode, struct slice payload)
{
    struct fail why;
    struct slice type;

    if (opcode != WS_TEXT || payload.len > SESSION_END_MAX || !may_be_exit_json(payload))
        return false;
    struct json *doc = json_parse(payload, "message", 0, (struct json_limits){SESSION_END_MAX, 8}, &why);
    const json_node *root = doc ? json_root(doc) : NULL;
    bool typed = json_text(json_member(root, "type"), &type);
    bool said = typed && (slice_is(type, "exit") || (slice_is(type, "error") && json_member(root, "cursor")));
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
