/* SPDX-License-Identifier: MIT */
#include "spoa/relay/io/moves.h"

#include <stdlib.h>

static void unlink_move(struct moves *m, struct move *move)
{
    *move->link = move->next;
    if (move->next)
        move->next->link = move->link;
    else
        m->last = move->link;
}

static void free_move(struct move *move)
{
    target_free(&move->answer.target);
    free(move);
}

/* One that ends within its turn makes room for the next one of this same round. */
static void go_on(void *context)
{
    struct moves *m = context;

    while (m->first && m->under_way < m->most) {
        struct move *move = m->first;
        m->under_way++;
        unlink_move(m, move);
        m->go(move->owner, &move->answer);
        free_move(move);
    }
}

static void on_step(void *owner)
{
    struct moves *m = owner;

    if (m->ended < MOVES_AT_ONCE)
        m->most += MOVES_AT_ONCE;
    else if (m->most > MOVES_AT_ONCE)
        m->most -= MOVES_AT_ONCE;
    m->ended = 0;
    if (m->first)
        loop_timer_set(&m->step, MOVES_STEP);
    go_on(m);
}

void moves_open(struct moves *m, struct loop *loop, void (*go)(void *owner, const struct answer *answer))
{
    *m = (struct moves){.loop = loop, .most = MOVES_AT_ONCE, .last = &m->first, .go = go};
    m->turn_end = (struct loop_task){.run = go_on, .context = m};
    loop_timer_open(&m->step, loop, on_step, m);
}

void moves_close(struct moves *m)
{
    loop_timer_close(&m->step);
}

static struct move *put(struct moves *m, void *owner, const struct answer *answer)
{
    struct move *move = malloc(sizeof *move);

    if (!move)
        return NULL;
    *move = (struct move){.link = m->last, .owner = owner, .answer = *answer};
    move->answer.target = (struct target){0};
    if (!target_set(&move->answer.target, &answer->target)) {
        free(move);
        return NULL;
    }
    *m->last = move;
    m->last = &move->next;
    if (!loop_timer_active(&m->step)) {
        m->ended = 0;
        loop_timer_set(&m->step, MOVES_STEP);
    }
    return move;
}

struct move *moves_begin(struct moves *m, void *owner, const struct answer *answer)
{
    struct move *move = m->under_way < m->most ? NULL : put(m, owner, answer);

    m->under_way += !move;
    return move;
}

void moves_end(struct moves *m)
{
    m->under_way--;
    m->ended++;
    if (m->first)
        loop_defer(m->loop, &m->turn_end);
    else if (m->under_way <= MOVES_AT_ONCE)
        m->most = MOVES_AT_ONCE;
}

void moves_drop(struct moves *m, struct move *move)
{
    unlink_move(m, move);
    free_move(move);
}
