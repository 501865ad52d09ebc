/* SPDX-License-Identifier: MIT */
/*
 * target: where a program wants to go: "HOST:PORT" of a CONNECT (RFC 9112 section 3.2.3), of an absolute URL, or of a Host.
 * A host has one spelling here, so that a rule which names it cannot be passed by another.
 */
#ifndef CELLGATE_AGENT_EGRESS_TARGET_H
#define CELLGATE_AGENT_EGRESS_TARGET_H

#include "spoa/base/bytes/slice.h"
#include "spoa/base/text/address.h"

enum { TARGET_HOST_MOST = 253 };

struct target {
    struct address address; /* family 0: it is a name */
    uint16_t port;
    uint8_t host_len;
    char host
        [TARGET_HOST_MOST]; /* a name in lower case, without a last dot; an address as inet_ntop writes it */
};

/*
 * default_port 0: a port has to be there, as in a CONNECT. NULL, or what is wrong with it: user information, an empty or bad
 * port, a zone, percent signs, bytes that no name has, labels of over 63 bytes, a number that other programs would read as an
 * address (10.1, 0x7f.1, 017700000001, 127.0.0.1.): these are written as people write addresses, or refused.
 */
const char *target_parse(struct slice text, uint16_t default_port, struct target *target);
struct slice target_host(const struct target *target);

#endif
