/* SPDX-License-Identifier: MIT */
/*
 * spop_hello: reads, checks and writes the frames that open and close an SPOP connection, for both ends (SPOE.txt sections 3.2.4,
 * 3.2.5, 3.2.8 and 3.2.9). Their payloads are lists of names and values. Slices point into the payload that was read.
 */
#ifndef CELLGATE_SPOP_HELLO_H
#define CELLGATE_SPOP_HELLO_H

#include "spoa/spop/spop.h"

/* Bytes that are enough for any frame that this module writes. */
#define SPOP_HELLO_MAX 512

/* The content of a HAPROXY-HELLO. */
struct spop_offer {
    size_t frame_size;      /* max-frame-size, lowered to SPOP_FRAME_MAX */
    struct slice engine_id; /* at most 64 bytes if written; absent for a health check */
    bool healthcheck;       /* HAProxy closes the connection after the agent's hello */
    bool pipelining;        /* HAProxy may send a NOTIFY before the last one is acknowledged */
};

/* Reads a HAPROXY-HELLO. Returns SPOP_STATUS_NORMAL, or the status with which the agent must refuse. */
enum spop_status spop_offer_read(struct slice payload, struct spop_offer *offer) MUST_CHECK;
void spop_offer_write(struct writer *w, const struct spop_offer *offer);

/* The content of an AGENT-HELLO. Of all capabilities an agent here announces `pipelining` alone: with `async`, an agent that dies
 * costs every request in flight its full timeout on HAProxy 2.6 to 3.0. */
struct spop_agreement {
    size_t frame_size;
    bool pipelining;
};

/* Reads an AGENT-HELLO. Returns SPOP_STATUS_NORMAL, or the status with which the client must refuse; a max-frame-size above `offered`
 * is refused. */
enum spop_status spop_agreement_read(struct slice payload, size_t offered, struct spop_agreement *agreement)
    MUST_CHECK;
void spop_agreement_write(struct writer *w, const struct spop_agreement *agreement);

/* Writes a frame of type SPOP_TYPE_HAPROXY_DISCONNECT or SPOP_TYPE_AGENT_DISCONNECT, with the text of the status as its message. */
void spop_disconnect_write(struct writer *w, enum spop_type type, enum spop_status status);
/* Reads a DISCONNECT. Returns false if the payload has no status. *message may be absent. */
bool spop_disconnect_read(struct slice payload, uint64_t *status, struct slice *message) MUST_CHECK;

#endif
