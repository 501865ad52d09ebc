/* SPDX-License-Identifier: MIT */
/*
 * hello_watch: shows every ClientHello that a TLS server may act on. After a HelloRetryRequest the client sends a second one
 * (RFC 8446 section 4.1.4), and not every server compares its name with that of the first, so both names must be checked. Until the
 * server has answered with something else, every plaintext handshake record of the client must be part of a ClientHello; a client
 * that follows the RFC sends nothing else there.
 *
 * The bytes of both sides arrive in pieces of any size. Other records of the client, such as early data, are skipped.
 */
#ifndef CELLGATE_PROTO_HELLO_WATCH_H
#define CELLGATE_PROTO_HELLO_WATCH_H

#include "spoa/proto/client_hello.h"

enum { HELLO_WATCH_ANSWER = 4 + 2 + 32 }; /* bytes of a ServerHello up to its random: head, version, random */

/* Zero bytes are the state at the beginning of a connection. */
struct hello_watch {
    bool begun;   /* the first ClientHello has been read */
    bool retried; /* the server has sent a HelloRetryRequest */
    bool done;    /* no later byte needs to be checked; the caller may set this from the beginning */

    /* private */
    bool other;                                  /* the client's current record is no handshake record */
    size_t left;                                 /* bytes left of the client's current record */
    size_t needs;                                /* bytes without which reading a ClientHello is of no use */
    size_t head_len;                             /* bytes of `head` */
    size_t answer_len;                           /* bytes of `answer` */
    size_t answer_left;                          /* bytes left of the server's current record */
    bool alert;                                  /* the server's current record is an alert */
    uint8_t head[5], answer[HELLO_WATCH_ANSWER]; /* the server's record head and the start of its message */
};

/* Looks for the next ClientHello in `bytes`: the client's bytes that were not cleared yet, again from their beginning with each call.
 * The first *clear of them may be forwarded to the server.
 *
 * NAMED, UNNAMED: the cleared bytes end with a ClientHello. Forward them only if the name is allowed, and call again.
 * MORE: the bytes after *clear wait for more.
 * FOREIGN: nothing needs to be checked any more, and all bytes are cleared.
 * BAD: the connection must end.
 *
 * `memory` and *name are those of client_hello_read. */
enum client_hello hello_watch_client(struct hello_watch *watch, struct slice bytes, struct writer *memory,
                                     struct slice *name, size_t *clear) MUST_CHECK;
/* Takes the next bytes of the server. Bytes before the first ClientHello cannot answer it and are ignored. */
void hello_watch_server(struct hello_watch *watch, struct slice bytes);

#endif
