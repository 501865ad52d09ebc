/* SPDX-License-Identifier: MIT */
/*
 * pings: the client's pings that were passed on and not answered yet, so that the relay can answer them
 * itself when the worker is lost. The oldest are forgotten when there are too many (RFC 6455 section 5.5.3
 * lets a peer answer the last one only).
 */
#ifndef CELLGATE_RELAY_TUNNEL_PINGS_H
#define CELLGATE_RELAY_TUNNEL_PINGS_H

#include "spoa/base/buffer.h"
#include "spoa/base/image.h"

#define PINGS_MAX 1024 /* bytes of memory */

struct pings {
    struct buffer open; /* {u8 length, payload}* */
};

struct pings pings_none(void);
void pings_free(struct pings *pings);
/* Out of memory only forgets the ping. */
void pings_put(struct pings *pings, struct slice payload);
/* A pong answers the ping with its payload and all older ones. */
void pings_answered(struct pings *pings, struct slice payload);
/* Takes the oldest off into payload, which has room for 125 bytes; false: there is none. */
bool pings_take(struct pings *pings, uint8_t payload[125], size_t *len);

void pings_image(struct image *image, struct pings *pings);

#endif
