/* SPDX-License-Identifier: MIT */
/*
 * session: what is known of a terminal or a pair of pipes and of what it has put out, without descriptors or
 * clocks. The end is reported only when both the process has ended and its output has been read to the end.
 */
#ifndef CELLGATE_WORKER_SESSION_SESSION_H
#define CELLGATE_WORKER_SESSION_SESSION_H

#include "examples/worker/protocol/manager_protocol.h"
#include "examples/worker/session/chunks.h"
#include "spoa/base/os/fail.h"

#define SESSION_RING     (1u << 20) /* bytes of output that are held unless CREATE says otherwise */
#define SESSION_RING_MIN 4096u
#define SESSION_RING_MAX (16u << 20)

enum session_state {
    SESSION_NEW, /* waits for its first reader */
    SESSION_RUNNING,
    SESSION_DRAINING, /* the process has ended, its last output has not been read yet */
    SESSION_ENDED,    /* nothing will be added */
};

struct session {
    uint8_t *memory;             /* what the slices of plan point into */
    struct manager_message plan; /* the CREATE it came from; ring, cols, rows and kind are those in force */
    enum session_state state;
    struct chunks output; /* of a terminal only the ring in it is used */
    uint64_t unread;      /* where the reader stopped that got furthest */
    uint64_t input;       /* bytes the process has taken */
    uint32_t pid, exit_code;
    unsigned readers;
};

/* Takes a copy of all that create holds. False and *why when out of memory or when create holds nonsense; s is
 * zeroed then. */
bool session_init(struct session *s, const struct manager_message *create, struct slice id, struct fail *why);
void session_clear(struct session *s);
bool session_is(const struct session *s, struct slice scope, struct slice id);

void session_started(struct session *s, uint32_t pid);
void session_exited(struct session *s, uint32_t exit_code); /* RUNNING to DRAINING */
void session_drained(struct session *s);                    /* DRAINING to ENDED */

void session_output(struct session *s, enum manager_stream stream, struct slice bytes);
/* How much there is memory for, so that nothing is lost for want of it; 0: none, for now. */
size_t session_reserve(struct session *s);
/* How much may be added, at once, without pushing out anything from offset on. */
size_t session_room(const struct session *s, uint64_t offset);
/* Output from offset on that lies together and is of one stream. */
struct slice session_at(const struct session *s, uint64_t offset, enum manager_stream *stream);
/* The place at or behind `since` where reading can begin: not before what is held, not behind its end. */
uint64_t session_clamp(const struct session *s, uint64_t since);
uint64_t session_first(const struct session *s);
uint64_t session_end(const struct session *s);
/* A MANAGER_SESSION whose slices are the session's. */
struct manager_message session_describe(const struct session *s);

#endif
