/* SPDX-License-Identifier: MIT */
/*
 * hello_watch: every ClientHello that a server may go by. Behind a HelloRetryRequest there is a second one (RFC 8446 section
 * 4.1.4), and not every server compares its name with the first one's. So until the server has answered with anything else,
 * what the client says in plaintext records of handshake is a ClientHello. A client that speaks TLS as it should says nothing
 * else there: not before the server's answer, nor behind a HelloRetryRequest.
 *
 * The bytes of both sides come in any pieces. Other records of the client's, as those of early data, are skipped.
 */
#ifndef CELLGATE_PROTO_HELLO_WATCH_H
#define CELLGATE_PROTO_HELLO_WATCH_H

#include "spoa/proto/client_hello.h"

enum { HELLO_WATCH_ANSWER = 4 + 2 + 32 }; /* of a ServerHello: head, version, random */

/* All zero at the beginning. */
struct hello_watch {
    bool begun;   /* there was a ClientHello */
    bool retried; /* the server has asked for another one */
    bool done;    /* what follows may pass unread; may be set from the beginning */
    /* ---- its own ---- */
    bool other;                  /* the client's record at hand is none of handshake */
    size_t left, needs;          /* bytes of that record; bytes without which a look is of no use */
    size_t head_len, answer_len; /* of the server's */
    size_t answer_left;          /* of its record at hand */
    bool alert;                  /* which is an alert */
    uint8_t head[5], answer[HELLO_WATCH_ANSWER];
};

/* bytes: the client's that are not cleared yet, all of them again with each call. The first *clear of them may leave, with
 * CLIENT_HELLO_NAMED and _UNNAMED if the caller finds the name good: they end with the ClientHello; then call again. MORE:
 * the rest waits for what is to come, unread until there is enough for a whole ClientHello. FOREIGN: nothing is left to be
 * judged, all of them are cleared. memory and *name: as client_hello_read has them. */
enum client_hello hello_watch_client(struct hello_watch *watch, struct slice bytes, struct writer *memory,
                                     struct slice *name, size_t *clear);
/* The server's next bytes. Those in front of a ClientHello are no answer to one. */
void hello_watch_server(struct hello_watch *watch, struct slice bytes);

#endif
