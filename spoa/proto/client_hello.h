/* SPDX-License-Identifier: MIT */
/*
 * client_hello: reads the server name from the first message of a TLS client, TLS 1.0 to 1.3 (ClientHello: RFC 8446 sections 4.1.2
 * and 5.1; server_name: RFC 6066 section 3). The message may be cut into records anywhere. Only what locates the name is checked:
 * the rest is the server's business. The ClientHello of SSL 2.0 begins TLS, too (RFC 5246 appendix E.2), and has no name.
 */
#ifndef CELLGATE_PROTO_CLIENT_HELLO_H
#define CELLGATE_PROTO_CLIENT_HELLO_H

#include "spoa/base/bytes/writer.h"

enum client_hello {
    CLIENT_HELLO_MORE,    /* more bytes are needed */
    CLIENT_HELLO_FOREIGN, /* the bytes are not TLS */
    /* the bytes begin with a TLS record, but no ClientHello, a malformed one, or one over CLIENT_HELLO_MAX */
    CLIENT_HELLO_BAD,
    CLIENT_HELLO_UNNAMED, /* a ClientHello without server_name */
    CLIENT_HELLO_NAMED    /* a ClientHello with server_name */
};

enum { CLIENT_HELLO_MAX = 16384 }; /* bytes of a ClientHello, without the heads of its records */

/* TLS_RECORD_HEAD and TLS_RECORD_MAX are bytes of a record's head and of its content; the others are content types. */
enum { TLS_HANDSHAKE = 22, TLS_ALERT = 21, TLS_RECORD_HEAD = 5, TLS_RECORD_MAX = 16384 };

/* Reads a ClientHello from `bytes`, everything that has arrived so far. The message is assembled in `memory`, which has
 * CLIENT_HELLO_MAX bytes; *name points there, as the client wrote it: 1 to 255 bytes without NUL. */
enum client_hello client_hello_read(struct slice bytes, struct writer *memory, struct slice *name) MUST_CHECK;

/* The place of a ClientHello in the bytes of a client that may send several. */
struct client_hello_place {
    /* In: bytes left of the handshake record in which the message begins; 0 if it begins with a record. Out: the same after its
     * end. */
    size_t left;
    /* Out: bytes up to the end of the message; after CLIENT_HELLO_MORE, the least number that a whole message needs. */
    size_t len;
};

/* Like client_hello_read, for a ClientHello that follows another one at `place`. Never returns CLIENT_HELLO_FOREIGN. */
enum client_hello client_hello_next(struct slice bytes, struct writer *memory, struct slice *name,
                                    struct client_hello_place *place) MUST_CHECK;

#endif
