/* SPDX-License-Identifier: MIT */
#include "spoa/relay/mux_io/mux_sessions.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "spoa/base/table/hash.h"
#include "spoa/relay/thread/relay_thread.h"

struct mux_sessions {
    pthread_mutex_t lock;
    struct hash_secret secret;
    struct hash_table table;
};

struct mux_sessions *mux_sessions_new(void)
{
    struct mux_sessions *s = calloc(1, sizeof *s);
    if (!s || !hash_secret_init(&s->secret)) {
        free(s);
        return NULL;
    }
    pthread_mutex_init(&s->lock, NULL);
    return s;
}

void mux_sessions_free(struct mux_sessions *s)
{
    if (!s)
        return;
    hash_table_free(&s->table);
    pthread_mutex_destroy(&s->lock);
    free(s);
}

/* The caller must hold s->lock. */
static struct mux_session *find(const struct mux_sessions *s, struct slice id)
{
    struct hash_node *node = hash_table_find(&s->table, hash_keyed(&s->secret, id));
    while (node &&
           !slice_equal_constant_time(slice_of(((struct mux_session *)node)->id, CELL_RESUME_ID_LEN), id))
        node = hash_table_next(node);
    return (struct mux_session *)node; /* the node is the first member of a session */
}

bool mux_sessions_add(struct mux_sessions *s, struct mux_session *session, struct slice id,
                      struct relay_thread *thread)
{
    pthread_mutex_lock(&s->lock);
    memcpy(session->id, id.at, sizeof session->id);
    bool added = !find(s, id) && hash_table_insert(&s->table, &session->node, hash_keyed(&s->secret, id));
    session->thread = added ? thread : NULL;
    pthread_mutex_unlock(&s->lock);
    return added;
}

void mux_sessions_remove(struct mux_sessions *s, struct mux_session *session)
{
    if (!session->thread)
        return;
    pthread_mutex_lock(&s->lock);
    hash_table_remove(&s->table, &session->node);
    pthread_mutex_unlock(&s->lock);
    session->thread = NULL;
}

/* The task is posted under the lock, because a thread removes its sessions from the table before it ends. */
bool mux_sessions_post(struct mux_sessions *s, struct slice id, struct loop_task *task,
                       struct relay_thread **thread)
{
    pthread_mutex_lock(&s->lock);
    struct mux_session *found = find(s, id);
    if (found) {
        *thread = found->thread;
        loop_post(found->thread->loop, task);
    }
    pthread_mutex_unlock(&s->lock);
    return found;
}

struct mux_session *mux_sessions_find(struct mux_sessions *s, struct slice id,
                                      const struct relay_thread *thread)
{
    pthread_mutex_lock(&s->lock);
    struct mux_session *found = find(s, id);
    bool here = found && found->thread == thread;
    pthread_mutex_unlock(&s->lock);
    return here ? found : NULL;
}
