/* SPDX-License-Identifier: MIT */
#include "spoa/service/metric_names.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

static const char no_name[] = "", other_name[] = "other";

struct metric_names {
    pthread_mutex_t lock;
    size_t fixed, places;
    _Atomic(const char *) values[]; /* the fixed names, the places ("" while free), "other", NULL */
};

struct metric_names *metric_names_new(const char *const *fixed, size_t places)
{
    size_t count = 0;
    while (fixed[count])
        count++;
    struct metric_names *n = calloc(1, sizeof *n + (count + places + 2) * sizeof n->values[0]);
    if (!n)
        return NULL;
    pthread_mutex_init(&n->lock, NULL);
    n->fixed = count;
    n->places = places;
    for (size_t i = 0; i < count + places; i++)
        n->values[i] = i < count ? fixed[i] : no_name;
    n->values[count + places] = other_name;
    return n;
}

void metric_names_free(struct metric_names *n)
{
    if (!n)
        return;
    for (size_t i = n->fixed; i < n->fixed + n->places; i++)
        if (n->values[i] != no_name)
            free((char *)n->values[i]);
    pthread_mutex_destroy(&n->lock);
    free(n);
}

const char *const *metric_names_values(struct metric_names *n)
{
    return (const char *const *)(const void *)n->values;
}

unsigned metric_names_index(struct metric_names *n, struct slice name)
{
    size_t i = 0, end = n->fixed + n->places;
    pthread_mutex_lock(&n->lock);
    while (i < end && n->values[i] != no_name && !slice_is(name, n->values[i]))
        i++;
    if (i < end && n->values[i] == no_name) {
        char *copy = slice_dup(name);
        if (copy)
            atomic_store_explicit(&n->values[i], copy, memory_order_release);
        else
            i = end;
    }
    pthread_mutex_unlock(&n->lock);
    return (unsigned)i;
}
