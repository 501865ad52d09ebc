/* SPDX-License-Identifier: MIT */
/* session_end: recognises a worker's message that announces the session's end. No I/O. The kinds are exit-frame, a binary message of
 * exactly 5 bytes that begins with 03, and exit-json, a text message that is a JSON object whose member "type" is "exit", or is "error" beside
 * a member "cursor": the terminal has failed at that place of its output. Only messages in one frame are checked, because workers send them so. */
#ifndef CELLGATE_RELAY_TUNNEL_SESSION_END_H
#define CELLGATE_RELAY_TUNNEL_SESSION_END_H

#include "spoa/proto/handover.h"
#include "spoa/proto/ws.h"

#define SESSION_END_MAX 4096 /* longest exit message, in bytes */

/* Returns true if this message announces the session's end; `payload` is unmasked. */
bool session_end_said(enum handover_end kind, enum ws_opcode opcode, struct slice payload);

#endif
