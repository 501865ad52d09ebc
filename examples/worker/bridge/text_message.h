/* SPDX-License-Identifier: MIT */
/*
 * text_message: a text message of a WebSocket, collected from its pieces, which is to be a JSON document.
 */
#ifndef CELLGATE_WORKER_BRIDGE_TEXT_MESSAGE_H
#define CELLGATE_WORKER_BRIDGE_TEXT_MESSAGE_H

#include "examples/worker/http/ws_conn.h"
#include "spoa/base/bytes/buffer.h"
#include "spoa/base/json/json.h"

#define TEXT_MESSAGE_MAX 65536 /* bytes */

struct text_message {
    struct buffer bytes;
    bool too_long; /* `bytes` is its beginning */
};

struct text_message text_message_empty(void);
void text_message_free(struct text_message *text); /* it is empty then */
/* Takes a piece; true once the message is complete. */
bool text_message_add(struct text_message *text, const struct ws_data *data);
/* The document that it is, for the caller to free; NULL when it is none. It is empty then. */
struct json *text_message_parse(struct text_message *text);

#endif
