/* SPDX-License-Identifier: MIT */
/*
 * spop: frames of HAProxy's Stream Processing Offload Protocol 2.0 (SPOE.txt, section 3.2), read and written,
 * for both ends. No I/O and no memory of its own: readers point into the frame, writers go into memory of the
 * caller's and leave writer.full set when it was too small. Hellos and disconnects are in spop/hello.h; the
 * conversation is in spop/conversation.h (the agent's end) and spop/client.h (HAProxy's end).
 */
#ifndef CELLGATE_SPOP_SPOP_H
#define CELLGATE_SPOP_SPOP_H

#include "spoa/spop/value.h"

/* Lengths are those on the wire: of a frame without its own four length bytes. */
#define SPOP_LENGTH_BYTES 4
#define SPOP_FRAME_MIN  7     /* type, flags, two one-byte ids */
#define SPOP_FRAME_USUAL  16380 /* HAProxy's with tune.bufsize 16384 */
#define SPOP_FRAME_MAX   65532 /* the most we agree to */
#define SPOP_SIZE_MIN   256   /* a peer that agrees to less is refused */

enum spop_type {
    SPOP_TYPE_UNSET = 0, /* a further fragment; we never agree to fragmentation */
    SPOP_TYPE_HAPROXY_HELLO = 1,
    SPOP_TYPE_HAPROXY_DISCONNECT = 2,
    SPOP_TYPE_NOTIFY = 3,
    SPOP_TYPE_AGENT_HELLO = 101,
    SPOP_TYPE_AGENT_DISCONNECT = 102,
    SPOP_TYPE_ACK = 103
};

/* Frames of other types are skipped, as the protocol wants. */
bool spop_type_known(uint8_t type);

#define SPOP_FIN   1u
#define SPOP_ABORT 2u

/* X(name, status code on the wire, text) */
#define SPOP_STATUSES(X)                                        \
    X(NORMAL, 0, "normal")                                      \
    X(IO, 1, "I/O error")                                       \
    X(TIMEOUT, 2, "a timeout occurred")                         \
    X(TOO_BIG, 3, "frame is too big")                           \
    X(INVALID, 4, "invalid frame received")                     \
    X(NO_VERSION, 5, "version value not found")                 \
    X(NO_FRAME_SIZE, 6, "max-frame-size value not found")       \
    X(NO_CAPABILITIES, 7, "capabilities value not found")       \
    X(BAD_VERSION, 8, "unsupported version")                    \
    X(BAD_FRAME_SIZE, 9, "max-frame-size too big or too small") \
    X(FRAGMENTED, 10, "payload fragmentation is not supported") \
    X(INTERLACED, 11, "invalid interlaced frames")              \
    X(NO_FRAME, 12, "frame-id not found")                       \
    X(RESOURCE, 13, "resource allocation error")                \
    X(UNKNOWN, 99, "unknown error")

enum spop_status {
#define X(name, code, text) SPOP_STATUS_##name = (code),
    SPOP_STATUSES(X)
#undef X
};

/* What a DISCONNECT says; "unknown error" for a code that is not in the table. */
const char *spop_status_text(uint64_t status);

/* ---- frames ---- */
struct spop_frame {
    uint8_t type;
    uint32_t flags;
    uint64_t stream_id, frame_id;
    struct slice payload;
};

enum spop_step {
    SPOP_STEP_FRAME,   /* *frame is filled; *size bytes of the input are it */
    SPOP_STEP_MORE,    /* *size bytes are needed in all to go on */
    SPOP_STEP_TOO_BIG, /* longer than `most` */
    SPOP_STEP_INVALID  /* shorter than a head, or ids that are none */
};

/* Looks at the front of `in` for one frame of at most `most`
 * bytes. The length is judged as soon as it is there. */
enum spop_step spop_frame_read(struct slice in, size_t most, struct spop_frame *frame, size_t *size);

/* Begins a frame and returns its position, which spop_frame_end takes to fill in the length. */
size_t spop_frame_begin(struct writer *w, enum spop_type type, uint64_t stream_id, uint64_t frame_id);
/* False, and the writer is back where it was before the frame and usable, when the frame did not fit or is
 * longer than `most`. */
bool spop_frame_end(struct writer *w, size_t begin, size_t most) __attribute__((warn_unused_result));

/* ---- NOTIFY: messages and their arguments ---- */
struct spop_args {
    struct reader reader; /* of them, and of nothing behind them */
    unsigned left;
};

struct spop_message {
    struct slice name;
    struct spop_args args;
};

/* The next message of a NOTIFY's payload (start with reader_of(frame.payload)). The whole message has been
 * checked when this returns true. False at the end, and on malformed bytes: then payload->failed. */
bool spop_message_next(struct reader *payload, struct spop_message *message);
/* The next argument; false at the end. Cannot fail on the arguments of a message that spop_message_next
 * returned. The name may be empty. */
bool spop_arg_next(struct spop_args *args, struct slice *name, struct spop_value *value);

/* Writing: begin a frame of SPOP_TYPE_NOTIFY, then for each message begin and at most 255 arguments, then end
 * the frame. Returns the message's position, which spop_arg_write takes to count the argument. */
size_t spop_message_begin(struct writer *w, struct slice name);
void spop_arg_write(struct writer *w, size_t message, struct slice name, struct spop_value value);

/* ---- ACK: actions ---- */
enum spop_scope { SPOP_PROCESS, SPOP_SESSION, SPOP_TRANSACTION, SPOP_REQUEST, SPOP_RESPONSE };

/* HAProxy reads out of bounds behind a longer "scope.prefix.name". */
#define SPOP_VARIABLE_MAX 63

/* Builds the actions of one ACK into the writer of the frame. */
struct spop_actions {
    struct writer *out;
    size_t prefix_len; /* of HAProxy's `option var-prefix` */
    size_t most;       /* what out->len may be for the frame that they are for; 0: whatever out holds */
    unsigned count;
};

/* name: without scope and prefix; letters, digits, '_' and '.'. A name that HAProxy could not take sets
 * out->full, as an action that does not fit does: HAProxy would silently drop it and all that follow. */
void spop_set_var(struct spop_actions *actions, enum spop_scope scope, struct slice name,
                  struct spop_value value);

/* The same for names that are known when the program is written: their bytes lie ready as they go over the wire. Whether
 * HAProxy can take the name is not checked: that is for a test. */
struct spop_variable {
    uint8_t type, arguments, scope, len;
    char name[SPOP_VARIABLE_MAX + 1];
};
#define SPOP_VARIABLE(scope_, name_)                                                                  \
    {                                                                                                 \
        .type = 1, .arguments = 3, .scope = (scope_), .len = sizeof(name_) - 1,                       \
        .name = name_ /* NOLINT(bugprone-macro-parentheses): no brackets round what fills an array */ \
    }

enum { SPOP_KNOWN_SHORT = 32 };

static inline void spop_set_known(struct spop_actions *actions, const struct spop_variable *variable,
                                  struct spop_value value)
{
    struct writer *w = actions->out;
    size_t len = offsetof(struct spop_variable, name) + variable->len;
    if (!w->full && len <= SPOP_KNOWN_SHORT && w->size - w->len >= SPOP_KNOWN_SHORT) {
        memcpy(w->at + w->len, variable, SPOP_KNOWN_SHORT); /* of a known length: no call */
        w->len += len;
    } else {
        writer_put(w, slice_of(variable, len));
    }
    spop_value_write(actions->out, value);
    actions->count++;
}

/* As spop_set_known, of what most of them are: a text of one length byte goes in without a further call. */
static inline void spop_set_known_text(struct spop_actions *actions, const struct spop_variable *variable,
                                       struct slice text)
{
    struct writer *w = actions->out;
    size_t len = offsetof(struct spop_variable, name) + variable->len;
    if (w->full || len > SPOP_KNOWN_SHORT || text.len == 0 || text.len >= SPOP_VARINT_ONE_BYTE ||
        w->size - w->len < SPOP_KNOWN_SHORT + 2 + text.len) {
        spop_set_known(actions, variable, spop_text(text));
        return;
    }
    uint8_t *at = w->at + w->len;
    memcpy(at, variable, SPOP_KNOWN_SHORT);
    at[len] = SPOP_TEXT;
    at[len + 1] = (uint8_t)text.len;
    memcpy(at + len + 2, text.at, text.len);
    w->len += len + 2 + text.len;
    actions->count++;
}

void spop_unset_var(struct spop_actions *actions, enum spop_scope scope, struct slice name);

struct spop_action {
    enum { SPOP_SET_VAR = 1, SPOP_UNSET_VAR = 2 } type;
    enum spop_scope scope;
    struct slice name;
    struct spop_value value; /* SPOP_NULL for SPOP_UNSET_VAR */
};

/* The next action of an ACK's payload. False at the end, and on malformed bytes: then payload->failed. */
bool spop_action_next(struct reader *payload, struct spop_action *action);

#endif
