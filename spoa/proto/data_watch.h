/* SPDX-License-Identifier: MIT */
/*
 * data_watch: detects that a TLS client has completed its handshake, by its first whole record of application data (RFC 8446
 * section 5.1). In TLS 1.3 that record is the client's Finished, in earlier versions its first data after the handshake. A server
 * ends a connection on which such a record comes earlier, unless the ClientHello announced early data.
 */
#ifndef CELLGATE_PROTO_DATA_WATCH_H
#define CELLGATE_PROTO_DATA_WATCH_H

#include "spoa/proto/client_hello.h"

/* Zero bytes are the state at the beginning of a connection. */
struct data_watch {
    bool done; /* the record has been seen: the caller need not pass later bytes */

    /* private */
    size_t head_len; /* bytes of `head` */
    size_t left;     /* bytes left of the current record after its head */
    uint8_t head[TLS_RECORD_HEAD];
};

/* Takes the next bytes of the client, in pieces of any size, from its first record on. */
void data_watch_client(struct data_watch *watch, struct slice bytes);

#endif
