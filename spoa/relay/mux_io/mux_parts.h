/* SPDX-License-Identifier: MIT */
/* mux_parts: what the files of mux_io share: mux_io.c has the socket and its requests, mux_leg.c the client's connection,
 * mux_limits.c whose they are and what
 * they may hold, mux_resume.c what becomes of the socket without one, mux_v1.c what cellgate.mux.v1 says, mux_watch.c what the agent says of
 * requests that last. */
#ifndef CELLGATE_RELAY_MUX_IO_MUX_PARTS_H
#define CELLGATE_RELAY_MUX_IO_MUX_PARTS_H

#include <arpa/inet.h>

#include "spoa/net/stream.h"
#include "spoa/proto/proxy_header.h"
#include "spoa/proto/ws.h"
#include "spoa/relay/mux/answer.h"
#include "spoa/relay/mux/frame.h"
#include "spoa/relay/mux/message.h"
#include "spoa/relay/mux/numbers.h"
#include "spoa/relay/mux_io/mux_io.h"
#include "spoa/relay/mux_io/mux_sessions.h"
#include "spoa/relay/thread/agent_client.h"
#include "spoa/relay/thread/lingering_close.h"

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
    int64_t epoch; /* that is known */
    uint64_t at;   /* when to ask; 0: it is asked, or there is nothing to ask */
    uint64_t ends; /* with its token; 0: with nothing that is known */
    bool begun;
};

struct mux_request {
    struct mux_io *io; /* NULL: it has ended */
    struct mux_request *next, **link;
    struct stream up;   /* to HAProxy */
    struct buffer body; /* what of a large body is not in up.out yet */
    struct mux_answer answer;
    size_t held; /* as its io knows it */
    bool paused;
    uint8_t id[MUX_ID_MOST];
    struct mux_v1 v1; /* in place of the answer */
    struct mux_watch watch;
};

/* A connection of the client's. */
struct mux_leg {
    struct mux_io *io; /* NULL: it is not the socket's any more */
    struct stream stream;
    struct ws_decoder decoder;
    struct buffer message;   /* what has come of it, unmasked */
    size_t come;             /* bytes of it, kept or not */
    struct mux_text reading; /* in the form of sandbox-sdk: the message */
    bool text;               /* that is one */
    bool asks;               /* there is something to be read */
    bool full;               /* it takes nothing, and is not read */
    size_t undecoded;        /* bytes of stream.in behind the event that is being reported */
};

/* A socket that its client can resume: beside what is numbered. */
struct mux_resumable {
    struct mux_session session; /* the first member */
    struct mux_io *io;
    struct mux_numbers numbers;
    uint64_t lost;   /* when its leg was; while it has none */
    uint64_t told;   /* when it last acknowledged something */
    unsigned handed; /* messages that this event of its client has handed on, however they came to wait */
    struct loop_timer tells; /* the next time */
};

struct mux_io {
    struct relay_thread *thread;
    struct mux_io *next, **link;
    struct upgrade *upgrade; /* the first */
    struct upgrade *latest;  /* by which its client came back; NULL: it has not */
    struct mux_client asks;
    struct address source;              /* the client's */
    uint8_t proof[PROXY_UNIQUE_ID_MAX]; /* that it is, which the agent wrote */
    size_t proof_len;                   /* 0: an older agent writes none */
    uint16_t port;                      /* that it called, as far as it says whether with TLS */
    char source_text[INET6_ADDRSTRLEN];
    char client_name[LIMITS_CLIENT_NAME]; /* by which it is counted without a token */
    struct limits_owner owner;            /* of the socket, and of each of its requests */
    uint8_t *owner_texts; /* what that points to, if a request has told it; NULL: no request has */
    struct limits_use use;
    struct loop_share *share; /* of the thread's time: its owner's */
    struct buffer *incoming;  /* the message that is looked at, if a request may take it over */
    uint64_t starved;         /* since when something of it is not read for want of memory; 0: nothing is */
    bool wants;               /* that has to become whole */
    bool tight;               /* it holds as much as it may while memory is short */
    bool stopped;             /* its client is not read */
    struct mux_leg *leg;      /* NULL: the client is away */
    struct mux_resumable *again; /* NULL: it ends with its leg */
    struct loop_task freeing;
    size_t most; /* bytes of a message */
    struct mux_request *requests, **requests_last;
    size_t count;
    size_t held, requests_held;
    bool over, full;
    bool v1;       /* cellgate.mux.v1 */
    uint32_t last; /* of its requests, the highest number */
    struct loop_timer tick, watches;
    uint64_t watches_at;                  /* when that is due */
    uint64_t busy;                        /* when it last had a request, or began */
    uint64_t began, heard, moved, pinged; /* pinged: 0: an answer has come */
    uint64_t total;                       /* requests */
};

/* False: there is no memory for it; the socket ends. */
bool mux_say_error(struct mux_io *io, struct slice id, uint32_t number, const char *code, const char *message,
                   unsigned status);
/* In flight; NULL: none. */
struct mux_request *mux_find(const struct mux_io *io, struct slice id, uint32_t number);
void mux_ask(struct mux_io *io, const struct mux_message *message, uint32_t number);
/* Notes what the request holds now. */
void mux_note_request(struct mux_request *r);
void mux_drop(struct mux_request *r, enum mux_outcome outcome);
/* There is no memory for its answer. */
void mux_refuse_answer(struct mux_request *r);
/* Behind a step of an answer. fits: false: there was no memory for what it says. */
void mux_conclude(struct mux_request *r, enum mux_step step, bool fits);
void mux_settle(struct mux_io *io);
/* Call when output has left: a large answer that waited for an empty buffer goes there. */
void mux_finish_whole(struct mux_io *io);
void mux_end_socket(struct mux_io *io, enum mux_end why, unsigned code, const char *reason);
void mux_end_for_memory(struct mux_io *io);
/* Where messages for the client are put. */
struct buffer *mux_out(struct mux_io *io);
/* Stops and starts what is read. */
void mux_set_flow(struct mux_io *io);
/* A whole message of the client's, of cellgate.mux.v1; in the form of sandbox-sdk, which frees *text. */
void mux_take_message(struct mux_io *io, struct slice message);
void mux_take_text(struct mux_io *io, struct mux_text *text, struct buffer *message);
/* It is over, and nothing of it is in anybody's hands. */
void mux_free(struct mux_io *io);
struct mux_client mux_client_of(const struct upgrade *upgrade);
/* Who the client is, as HAProxy says of each request that it hands on, and the agent's proof of it. False: it does not. */
bool mux_read_source(struct mux_io *io, const struct upgrade *upgrade);

/* ---- mux_limits.c ---- */

/* Counts the socket. False: there are too many, which is logged, or there is no memory. */
bool mux_limits_enter(struct mux_io *io);
void mux_limits_leave(struct mux_io *io);
/* HAProxy may have said for whom a request is: a socket that was opened without a token is whose the first one that is admitted is. */
void mux_limits_learn(struct mux_io *io, struct slice handover);
/* Notes what it holds. */
void mux_account(struct mux_io *io);
/* Notes whether it waits for room; returns whether its client is not read for that. */
bool mux_limits_look(struct mux_io *io);
/* Whether the answer is not read for want of room. */
bool mux_limits_lacks(const struct mux_io *io, const struct mux_request *r);
/* Whether what has to become whole could go on if nobody else held anything. */
bool mux_limits_fits(const struct mux_io *io, const struct buffer *whole);
/* Time has passed: what waits for room goes on, or is given up. Returns the time until the next look. */
uint64_t mux_limits_tick(struct mux_io *io, uint64_t now);

/* ---- mux_leg.c ---- */

/* Takes fd over. `head`: what is sent first; early: what has come already. NULL when out of memory. */
struct mux_leg *mux_leg_open(struct mux_io *io, int fd, struct slice head, struct slice early);
/* Reads what has come, until there is too much for the client to read first. */
void mux_leg_read(struct mux_leg *leg);
/* Takes it off its socket: with a Close of this code, if it is not in the middle of something; 0: at once. */
void mux_leg_leave(struct mux_leg *leg, unsigned code, const char *reason);
/* Bytes of a frame in whose middle the client is, and that are still to be read from the socket. */
uint64_t mux_leg_announced(const struct mux_leg *leg);
size_t mux_leg_held(const struct mux_leg *leg);

/* ---- mux_resume.c ---- */

enum mux_resume_asked { MUX_RESUME_PLAIN, MUX_RESUME_NEW, MUX_RESUME_DONE };

/* Whether the client asks for a socket that it can resume. DONE: fd and upgrade are taken care of. */
enum mux_resume_asked mux_resume_look(struct relay_thread *thread, int fd, struct upgrade *upgrade,
                                      struct slice early, struct cell_resume_terms *terms);
/* A new one: takes fd over. False: there is no memory, or one of this id has come meanwhile. */
bool mux_resume_open(struct mux_io *io, int fd, struct slice early, const struct cell_resume_terms *terms);
/* It is over: nobody comes back to it. */
void mux_resume_close(struct mux_io *io);
void mux_resume_free(struct mux_io *io);
/* The socket's leg is lost, which closes with that code if the client still can hear it. */
void mux_resume_lost(struct mux_io *io, unsigned code);
/* Its client is told what it has to be. */
void mux_resume_pump(struct mux_io *io);
/* A text message of the client's; any other. */
void mux_resume_heard(struct mux_io *io, struct slice text);
void mux_resume_message(struct mux_io *io, struct slice message);
/* What waits is taken, as far as it may. */
void mux_resume_settle(struct mux_io *io);
/* Whether a Close of the client's ends the socket, and not its leg alone. */
bool mux_resume_is_end(const struct mux_io *io, unsigned code);
/* The socket ends: whether the client can be told that in order. */
void mux_resume_say_end(struct mux_io *io);
/* Time has passed. */
void mux_resume_tick(struct mux_io *io, uint64_t now);

/* What HAProxy said for whom the request is. Empty: nothing, or nothing yet. */
struct slice mux_handover(const struct mux_request *r);

/* ---- mux_watch.c ---- */

/* Once its handover has come; until then, and later, it does nothing. */
void mux_watch_begin(struct mux_request *r);
void mux_watch_end(struct mux_request *r);
void mux_watch_due(void *io);

/* ---- mux_v1.c ---- */

bool mux_v1_is_offered(struct slice protocols, const char *protocol);
void mux_v1_begin(struct mux_request *r, const struct mux_message *message, uint32_t number);
/* A whole message of the client's. */
void mux_v1_take(struct mux_io *io, struct slice message);
/* What of the answer has come, or has not been taken yet. */
void mux_v1_answer(struct mux_request *r);
/* Some of the request's body has left. */
void mux_v1_sent(struct mux_request *r);

#endif
