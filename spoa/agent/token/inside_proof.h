/* SPDX-License-Identifier: MIT */
/*
 * inside_proof: proves to HAProxy's inner listener which sandbox an inspected connection belongs to, and where it may go. The agent
 * writes the proof into its answer to the CONNECT, the relay puts it into the PROXY header of its connection to HAProxy, and HAProxy
 * returns it with each request of the connection. The relay has no key, so it cannot name another sandbox or destination than those of a
 * CONNECT that the agent allowed a moment ago.
 *
 *     PROOF ID NAME      PROOF: base64url of two times, a mark of the sandbox's owner and an HMAC-SHA256 of all fields below,
 *                        cut to 128 bits
 */
#ifndef CELLGATE_AGENT_TOKEN_INSIDE_PROOF_H
#define CELLGATE_AGENT_TOKEN_INSIDE_PROOF_H

#include "spoa/agent/token/key.h"
#include "spoa/base/text/address.h"

enum { INSIDE_PROOF_TEXT = 40, INSIDE_PROOF_SPACES = 2, INSIDE_PROOF_OWNER = 6 };

struct inside_connection {
    struct slice id;   /* ID of the CONNECT for logs, without a space; may be empty */
    struct slice name; /* "NAMESPACE/SANDBOX", or "SANDBOX" */
    struct slice host;
    uint16_t port;
    struct address addr;
    int64_t issued, until;             /* Unix seconds; until is -1 if nothing ends the connection */
    uint8_t owner[INSIDE_PROOF_OWNER]; /* written by inside_proof_owner */
};

/* Writes a mark that identifies the organisation of a record; `org` is absent or empty if there is none. Returns false if the key is
 * NULL or memory is short. */
bool inside_proof_owner(const struct key *key, struct slice org, uint8_t owner[static INSIDE_PROOF_OWNER])
    __attribute__((warn_unused_result));

/* Appends the text for the PROXY header and returns it; absent if the key is NULL, or memory or room is short. */
struct slice inside_proof_write(const struct key *key, const struct inside_connection *connection,
                                struct writer *w);
/* Fills id, name, issued, until and owner of *connection from a text that inside_proof_write made with this key for the same host, port
 * and address, which the caller has set. Returns false for any other text, in the same time for each. */
bool inside_proof_read(const struct key *key, struct slice text, struct inside_connection *connection)
    __attribute__((warn_unused_result));

#endif
