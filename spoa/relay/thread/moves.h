/* SPDX-License-Identifier: MIT */
/*
 * moves: the tunnels of one thread that are told to leave a worker which serves on for another one. A few go at a time, in the
 * order in which they were told: the old worker serves the others meanwhile, and a thousand that went at once would each have a
 * gap as long as all of theirs. Nobody waits for a worker that does not answer: where few get through within MOVES_STEP, more go,
 * and where enough do, fewer again. They go when the turn is over in which they were told or others ended, so that what has come
 * for others in that turn does not wait for their connections.
 *
 * One whose turn has come is connected to its new worker before it goes: until the connection is made, has failed, or has
 * taken MOVES_PATIENCE, the old worker serves it, too.
 */
#ifndef CELLGATE_RELAY_THREAD_MOVES_H
#define CELLGATE_RELAY_THREAD_MOVES_H

#include "spoa/net/loop.h"
#include "spoa/relay/tunnel/target.h"

#define MOVES_AT_ONCE  4
#define MOVES_STEP     (2 * MILLISECOND)
#define MOVES_PATIENCE (100 * MILLISECOND)

/* One that waits: for its turn, or for its connection. */
struct move {
    struct move *next, **link; /* link: NULL once its turn has come */
    struct moves *moves;
    void *owner;
    struct answer answer; /* what it was told; its target is a copy */
    struct loop_io socket;
    struct loop_timer late;
    bool goes; /* user->go is at work */
};

struct moves_user {
    /* Connects to where the answer says: a descriptor, or -1 when there is nothing to wait for. The move stays. */
    int (*connect)(void *owner, const struct answer *answer);
    /* It goes, and is under way until moves_end; or ends, and drops its move. fd is the owner's now: connected, connecting, failed, or -1. */
    void (*go)(void *owner, const struct answer *answer, int fd);
};

struct moves {
    const struct moves_user *user;
    struct loop *loop;
    size_t under_way, most, ended; /* ended: in this step */
    struct move *first, **last;    /* whose turn has not come; behind the last one */
    struct loop_timer step;
    uint64_t step_time; /* MOVES_STEP */
    struct loop_task turn_end;
};

void moves_open(struct moves *moves, struct loop *loop, const struct moves_user *user);
void moves_close(struct moves *moves); /* nobody's turn comes any more */

/* It waits: until `go`, or moves_drop. NULL when out of memory: it is under way at once. */
struct move *moves_begin(struct moves *moves, void *owner, const struct answer *answer);
void moves_end(struct moves *moves);
void moves_drop(struct moves *moves, struct move *move);

#endif
