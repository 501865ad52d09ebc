/* SPDX-License-Identifier: MIT */
/*
 * adapter: continues a tunnel with another worker without losing or repeating a byte, for one kind of worker protocol
 * (docs/relay.md). Adapters are pure: an adapter is a table of functions, and has some state per tunnel. A new adapter needs a
 * file of its own, an entry in adapter_find, and a name in spoa/proto/handover.h.
 *
 * A function that is NULL does nothing. Adapter `none` has no functions: the client gets all output of the new worker unchanged,
 * and bytes written to the lost worker are not sent again.
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

/* A piece of a data message's payload, unchanged from the worker. */
struct adapter_piece {
    enum ws_opcode opcode; /* opcode of the message */
    bool first, last;      /* the piece begins the message; the piece ends it */
    struct slice bytes;
    uint64_t now; /* microseconds of loop_clock */
};

enum adapter_verdict {
    ADAPTER_PASS,
    ADAPTER_DROP,
    ADAPTER_WRONG,    /* the worker has broken its protocol */
    ADAPTER_CUT,      /* the worker cannot complete a message that the client has a part of */
    ADAPTER_TOO_MUCH, /* the worker has sent more unacknowledged bytes than the window allows */
    ADAPTER_NO_MEMORY,
};

/* The outcome of a redial, once the adapter knows it. */
enum adapter_outcome { ADAPTER_PENDING, ADAPTER_EXACT, ADAPTER_GAP };
#define ADAPTER_UNKNOWN UINT64_MAX /* gap of unknown size */
/* value in place of a time: the session has ended, and sends nothing more */
#define ADAPTER_NO_MORE UINT64_MAX

/* The adapter's changes to a piece; zeroed by the caller. */
struct adapter_edit {
    struct buffer insert; /* frames that go to the client first; the caller frees it */
    /* opcode of the unfinished message in `insert` that the piece continues; 0 if there is none */
    uint8_t opened;
    size_t skip; /* the number of bytes dropped from the start of the piece */
    enum adapter_outcome outcome;
    uint64_t gap; /* size of the gap in bytes, or ADAPTER_UNKNOWN */
};

struct adapter_start {
    struct slice target; /* path and query towards the worker; borrowed for the call */
    uint32_t id[4];      /* unpredictable */
    size_t buffer;       /* the number of bytes that may be held for one leg */
    /* the relay opens a second connection to the worker that serves if the adapter asks for it */
    bool rechecks;
};

enum adapter_answer {
    ADAPTER_GOES_ON,
    /* the first worker does not speak this protocol; the tunnel continues with adapter `none` */
    ADAPTER_PLAIN,
    ADAPTER_EXPIRED, /* the session no longer has the messages that this tunnel needs */
    ADAPTER_BROKEN,  /* the answer contradicts the protocol */
};

enum adapter_found {
    ADAPTER_ALIVE,
    ADAPTER_ENDED,
    ADAPTER_UNCLEAR, /* the caller judges the status like that of a refused dial */
};

enum adapter_close {
    ADAPTER_JUDGE,   /* the caller judges the close code */
    ADAPTER_END,     /* the session has ended */
    ADAPTER_LOSS,    /* only this worker is lost */
    ADAPTER_TAKEN,   /* another caller has taken over the session */
    ADAPTER_REFUSED, /* the worker claims that the relay has broken the protocol */
};

/* The functions of a protocol in which both sides number and acknowledge messages. The worker's queue then keeps sent messages until
 * the worker acknowledges them, and the relay sends all kept messages again to the next worker. */
struct adapter_numbers {
    /* Returns true if a control frame with this payload belongs to the protocol, and must not be forwarded. */
    bool (*is_own)(struct slice payload);
    /* Handles a Pong of the protocol from the worker, and releases the messages that the Pong acknowledges. */
    enum adapter_verdict (*pong)(void *state, struct slice payload, struct send_queue *kept);
    /* Records that the client has completed a message of `len` bytes. */
    void (*from_client)(void *state, uint64_t len);
    /* Returns the number of bytes that the relay may still take from the client; *window is that number if nothing is kept. */
    size_t (*room)(const void *state, size_t *window);
    /* Writes the payload of a Pong that is due and returns its length; 0 if none is due. */
    size_t (*due_pong)(void *state, uint64_t now, uint8_t payload[WS_CONTROL_MAX]);
    uint64_t (*due)(const void *state); /* time when a Pong is due; UINT64_MAX if none is */
    /* Judges the worker's Close. */
    enum adapter_close (*closed)(void *state, unsigned code);
    /* Writes the payload of the Pong that precedes the client's own Close, and returns its length. */
    size_t (*mark_end)(void *state, uint8_t payload[WS_CONTROL_MAX]);
    /* Returns the number of client messages that the worker has not acknowledged. */
    uint64_t (*unacknowledged)(const void *state);
};

struct adapter {
    const char *name;
    bool exact;   /* the next worker continues a message to the client that was cut */
    bool overlap; /* the relay may dial the new worker while the old worker still serves */
    /* binary messages with a leading byte 00 are input, which may be split into several messages */
    bool tagged;
    bool one_leg;      /* the relay reports a loss to the client and does not redial */
    size_t insert_max; /* largest insert, in bytes */
    size_t state_len;  /* size of the state, zeroed bytes per tunnel */

    void (*start)(void *state, const struct adapter_start *start);
    /* Returns true if the relay must first ask the next worker about the session, and writes the target of that request. */
    bool (*probe)(void *state, struct slice target, struct writer *w);
    /* Judges the answer to that request. *missing is the number of bytes that an ended session can no longer send, or
     * ADAPTER_UNKNOWN. */
    enum adapter_found (*probed)(void *state, unsigned status, struct slice body, uint64_t *missing);
    /* Writes the query parameters and header lines of an attempt. A parameter replaces any of the same name. */
    void (*request)(void *state, struct writer *query, struct writer *fields);
    /* Reads the head of the worker's answer 101. */
    enum adapter_answer (*answered)(void *state, const struct http_head *answer);
    /* Switches the tunnel to the worker that answered. */
    void (*joined)(void *state, struct send_queue *kept, struct adapter_edit *edit);
    enum adapter_verdict (*from_worker)(void *state, const struct adapter_piece *piece,
                                        struct adapter_edit *edit);
    /* Counts a whole message, which the caller then forwards unchanged. Returns false and changes nothing if the message must go
     * through from_worker; an adapter without this function wants that for each message. */
    bool (*whole)(void *state, enum ws_opcode opcode, struct slice bytes);
    /* Returns the time for the next `tick`, if the worker is read and stays silent until then; UINT64_MAX if there is none. */
    uint64_t (*due)(const void *state);
    /* Handles a worker that stayed silent until `due`. Only edit->insert is forwarded. */
    enum adapter_verdict (*tick)(void *state, uint64_t now, struct adapter_edit *edit);
    /* ---- a second connection to the serving worker, to compare its view of the session ---- */
    /* Returns the time for the next `recheck`; UINT64_MAX if there is none. */
    uint64_t (*recheck_at)(const void *state);
    /* Like `tick`. If *begin is set, the caller opens a second connection and passes its input to recheck_piece. */
    enum adapter_verdict (*recheck)(void *state, uint64_t now, struct adapter_edit *edit, bool *begin);
    /* Returns false if the caller must close the second connection, because it is no longer needed or memory is short. */
    bool (*recheck_piece)(void *state, const struct adapter_piece *piece);
    /* Handles the failure or the end of the second connection. */
    void (*recheck_ended)(void *state, uint64_t now);
    /* Returns true while the output of the worker that serves is held until a second connection confirms it. */
    bool (*unsettled)(const void *state);
    /* Returns true if the worker has replayed its whole session, and the session is empty. Sets *lacks if the client has received
     * output all the same. */
    bool (*empty)(const void *state, bool *lacks);
    /* Returns true if the relay can end a cut message to the client at the cut, because the rest will arrive as another message. */
    bool (*may_end)(const void *state);
    /* Returns true if the adapter collects the replay of another worker. Reading a replay needs a permit, because many replays at
     * once need much memory. */
    bool (*collects)(const void *state);
    /* Returns the position in the session, for an exact protocol. */
    uint64_t (*progress)(const void *state);
    /* Returns the number of bytes of memory in use beside the state. */
    size_t (*held)(const void *state);
    /* Layout of the state in an image; NULL if the adapter has no state. */
    const struct image_table *image;
    /* Frees the memory that `state` owns, but not `state`. */
    void (*end)(void *state);
    const struct adapter_numbers *numbers;
};

/* Returns the adapter for `resume`, never NULL. `client_resumes` is true if the client itself speaks Cell-Resume. */
const struct adapter *adapter_find(enum handover_resume resume, bool client_resumes);
extern const struct adapter adapter_none, adapter_through, adapter_scrollback, adapter_since, adapter_cell,
    adapter_cursor;
#define ADAPTER_KINDS      6
#define ADAPTER_STATE_MOST 512 /* largest state_len, in bytes */

/* Appends a whole unmasked frame. */
bool adapter_put_frame(struct buffer *to, enum ws_opcode opcode, bool fin, struct slice payload)
    __attribute__((warn_unused_result));

#endif
