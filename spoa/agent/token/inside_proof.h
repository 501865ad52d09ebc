/* SPDX-License-Identifier: MIT */
/*
 * inside_proof: what shows HAProxy's inner listener whose an inspected connection is, and where it may go. The agent writes
 * it into its answer to the CONNECT, the relay puts it into the PROXY header of its connection to HAProxy, and HAProxy hands
 * it back with each request inside. The relay has no key, so it can name no other sandbox and no other destination than
 * those of a CONNECT that the agent has allowed a moment ago.
 *
 *     PROOF ID NAME      PROOF: base64url of two times, a mark of the sandbox's owner and an HMAC-SHA256 of all that is said
 *                        here, cut to 128 bits
 */
#ifndef CELLGATE_AGENT_TOKEN_INSIDE_PROOF_H
#define CELLGATE_AGENT_TOKEN_INSIDE_PROOF_H

#include "spoa/agent/token/key.h"
#include "spoa/base/text/address.h"

enum { INSIDE_PROOF_TEXT = 40, INSIDE_PROOF_SPACES = 2, INSIDE_PROOF_OWNER = 6 };

struct inside_connection {
    struct slice id;   /* of the CONNECT, for logs, without a space; may be empty */
    struct slice name; /* "NAMESPACE/SANDBOX", or "SANDBOX" */
    struct slice host;
    uint16_t port;
    struct address addr;
    int64_t issued, until;             /* Unix seconds; until is -1 if nothing ends the connection */
    uint8_t owner[INSIDE_PROOF_OWNER]; /* as inside_proof_owner writes it */
};

/* Writes a mark by which the organisation of a record is known again; org: absent or empty if it is nobody's. Returns false without a
 * key or memory. */
bool inside_proof_owner(const struct key *key, struct slice org, uint8_t owner[static INSIDE_PROOF_OWNER])
    __attribute__((warn_unused_result));

/* Appends the text for the PROXY header. Returns it; absent without a key, memory or room. */
struct slice inside_proof_write(const struct key *key, const struct inside_connection *connection,
                                struct writer *w);
/* Fills id, name, issued, until and owner of *connection from a text that inside_proof_write has made with this key for the same
 * host, port and address, which are there already. Returns false for any other text. Takes the same time for each of them. */
bool inside_proof_read(const struct key *key, struct slice text, struct inside_connection *connection)
    __attribute__((warn_unused_result));

#endif
