/* SPDX-License-Identifier: MIT */
#include "examples/worker/bridge/text_message.h"

#define DEPTH 3

struct text_message text_message_empty(void)
{
    return (struct text_message){.bytes = buffer_with_limit(TEXT_MESSAGE_MAX)};
}

void text_message_free(struct text_message *text)
{
    buffer_free(&text->bytes);
}

bool text_message_add(struct text_message *text, const struct ws_data *data)
{
    if (data->first) {
        buffer_free(&text->bytes);
        text->too_long = false;
    }
    if (!buffer_put(&text->bytes, data->bytes))
        text->too_long = true;
    return data->last;
}

struct json *text_message_parse(struct text_message *text)
{
    struct fail why;
    struct json_limits limits = {TEXT_MESSAGE_MAX, DEPTH};
    struct json *doc =
        text->too_long ? NULL : json_parse(buffer_slice(&text->bytes), "message", 0, limits, &why);
    buffer_free(&text->bytes);
    return doc;
}
