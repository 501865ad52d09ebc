/* SPDX-License-Identifier: MIT */
#include "spoa/agent/directory/queue.h"

#include <pthread.h>
#include <stdlib.h>

#include "spoa/base/table/hash.h"

enum {
    JOINERS_MAX = 1024
}; /* maximum for one question, because all of them are removed at once when it is served */

struct directory_queue {
    pthread_mutex_t lock; /* guards all fields */
    struct fair *fair;
    struct hash_secret secret;
    struct hash_table waiting; /* waiting questions, by the keyed hash of their keys */
    struct hash_table joiners; /* by question and owner */
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
    hash_table_free(&queue->joiners);
    pthread_mutex_destroy(&queue->lock);
    free(queue);
}

/* ---- with the lock held ---- */

/* Returns the waiting question for `key`, or NULL. */
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

/* Makes the question visible to find. If memory is short, no other owner can join it, which is harmless. */
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

/* Another owner who waits for a question. `place` must be the first member. */
struct directory_joiner {
    struct fair_place place;
    struct fair_owner owner;
    struct directory_joiner *next, **link; /* neighbours in the question's list */
    struct hash_node node;
};

static uint64_t hash_of_joiner(const struct directory_queue *queue, const struct directory_question *q,
                               struct fair_owner owner)
{
    const uint64_t parts[] = {(uint64_t)(uintptr_t)q, owner.hash, owner.rank};
    return hash_keyed(&queue->secret, slice_of(parts, sizeof parts));
}

/* Removes a joiner from its question, and frees it. */
static void drop(struct directory_queue *queue, struct directory_joiner *j)
{
    struct directory_question *q = j->place.of;
    q->joined--;
    hash_table_remove(&queue->joiners, &j->node);
    fair_leave(queue->fair, &j->place);
    *j->link = j->next;
    if (j->next)
        j->next->link = j->link;
    free(j);
}

/* Returns the only place of a question that is being served or was set aside. */
static struct fair_place *place_of(struct directory_question *q)
{
    return q->joiners ? &q->joiners->place : &q->place;
}

/* Gives up all places of a question but `kept`, which may be NULL. */
static void give_up(struct directory_queue *queue, struct directory_question *q,
                    const struct fair_place *kept)
{
    struct directory_joiner *j = q->joiners;
    if (&q->place != kept)
        fair_leave(queue->fair, &q->place);
    while (j) {
        struct directory_joiner *next = j->next;
        if (&j->place != kept)
            drop(queue, j);
        j = next;
    }
}

/* Returns whether the owner has a place of the question. */
static bool is_in(const struct directory_queue *queue, const struct directory_question *q,
                  struct fair_owner owner)
{
    if (fair_is_of(queue->fair, &q->place, owner))
        return true;
    struct hash_node *n = hash_table_find(&queue->joiners, hash_of_joiner(queue, q, owner));
    for (; n; n = hash_table_next(n)) {
        const struct directory_joiner *j =
            (struct directory_joiner *)(void *)((char *)n - offsetof(struct directory_joiner, node));
        if (j->place.of == q && j->owner.hash == owner.hash && j->owner.rank == owner.rank)
            return true;
    }
    return false;
}

/* Gives `owner` a place of the question in its own line. Returns false if the owner has one, may have no more, or memory is short. */
static bool join(struct directory_queue *queue, struct directory_question *q, struct fair_owner owner)
{
    if (q->joined >= JOINERS_MAX || !fair_has_room(queue->fair, owner, 1) || is_in(queue, q, owner))
        return false;
    struct directory_joiner *j = calloc(1, sizeof *j);
    if (!j || !hash_table_insert(&queue->joiners, &j->node, hash_of_joiner(queue, q, owner))) {
        free(j);
        return false;
    }
    j->owner = owner;
    j->place.of = q;
    j->next = q->joiners;
    j->link = &q->joiners;
    if (j->next)
        j->next->link = &j->next;
    q->joiners = j;
    q->joined++;
    return fair_enter(queue->fair, &j->place, owner, 1, loop_clock());
}

/* ---- any thread ---- */

enum directory_ask directory_queue_put(struct directory_queue *queue, struct directory_question *q,
                                       struct fair_owner owner)
{
    enum directory_ask asked = ASK_REFUSED;
    q->place.of = q;
    pthread_mutex_lock(&queue->lock);
    if (!queue->stopped)
        asked = fair_enter(queue->fair, &q->place, owner, 1, q->asked) ? ASK_BEGUN : ASK_CROWDED;
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
        give_up(queue, q, place);
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
        if (place == &q->place)
            fair_leave(queue->fair, place);
        else
            drop(queue, (struct directory_joiner *)(void *)place);
        if (q->place.state == FAIR_OUT && !q->joiners) {
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
    give_up(queue, q, NULL);
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
