/* SPDX-License-Identifier: MIT */
/*
 * cell_resume: Cell-Resume, version 1, as bytes. docs/resume-protocol.md defines it: "Handshake" (the header), "On a leg"
 * (the Pongs), "Close codes", and "Browser binding" (the query and the text messages). What the numbers mean is the
 * business of the two sides: spoa/relay/resume/adapter_cell.c calls, examples/worker/resume is called.
 *
 * Slices that are read point into what was given. The tunnel's id is a capability: do not log it.
 */
#ifndef CELLGATE_PROTO_CELL_RESUME_H
#define CELLGATE_PROTO_CELL_RESUME_H

#include "spoa/base/bytes/writer.h"
#include "spoa/proto/http.h"

#define CELL_RESUME_HEADER      "Cell-Resume"
#define CELL_RESUME_SUBPROTOCOL "cell-resume.1"
#define CELL_RESUME_ID_LEN      32
#define CELL_RESUME_NUMBER_MAX  ((UINT64_C(1) << 53) - 1)
#define CELL_RESUME_WINDOW      262144u /* bytes that a side takes unacknowledged if it does not say */
#define CELL_RESUME_WINDOW_MIN  4096u
#define CELL_RESUME_COST        16u  /* of an item, beside its payload's bytes */
#define CELL_RESUME_TEXT_MAX    192u /* enough for anything that is written here */

/* ---- the handshake ---- */

/* A request has tunnel, attempt, perhaps recv and buffer; a 101 has recv, next, perhaps buffer; a 410 has recv. */
struct cell_resume_terms {
    struct slice tunnel;            /* CELL_RESUME_ID_LEN hexadecimal digits; absent: not there */
    uint64_t attempt, next, buffer; /* 0: not there */
    uint64_t recv;
    bool has_recv;
};

enum cell_resume_found {
    CELL_RESUME_ABSENT, /* or of another version: ignore it */
    CELL_RESUME_FOUND,
    CELL_RESUME_MALFORMED, /* also if a parameter is missing that must be there */
};

enum cell_resume_side { CELL_RESUME_REQUEST, CELL_RESUME_ANSWER };

/* Two header lines are malformed. Parameters that are not this side's are passed over. */
enum cell_resume_found cell_resume_read_head(const struct http_head *head, enum cell_resume_side side,
                                             struct cell_resume_terms *terms);
/* The value of one header line. */
enum cell_resume_found cell_resume_read_value(struct slice value, enum cell_resume_side side,
                                              struct cell_resume_terms *terms);
/* The parameters cr_... of a request's query, which begins behind the '?'; absent when there is no cr_tunnel. */
enum cell_resume_found cell_resume_read_query(struct slice query, struct cell_resume_terms *terms);

/* The header's line, with those terms that are there. */
void cell_resume_put_field(struct writer *w, const struct cell_resume_terms *terms);
/* To a page, in place of the 101's header: all of recv, next and buffer. */
void cell_resume_put_greeting(struct writer *w, const struct cell_resume_terms *terms);

/* ---- on a leg ---- */

enum cell_resume_say {
    CELL_RESUME_NOTHING, /* read: ignore it, if it is a Pong; a page's message that is this breaks the protocol */
    CELL_RESUME_RECV, /* items up to the number are acknowledged */
    CELL_RESUME_END,  /* the Close that follows is the item of that number */
};

/* Whether a control frame's payload belongs to Cell-Resume. A Ping that does breaks the protocol. */
bool cell_resume_is_own(struct slice payload);
enum cell_resume_say cell_resume_read_pong(struct slice payload, uint64_t *number);
void cell_resume_put_pong(struct writer *w, enum cell_resume_say say, uint64_t number);

/* Whether a text message belongs to the browser binding, in which none of the application's begins so. */
bool cell_resume_is_message(struct slice text);
enum cell_resume_say cell_resume_read_message(struct slice text, uint64_t *number);
void cell_resume_put_message(struct writer *w, enum cell_resume_say say, uint64_t number);

/* ---- close codes ---- */

enum cell_resume_close {
    CELL_RESUME_CLOSE_PROTOCOL = 1002,
    CELL_RESUME_CLOSE_TOO_BIG = 1009,
    CELL_RESUME_CLOSE_REFUSED = 4000, /* and the status, to a page that cannot read one */
    CELL_RESUME_CLOSE_TAKEN = 4001,   /* a higher attempt has fenced this leg */
};

/* The reason that goes with it; "" for a refusal. */
const char *cell_resume_reason(enum cell_resume_close code);

#endif
