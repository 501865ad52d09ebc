/* SPDX-License-Identifier: MIT */
/*
 * spop: reads and writes the frames of HAProxy's Stream Processing Offload Protocol 2.0 (SPOE.txt section 3.2), for both ends. No I/O
 * and no memory of its own: readers point into the frame, and writers write into the caller's memory and set writer.full if it is too
 * small. spop/hello.h has hellos and disconnects; the conversation is in spop/conversation.h for the agent's end, and in
 * spop/client.h for HAProxy's.
 */
#ifndef CELLGATE_SPOP_SPOP_H
#define CELLGATE_SPOP_SPOP_H

#include "spoa/spop/value.h"

/* Sizes in bytes, without the four length bytes in front of a frame, as the protocol counts them. */
#define SPOP_LENGTH_BYTES 4
#define SPOP_FRAME_MIN    7     /* shortest frame: type, flags, two ids of one byte each */
#define SPOP_FRAME_USUAL  16380 /* HAProxy's max-frame-size with tune.bufsize 16384 */
#define SPOP_FRAME_MAX    65532 /* largest max-frame-size that this implementation agrees to */
#define SPOP_SIZE_MIN     256   /* a peer that agrees to a smaller max-frame-size is refused */

enum spop_type {
    SPOP_TYPE_UNSET = 0, /* a further fragment: an error here, because fragmentation is never agreed to */
    SPOP_TYPE_HAPROXY_HELLO = 1,
    SPOP_TYPE_HAPROXY_DISCONNECT = 2,
    SPOP_TYPE_NOTIFY = 3,
    SPOP_TYPE_AGENT_HELLO = 101,
    SPOP_TYPE_AGENT_DISCONNECT = 102,
    SPOP_TYPE_ACK = 103
};

/* Returns true if the protocol knows the type. Frames of other types must be skipped (section 3.2). */
bool spop_type_known(uint8_t type);

/* Flags of a frame. */
#define SPOP_FIN   1u /* the last fragment */
#define SPOP_ABORT 2u /* the sender gives up on this stream */

/* X(name, status code on the wire, text of the DISCONNECT): SPOE.txt, "Errors & timeouts". */
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

/* Returns the text of a status; "unknown error" for a code that is not in the table. */
const char *spop_status_text(uint64_t status);

/* ---- frames ---- */
struct spop_frame {
    uint8_t type;                 /* an enum spop_type, or unknown */
    uint32_t flags;               /* SPOP_FIN, SPOP_ABORT */
    uint64_t stream_id, frame_id; /* an ACK has those of its NOTIFY */
    struct slice payload;         /* points into the input */
};

enum spop_step {
    SPOP_STEP_FRAME,   /* *frame is valid; it took *size bytes of the input */
    SPOP_STEP_MORE,    /* the input needs *size bytes in all before another call is of use */
    SPOP_STEP_TOO_BIG, /* the frame is longer than `max` */
    SPOP_STEP_INVALID  /* the frame is shorter than its head, or its ids are malformed */
};

/* Reads the frame at the front of `in`, of at most `max` bytes. The length is checked as soon as it is there, so that nobody makes
 * the caller buffer a frame that will be refused. */
enum spop_step spop_frame_read(struct slice in, size_t max, struct spop_frame *frame, size_t *size)
    MUST_CHECK;

/* Begins a frame. Returns its position, which spop_frame_end takes to fill in the length. */
size_t spop_frame_begin(struct writer *w, enum spop_type type, uint64_t stream_id, uint64_t frame_id);
/* Ends a frame. Returns false if the frame did not fit or is longer than `max`; the writer is then as it was before the frame, and
 * usable. */
bool spop_frame_end(struct writer *w, size_t begin, size_t max) MUST_CHECK;

/* ---- NOTIFY: messages and their arguments (section 3.2.6) ---- */
struct spop_args {
    /* holds the bytes of the arguments that were not read yet, and no byte after them */
    struct reader reader;
    unsigned left; /* number of these arguments */
};

struct spop_message {
    struct slice name;
    struct spop_args args;
};

/* Reads the next message of a NOTIFY's payload, and checks all its arguments. Start with reader_of(frame.payload). Returns false at
 * the end, and for malformed bytes: payload->failed is then set. */
bool spop_message_next(struct reader *payload, struct spop_message *message) MUST_CHECK;
/* Reads the next argument, whose name may be empty. Returns false at the end. Cannot fail otherwise, because spop_message_next has
 * checked the arguments. */
bool spop_arg_next(struct spop_args *args, struct slice *name, struct spop_value *value) MUST_CHECK;

/* Begins a message in a frame of type SPOP_TYPE_NOTIFY; at most 255 arguments follow, then another message or spop_frame_end. Returns
 * the message's position, which spop_arg_write takes to count the argument. */
size_t spop_message_begin(struct writer *w, struct slice name);
void spop_arg_write(struct writer *w, size_t message, struct slice name, struct spop_value value);

/* ---- ACK: actions (section 3.2.7) ---- */
enum spop_scope { SPOP_PROCESS, SPOP_SESSION, SPOP_TRANSACTION, SPOP_REQUEST, SPOP_RESPONSE };

/* Bytes of the longest "scope.prefix.name": HAProxy reads out of bounds after a longer one. */
#define SPOP_VARIABLE_MAX 63

/* Builds the actions of one ACK in the writer of its frame. */
struct spop_actions {
    struct writer *out;
    size_t prefix_len; /* length of HAProxy's `option var-prefix` */
    /* largest out->len at which the frame can still be sent; 0 means that only out bounds it */
    size_t most;
    unsigned count; /* number of actions so far */
};

/* Sets a variable. `name` is without scope and prefix, and consists of letters, digits, '_' and '.'. out->full is set if the action
 * does not fit or HAProxy could not take the name: HAProxy would silently drop that action and all that follow. */
void spop_set_var(struct spop_actions *actions, enum spop_scope scope, struct slice name,
                  struct spop_value value);

/* A variable with a fixed name, as the bytes that go over the wire, for spop_set_known. A test must check that
 * HAProxy can take the name. */
struct spop_variable {
    uint8_t type, arguments, scope, len;
    char name[SPOP_VARIABLE_MAX + 1];
};
#define SPOP_VARIABLE(scope_, name_)                                                                  \
    {                                                                                                 \
        .type = 1, .arguments = 3, .scope = (scope_), .len = sizeof(name_) - 1,                       \
        .name = name_ /* NOLINT(bugprone-macro-parentheses): no brackets round what fills an array */ \
    }

enum { SPOP_KNOWN_SHORT = 32 }; /* bytes of a spop_variable that are copied at once, whatever its length */

/* Sets such a variable, faster than spop_set_var. */
static inline void spop_set_known(struct spop_actions *actions, const struct spop_variable *variable,
                                  struct spop_value value)
{
    struct writer *w = actions->out;
    size_t len = offsetof(struct spop_variable, name) + variable->len;
    if (!w->full && len <= SPOP_KNOWN_SHORT && w->size - w->len >= SPOP_KNOWN_SHORT) {
        /* a constant length: the compiler copies without a call */
        memcpy(w->at + w->len, variable, SPOP_KNOWN_SHORT);
        w->len += len;
    } else {
        writer_put(w, slice_of(variable, len));
    }
    spop_value_write(actions->out, value);
    actions->count++;
}

/* Like spop_set_known, for the most frequent kind of value: a text with a length of one byte is written without a further call. */
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

/* Reads the next action of an ACK's payload. Returns false at the end, and for malformed bytes: payload->failed is then set. */
bool spop_action_next(struct reader *payload, struct spop_action *action) MUST_CHECK;

#endif
