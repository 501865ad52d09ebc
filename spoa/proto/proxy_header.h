/* SPDX-License-Identifier: MIT */
/*
 * proxy_header: writes the header of the PROXY protocol, version 2, that HAProxy reads at the start of a connection: the source
 * address, the destination, the name of the destination and an id (HAProxy's proxy-protocol.txt, sections 2.2 and 2.2.1; types 0x02
 * and 0x05).
 */
#ifndef CELLGATE_PROTO_PROXY_HEADER_H
#define CELLGATE_PROTO_PROXY_HEADER_H

#include "spoa/base/bytes/writer.h"
#include "spoa/base/text/address.h"

enum {
    PROXY_AUTHORITY_MAX = 255, /* bytes */
    PROXY_UNIQUE_ID_MAX = 128, /* bytes; HAProxy refuses a longer id */
    PROXY_HEADER_MAX = 16 + 36 + 3 + PROXY_AUTHORITY_MAX + 3 + PROXY_UNIQUE_ID_MAX
};

/* Writes a header. `from` has the family of `to`, or is NULL for an unspecified address; the source port is always 0. `authority` and
 * `unique_id` may be absent. w->full is set if one of them is too long or the header does not fit. */
void proxy_header_write(struct writer *w, const struct address *from, const struct address *to, uint16_t port,
                        struct slice authority, struct slice unique_id);

#endif
