/* SPDX-License-Identifier: MIT */
/*
 * pings: the newest Ping of the client's that was passed on and not answered yet. The relay answers that Ping itself when the
 * worker is lost. RFC 6455 section 5.5.3 lets a peer answer the newest Ping alone, so older ones need no memory, and a Pong is
 * compared with one payload, however many Pings and Pongs a peer sends.
 */
#ifndef CELLGATE_RELAY_LEG_PINGS_H
#define CELLGATE_RELAY_LEG_PINGS_H

#include "spoa/base/bytes/image.h"
#include "spoa/base/bytes/slice.h"

#define PINGS_PAYLOAD_MAX 125 /* bytes */

struct pings {
    bool open; /* the Ping waits for its Pong; all other members are zero if not */
    uint8_t len;
    uint8_t payload[PINGS_PAYLOAD_MAX];
};

/* Remembers a Ping of at most PINGS_PAYLOAD_MAX bytes in place of the one before. */
void pings_put(struct pings *pings, struct slice payload);
/* Forgets the open Ping if the Pong has the same payload. */
void pings_answered(struct pings *pings, struct slice payload);
/* Moves the payload of the open Ping to `payload`. Returns false if no Ping is open. */
bool pings_take(struct pings *pings, uint8_t payload[static PINGS_PAYLOAD_MAX], size_t *len);

extern const struct image_table pings_table;

#endif
