/* SPDX-License-Identifier: MIT */
/*
 * adapter: how a tunnel goes on with another worker without a byte lost or repeated, for one kind of worker
 * protocol (docs/relay.md). Adapters are pure: an adapter is a table of functions and a piece of state per
 * tunnel; a further one is a file of its own, an entry in adapter_find, and its name in spoa/proto/handover.h.
 *
 * A function that is NULL does nothing; adapter `none` has none at all: what the new worker sends is what the
 * client gets, and what was written to the lost one is not sent again.
 */
#ifndef CELLGATE_RELAY_RESUME_ADAPTER_H
#define CELLGATE_RELAY_RESUME_ADAPTER_H

#include "spoa/base/bytes/buffer.h"
#include "spoa/base/bytes/image.h"
#include "spoa/base/bytes/writer.h"
#include "spoa/base/os/time.h"
#include "spoa/proto/handover.h"
#include "spoa/proto/http.h"
#include "spoa/proto/ws.h"
#include "spoa/relay/leg/send_queue.h"

/* Some payload of a data message from the worker, as it came. */
struct adapter_piece {
    enum ws_opcode opcode; /* of the message */
    bool first, last;      /* of the message */
    struct slice bytes;
    uint64_t now; /* microseconds of loop_clock */
};

enum adapter_verdict {
    ADAPTER_PASS,
    ADAPTER_DROP,
    ADAPTER_WRONG,    /* the worker has broken its protocol */
    ADAPTER_TOO_MUCH, /* it has sent more than it may before it is acknowledged */
    ADAPTER_NO_MEMORY,
};

/* How it went on after a redial, once that is known. */
enum adapter_outcome { ADAPTER_PENDING, ADAPTER_EXACT, ADAPTER_GAP };
#define ADAPTER_UNKNOWN UINT64_MAX /* size of a gap */
#define ADAPTER_NO_MORE UINT64_MAX /* instead of a time: the session has ended, nothing more will come */

/* What becomes of a piece; zeroed by the caller. */
struct adapter_edit {
    struct buffer insert; /* frames that go to the client first; the caller frees it */
    uint8_t opened;       /* opcode of the message that they leave open, which the piece continues */
    size_t skip;          /* of the piece's first bytes, which do not pass */
    enum adapter_outcome outcome;
    uint64_t gap; /* bytes, or ADAPTER_UNKNOWN */
};

struct adapter_start {
    struct slice target; /* path and query towards the worker; borrowed for the call */
    uint32_t id[4];      /* unpredictable */
    size_t buffer;       /* bytes held for one leg */
    bool
        rechecks; /* the relay opens a second connection to the worker that serves if the adapter asks for it */
};

enum adapter_answer {
    ADAPTER_GOES_ON,
    ADAPTER_PLAIN,   /* the first worker does not speak this protocol: go on as `none` */
    ADAPTER_EXPIRED, /* the session does not know enough of this tunnel any more */
    ADAPTER_BROKEN,  /* the answer is nonsense */
};

enum adapter_found {
    ADAPTER_ALIVE,
    ADAPTER_ENDED,
    ADAPTER_UNCLEAR, /* as a dial that was refused with this status */
};

enum adapter_close {
    ADAPTER_JUDGE,   /* by the code */
    ADAPTER_END,     /* the session's */
    ADAPTER_LOSS,    /* of this worker only */
    ADAPTER_TAKEN,   /* by somebody else */
    ADAPTER_REFUSED, /* it says that the relay has broken the protocol */
};

/* For protocols in which both sides number and acknowledge messages. The worker's queue then keeps what was
 * sent until it is acknowledged, and all of it is sent again to the next worker. */
struct adapter_numbers {
    /* Whether a control frame with this payload belongs to the protocol, and is for nobody else. */
    bool (*is_own)(struct slice payload);
    /* A Pong of the worker's that belongs to the protocol; it may acknowledge what is kept. */
    enum adapter_verdict (*pong)(void *state, struct slice payload, struct send_queue *kept);
    /* The client has completed a message of so many bytes. */
    void (*from_client)(void *state, uint64_t len);
    /* Bytes that may still be taken from the client; *window: if nothing were kept. */
    size_t (*room)(const void *state, size_t *window);
    /* The payload of a Pong that is due now; 0: none is. */
    size_t (*due_pong)(void *state, uint64_t now, uint8_t payload[WS_CONTROL_MAX]);
    uint64_t (*due)(const void *state); /* when; UINT64_MAX: not at all */
    /* The worker has closed. */
    enum adapter_close (*closed)(void *state, unsigned code);
    /* The payload of the Pong that stands before the client's own Close. */
    size_t (*mark_end)(void *state, uint8_t payload[WS_CONTROL_MAX]);
    /* Messages of the client's that are not acknowledged. */
    uint64_t (*unacknowledged)(const void *state);
};

struct adapter {
    const char *name;
    bool exact;   /* a message towards the client that was cut is continued by the next worker */
    bool overlap; /* the new worker may be dialled while the old one still serves */
    bool tagged;  /* a 00 in front of a binary message makes it input, which may come in several messages */
    bool one_leg; /* a loss is declared to the client; nothing is redialled */
    size_t insert_max; /* bytes of a whole insert at most */
    size_t state_len;  /* zeroed bytes per tunnel */

    void (*start)(void *state, const struct adapter_start *start);
    /* Whether the next worker is to be asked about the session first: the target of that request. */
    bool (*probe)(void *state, struct slice target, struct writer *w);
    /* *missing: of a session that has ended, the bytes that nobody will get, or ADAPTER_UNKNOWN. */
    enum adapter_found (*probed)(void *state, unsigned status, struct slice body, uint64_t *missing);
    /* The query parameters (they replace those of the same name) and header lines of an attempt. */
    void (*request)(void *state, struct writer *query, struct writer *fields);
    /* The worker has answered 101. */
    enum adapter_answer (*answered)(void *state, const struct http_head *answer);
    /* That worker now serves. */
    void (*joined)(void *state, struct send_queue *kept, struct adapter_edit *edit);
    enum adapter_verdict (*from_worker)(void *state, const struct adapter_piece *piece,
                                        struct adapter_edit *edit);
    /* A message that is there whole, in one piece: it passes as it is, and was counted. False: nothing happened, from_worker is to see
     * it. NULL, with a from_worker: always that. */
    bool (*whole)(void *state, enum ws_opcode opcode, struct slice bytes);
    /* When it is to be told the time, if the worker is read and says nothing until then; UINT64_MAX: not at all. */
    uint64_t (*due)(const void *state);
    /* What was waited for has not come; nothing is passed but what is inserted. */
    enum adapter_verdict (*tick)(void *state, uint64_t now, struct adapter_edit *edit);
    /* ---- a second connection to the worker that serves, to see what it has of its session by now ---- */
    /* When `recheck` is to be called; UINT64_MAX: not at all. */
    uint64_t (*recheck_at)(const void *state);
    /* Decides what is due; as `tick`. *begin: a second connection is to be opened, and what it receives given to recheck_piece. */
    enum adapter_verdict (*recheck)(void *state, uint64_t now, struct adapter_edit *edit, bool *begin);
    /* Returns false if the second connection has served its purpose, or memory is short: it is closed then. */
    bool (*recheck_piece)(void *state, const struct adapter_piece *piece);
    /* The second connection has failed, or was closed. */
    void (*recheck_ended)(void *state, uint64_t now);
    /* Returns true while the output of the worker that serves is held until a second connection confirms it. */
    bool (*unsettled)(const void *state);
    /* Whether the worker has said all of its session that there was, and that was nothing; lacks: although the client
     * has had some. */
    bool (*empty)(const void *state, bool *lacks);
    /* Whether a message towards the client that was cut can be ended where it was cut: the rest will come as
     * another one. */
    bool (*may_end)(const void *state);
    /* Whether it collects what a further worker replays. That is read only with a permit, as many
     * replays at once need much memory. */
    bool (*collects)(const void *state);
    /* Of a protocol that is exact: how far the session is by now. */
    uint64_t (*progress)(const void *state);
    /* Bytes of memory beyond the state's own. */
    size_t (*held)(const void *state);
    /* How the state is written out; NULL: there is none. */
    const struct image_table *image;
    /* Frees what state holds, but not state. */
    void (*end)(void *state);
    const struct adapter_numbers *numbers;
};

/* Never NULL. client_resumes: the client speaks Cell-Resume itself. */
const struct adapter *adapter_find(enum handover_resume resume, bool client_resumes);
extern const struct adapter adapter_none, adapter_through, adapter_scrollback, adapter_since, adapter_cell;
#define ADAPTER_KINDS      5
#define ADAPTER_STATE_MOST 512 /* bytes: a state_len */

/* Appends a whole frame of the worker's side. */
bool adapter_put_frame(struct buffer *to, enum ws_opcode opcode, bool fin, struct slice payload)
    __attribute__((warn_unused_result));

#endif
