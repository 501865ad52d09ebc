/* SPDX-License-Identifier: MIT */
#include "spoa/relay/thread/moves.h"

#include <stdlib.h>

#include "spoa/base/table/list.h"
#include "spoa/net/net.h"

static void unlink_move(struct moves *m, struct move *move)
{
    LIST_UNLINK_FROM(m->last, move);
    move->link = NULL;
}

static void free_move(struct move *move)
{
    loop_io_close(&move->socket);
    loop_timer_close(&move->late);
    target_free(&move->answer.target);
    free(move);
}

static void go(void *context)
{
    struct move *move = context;
    int fd = loop_io_release(&move->socket);

    move->goes = true;
    move->moves->user->go(move->owner, &move->answer, fd);
    free_move(move);
}

static void on_connected(void *owner, int events)
{
    (void)events;
    go(owner);
}

/* Connects to the new worker. A connection to a worker on the same host is made at once. */
static void approach(struct move *move)
{
    struct moves *m = move->moves;
    int fd = m->user->connect(move->owner, &move->answer);

    if (fd >= 0)
        loop_io_open(&move->socket, m->loop, fd, on_connected, move);
    if (fd < 0 || net_is_connected(fd)) {
        go(move);
        return;
    }
    loop_io_want(&move->socket, LOOP_WRITE);
    loop_timer_open(&move->late, m->loop, go, move);
    loop_timer_set(&move->late, MOVES_PATIENCE);
}

static void begin_step(struct moves *m)
{
    if (!m->first || loop_timer_active(&m->step))
        return;
    m->ended = 0;
    loop_timer_set(&m->step, m->step_time);
}

/* Begins the next moves. A move that ends within `go` makes room for another one in this loop. */
static void go_on(void *context)
{
    struct moves *m = context;

    while (m->first && m->under_way < m->most) {
        struct move *move = m->first;
        m->under_way++;
        unlink_move(m, move);
        approach(move);
    }
    begin_step(m);
}

static void go_on_soon(struct moves *m)
{
    if (m->first && m->under_way < m->most)
        loop_defer(m->loop, &m->turn_end);
    else
        begin_step(m);
}

static void on_step(void *owner)
{
    struct moves *m = owner;

    if (m->ended < MOVES_AT_ONCE)
        m->most += MOVES_AT_ONCE;
    else if (m->most > MOVES_AT_ONCE)
        m->most -= MOVES_AT_ONCE;
    m->ended = 0;
    begin_step(m);
    go_on(m);
}

void moves_open(struct moves *m, struct loop *loop, const struct moves_user *user)
{
    *m = (struct moves){
        .user = user, .loop = loop, .most = MOVES_AT_ONCE, .last = &m->first, .step_time = MOVES_STEP};
    m->turn_end = (struct loop_task){.run = go_on, .context = m};
    loop_timer_open(&m->step, loop, on_step, m);
}

void moves_close(struct moves *m)
{
    loop_timer_close(&m->step);
}

struct move *moves_begin(struct moves *m, void *owner, const struct answer *answer)
{
    struct move *move = malloc(sizeof *move);

    if (move)
        *move = (struct move){.moves = m, .owner = owner, .answer = *answer};
    if (move)
        move->answer.target = (struct target){0};
    if (!move || !target_set(&move->answer.target, &answer->target)) {
        free(move);
        m->under_way++;
        return NULL;
    }
    LIST_APPEND(m->last, move);
    go_on_soon(m);
    return move;
}

void moves_end(struct moves *m)
{
    m->under_way--;
    m->ended++;
    go_on_soon(m);
    if (!m->first && m->under_way <= MOVES_AT_ONCE)
        m->most = MOVES_AT_ONCE;
}

void moves_drop(struct moves *m, struct move *move)
{
    bool waits = move->link;

    if (waits)
        unlink_move(m, move);
    if (!move->goes) /* a move whose `go` is running is freed afterwards */
        free_move(move);
    if (!waits)
        moves_end(m);
}
