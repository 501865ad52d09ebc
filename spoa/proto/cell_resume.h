/* SPDX-License-Identifier: MIT */
/*
 * cell_resume: reads and writes the bytes of Cell-Resume, version 1. docs/resume-protocol.md defines the protocol: "Handshake" (the
 * header), "On a leg" (the Pongs), "Close codes", and "Browser binding" (the query and the text messages). This module does not
 * interpret the numbers: spoa/relay/resume/adapter_cell.c does for the caller, and examples/worker/resume for the worker.
 *
 * Slices that are read point into the caller's bytes. The id of a tunnel is a capability and must not be logged.
 */
#ifndef CELLGATE_PROTO_CELL_RESUME_H
#define CELLGATE_PROTO_CELL_RESUME_H

#include "spoa/base/bytes/writer.h"
#include "spoa/proto/http.h"

#define CELL_RESUME_HEADER      "Cell-Resume"
#define CELL_RESUME_SUBPROTOCOL "cell-resume.1"
#define CELL_RESUME_ID_LEN      32
/* the largest integer that a browser holds exactly */
#define CELL_RESUME_NUMBER_MAX ((UINT64_C(1) << 53) - 1)
/* bytes that a side accepts unacknowledged, unless its `buffer` says otherwise */
#define CELL_RESUME_WINDOW     262144u
#define CELL_RESUME_WINDOW_MIN 4096u /* smallest `buffer`, in bytes */
#define CELL_RESUME_COST       16u   /* bytes that an item counts in addition to its payload */
#define CELL_RESUME_TEXT_MAX   192u  /* bytes; enough for everything that this module writes */

/* ---- the handshake ---- */

/* The parameters of the header. A request has tunnel and attempt, and optionally recv and buffer; a 101 has recv and next, and
 * optionally buffer; a 410 has recv. */
struct cell_resume_terms {
    /* CELL_RESUME_ID_LEN hexadecimal digits; absent if there is no such parameter */
    struct slice tunnel;
    uint64_t attempt, next, buffer; /* 0 if there is no such parameter; buffer is in bytes */
    uint64_t recv;                  /* valid if has_recv */
    bool has_recv;
};

enum cell_resume_found {
    CELL_RESUME_ABSENT,    /* no header, or one of another version, which must be ignored */
    CELL_RESUME_FOUND,     /* *terms is valid */
    CELL_RESUME_MALFORMED, /* the header is malformed, or a parameter is missing */
};

enum cell_resume_side { CELL_RESUME_REQUEST, CELL_RESUME_ANSWER };

/* Reads the header of a head. A second line of the header is malformed. Parameters that `side` does not send are ignored. */
enum cell_resume_found cell_resume_read_head(const struct http_head *head, enum cell_resume_side side,
                                             struct cell_resume_terms *terms) MUST_CHECK;
/* Reads the value of one header line. */
enum cell_resume_found cell_resume_read_value(struct slice value, enum cell_resume_side side,
                                              struct cell_resume_terms *terms) MUST_CHECK;
/* Reads the parameters cr_... of a request's query, given without its '?'. Returns CELL_RESUME_ABSENT if there is no cr_tunnel. */
enum cell_resume_found cell_resume_read_query(struct slice query, struct cell_resume_terms *terms) MUST_CHECK;

/* Writes the header line with the parameters that are present. */
void cell_resume_put_field(struct writer *w, const struct cell_resume_terms *terms);
/* Writes the first message to a web page, which cannot read the header of the 101: recv, next and buffer. */
void cell_resume_put_greeting(struct writer *w, const struct cell_resume_terms *terms);

/* ---- on a leg ---- */

enum cell_resume_say {
    /* not of Cell-Resume: ignore such a Pong; such a message of a page violates the protocol */
    CELL_RESUME_NOTHING,
    CELL_RESUME_RECV, /* acknowledges the items up to the number */
    CELL_RESUME_END,  /* the Close that follows is the item with the number */
};

/* Returns true if the payload of a control frame belongs to Cell-Resume. A Ping with such a payload violates the protocol. */
bool cell_resume_is_own(struct slice payload);
/* Reads a Pong; *number is valid unless the result is CELL_RESUME_NOTHING. */
enum cell_resume_say cell_resume_read_pong(struct slice payload, uint64_t *number) MUST_CHECK;
void cell_resume_put_pong(struct writer *w, enum cell_resume_say say, uint64_t number);

/* Returns true if a text message belongs to the browser binding. No message of the application may begin in this way. */
bool cell_resume_is_message(struct slice text);
/* Reads a message of the browser binding, like cell_resume_read_pong. */
enum cell_resume_say cell_resume_read_message(struct slice text, uint64_t *number) MUST_CHECK;
void cell_resume_put_message(struct writer *w, enum cell_resume_say say, uint64_t number);

/* ---- close codes ---- */

enum cell_resume_close {
    CELL_RESUME_CLOSE_PROTOCOL = 1002,
    CELL_RESUME_CLOSE_TOO_BIG = 1009,
    /* plus the HTTP status of the refusal, for a page, which cannot read the status itself */
    CELL_RESUME_CLOSE_REFUSED = 4000,
    CELL_RESUME_CLOSE_TAKEN = 4001, /* a leg with a higher attempt has fenced this one */
};

/* Returns the reason to send with a close code; "" for a refusal. */
const char *cell_resume_reason(enum cell_resume_close code);

#endif
