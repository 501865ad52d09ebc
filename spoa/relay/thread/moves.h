/* SPDX-License-Identifier: MIT */
/*
 * moves: schedules the tunnels of one thread that the agent moves from a worker that still serves to another worker. A few tunnels
 * move at a time, in the order of the agent's answers: the old worker serves the waiting ones, and a thousand tunnels that moved
 * at once would each have a gap as long as all moves. Slow workers do not block the queue: if few moves end within MOVES_STEP,
 * more begin, and if enough end, fewer begin again. Moves begin at the end of a loop turn, so that input for other tunnels in
 * that turn is not delayed by their connections.
 *
 * The relay connects a tunnel to its new worker before the move: the old worker serves the tunnel until the connection is made,
 * has failed, or has taken MOVES_PATIENCE.
 */
#ifndef CELLGATE_RELAY_THREAD_MOVES_H
#define CELLGATE_RELAY_THREAD_MOVES_H

#include "spoa/net/loop.h"
#include "spoa/relay/tunnel/target.h"

#define MOVES_AT_ONCE  4
#define MOVES_STEP     (2 * MILLISECOND)
#define MOVES_PATIENCE (100 * MILLISECOND)

/* A tunnel that waits for its turn, or for its connection. */
struct move {
    struct move *next, **link; /* link: NULL once the turn has come */
    struct moves *moves;
    void *owner;
    struct answer answer; /* the agent's answer, with a copy of the target */
    struct loop_io socket;
    struct loop_timer late;
    bool goes; /* user->go is running */
};

struct moves_user {
    /* Connects to the target of the answer. Returns a descriptor, or -1 if the move need not wait. Must not drop the move. */
    int (*connect)(void *owner, const struct answer *answer);
    /* Begins the move, which lasts until moves_end, or ends the tunnel and drops the move. The owner takes over `fd`, which is
     * connected, connecting, failed, or -1. */
    void (*go)(void *owner, const struct answer *answer, int fd);
};

struct moves {
    const struct moves_user *user;
    struct loop *loop;
    size_t under_way, most, ended; /* the number of moves running, allowed to run, and ended in this step */
    struct move *first, **last;    /* the first waiting move; the last one's `next`, or `first` */
    struct loop_timer step;
    uint64_t step_time; /* MOVES_STEP */
    struct loop_task turn_end;
};

void moves_open(struct moves *moves, struct loop *loop, const struct moves_user *user);
void moves_close(struct moves *moves); /* no further move begins */

/* Queues a move, which waits until `go` or moves_drop. Returns NULL if memory is short: the move is then running already. */
struct move *moves_begin(struct moves *moves, void *owner, const struct answer *answer);
void moves_end(struct moves *moves);
void moves_drop(struct moves *moves, struct move *move);

#endif
