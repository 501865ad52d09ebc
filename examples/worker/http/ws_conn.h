/* SPDX-License-Identifier: MIT */
/*
 * ws_conn: the worker's end of a WebSocket (RFC 6455), on an exchange that asked to be upgraded. Messages are
 * reported in pieces and never collected. Pings are answered here. A frame that was begun is finished before a
 * control frame is sent.
 */
#ifndef CELLGATE_WORKER_HTTP_WS_CONN_H
#define CELLGATE_WORKER_HTTP_WS_CONN_H

#include "spoa/net/http_server.h"
#include "spoa/proto/ws.h"

struct ws_data {
    enum ws_opcode opcode; /* of the message: WS_TEXT or WS_BINARY */
    struct slice bytes;    /* unmasked */
    bool first, last;      /* of the message */
};

struct ws_conn {            /* the first member of what serves the request */
    struct http_exchange x; /* its `close` is the user's, raw, room and leave are taken by ws_conn_open */
    /* set by the user; head, control, room and fields may be NULL */
    void (*head)(struct ws_conn *w, const struct ws_frame *frame); /* a data frame begins */
    void (*data)(struct ws_conn *w, const struct ws_data *data);
    /* A control frame came; true: it needs no answer from here. NULL: all are answered as ever. */
    bool (*control)(struct ws_conn *w, enum ws_opcode opcode, struct slice payload);
    void (*room)(struct ws_conn *w);
    void (*left)(struct ws_conn *w); /* once: it is over for the peer or for us; nothing can be sent */
    const char *fields;              /* further lines of the 101, each with CRLF */
    uint64_t silence_max; /* microseconds without a frame before the peer is given up; 0: no bound */

    /* private */
    struct ws_decoder decoder;
    enum ws_opcode opcode;
    bool begins, open, told_left;
    bool doubted;        /* it was silent for too long, and has a last chance */
    bool closing;        /* our Close is sent, the peer's is waited for */
    uint64_t frame_left; /* payload that is still to be sent of the frame that was begun */
    struct buffer held;  /* control frames that wait for its end */
    struct loop_timer tick;
    uint64_t heard;
};

#define WS_PING_EVERY (30 * SECOND)

/* Whether the request is a correct upgrade; if not, it has been refused, and x is gone. */
bool ws_conn_check(struct http_exchange *x);
/* Sends the 101 and takes the connection over. The exchange's close is to call ws_conn_close, opened or not.
 */
void ws_conn_open(struct ws_conn *w, struct slice protocol);
void ws_conn_close(struct ws_conn *w);

bool ws_conn_is_open(const struct ws_conn *w);
/* A whole message: head, then bytes; behind a frame that was begun. */
void ws_conn_send(struct ws_conn *w, enum ws_opcode opcode, struct slice head, struct slice bytes);
/* A frame in pieces, `length` bytes in all. */
void ws_conn_begin(struct ws_conn *w, enum ws_opcode opcode, bool fin, uint64_t length);
void ws_conn_piece(struct ws_conn *w, struct slice bytes);
/* Sends a Close and ends; a frame that was begun cannot be finished, so then it just ends. */
void ws_conn_end(struct ws_conn *w, unsigned code, const char *reason);
/* Sends a Close and goes on reading, so that what the peer says before its own is heard, for a while. */
void ws_conn_close_first(struct ws_conn *w, unsigned code, struct slice reason);
void ws_conn_control(struct ws_conn *w, enum ws_opcode opcode, struct slice payload);
bool ws_conn_is_full(const struct ws_conn *w);
void ws_conn_pause(struct ws_conn *w, bool paused);

#endif
