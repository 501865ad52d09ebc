/* SPDX-License-Identifier: MIT */
/*
 * ticket: proves that a relay asks about a tunnel that this agent, or another one with the same key, admitted. The agent puts the ticket
 * into the handover. The relay returns it with each question, together with the identity it belongs to (HANDOVER_IDENTITY), both
 * unchanged. The ticket is an HMAC-SHA256 of that identity, cut to 128 bits. It does not expire: each question checks key, exp and
 * not_before of the identity.
 *
 * The previous version of the agent wrote tickets of an older domain, without a token's ports, decisions without a place, and the
 * content of Authorization. Tunnels outlive their agent, so these tickets stay valid, but are judged as if they granted the minimum.
 */
#ifndef CELLGATE_AGENT_TOKEN_TICKET_H
#define CELLGATE_AGENT_TOKEN_TICKET_H

#include "spoa/agent/token/key.h"
#include "spoa/proto/handover.h"

enum { TICKET_BYTES = 16, TICKET_SECRET = 32 };

/* Reads the key, of TICKET_SECRET bytes or more. A missing file is created, readable by this user only. Returns NULL and *why if the
 * file cannot be read or others can read it. The call blocks; use it at the start only. */
struct key *ticket_key_load(const char *path, struct fail *why);

/* Appends the ticket for the identity of this handover and returns it; absent if memory or room is short, or the key is NULL. */
struct slice ticket_write(const struct key *key, const struct handover *handover, struct writer *w);
enum ticket_age { TICKET_BAD, TICKET_OLD, TICKET_GOOD };
/* Returns whether handover->ticket belongs to its identity. The time is the same for every invalid ticket. */
enum ticket_age ticket_check(const struct key *key, const struct handover *handover);

#endif
