/* SPDX-License-Identifier: MIT */
/*
 * settle: decides when a newly attached worker has all of its session's output, and where the worker's live output continues it. A
 * worker that takes over a session fills its ring while it answers: its first snapshot is short, and its live output may lack chunks,
 * because each subscriber's queue is bounded, and the worker takes the snapshot before it subscribes. The ring itself becomes
 * complete. So the relay holds the live output of the serving connection, and reads a snapshot up to `04` over a second connection
 * to the same worker:
 *
 *     HOLDING ──quiet for SETTLE_QUIET, or after SETTLE_FIRST──▶ READING ──`04`──▶ CATCHING_UP ──SETTLE_CATCH_UP──▶ judged:
 *         the snapshot continues the delivered output, and the live output continues the snapshot ──▶ settled, exact
 *         only the first of both: the snapshot's new output is delivered ──SETTLE_PAUSE──▶ the next check
 *         neither: SETTLE_PAUSE, the next check; a snapshot that no longer grows is believed ──▶ a gap
 *     READING ──the second connection fails──▶ HOLDING, SETTLE_PAUSE, the next check
 *     after SETTLE_CHECKS checks, SETTLE_FAILED failures, or SETTLE_TIME, the adapter decides by what it has
 *
 * The client's input only goes to the serving connection. This file is pure: it has counters, and compares two pieces of output.
 */
#ifndef CELLGATE_RELAY_SCROLLBACK_SETTLE_H
#define CELLGATE_RELAY_SCROLLBACK_SETTLE_H

#include "spoa/base/os/time.h"
#include "spoa/relay/scrollback/records.h"

#define SETTLE_QUIET    (100 * MILLISECOND) /* silence of the worker before the first check */
#define SETTLE_FIRST    (400 * MILLISECOND) /* from `04` to the first check if the worker is not silent */
#define SETTLE_CATCH_UP (50 * MILLISECOND)  /* for output of the snapshot to arrive live, too */
#define SETTLE_PAUSE    (200 * MILLISECOND) /* between two checks */
#define SETTLE_TIME     (5 * SECOND)        /* longest time for all checks */
#define SETTLE_CHECKS   12                  /* largest number of checks */
/* checks without a complete snapshot, after which the adapter decides by the serving connection alone */
#define SETTLE_FAILED 2
/* checks after which a snapshot is believed though it lacks output that the client has */
#define SETTLE_SHORT   5
#define SETTLE_NOWHERE INT64_MAX /* `base` is not known */
#define SETTLE_TAIL    128       /* bytes that identify a place in the live output */
#define SETTLE_MOST    (2 << 20) /* largest size of a snapshot's records, and of the held output's, in bytes */

enum settle_phase {
    SETTLE_HOLDING,     /* no check runs */
    SETTLE_READING,     /* the second connection is being opened or read */
    SETTLE_CATCHING_UP, /* the snapshot is complete, and is judged at `due` */
};

/* Checks of one worker. A pair has one entry for output and one for standard error. */
struct settle {
    struct records snapshot; /* output that the current check has read */
    uint64_t sizes[2];       /* bytes of each stream in `snapshot` */
    uint64_t first[2];       /* bytes of held output that was sent before the worker's own `04` */
    uint64_t live[2];        /* bytes of held output that was sent after the worker's own `04` */
    uint64_t before[2];      /* value of `live` when the check began */
    uint64_t ahead[2]; /* bytes of live output that the client already has, if the worker dropped none */
    /* position in the stream at which live output begins if the worker dropped none, or SETTLE_NOWHERE */
    uint64_t base[2];
    uint64_t since; /* time of the worker's `04`, in µs */
    uint64_t due;   /* latest time to begin the next check, or time to judge the current one, in µs */
    uint64_t last;  /* size of the last snapshot that did not continue the delivered output */
    unsigned checks, failed; /* number of checks so far, and of those without a complete snapshot */
    enum settle_phase phase;
    bool judged; /* a snapshot was judged */
    bool open;   /* the client had read an empty ring to its end, and the worker's ring was empty, too */
    bool placed; /* a snapshot of this worker continued the delivered output */
    bool gap;    /* the outcome will be a gap */
    bool exited; /* the worker has sent the session's exit code, which is held in `exit` */
    bool exited_first; /* the exit code came before the current check began */
    bool after_exit;   /* an earlier connection had sent an exit code before this worker was attached */
    uint8_t tag;       /* tag of the snapshot's current message; 0 before its first byte */
    uint8_t exit[5];   /* whole message `03`: the tag, and 32 bits of exit code */
};

/* Returns NULL if memory is short. after_exit: see struct settle. */
struct settle *settle_new(uint64_t now, bool after_exit);
/* Frees the object and its snapshot; NULL is fine. */
void settle_free(struct settle *settle);

/* Returns the time to begin the next check, or to judge the current one; UINT64_MAX while a snapshot is being read. said_at: time of
 * the worker's last output. */
uint64_t settle_due(const struct settle *settle, uint64_t said_at);
/* Begins a check: forgets the last snapshot. */
void settle_begin(struct settle *settle);
/* Ends a check that has no complete snapshot, and counts the failure. */
void settle_failed(struct settle *settle, uint64_t now);
/* Ends a check whose snapshot was judged, and schedules the next one. */
void settle_pause(struct settle *settle, uint64_t now);
/* Returns true if the time for checks is over, or there were too many. */
bool settle_is_over(const struct settle *settle, uint64_t now);
/* Returns true if the worker has sent no output since the check began. */
bool settle_was_quiet(const struct settle *settle);
/* Returns true if the snapshot's size equals the last one's while the worker was silent: the snapshot is then complete. */
bool settle_stands_still(const struct settle *settle, uint64_t size);

/* One stream's snapshot and held live output, for settle_align. */
struct settle_view {
    struct slice snapshot, live;
    uint64_t before; /* bytes of `live` that are certainly in the snapshot */
    uint64_t
        expected;    /* bytes of `live` that are in the snapshot if none was dropped; UINT64_MAX if unknown */
    uint64_t growth; /* number of bytes at the snapshot's end that no earlier snapshot has delivered */
};
/* Finds the number of bytes of the live output that are also in the snapshot; the remaining live output continues the snapshot.
 * Returns false if that number is not certain, or if the live output lacks some of the snapshot's growth: the worker may then drop
 * more. */
bool settle_align(const struct settle_view *view, uint64_t *at);

extern const struct image_table settle_table;

#endif
