/* SPDX-License-Identifier: MIT */
/*
 * target: the destination of a program: "HOST:PORT" of a CONNECT (RFC 9112 section 3.2.3), of an absolute URL, or of a Host header. A
 * host has exactly one spelling here, so that no other spelling passes a rule that names it.
 */
#ifndef CELLGATE_AGENT_EGRESS_TARGET_H
#define CELLGATE_AGENT_EGRESS_TARGET_H

#include "spoa/base/bytes/slice.h"
#include "spoa/base/text/address.h"

enum { TARGET_HOST_MOST = 253 };

struct target {
    struct address address; /* family 0 if the target is a name */
    uint16_t port;
    uint8_t host_len;
    char host
        [TARGET_HOST_MOST]; /* a name in lower case without a final dot, or an address as inet_ntop writes it */
};

/*
 * Parses the text. With default_port 0 the text must have a port, as in a CONNECT. Returns NULL, or the defect: user information, an
 * empty or invalid port, a zone, percent signs, bytes that no name has, labels over 63 bytes, or a number that other programs read as an
 * address (10.1, 0x7f.1, 017700000001, 127.0.0.1.). An address must be in its usual form.
 */
const char *target_parse(struct slice text, uint16_t default_port, struct target *target);
struct slice target_host(const struct target *target);

#endif
