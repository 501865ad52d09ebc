/* SPDX-License-Identifier: MIT */
/* ws_handshake: the HTTP/1.1 upgrade that opens a WebSocket (RFC 6455 section 4), for both sides. */
#ifndef CELLGATE_PROTO_WS_HANDSHAKE_H
#define CELLGATE_PROTO_WS_HANDSHAKE_H

#include "spoa/base/bytes/writer.h"
#include "spoa/base/os/fail.h"
#include "spoa/proto/http.h"

#define WS_KEY_SIZE    25 /* 24 characters and NUL */
#define WS_ACCEPT_SIZE 29 /* 28 characters and NUL */

/* Makes a client's Sec-WebSocket-Key from 16 random bytes. */
void ws_handshake_key(char key[WS_KEY_SIZE], const uint8_t nonce[16]);
/* Returns true if the key is the base64 form of 16 bytes. */
bool ws_handshake_key_valid(struct slice key) MUST_CHECK;
/* Computes Sec-WebSocket-Accept for a key. Returns false if there is no memory for the SHA-1. */
bool ws_handshake_accept(char accept[WS_ACCEPT_SIZE], struct slice key) MUST_CHECK;

/* Checks an upgrade request. Returns 0 and sets *key to its key, or returns the status to refuse it with and fills *why: 400, 405, or
 * 426, which needs `Sec-WebSocket-Version: 13` and `Upgrade: websocket` in the answer. */
unsigned ws_handshake_check_request(const struct http_head *head, struct slice *key, struct fail *why)
    MUST_CHECK;

/* Checks the answer to an upgrade that was sent with this key, these comma-separated subprotocols (absent if none) and no extensions.
 * Returns true only for a correct 101; *protocol is then the subprotocol selected, or absent. A Content-Length of 0 is accepted here,
 * because many servers send one; the caller does not forward it. */
bool ws_handshake_check_answer(const struct http_head *head, struct slice key, struct slice offered,
                               struct slice *protocol, struct fail *why) MUST_CHECK;

/* Returns true if a comma-separated list of subprotocols contains this one. Subprotocols are case-sensitive. */
bool ws_handshake_offers(struct slice offered, struct slice protocol);

/* Writes a request's head without its final empty line, so that the caller can add fields of its own and then "\r\n". No
 * Sec-WebSocket-Protocol is written if `protocols` is absent. */
void ws_handshake_put_request(struct writer *w, struct slice target, struct slice host, struct slice key,
                              struct slice protocols);
/* Writes the head of a 101, in the same way. Returns false if there is no memory for the SHA-1. */
bool ws_handshake_put_answer(struct writer *w, struct slice key, struct slice protocol) MUST_CHECK;

#endif
