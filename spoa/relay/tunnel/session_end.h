/* SPDX-License-Identifier: MIT */
/*
 * session_end: recognises that a session has said its end, in what the worker sends. Pure.
 *   exit-frame  a binary message of exactly 5 bytes that begins with 03
 *   exit-json   a text message that is a JSON object whose member "type" is "exit"
 * Only messages in one frame are looked at, which is how workers send them.
 */
#ifndef CELLGATE_RELAY_TUNNEL_SESSION_END_H
#define CELLGATE_RELAY_TUNNEL_SESSION_END_H

#include "spoa/proto/handover.h"
#include "spoa/proto/ws.h"

#define SESSION_END_MAX 256 /* a longer message is no exit */

/* Whether this message says the session's end; payload unmasked. */
bool session_end_said(enum handover_end kind, enum ws_opcode opcode, struct slice payload);

#endif
