/* SPDX-License-Identifier: MIT */
/*
 * scrollback: the adapter for OpenComputer's exec. Each worker replays the session's ring buffer from its start and then sends `04`.
 * A message begins with a tag: `01` for output, `02` for standard error, `03` for the exit code. Messages have no numbers, so the
 * replay of each further worker is collected and compared, per stream, with the output that the client had when the relay dialled
 * that worker (spoa/relay/scrollback/compare.h). The serving worker is in one of these phases:
 *
 *     the first worker: PASSING
 *     a further one: REPLAYING
 *         ──`04`──▶ PASSING: the outcome is counted
 *         ──`04`, the client has no output and the replay is empty──▶ OPEN
 *         ──`04`, the replay cannot be complete──▶ LATE
 *     LATE ──the replay certainly continues the delivered output, or ends──▶ PASSING: the outcome is counted
 *     LATE ──the replay begins with all delivered output──▶ OPEN: a full ring may have dropped bytes before its first byte
 *     OPEN ──no output for a second, or more than a ring holds──▶ PASSING: the outcome is counted
 *
 * If the relay opens second connections, `settle` exists from `04` until the outcome is counted: the worker's live output is held
 * (spoa/relay/scrollback/settle.h). The phase is LATE until a snapshot continues what was delivered, and PASSING afterwards.
 *
 * This file has the state, and the questions about it that the other files of this folder share.
 */
#ifndef CELLGATE_RELAY_SCROLLBACK_STATE_H
#define CELLGATE_RELAY_SCROLLBACK_STATE_H

#include "spoa/relay/scrollback/delivered.h"
#include "spoa/relay/scrollback/settle.h"

#define SCROLLBACK_RING   (1 << 20) /* size of the worker's ring buffer, in bytes */
#define SCROLLBACK_REPLAY (4 << 20) /* largest collected replay in bytes, with the heads of its records */
/* Largest insert in bytes: a whole replay, and the head and tag of the message after it. */
#define SCROLLBACK_INSERT (SCROLLBACK_REPLAY + WS_HEAD_MAX + 1)

#define TAG_OUTPUT 1
#define TAG_ERRORS 2
#define TAG_EXIT   3
#define TAG_LIVE   4 /* the replay has ended */

enum scrollback_phase {
    SCROLLBACK_PASSING,   /* live output passes, except for bytes that the client already has */
    SCROLLBACK_REPLAYING, /* the replay is collected until `04` */
    SCROLLBACK_LATE,      /* the replay goes on after `04`, and is still collected */
    SCROLLBACK_OPEN,      /* live output passes; the outcome is not known yet */
};

/* One of the session's two output streams. */
struct output_stream {
    struct delivered delivered; /* output that the client has received */
    struct delivered_end asked; /* end of the delivered output when the relay dialled the next worker */
    /* end of the delivered output when the relay dialled the serving worker; kept until the replay of that worker has ended */
    struct delivered_end joined;
    uint64_t since;     /* position of the last declared gap; bytes before it are not compared */
    uint64_t collected; /* bytes of this stream in the `replay` of struct scrollback */
    uint64_t skip;      /* number of further bytes of live output that the client already has */
    /* the client may lack some of the `skip` bytes: live output is dropped only while it equals the delivered output */
    bool doubt;
};

struct scrollback {
    struct output_stream streams[2]; /* output, standard error */
    enum scrollback_phase phase;
    bool resumed;     /* the serving worker is not the first one */
    bool marked;      /* the serving worker has sent `04` */
    bool compared;    /* in phase LATE: the replay was compared with all delivered output */
    bool had_nothing; /* the client had no output when the relay dialled the serving worker */
    bool tried;       /* in phase LATE: the replay was compared after its last output */
    bool live;        /* the client has received its `04` */
    bool exited;      /* the client has received its `03` */
    /* a message that is not output was cut, or a gap is not declared yet: the next outcome is a gap */
    bool torn;
    bool inside;           /* the worker's next piece continues a message */
    bool begun;            /* the client has received a part of the current message */
    bool rebased;          /* a gap was declared, so the session's beginning is no longer compared */
    bool after_exit;       /* the previous worker had sent an exit code, which was held */
    bool rechecks;         /* the relay opens a second connection if the adapter asks for it */
    uint8_t tag;           /* tag of the current message; 0 before its first byte */
    uint64_t said;         /* bytes of output from the serving worker */
    uint64_t late_at;      /* time when the late replay began, in µs; 0 before it */
    uint64_t said_at;      /* time of the serving worker's last output, in µs */
    uint64_t doubt_at;     /* time of the first output in doubt (see output_stream), in µs; 0 before it */
    struct records replay; /* collected replay; with `settle`, the held live output */
    struct settle *settle; /* NULL while live output is not held */
};

/* Returns the stream of a tag, or NULL if messages of that tag are not output. */
struct output_stream *scrollback_stream(struct scrollback *s, uint8_t tag);
/* Returns true while a replay is collected. */
bool scrollback_is_collecting(const struct scrollback *s);
/* Returns true if a ring with `len` bytes may have dropped a chunk: the ring drops whole chunks of up to RECORD_MAX bytes. */
bool scrollback_is_full(uint64_t len);
/* Returns true if the client had no output when the relay dialled the serving worker. */
bool scrollback_had_nothing(const struct scrollback *s);
/* Returns true if the last piece ended within a message that is not output: no frame may be inserted into that message. */
bool scrollback_is_inside_other(const struct scrollback *s);

/* Returns the number of bytes of output in s->replay. */
uint64_t scrollback_collected(const struct scrollback *s);
/* Returns true if s->replay may take `bytes` within its limit, which is lower while live output is held. */
bool scrollback_has_room(const struct scrollback *s, struct slice bytes);
/* Appends output to s->replay. Returns false if memory is short. */
bool scrollback_collect(struct scrollback *s, uint8_t tag, struct slice bytes)
    __attribute__((warn_unused_result));
void scrollback_clear_replay(struct scrollback *s);

/* Returns the number of bytes of memory in use beside the state. */
size_t scrollback_held(const struct scrollback *s);
extern const struct image_table scrollback_table;
/* Frees what the state holds, but not the state. */
void scrollback_free(struct scrollback *s);

#endif
