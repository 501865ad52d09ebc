/* SPDX-License-Identifier: MIT */
/*
 * mux_parts: structures and functions that the files of mux_io share. A *socket* is the client's WebSocket session, which may outlive a
 * connection; a *leg* is one connection of the client; a *request* is one exchange with HAProxy.
 *
 *     mux_io.c       the socket and its requests
 *     mux_leg.c      the client's connection
 *     mux_limits.c   owner and memory of the socket
 *     mux_resume.c   a socket that outlives its connection
 *     mux_v1.c       messages of cellgate.mux.v1
 *     mux_watch.c    the agent's decisions about long requests
 *
 * Two protocols share this code: the *JSON protocol* (text messages as sandbox-sdk has them; an answer is one message, or one per event) and
 * cellgate.mux.v1 (binary frames with credit; the only one that a client can resume).
 */
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

/* The state of a request of cellgate.mux.v1. */
struct mux_v1 {
    uint32_t number; /* the client's number of the request */
    struct mux_response response;
    uint32_t credit;  /* bytes of the answer's body that the client still takes */
    uint32_t granted; /* bytes of the request's body that the client may still send */
    uint64_t left;    /* bytes of the request's body that are still missing, if its length is known */
    bool follows;     /* the client has not ended the request's body */
    bool chunked;     /* the length of the request's body is unknown, so HAProxy gets chunks */
    bool cut;         /* HAProxy has closed its connection */
};

/* The agent's subscription for a request that takes long. */
struct mux_watch {
    struct question question;
    int64_t epoch; /* epoch of the sandbox's record that the relay knows */
    uint64_t at;   /* time of the next question, in µs; 0 while one is pending or if there is none */
    uint64_t ends; /* time when the request's token expires, in µs; 0 if it does not */
    bool begun;    /* the subscription was decided, because the handover has arrived */
};

struct mux_request {
    struct mux_io *io; /* NULL once the request has ended; its stream may still be closing */
    struct mux_request *next, **link;
    struct stream up;         /* connection to HAProxy */
    struct buffer body;       /* rest of a large body that is not in up.out yet */
    struct mux_answer answer; /* answer in the JSON protocol */
    size_t held;              /* bytes of memory of this request, as counted in io->requests_held */
    bool paused;              /* the answer is not read */
    uint8_t id[MUX_ID_MOST];  /* memory of answer.id */
    struct mux_v1 v1;         /* used instead of `answer` by cellgate.mux.v1 */
    struct mux_watch watch;
};

/* A connection of the client. */
struct mux_leg {
    struct mux_io *io; /* NULL once the socket has another connection, or none */
    struct stream stream;
    struct ws_decoder decoder;
    struct buffer message;   /* received part of the current message, unmasked */
    size_t come;             /* bytes of the current message so far, kept or not */
    struct mux_text reading; /* parser of the current message in the JSON protocol */
    bool text;               /* the current message is a text message */
    bool asks;               /* input waits in the kernel that the limits have no room for */
    bool full;               /* too much output waits, so the client is not read (resumable sockets) */
    size_t undecoded;        /* bytes of stream.in after the event that is being handled */
};

/* The state of a socket that its client can resume. */
struct mux_resumable {
    struct mux_session session; /* must be the first member: mux_sessions_find returns it */
    struct mux_io *io;
    struct mux_numbers numbers; /* numbered messages of both directions */
    uint64_t lost;              /* time when the socket lost its connection, in µs; only valid without one */
    uint64_t told;              /* time of the relay's last acknowledgement, in µs */
    unsigned handed;            /* messages that the current event has handled, new ones and waiting ones */
    struct loop_timer tells;    /* sends the next acknowledgement */
};

/* A socket: the client's WebSocket session with all its requests. */
struct mux_io {
    struct relay_thread *thread;
    struct mux_io *next, **link;
    struct upgrade *upgrade; /* request that opened the socket; owned */
    struct upgrade *latest;  /* request that last resumed the socket; owned; NULL if none did */
    struct mux_client asks;  /* the client's part of each request, from `upgrade` or `latest` */
    struct address source;   /* the client's address */
    /* the agent's proof that HAProxy has seen this client address; empty if the agent is older */
    uint8_t proof[PROXY_UNIQUE_ID_MAX];
    size_t proof_len;
    uint16_t port; /* 443 if the client uses TLS, otherwise 80 */
    char source_text[INET6_ADDRSTRLEN];
    char client_name[LIMITS_CLIENT_NAME]; /* name by which the limits count an unauthenticated client */
    struct limits_owner owner;            /* owner of the socket and of each of its requests */
    uint8_t *owner_texts;                 /* memory of `owner` if a request's handover has set it, or NULL */
    struct limits_use use;
    struct loop_share *share; /* the owner's share of the thread's time */
    struct buffer *incoming;  /* current message, whose memory a request may take over, or NULL */
    uint64_t starved;    /* time since when some input is not read for want of memory, in µs; 0 if none is */
    bool wants;          /* `starved` concerns a message or an answer that must become complete in memory */
    bool tight;          /* the socket holds as much as it may while memory is short */
    bool stopped;        /* back-pressure: the client's messages are not read */
    struct mux_leg *leg; /* connection of the client; NULL while the client is away */
    struct mux_resumable *again; /* NULL if the socket ends with its connection */
    struct loop_task freeing;    /* frees a socket that ended without a connection */
    size_t most;                 /* largest message, in bytes */
    struct mux_request *requests, **requests_last;
    size_t count;               /* number of entries in `requests` */
    size_t held, requests_held; /* bytes of memory: of the socket, as the limits know; of its requests */
    bool over, full;            /* the socket has ended; too much output waits, so answers are not read */
    bool v1;                    /* the client speaks cellgate.mux.v1 */
    uint32_t last;              /* highest number of a request (cellgate.mux.v1) */
    struct loop_timer tick, watches;
    uint64_t watches_at; /* time for which `watches` is set, in µs */
    /* times in µs: the socket last had a request; the socket began; the client last sent; the client last took output; the relay sent a
     * Ping that has no answer yet (0 if none) */
    uint64_t busy;
    uint64_t began, heard, moved, pinged;
    uint64_t total; /* number of requests since the socket began */
};

/* Sends an error message for the request with this id (JSON protocol) or number (cellgate.mux.v1). Returns false and ends the socket if
 * memory is short. */
bool mux_say_error(struct mux_io *io, struct slice id, uint32_t number, const char *code, const char *message,
                   unsigned status);
/* Returns the request in flight with this id or number, or NULL. */
struct mux_request *mux_find(const struct mux_io *io, struct slice id, uint32_t number);
/* Starts a request of the client, or refuses it with an error message. */
void mux_ask(struct mux_io *io, const struct mux_message *message, uint32_t number);
/* Updates the accounting of the request's memory. */
void mux_note_request(struct mux_request *r);
/* Ends a request and counts its outcome. *r is freed once its stream is closed. */
void mux_drop(struct mux_request *r, enum mux_outcome outcome);
/* Ends a request with an error message, because there is no memory for its answer. */
void mux_refuse_answer(struct mux_request *r);
/* Call after each step of an answer. fits: false if memory for the output was short, which ends the socket. */
void mux_conclude(struct mux_request *r, enum mux_step step, bool fits);
void mux_settle(struct mux_io *io);
/* Call when output was sent: puts a large answer, which waited for an empty buffer, into the output. */
void mux_finish_whole(struct mux_io *io);
void mux_end_socket(struct mux_io *io, enum mux_end why, unsigned code, const char *reason);
/* Ends the socket with close code 1013. */
void mux_end_for_memory(struct mux_io *io);
/* Returns the buffer for messages to the client. */
struct buffer *mux_out(struct mux_io *io);
/* Pauses and resumes reading, of the client and of all answers. */
void mux_set_flow(struct mux_io *io);
/* Handles a whole message of the client: of cellgate.mux.v1; of the JSON protocol, after which *text is freed. */
void mux_take_message(struct mux_io *io, struct slice message);
void mux_take_text(struct mux_io *io, struct mux_text *text, struct buffer *message);
/* Frees a socket that has ended. No request, connection or pending task may refer to it. */
void mux_free(struct mux_io *io);
/* Returns the client's part of each request, which borrows from `upgrade`. */
struct mux_client mux_client_of(const struct upgrade *upgrade);
/* Reads the client's address from HAProxy's header fields, and the agent's proof of it. Returns false if HAProxy has not set it. */
bool mux_read_source(struct mux_io *io, const struct upgrade *upgrade);

/* ---- mux_limits.c ---- */

/* Counts the socket for its owner. Returns false if a limit is reached, which is logged, or if memory is short. */
bool mux_limits_enter(struct mux_io *io);
/* Reverts mux_limits_enter, and frees the owner's texts. */
void mux_limits_leave(struct mux_io *io);
/* Moves a socket that was opened without a token to the owner of its first admitted request. `handover` is that of one of the socket's
 * requests, or empty. */
void mux_limits_learn(struct mux_io *io, struct slice handover);
/* Updates the accounting of the socket's memory. */
void mux_account(struct mux_io *io);
/* Notes whether the socket waits for memory, and since when. Returns true if the client must not be read for that reason. */
bool mux_limits_look(struct mux_io *io);
/* Returns true if the request's answer must not be read, because memory is short. */
bool mux_limits_lacks(const struct mux_io *io, const struct mux_request *r);
/* Returns true if the buffer, whose content must become complete in memory, could grow if nobody else held any memory. */
bool mux_limits_fits(const struct mux_io *io, const struct buffer *whole);
/* Call at each tick: resumes reading if there is memory, or gives up what has waited for too long. Returns the time until the next
 * tick, in µs; UINT64_MAX if nothing waits. */
uint64_t mux_limits_tick(struct mux_io *io, uint64_t now);

/* ---- mux_leg.c ---- */

/* Opens the client's connection on `fd`. `head` is sent first, and `early` is input that has already been read. Returns NULL if memory
 * is short; `fd` is then still the caller's. */
struct mux_leg *mux_leg_open(struct mux_io *io, int fd, struct slice head, struct slice early);
/* Decodes input, until back-pressure stops it. May end the socket. */
void mux_leg_read(struct mux_leg *leg);
/* Detaches the connection from its socket. A Close with `code` is sent if that is not 0 and no other output waits. */
void mux_leg_leave(struct mux_leg *leg, unsigned code, const char *reason);
/* Returns the number of bytes of the client's unfinished frame that are still to be read from the kernel. */
uint64_t mux_leg_announced(const struct mux_leg *leg);
/* Returns the connection's bytes of memory; `leg` may be NULL. */
size_t mux_leg_held(const struct mux_leg *leg);

/* ---- mux_resume.c ---- */

enum mux_resume_asked {
    MUX_RESUME_PLAIN, /* the client asks for a socket that ends with its connection */
    MUX_RESUME_NEW,   /* the client asks for a new resumable socket */
    MUX_RESUME_DONE   /* the upgrade was refused, or handed to the socket that it resumes */
};

/* Reads from an upgrade request whether the client asks for a resumable socket. With DONE, ownership of `fd` and `upgrade` has passed
 * to this function; otherwise both are the caller's. */
enum mux_resume_asked mux_resume_look(struct relay_thread *thread, int fd, struct upgrade *upgrade,
                                      struct slice early, struct cell_resume_terms *terms);
/* Makes the socket resumable, and opens its connection on `fd`. Returns false if memory is short, or if another thread has meanwhile
 * added a socket with this id. */
bool mux_resume_open(struct mux_io *io, int fd, struct slice early, const struct cell_resume_terms *terms);
/* Removes the socket from the table of resumable sockets, so that no client can come back to it. */
void mux_resume_close(struct mux_io *io);
/* Frees the resumable part; does nothing if there is none. */
void mux_resume_free(struct mux_io *io);
/* Handles the loss of the client's connection: detaches it, with a Close of `code` if that is not 0, and keeps the socket for the grace
 * period. */
void mux_resume_lost(struct mux_io *io, unsigned code);
/* Moves numbered messages to the connection's output, as far as it has room. */
void mux_resume_pump(struct mux_io *io);
/* Handles a text message of the client, which belongs to Cell-Resume. */
void mux_resume_heard(struct mux_io *io, struct slice text);
/* Handles a binary message of the client, which is numbered and may have to wait. */
void mux_resume_message(struct mux_io *io, struct slice message);
/* Handles waiting messages, until back-pressure stops it, and acknowledges them. */
void mux_resume_settle(struct mux_io *io);
/* Returns true if a Close from the client with `code` ends the socket, and false if it ends only the connection. */
bool mux_resume_is_end(const struct mux_io *io, unsigned code);
/* Sends all output and then the mark of the socket's end, if the protocol permits a mark now. */
void mux_resume_say_end(struct mux_io *io);
/* Call at each tick: ends a socket whose client has been away for too long, and acknowledges regularly. */
void mux_resume_tick(struct mux_io *io, uint64_t now);

/* Returns the handover that HAProxy added to the answer: the request's sandbox and token. Empty if there is none, or not yet. */
struct slice mux_handover(const struct mux_request *r);

/* ---- mux_watch.c ---- */

/* Begins to watch a request if its handover has arrived, and if it is not watched already. */
void mux_watch_begin(struct mux_request *r);
/* Ends the subscription. */
void mux_watch_end(struct mux_request *r);
/* Timer call-back: asks the agent for the requests that are due, and ends those whose token has expired. */
void mux_watch_due(void *io);

/* ---- mux_v1.c ---- */

/* Returns true if the client offers this subprotocol. */
bool mux_v1_is_offered(struct slice protocols, const char *protocol);
/* Initialises the cellgate.mux.v1 state of a request. */
void mux_v1_begin(struct mux_request *r, const struct mux_message *message, uint32_t number);
/* Handles a whole message of the client. */
void mux_v1_take(struct mux_io *io, struct slice message);
/* Hands the answer's input to the client, as far as the client's credit goes. */
void mux_v1_answer(struct mux_request *r);
/* Call when some of the request's body was sent to HAProxy: grants the client more credit. */
void mux_v1_sent(struct mux_request *r);

#endif
