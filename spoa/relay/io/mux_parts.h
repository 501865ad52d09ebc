/* SPDX-License-Identifier: MIT */
/* mux_parts: what the files of mux_io share: mux_io.c has the socket and its requests, mux_v1.c what cellgate.mux.v1 says,
 * mux_watch.c what the agent says of requests that last. */
#ifndef CELLGATE_RELAY_IO_MUX_PARTS_H
#define CELLGATE_RELAY_IO_MUX_PARTS_H

#include <arpa/inet.h>

#include "spoa/net/stream.h"
#include "spoa/proto/ws.h"
#include "spoa/relay/io/agent_client.h"
#include "spoa/relay/io/mux_io.h"
#include "spoa/relay/mux/answer.h"
#include "spoa/relay/mux/frame.h"
#include "spoa/relay/mux/message.h"

/* Of a request of cellgate.mux.v1. */
struct mux_v1 {
    uint32_t number;
    struct mux_response response;
    uint32_t credit;  /* bytes of the answer's body that its client still takes */
    uint32_t granted; /* bytes of its own body that the client may still send */
    uint64_t left;    /* of a body whose length is known */
    bool follows;     /* there is more of the body */
    bool chunked;
    bool cut; /* HAProxy sends no more */
};

struct mux_watch {
    struct question question;
    uint64_t at;   /* when to ask; 0: it is asked, or there is nothing to ask */
    uint64_t ends; /* with its token; 0: with nothing that is known */
    bool begun;
};

struct mux_request {
    struct mux_io *io; /* NULL: it has ended */
    struct mux_request *next, **link;
    struct stream up; /* to HAProxy */
    struct mux_answer answer;
    size_t held; /* as its io knows it */
    bool paused;
    uint8_t id[MUX_ID_MOST];
    struct mux_v1 v1; /* in place of the answer */
    struct mux_watch watch;
};

struct mux_io {
    struct relay_thread *thread;
    struct mux_io *next, **link;
    struct upgrade *upgrade;
    struct mux_client asks;
    struct address source; /* the client's */
    uint16_t port;         /* that it called, as far as it says whether with TLS */
    char source_text[INET6_ADDRSTRLEN];
    char owner_text[INET6_ADDRSTRLEN]; /* by which it is counted: of IPv6 the network of 64 bits */
    struct limits_owner owner;         /* of the socket, and of each of its requests */
    struct limits_use use;
    struct stream client;
    struct ws_decoder decoder;
    struct buffer message; /* what has come of it, unmasked */
    size_t most;           /* bytes of a message */
    struct mux_request *requests, **requests_last;
    size_t count;
    size_t held, requests_held;
    bool over, full;
    bool v1;             /* cellgate.mux.v1 */
    uint32_t last;       /* of its requests, the highest number */
    struct loop_timer tick, watches;
    uint64_t watches_at;                         /* when that is due */
    uint64_t began, heard, asked, moved, pinged; /* pinged: 0: an answer has come */
    uint64_t total;                              /* requests */
};

/* False: there is no memory for it; the socket ends. */
bool mux_say_error(struct mux_io *io, struct slice id, uint32_t number, const char *code, const char *message, unsigned status);
/* In flight; NULL: none. */
struct mux_request *mux_find(const struct mux_io *io, struct slice id, uint32_t number);
void mux_ask(struct mux_io *io, const struct mux_message *message, uint32_t number);
/* Notes what the request holds now. */
void mux_note_request(struct mux_request *r);
void mux_drop(struct mux_request *r, enum mux_outcome outcome);
/* Behind a step of an answer. fits: false: there was no memory for what it says. */
void mux_conclude(struct mux_request *r, enum mux_step step, bool fits);
void mux_settle(struct mux_io *io);
void mux_end_socket(struct mux_io *io, enum mux_end why, unsigned code, const char *reason);
void mux_end_for_memory(struct mux_io *io);

/* What HAProxy said for whom the request is. Empty: nothing, or nothing yet. */
struct slice mux_handover(const struct mux_request *r);

/* ---- mux_watch.c ---- */

/* Once its handover has come; until then, and later, it does nothing. */
void mux_watch_begin(struct mux_request *r);
void mux_watch_end(struct mux_request *r);
void mux_watch_due(void *io);

/* ---- mux_v1.c ---- */

bool mux_v1_is_offered(struct slice protocols);
void mux_v1_begin(struct mux_request *r, const struct mux_message *message, uint32_t number);
/* A whole message of the client's. */
void mux_v1_take(struct mux_io *io, struct slice message);
/* What of the answer has come, or has not been taken yet. */
void mux_v1_answer(struct mux_request *r);
/* Some of the request's body has left. */
void mux_v1_sent(struct mux_request *r);

#endif
