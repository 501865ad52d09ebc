/* SPDX-License-Identifier: MIT */
#include "spoa/spop/spop.h"

#include "spoa/base/bytes/ascii.h"

const char *spop_status_text(uint64_t status)
{
    static const struct {
        uint64_t code;
        const char *text;
    } statuses[] = {
#define X(name, code, text) {code, text},
        SPOP_STATUSES(X)
#undef X
    };

    for (size_t i = 0; i < sizeof statuses / sizeof statuses[0]; i++)
        if (statuses[i].code == status)
            return statuses[i].text;
    return "unknown error";
}

/* ---- frames ---- */
bool spop_type_known(uint8_t type)
{
    switch (type) {
    case SPOP_TYPE_UNSET:
    case SPOP_TYPE_HAPROXY_HELLO:
    case SPOP_TYPE_HAPROXY_DISCONNECT:
    case SPOP_TYPE_NOTIFY:
    case SPOP_TYPE_AGENT_HELLO:
    case SPOP_TYPE_AGENT_DISCONNECT:
    case SPOP_TYPE_ACK:
        return true;
    default:
        return false;
    }
}

enum spop_step spop_frame_read(struct slice in, size_t max, struct spop_frame *frame, size_t *size)
{
    *size = SPOP_LENGTH_BYTES;
    if (in.len < SPOP_LENGTH_BYTES)
        return SPOP_STEP_MORE;
    struct reader r = reader_of(in);
    uint32_t length = reader_u32(&r);
    if (length > max)
        return SPOP_STEP_TOO_BIG;
    if (length < SPOP_FRAME_MIN)
        return SPOP_STEP_INVALID;
    *size += length;
    if (r.rest.len < length)
        return SPOP_STEP_MORE;
    r.rest.len = length;
    frame->type = reader_u8(&r);
    frame->flags = reader_u32(&r);
    frame->stream_id = spop_varint_read(&r);
    frame->frame_id = spop_varint_read(&r);
    frame->payload = r.rest;
    return r.failed ? SPOP_STEP_INVALID : SPOP_STEP_FRAME;
}

size_t spop_frame_begin(struct writer *w, enum spop_type type, uint64_t stream_id, uint64_t frame_id)
{
    size_t begin = w->len;
    writer_be(w, 0, SPOP_LENGTH_BYTES);
    writer_u8(w, (uint8_t)type);
    writer_be(w, SPOP_FIN, 4);
    spop_varint_write(w, stream_id);
    spop_varint_write(w, frame_id);
    return begin;
}

bool spop_frame_end(struct writer *w, size_t begin, size_t max)
{
    size_t length = w->len - begin - SPOP_LENGTH_BYTES;
    if (w->full || length > max) {
        w->len = begin;
        w->full = false;
        return false;
    }
    struct writer head = writer_of(w->at + begin, SPOP_LENGTH_BYTES);
    writer_be(&head, length, SPOP_LENGTH_BYTES);
    return true;
}

/* ---- NOTIFY ---- */
bool spop_message_next(struct reader *payload, struct spop_message *message)
{
    if (payload->failed || payload->rest.len == 0)
        return false;
    message->name = spop_text_read(payload);
    message->args.left = reader_u8(payload);
    message->args.reader = *payload;
    for (unsigned i = 0; i < message->args.left && !payload->failed; i++)
        spop_item_skip(payload);
    message->args.reader.rest.len -= payload->rest.len;
    return !payload->failed;
}

bool spop_arg_next(struct spop_args *args, struct slice *name, struct spop_value *value)
{
    if (args->left == 0)
        return false;
    args->left--;
    return spop_item_read(&args->reader, name, value);
}

/* The position of a message is that of its count of arguments, the byte after the name, which spop_arg_write increments. */
size_t spop_message_begin(struct writer *w, struct slice name)
{
    spop_text_write(w, name);
    size_t count_at = w->len;
    writer_u8(w, 0);
    return count_at;
}

void spop_arg_write(struct writer *w, size_t message, struct slice name, struct spop_value value)
{
    spop_item_write(w, name, value);
    if (!w->full && w->at[message] == UINT8_MAX)
        w->full = true;
    if (!w->full)
        w->at[message]++;
}

/* ---- ACK ---- */
#define SET_VAR_ARGS   3 /* scope, name, value */
#define UNSET_VAR_ARGS 2 /* scope, name */

static const size_t scope_len[] = {
    [SPOP_PROCESS] = sizeof "proc" - 1,    [SPOP_SESSION] = sizeof "sess" - 1,
    [SPOP_TRANSACTION] = sizeof "txn" - 1, [SPOP_REQUEST] = sizeof "req" - 1,
    [SPOP_RESPONSE] = sizeof "res" - 1,
};

/* Returns true if HAProxy can take the name. */
static bool name_acceptable(const struct spop_actions *actions, enum spop_scope scope, struct slice name)
{
    if (name.len == 0 || scope_len[scope] + 1 + actions->prefix_len + 1 + name.len > SPOP_VARIABLE_MAX)
        return false;
    for (size_t i = 0; i < name.len; i++)
        if (!ascii_is_alphanumeric(name.at[i]) && name.at[i] != '_' && name.at[i] != '.')
            return false;
    return true;
}

static void action_begin(struct spop_actions *actions, uint8_t type, uint8_t args, enum spop_scope scope,
                         struct slice name)
{
    struct writer *w = actions->out;
    if (!name_acceptable(actions, scope, name))
        w->full = true;
    writer_put(w, slice_of((const uint8_t[]){type, args, (uint8_t)scope}, 3));
    spop_text_write(w, name);
    actions->count++;
}

void spop_set_var(struct spop_actions *actions, enum spop_scope scope, struct slice name,
                  struct spop_value value)
{
    action_begin(actions, SPOP_SET_VAR, SET_VAR_ARGS, scope, name);
    spop_value_write(actions->out, value);
}

void spop_unset_var(struct spop_actions *actions, enum spop_scope scope, struct slice name)
{
    action_begin(actions, SPOP_UNSET_VAR, UNSET_VAR_ARGS, scope, name);
}

bool spop_action_next(struct reader *payload, struct spop_action *action)
{
    if (payload->failed || payload->rest.len == 0)
        return false;
    uint8_t type = reader_u8(payload), args = reader_u8(payload), scope = reader_u8(payload);
    *action = (struct spop_action){.type = type, .scope = scope, .name = spop_text_read(payload)};
    bool set = type == SPOP_SET_VAR && args == SET_VAR_ARGS;
    bool unset = type == SPOP_UNSET_VAR && args == UNSET_VAR_ARGS;
    if ((!set && !unset) || scope > SPOP_RESPONSE || action->name.len == 0)
        payload->failed = true;
    return (!set || spop_value_read(payload, &action->value)) && !payload->failed;
}
