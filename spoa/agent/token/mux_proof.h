/* SPDX-License-Identifier: MIT */
/*
 * mux_proof: what shows the agent that a client of this address opened the mux socket out of which a request comes. The agent
 * writes it into the handover of the upgrade, the relay puts it into the PROXY header of its connection to HAProxy for each
 * request, and HAProxy hands it back. The relay has no key, so it can name no address but those from which a mux socket was
 * opened.
 *
 *     PROOF: base64url of a time and an HMAC-SHA256 of it and the address, cut to 128 bits
 */
#ifndef CELLGATE_AGENT_TOKEN_MUX_PROOF_H
#define CELLGATE_AGENT_TOKEN_MUX_PROOF_H

#include "spoa/agent/token/key.h"
#include "spoa/base/text/address.h"

enum { MUX_PROOF_TEXT = 28 };

/* Appends the proof. until: Unix seconds, the last at which it is good; -1: nothing ends it. Returns it; absent without a key, an
 * address, memory or room. An IPv4 address that is written as an IPv6 one is the same address. */
struct slice mux_proof_write(const struct key *key, const struct address *source, int64_t until,
                             struct writer *w);
/* Returns whether mux_proof_write has made the text with this key for this address; *until is then what it was told.
 * Takes the same time for each text that is none. */
bool mux_proof_read(const struct key *key, struct slice text, const struct address *source, int64_t *until)
    __attribute__((warn_unused_result));

#endif
