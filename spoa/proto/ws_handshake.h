/* SPDX-License-Identifier: MIT */
/*
 * ws_handshake: the HTTP/1.1 upgrade that opens a WebSocket (RFC 6455 section 4), for both sides.
 */
#ifndef CELLGATE_PROTO_WS_HANDSHAKE_H
#define CELLGATE_PROTO_WS_HANDSHAKE_H

#include "spoa/base/bytes/writer.h"
#include "spoa/base/os/fail.h"
#include "spoa/proto/http.h"

#define WS_KEY_SIZE    25 /* 24 characters and NUL */
#define WS_ACCEPT_SIZE 29 /* 28 characters and NUL */

/* The key of a client from 16 random bytes. */
void ws_handshake_key(char key[WS_KEY_SIZE], const uint8_t nonce[16]);
/* Whether it is the base64 form of 16 bytes. */
bool ws_handshake_key_valid(struct slice key);
/* The answer to a key; false when out of memory for its SHA-1. */
bool ws_handshake_accept(char accept[WS_ACCEPT_SIZE], struct slice key) __attribute__((warn_unused_result));

/* Judges an upgrade request. 0: *key is its key. Otherwise the status to refuse it with: 400, 405, or 426
 * (which needs `Sec-WebSocket-Version: 13` and `Upgrade: websocket`), and why. */
unsigned ws_handshake_check_request(const struct http_head *head, struct slice *key, struct fail *why)
    __attribute__((warn_unused_result));

/* Judges the answer to an upgrade that was sent with this key and these comma-separated subprotocols (absent: none), and
 * without extensions. Returns true only for a correct 101; *protocol is then the one selected, or absent. A Content-Length of 0,
 * which many servers send, is correct here; the caller does not pass it on. */
bool ws_handshake_check_answer(const struct http_head *head, struct slice key, struct slice offered,
                               struct slice *protocol, struct fail *why) __attribute__((warn_unused_result));

/* Whether a comma-separated list of subprotocols holds this one (case matters). */
bool ws_handshake_offers(struct slice offered, struct slice protocol);

/* Write a head up to, not including, its final empty line, so that the caller may add fields of its own and
 * then
 * "\r\n". Subprotocols are left out when absent. */
void ws_handshake_put_request(struct writer *w, struct slice target, struct slice host, struct slice key,
                              struct slice protocols);
/* False when out of memory. */
bool ws_handshake_put_answer(struct writer *w, struct slice key, struct slice protocol)
    __attribute__((warn_unused_result));

#endif
