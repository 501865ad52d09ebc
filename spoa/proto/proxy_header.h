/* SPDX-License-Identifier: MIT */
/*
 * proxy_header: the PROXY protocol, version 2, as HAProxy reads it in front of a connection: whose it is, where it is to
 * connect to, the name that goes with it, and an id (proxy-protocol.txt, sections 2.2 and 2.2.1; types 0x02 and 0x05).
 */
#ifndef CELLGATE_PROTO_PROXY_HEADER_H
#define CELLGATE_PROTO_PROXY_HEADER_H

#include "spoa/base/bytes/writer.h"
#include "spoa/base/text/address.h"

enum {
    PROXY_AUTHORITY_MAX = 255,
    PROXY_UNIQUE_ID_MAX = 128, /* HAProxy refuses what is longer */
    PROXY_HEADER_MAX = 16 + 36 + 3 + PROXY_AUTHORITY_MAX + 3 + PROXY_UNIQUE_ID_MAX
};

/* from: NULL, or of the same family; its port is 0. authority and unique_id may be absent; both fit, or w->full. */
void proxy_header_write(struct writer *w, const struct address *from, const struct address *to, uint16_t port,
                        struct slice authority, struct slice unique_id);

#endif
