/* SPDX-License-Identifier: MIT */
#include "spoa/net/loop_thread.h"

#include <stdlib.h>

#include "spoa/base/os/thread.h"

struct loop_thread {
    struct loop *loop;
    pthread_t thread;
};

struct call {
    struct loop_task task;
    void (*run)(void *context);
    void *context;
    pthread_mutex_t lock;
    pthread_cond_t returned;
    bool done;
};

static void *run_loop_thread(void *context)
{
    loop_run(((struct loop_thread *)context)->loop);
    return NULL;
}

struct loop_thread *loop_thread_start(struct fail *why)
{
    struct loop_thread *t = calloc(1, sizeof *t);
    if (!t) {
        fail(why, "out of memory");
        return NULL;
    }
    t->loop = loop_new(why);
    if (t->loop && thread_start(&t->thread, run_loop_thread, t, why))
        return t;
    loop_free(t->loop);
    free(t);
    return NULL;
}

struct loop *loop_thread_loop(const struct loop_thread *t)
{
    return t->loop;
}

static void run_call(void *context)
{
    struct call *call = context;
    call->run(call->context);
    pthread_mutex_lock(&call->lock);
    call->done = true;
    pthread_cond_signal(&call->returned);
    pthread_mutex_unlock(&call->lock);
}

void loop_call(struct loop *loop, void (*called)(void *context), void *context)
{
    struct call call = {.run = called,
                        .context = context,
                        .lock = PTHREAD_MUTEX_INITIALIZER,
                        .returned = PTHREAD_COND_INITIALIZER};
    call.task = (struct loop_task){.run = run_call, .context = &call};
    loop_post(loop, &call.task);
    pthread_mutex_lock(&call.lock);
    while (!call.done)
        pthread_cond_wait(&call.returned, &call.lock);
    pthread_mutex_unlock(&call.lock);
    pthread_mutex_destroy(&call.lock); /* run_call has released it: this thread could take it */
    pthread_cond_destroy(&call.returned);
}

void loop_thread_call(struct loop_thread *t, void (*called)(void *context), void *context)
{
    loop_call(t->loop, called, context);
}

static void stop(void *loop)
{
    loop_stop(loop);
}

void loop_thread_stop(struct loop_thread *t)
{
    if (!t)
        return;
    loop_thread_call(t, stop, t->loop);
    pthread_join(t->thread, NULL);
    loop_free(t->loop);
    free(t);
}
