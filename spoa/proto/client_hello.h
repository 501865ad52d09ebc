/* SPDX-License-Identifier: MIT */
/*
 * client_hello: the server name in what a TLS client says first (RFC 8446 section 4.1.2 and 5.1, RFC 6066 section 3), of TLS
 * 1.0 to 1.3. The message may be cut into records anywhere. Nothing of it is judged but where the name stands. Also a
 * ClientHello of SSL 2.0 begins TLS (RFC 5246 appendix E.2); it has no name.
 */
#ifndef CELLGATE_PROTO_CLIENT_HELLO_H
#define CELLGATE_PROTO_CLIENT_HELLO_H

#include "spoa/base/bytes/writer.h"

enum client_hello {
    CLIENT_HELLO_MORE,    /* not to be told yet */
    CLIENT_HELLO_FOREIGN, /* this is no TLS */
    CLIENT_HELLO_BAD, /* it begins with a record of TLS, and is no ClientHello or malformed, or over CLIENT_HELLO_MAX bytes */
    CLIENT_HELLO_UNNAMED, /* there is no server_name in it */
    CLIENT_HELLO_NAMED
};

enum { CLIENT_HELLO_MAX = 16384 };

enum { TLS_HANDSHAKE = 22, TLS_ALERT = 21, TLS_RECORD_HEAD = 5, TLS_RECORD_MAX = 16384 };

/* `bytes`: all that has come so far. The message is put together in `memory`, of CLIENT_HELLO_MAX bytes, where *name
 * points: as it stands there, 1 to 255 bytes without NUL. */
enum client_hello client_hello_read(struct slice bytes, struct writer *memory, struct slice *name);

struct client_hello_place {
    /* before: bytes of the handshake record in which it begins; 0: at the next record. After: behind it */
    size_t left;
    size_t len; /* bytes up to its end; while it is not told: as many a whole one needs at least */
};

/* The same of a ClientHello that begins at a place behind another one: never CLIENT_HELLO_FOREIGN. */
enum client_hello client_hello_next(struct slice bytes, struct writer *memory, struct slice *name,
                                    struct client_hello_place *place);

#endif
