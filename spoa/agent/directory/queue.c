/* SPDX-License-Identifier: MIT */
#include "spoa/agent/directory/queue.h"

#include <pthread.h>
#include <stdlib.h>

#include "spoa/base/table/hash.h"

struct directory_queue {
    pthread_mutex_t lock; /* guards what follows */
    struct fair *fair;
    struct hash_secret secret;
    struct hash_table waiting; /* questions, by their keys */
    bool stopped;
};

struct directory_queue *directory_queue_new(const struct fair_limits *limits)
{
    struct directory_queue *queue = calloc(1, sizeof *queue);
    if (!queue)
        return NULL;
    pthread_mutex_init(&queue->lock, NULL);
    if (hash_secret_init(&queue->secret) && (queue->fair = fair_new(limits)))
        return queue;
    directory_queue_free(queue);
    return NULL;
}

void directory_queue_free(struct directory_queue *queue)
{
    if (!queue)
        return;
    free(queue->fair);
    hash_table_free(&queue->waiting);
    pthread_mutex_destroy(&queue->lock);
    free(queue);
}

/* ---- with the lock held ---- */

static struct directory_question *find(const struct directory_queue *queue, struct slice key)
{
    struct hash_node *n = hash_table_find(&queue->waiting, hash_keyed(&queue->secret, key));
    for (; n; n = hash_table_next(n)) {
        struct directory_question *q =
            (struct directory_question *)(void *)((char *)n - offsetof(struct directory_question, node));
        if (slice_equal(q->key, key))
            return q;
    }
    return NULL;
}

/* Without memory nobody can join it: it goes on alone. */
static void list(struct directory_queue *queue, struct directory_question *q)
{
    q->listed = hash_table_insert(&queue->waiting, &q->node, hash_keyed(&queue->secret, q->key));
}

static void unlist(struct directory_queue *queue, struct directory_question *q)
{
    if (q->listed)
        hash_table_remove(&queue->waiting, &q->node);
    q->listed = false;
}

static struct fair_place *place_of(struct directory_question *q)
{
    return q->places[0].state == FAIR_OUT ? &q->places[1] : &q->places[0];
}

static bool has_place(const struct directory_question *q)
{
    return q->places[0].state != FAIR_OUT || q->places[1].state != FAIR_OUT;
}

static bool join(struct directory_queue *queue, struct directory_question *q, struct fair_owner owner)
{
    struct fair_place *first = &q->places[0], *joined = &q->places[1];
    if (fair_is_of(queue->fair, first, owner) || fair_is_of(queue->fair, joined, owner) ||
        !fair_has_room(queue->fair, owner, 1))
        return false;
    if (joined->state != FAIR_OUT && !fair_is_sooner(queue->fair, owner, joined))
        return false;
    fair_leave(queue->fair, joined);
    return fair_enter(queue->fair, joined, owner, 1, loop_clock());
}

/* ---- any thread ---- */

enum directory_ask directory_queue_put(struct directory_queue *queue, struct directory_question *q,
                                       struct fair_owner owner)
{
    enum directory_ask asked = ASK_REFUSED;
    q->places[0].of = q->places[1].of = q;
    pthread_mutex_lock(&queue->lock);
    if (!queue->stopped)
        asked = fair_enter(queue->fair, &q->places[0], owner, 1, q->asked) ? ASK_BEGUN : ASK_CROWDED;
    if (asked == ASK_BEGUN)
        list(queue, q);
    pthread_mutex_unlock(&queue->lock);
    return asked;
}

bool directory_queue_join(struct directory_queue *queue, struct slice key, struct fair_owner owner)
{
    pthread_mutex_lock(&queue->lock);
    struct directory_question *q = find(queue, key);
    bool joined = q && join(queue, q, owner);
    pthread_mutex_unlock(&queue->lock);
    return joined;
}

struct directory_question *directory_queue_next(struct directory_queue *queue)
{
    pthread_mutex_lock(&queue->lock);
    struct fair_place *place = fair_next(queue->fair);
    struct directory_question *q = place ? place->of : NULL;
    if (q) {
        fair_leave(queue->fair, place == &q->places[0] ? &q->places[1] : &q->places[0]);
        unlist(queue, q);
    }
    pthread_mutex_unlock(&queue->lock);
    return q;
}

struct directory_question *directory_queue_late(struct directory_queue *queue, uint64_t since)
{
    struct directory_question *late = NULL;
    struct fair_place *place;
    pthread_mutex_lock(&queue->lock);
    while (!late && (place = fair_oldest(queue->fair)) && place->since <= since) {
        struct directory_question *q = place->of;
        fair_leave(queue->fair, place);
        if (!has_place(q)) {
            unlist(queue, q);
            late = q;
        }
    }
    pthread_mutex_unlock(&queue->lock);
    return late;
}

void directory_queue_hold(struct directory_queue *queue, struct directory_question *q)
{
    pthread_mutex_lock(&queue->lock);
    fair_hold(queue->fair, place_of(q));
    pthread_mutex_unlock(&queue->lock);
}

void directory_queue_again(struct directory_queue *queue, struct directory_question *q)
{
    pthread_mutex_lock(&queue->lock);
    fair_again(queue->fair, place_of(q), loop_clock());
    list(queue, q);
    pthread_mutex_unlock(&queue->lock);
}

void directory_queue_leave(struct directory_queue *queue, struct directory_question *q)
{
    pthread_mutex_lock(&queue->lock);
    fair_leave(queue->fair, place_of(q));
    pthread_mutex_unlock(&queue->lock);
}

void directory_queue_stop(struct directory_queue *queue)
{
    pthread_mutex_lock(&queue->lock);
    queue->stopped = true;
    pthread_mutex_unlock(&queue->lock);
}

bool directory_queue_is_waiting(struct directory_queue *queue)
{
    pthread_mutex_lock(&queue->lock);
    bool waiting = fair_waiting(queue->fair) > 0;
    pthread_mutex_unlock(&queue->lock);
    return waiting;
}
