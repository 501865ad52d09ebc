/* SPDX-License-Identifier: MIT */
/*
 * spop_hello: the frames that open and close an SPOP connection (SPOE.txt,
 * sections 3.2.4, 3.2.5, 3.2.8, 3.2.9): lists of names and values, written and judged for both ends. Slices
 * point into the payload that was read.
 */
#ifndef CELLGATE_SPOP_HELLO_H
#define CELLGATE_SPOP_HELLO_H

#include "spoa/spop/spop.h"

/* Room that any of the frames written here fits in. */
#define SPOP_HELLO_MAX 512

/* What HAPROXY-HELLO offers. */
struct spop_offer {
    size_t frame_size;      /* max-frame-size, cut to SPOP_FRAME_MAX */
    struct slice engine_id; /* absent for a health check */
    bool healthcheck;
    bool pipelining;
};

/* SPOP_STATUS_NORMAL, or why the agent must refuse. */
enum spop_status spop_offer_read(struct slice payload, struct spop_offer *offer);
/* engine_id: at most 64 bytes. */
void spop_offer_write(struct writer *w, const struct spop_offer *offer);

/* What AGENT-HELLO agrees to. We announce `pipelining` and nothing else: with `async` a dead agent costs
 * every request in flight its full timeout on HAProxy 2.6 to 3.0. */
struct spop_agreement {
    size_t frame_size;
    bool pipelining;
};

/* SPOP_STATUS_NORMAL, or why the client must refuse;
 * more than `offered` bytes a frame cannot be agreed to. */
enum spop_status spop_agreement_read(struct slice payload, size_t offered, struct spop_agreement *agreement);
void spop_agreement_write(struct writer *w, const struct spop_agreement *agreement);

/* type: SPOP_TYPE_HAPROXY_DISCONNECT or SPOP_TYPE_AGENT_DISCONNECT; the message is the status' text. */
void spop_disconnect_write(struct writer *w, enum spop_type type, enum spop_status status);
/* False when the payload says no status; message may be absent. */
bool spop_disconnect_read(struct slice payload, uint64_t *status, struct slice *message);

#endif
