/* SPDX-License-Identifier: MIT */
/*
 * moves: the tunnels of one thread that are told to leave a worker which serves on for another one. A few go at a time, in the
 * order in which they were told: the old worker serves the others meanwhile, and a thousand that went at once would each have a
 * gap as long as all of theirs. Nobody waits for a worker that does not answer: where few get through within MOVES_STEP, more go,
 * and where enough do, fewer again. Those that wait go when the turn is over in which others ended, so that what has come for
 * others in that turn does not wait for their connections.
 */
#ifndef CELLGATE_RELAY_IO_MOVES_H
#define CELLGATE_RELAY_IO_MOVES_H

#include "spoa/net/loop.h"
#include "spoa/relay/tunnel/target.h"

#define MOVES_AT_ONCE 4
#define MOVES_STEP    (2 * MILLISECOND)

/* One that waits. */
struct move {
    struct move *next, **link;
    void *owner;
    struct answer answer; /* what it was told; its target is a copy */
};

struct moves {
    size_t under_way, most, ended; /* ended: in this step */
    struct move *first, **last;    /* that wait; behind the last one */
    struct loop *loop;
    struct loop_task turn_end;
    struct loop_timer step;
    void (*go)(void *owner,
               const struct answer *answer); /* the turn of one that waited has come; it is under way */
};

void moves_open(struct moves *moves, struct loop *loop, void (*go)(void *owner, const struct answer *answer));
void moves_close(struct moves *moves); /* nobody's turn comes any more */

/* NULL: it is under way, until moves_end. Otherwise it waits: until `go`, or moves_drop. */
struct move *moves_begin(struct moves *moves, void *owner, const struct answer *answer);
void moves_end(struct moves *moves);
void moves_drop(struct moves *moves, struct move *move);

#endif
