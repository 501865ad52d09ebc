/* SPDX-License-Identifier: MIT */
/*
 * scrollback: the adapter for OpenComputer's exec. Each worker replays the session's ring from its start and says `04`; a message
 * is `01` and output, or `02` and standard error. Nothing is numbered, so the replay of a further worker is collected and compared
 * with what the client had when that worker was asked, for each of both streams (spoa/relay/scrollback/compare.h). A worker that
 * serves is in one of these phases:
 *
 *     the first worker: PASSING
 *     a further one: REPLAYING
 *         ──`04`──▶ PASSING: the outcome is counted
 *         ──`04`, nothing was replayed to a client that has nothing──▶ OPEN
 *         ──`04`, the ring cannot be all there is──▶ LATE
 *     LATE ──the replay continues what was delivered without a doubt, or ends──▶ PASSING: the outcome is counted
 *     LATE ──it begins with all that was delivered──▶ OPEN: it may be a full ring that dropped some before its first byte
 *     OPEN ──no output for a second, or more than a ring holds──▶ PASSING: the outcome is counted
 *
 * If the relay opens second connections, `settle` exists from `04` until the outcome is counted: the worker's live output is held
 * (spoa/relay/scrollback/settle.h). The phase is LATE until a snapshot continues what was delivered, and PASSING afterwards.
 *
 * This file has the state, and what the other files of this folder ask of it.
 */
#ifndef CELLGATE_RELAY_SCROLLBACK_STATE_H
#define CELLGATE_RELAY_SCROLLBACK_STATE_H

#include "spoa/relay/scrollback/delivered.h"
#include "spoa/relay/scrollback/settle.h"

#define SCROLLBACK_RING   (1 << 20)
#define SCROLLBACK_REPLAY (4 << 20) /* bytes collected at most, with RECORD_HEAD in front of each record */
/* Bytes inserted at most: a whole replay, and the head and tag of the message after it. */
#define SCROLLBACK_INSERT (SCROLLBACK_REPLAY + WS_HEAD_MAX + 1)

#define TAG_OUTPUT 1
#define TAG_ERRORS 2
#define TAG_EXIT   3
#define TAG_LIVE   4 /* the replay has ended */

enum scrollback_phase {
    SCROLLBACK_PASSING,   /* live output passes, without what the client has already */
    SCROLLBACK_REPLAYING, /* the replay is collected until `04` */
    SCROLLBACK_LATE,      /* the replay goes on after `04`, and is still collected */
    SCROLLBACK_OPEN,      /* live output passes; the outcome is not known yet */
};

struct output_stream {
    struct delivered delivered;
    struct delivered_end asked;  /* what was delivered when the next worker was asked */
    struct delivered_end joined; /* the same of the worker that serves, until its replay has ended */
    uint64_t since; /* position in the stream: a gap was declared there, and nothing before it is compared */
    uint64_t collected; /* bytes of the stream in `replay` */
    uint64_t skip;      /* next bytes of live output that the client has already */
    bool
        doubt; /* the client may lack some of `skip`: live output is dropped only while it equals what was delivered */
};

struct scrollback {
    struct output_stream streams[2];
    enum scrollback_phase phase;
    bool resumed;     /* the worker that serves is not the first one */
    bool marked;      /* it has said `04` */
    bool compared;    /* LATE: its replay was compared with all that was delivered */
    bool had_nothing; /* the client, when this worker was asked */
    bool tried;       /* LATE: its replay was compared after its last output */
    bool live;        /* the client has its `04` */
    bool exited;      /* the client has its `03` */
    bool
        torn; /* a message of another kind was cut, or a gap is not declared yet: the next outcome is a gap */
    bool inside;           /* the worker's next piece continues a message */
    bool begun;            /* some of that message was passed on */
    bool rebased;          /* a gap was declared: not all of the session is compared any more */
    bool after_exit;       /* the worker before this one had said an exit that was held */
    bool rechecks;         /* the relay opens a second connection if the adapter asks for it */
    uint8_t tag;           /* of the message that is coming in; 0: none yet */
    uint64_t said;         /* bytes of output of the worker that serves */
    uint64_t late_at;      /* when its late replay began; 0: not yet */
    uint64_t said_at;      /* when it last sent output */
    uint64_t doubt_at;     /* when it first sent output that is in doubt; 0: not yet */
    struct records replay; /* what is collected; with `settle`, the live output that is held */
    struct settle *settle; /* NULL: live output is not held */
};

/* Returns the stream of a tag, or NULL if messages of that tag are not output. */
struct output_stream *scrollback_stream(struct scrollback *s, uint8_t tag);
/* Returns true while a replay is collected. */
bool scrollback_is_collecting(const struct scrollback *s);
/* Returns true if a ring of this length may have dropped a chunk. */
bool scrollback_is_full(uint64_t len);
/* Returns true if the client had no output when the worker that serves was asked. */
bool scrollback_had_nothing(const struct scrollback *s);
/* Returns true while a message that is not output is coming in: nothing may be inserted into it. */
bool scrollback_is_inside_other(const struct scrollback *s);

/* Returns the number of bytes of output in s->replay. */
uint64_t scrollback_collected(const struct scrollback *s);
bool scrollback_has_room(const struct scrollback *s, struct slice bytes);
/* Appends output to s->replay. Returns false if memory is short. */
bool scrollback_collect(struct scrollback *s, uint8_t tag, struct slice bytes)
    __attribute__((warn_unused_result));
void scrollback_clear_replay(struct scrollback *s);

/* Returns the bytes of memory beyond the state's own. */
size_t scrollback_held(const struct scrollback *s);
extern const struct image_table scrollback_table;
/* Frees what the state holds, but not the state. */
void scrollback_free(struct scrollback *s);

#endif
