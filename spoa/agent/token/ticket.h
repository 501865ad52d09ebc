/* SPDX-License-Identifier: MIT */
/*
 * ticket: what proves that a relay asks for a tunnel that this agent, or another one with the same key, has
 * admitted. The agent puts it into the handover, the relay hands it back with each question, unchanged, as it
 * does the identity that the ticket is for (HANDOVER_IDENTITY). It is an HMAC-SHA256 of that identity, cut to
 * 128 bits. It does not expire: key, exp and not_before of the identity are judged at each question.
 *
 * The agent before this one wrote tickets of an older domain, which say nothing of a token's ports, of a decision without a place
 * and of what Authorization holds. Tunnels outlive their agent, so these are good, and judged as if they granted the least.
 */
#ifndef CELLGATE_AGENT_TOKEN_TICKET_H
#define CELLGATE_AGENT_TOKEN_TICKET_H

#include "spoa/agent/token/key.h"
#include "spoa/proto/handover.h"

enum { TICKET_BYTES = 16, TICKET_SECRET = 32 };

/* Reads the key, of TICKET_SECRET bytes or more; a file that is not there is made, for this user alone. NULL
 * and *why when it cannot be read, or is not secret. Blocks: for the start. */
struct key *ticket_key_load(const char *path, struct fail *why);

/* Appends the ticket for the identity of this handover; absent without memory or room, and without a key. */
struct slice ticket_write(const struct key *key, const struct handover *handover, struct writer *w);
enum ticket_age { TICKET_BAD, TICKET_OLD, TICKET_GOOD };
/* Returns whether handover->ticket is one for its identity. Takes the same time for each that is not. */
enum ticket_age ticket_check(const struct key *key, const struct handover *handover);

#endif
