/* SPDX-License-Identifier: MIT */
/*
 * resume_text: Cell-Resume on the wire (docs/resume-protocol.md): the header, its stand-in in a browser's query,
 * the payload of Pongs and the messages of the browser binding. The tunnel's id is never to be logged.
 */
#ifndef CELLGATE_WORKER_RESUME_TEXT_H
#define CELLGATE_WORKER_RESUME_TEXT_H

#include "spoa/base/writer.h"

#define RESUME_HEADER      "Cell-Resume"
#define RESUME_SUBPROTOCOL "cell-resume.1"
#define RESUME_ID_SIZE     32
#define RESUME_TEXT_MAX    128 /* bytes of anything that is written here */

struct resume_terms {
    struct slice tunnel; /* 32 hexadecimal digits */
    uint64_t attempt;
    uint64_t recv;
    uint64_t buffer; /* 0: not said */
    bool has_recv;
};

enum resume_found {
    RESUME_ABSENT, /* or of a version that is not known here */
    RESUME_FOUND,
    RESUME_MALFORMED,
};

/* The header's value. */
enum resume_found resume_read_header(struct slice value, struct resume_terms *terms);
/* The parameters cr_... of a query without '?'; absent when there is no cr_tunnel. */
enum resume_found resume_read_query(struct slice query, struct resume_terms *terms);

/* A value for the 101, without the header's name. */
void resume_put_header(struct writer *w, uint64_t recv, uint64_t next, uint64_t buffer);
void resume_put_greeting(struct writer *w, uint64_t recv, uint64_t next, uint64_t buffer);

enum resume_say { RESUME_SAYS_NOTHING, RESUME_SAYS_RECV, RESUME_SAYS_END };

/* Payload of a control frame; RESUME_SAYS_NOTHING for any that is to be ignored. */
enum resume_say resume_read_pong(struct slice payload, uint64_t *number);
bool resume_is_ours(struct slice control_payload);
void resume_put_pong(struct writer *w, enum resume_say say, uint64_t number);

/* A text message of the browser binding begins so, and none of the application's does. */
bool resume_is_message(struct slice text);
enum resume_say resume_read_message(struct slice text, uint64_t *number);
void resume_put_message(struct writer *w, enum resume_say say, uint64_t number);

#endif
