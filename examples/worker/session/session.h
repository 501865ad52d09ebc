/* SPDX-License-Identifier: MIT */
/*
 * session: the state and the output of a process on a terminal or on pipes, without descriptors or clocks. Invariant: the end is reported
 * only after the process has ended and its output has been read to the end.
 */
#ifndef CELLGATE_WORKER_SESSION_SESSION_H
#define CELLGATE_WORKER_SESSION_SESSION_H

#include "examples/worker/protocol/manager_protocol.h"
#include "examples/worker/session/chunks.h"
#include "spoa/base/os/fail.h"

#define SESSION_RING     (1u << 20) /* default size of the ring, in bytes */
#define SESSION_RING_MIN 4096u
#define SESSION_RING_MAX (16u << 20)

enum session_state {
    SESSION_NEW, /* the process starts for the first reader */
    SESSION_RUNNING,
    SESSION_DRAINING, /* the process has ended, but its last output has not been read */
    SESSION_ENDED,    /* the output is complete */
};

struct session {
    uint8_t *memory;             /* memory of the slices in `plan` */
    struct manager_message plan; /* the CREATE message; ring, cols, rows and kind are the present values */
    enum session_state state;
    struct chunks output; /* for a terminal, only the ring in it is used */
    uint64_t unread;      /* largest offset at which a reader has stopped */
    uint64_t input;       /* bytes of input that the process has taken */
    uint32_t pid, exit_code;
    unsigned readers; /* number of readers */
};

/* Copies everything in `create`. Returns false with *why, and zeroes *s, if memory is short or `create` is invalid. */
bool session_init(struct session *s, const struct manager_message *create, struct slice id, struct fail *why);
/* Frees the memory, and zeroes *s. */
void session_clear(struct session *s);
/* Returns true if this is the session's name. */
bool session_is(const struct session *s, struct slice scope, struct slice id);

void session_started(struct session *s, uint32_t pid);
/* Goes from RUNNING to DRAINING. */
void session_exited(struct session *s, uint32_t exit_code);
/* Goes from DRAINING to ENDED. */
void session_drained(struct session *s);

void session_output(struct session *s, enum manager_stream stream, struct slice bytes);
/* Returns the number of bytes of output that can be added without losing any for want of memory; 0 if memory is short now. */
size_t session_reserve(struct session *s);
/* Returns the number of bytes of output that can be added at once without dropping bytes from `offset` on. */
size_t session_room(const struct session *s, uint64_t offset);
/* Returns contiguous output of one stream from `offset` on. */
struct slice session_at(const struct session *s, uint64_t offset, enum manager_stream *stream);
/* Returns the offset closest to `since` at which reading can begin: from the first byte held to the end. */
uint64_t session_clamp(const struct session *s, uint64_t since);
uint64_t session_first(const struct session *s);
uint64_t session_end(const struct session *s);
/* Returns a MANAGER_SESSION message, which borrows from *s. */
struct manager_message session_describe(const struct session *s);

#endif
