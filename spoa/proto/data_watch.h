/* SPDX-License-Identifier: MIT */
/*
 * data_watch: whether a TLS client is through with its handshake: by the first whole record of application data (RFC 8446
 * section 5.1) that it sends. In TLS 1.3 that is its Finished, before 1.3 what it says first behind the handshake. A server
 * ends a connection on which such a record comes earlier, but for one whose ClientHello claims early data.
 */
#ifndef CELLGATE_PROTO_DATA_WATCH_H
#define CELLGATE_PROTO_DATA_WATCH_H

#include "spoa/proto/client_hello.h"

/* All zero at the beginning. */
struct data_watch {
    bool done; /* what follows need not be shown */
    /* ---- its own ---- */
    size_t head_len,
        left; /* of the record at hand: bytes of its head, and still to come of what is behind that */
    uint8_t head[TLS_RECORD_HEAD];
};

/* The client's next bytes, in any pieces, from its first record on. */
void data_watch_client(struct data_watch *watch, struct slice bytes);

#endif
