/* SPDX-License-Identifier: MIT */
/*
 * settle: the times and comparisons by which the relay decides that a worker that was just attached has all of its session's output,
 * and where its live output continues that. A worker that takes a session over fills its ring while it answers: its first snapshot is
 * short, and its live output may lack chunks (each subscriber's queue is bounded, and there is a pause between the snapshot and the
 * subscription). The ring itself is complete. So the live output of the connection that serves is held, and a second connection to
 * the same worker reads a snapshot up to `04`:
 *
 *     HOLDING ──quiet for SETTLE_QUIET, or after SETTLE_FIRST──▶ READING ──`04`──▶ CATCHING_UP ──SETTLE_CATCH_UP──▶ judged:
 *         the snapshot continues what was delivered, and the live output continues the snapshot ──▶ settled, exact
 *         only the first of both: the snapshot's new output is delivered ──SETTLE_PAUSE──▶ the next check
 *         neither: SETTLE_PAUSE, the next check; a snapshot that stands still is believed ──▶ a gap
 *     READING ──the second connection fails──▶ HOLDING, SETTLE_PAUSE, the next check
 *     after SETTLE_CHECKS checks, SETTLE_FAILED failures, or SETTLE_TIME, the adapter decides by what it has
 *
 * Input only ever goes to the connection that serves. This file is pure: it has counters, and compares two pieces of output.
 */
#ifndef CELLGATE_RELAY_SCROLLBACK_SETTLE_H
#define CELLGATE_RELAY_SCROLLBACK_SETTLE_H

#include "spoa/base/os/time.h"
#include "spoa/relay/scrollback/records.h"

#define SETTLE_QUIET    (100 * MILLISECOND) /* without output: the first check */
#define SETTLE_FIRST    (400 * MILLISECOND) /* after `04`, with output */
#define SETTLE_CATCH_UP (50 * MILLISECOND)  /* for output of the snapshot to arrive live, too */
#define SETTLE_PAUSE    (200 * MILLISECOND) /* between two checks */
#define SETTLE_TIME     (5 * SECOND)
#define SETTLE_CHECKS   12
#define SETTLE_FAILED \
    2 /* checks without a complete snapshot: the worker is then believed as one that is asked once */
#define SETTLE_SHORT   5 /* checks: a snapshot that lacks what the client has is then believed */
#define SETTLE_NOWHERE INT64_MAX
#define SETTLE_TAIL    128       /* bytes by which a place in the live output is known */
#define SETTLE_MOST    (2 << 20) /* bytes of records of a snapshot, and of held output */

enum settle_phase {
    SETTLE_HOLDING,     /* no check runs */
    SETTLE_READING,     /* the second connection is opened, or read */
    SETTLE_CATCHING_UP, /* its snapshot is complete, and is judged at `due` */
};

struct settle {
    struct records snapshot; /* what the check that runs has read */
    uint64_t sizes[2];       /* bytes of each stream in `snapshot` */
    uint64_t first[2];       /* bytes of held output that was sent before the worker's own `04` */
    uint64_t live[2];        /* bytes of held output that was sent after it */
    uint64_t before[2];      /* `live`, when the check began */
    uint64_t ahead[2];       /* bytes of live output that were delivered already, if none was dropped */
    uint64_t base
        [2]; /* position in the stream at which live output begins if the worker dropped none, or SETTLE_NOWHERE */
    uint64_t since; /* when the worker said `04` */
    uint64_t due;   /* when the next check begins at the latest, or the one that runs is judged */
    uint64_t last;  /* size of the last snapshot that did not continue what was delivered */
    unsigned checks, failed;
    enum settle_phase phase;
    bool judged;       /* a snapshot was judged */
    bool open;         /* the client had read an empty ring to its end, and the worker's was empty, too */
    bool placed;       /* a snapshot of this worker continued what was delivered */
    bool gap;          /* the outcome will be a gap */
    bool exited;       /* the worker has said the session's exit, which is held in `exit` */
    bool exited_first; /* the exit came before the check that runs */
    bool after_exit;   /* an earlier connection had said an exit before this one was attached */
    uint8_t tag;       /* of the message of the snapshot that is coming in; 0: none yet */
    uint8_t exit[5];
};

/* Returns NULL if memory is short. */
struct settle *settle_new(uint64_t now, bool after_exit);
void settle_free(struct settle *settle);

/* Returns when the next check begins, or the one that runs is judged; UINT64_MAX: not yet known. said_at: when the worker last sent
 * output. */
uint64_t settle_due(const struct settle *settle, uint64_t said_at);
void settle_begin(struct settle *settle);
/* The check has ended without a complete snapshot. */
void settle_failed(struct settle *settle, uint64_t now);
/* The snapshot was judged, and another check is to follow. */
void settle_pause(struct settle *settle, uint64_t now);
/* Returns true if no further check is to be made. */
bool settle_is_over(const struct settle *settle, uint64_t now);
/* Returns true if the worker has sent nothing since the check began. */
bool settle_was_quiet(const struct settle *settle);
/* Returns true if a snapshot of this size did not grow since the last one, while the worker said nothing: it is all there is. */
bool settle_stands_still(const struct settle *settle, uint64_t size);

/* One stream. */
struct settle_view {
    struct slice snapshot, live;
    uint64_t before;   /* bytes of live that are certainly in the snapshot */
    uint64_t expected; /* bytes of live that are in it if none was dropped; UINT64_MAX: unknown */
    uint64_t growth;   /* last bytes of the snapshot that were not delivered by an earlier one */
};
/* Finds how many bytes of the live output are in the snapshot; the rest continues it. Returns false if that is not certain, or if
 * the worker did not send, live, all that the snapshot grew by: it may go on dropping. */
bool settle_align(const struct settle_view *view, uint64_t *at);

extern const struct image_table settle_table;

#endif
