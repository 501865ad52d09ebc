/* SPDX-License-Identifier: MIT */
#include "spoa/agent/key_inbox.h"

#include <pthread.h>
#include <stdlib.h>

enum { KEYS_MOST = 16384 };

struct item {
    struct item *next;
    size_t len;
    uint8_t key[];
};

struct key_inbox {
    pthread_mutex_t lock;
    struct item *first, **last;
    size_t count;
    bool lost;
};

struct key_inbox *key_inbox_new(void)
{
    struct key_inbox *inbox = calloc(1, sizeof *inbox);
    if (!inbox)
        return NULL;
    inbox->last = &inbox->first;
    pthread_mutex_init(&inbox->lock, NULL);
    return inbox;
}

static void free_items(struct item *item)
{
    while (item) {
        struct item *next = item->next;
        free(item);
        item = next;
    }
}

void key_inbox_free(struct key_inbox *inbox)
{
    if (!inbox)
        return;
    free_items(inbox->first);
    pthread_mutex_destroy(&inbox->lock);
    free(inbox);
}

bool key_inbox_put(struct key_inbox *inbox, struct slice key)
{
    struct item *item = malloc(sizeof *item + key.len);
    if (item) {
        *item = (struct item){.len = key.len};
        memcpy(item->key, key.at, key.len);
    }
    pthread_mutex_lock(&inbox->lock);
    bool was_empty = inbox->count == 0 && !inbox->lost, kept = item && inbox->count < KEYS_MOST;
    if (kept) {
        *inbox->last = item;
        inbox->last = &item->next;
        inbox->count++;
    } else {
        inbox->lost = true;
    }
    pthread_mutex_unlock(&inbox->lock);
    if (!kept)
        free(item);
    return was_empty;
}

bool key_inbox_take(struct key_inbox *inbox, void (*each)(void *context, struct slice key), void *context)
{
    pthread_mutex_lock(&inbox->lock);
    struct item *items = inbox->first;
    bool complete = !inbox->lost;
    inbox->first = NULL;
    inbox->last = &inbox->first;
    inbox->count = 0;
    inbox->lost = false;
    pthread_mutex_unlock(&inbox->lock);
    for (const struct item *item = items; item; item = item->next)
        each(context, slice_of(item->key, item->len));
    free_items(items);
    return complete;
}
