/* SPDX-License-Identifier: MIT */
#include "spoa/agent/decision_thread/mailbox.h"

#include <pthread.h>
#include <stdlib.h>

#include "spoa/base/table/hash.h"
#include "spoa/base/table/hash_table.h"

enum { KEYS_MOST = 16384 };

struct item {
    struct hash_node node; /* must be the first member */
    struct item *next;
    size_t len;
    uint8_t key[];
};

struct mailbox {
    struct hash_secret secret;
    pthread_mutex_t lock; /* guards the members below */
    struct item *first, **last;
    struct hash_table known;
    bool lost;
};

struct mailbox *mailbox_new(void)
{
    struct mailbox *inbox = calloc(1, sizeof *inbox);
    if (!inbox || !hash_secret_init(&inbox->secret)) {
        free(inbox);
        return NULL;
    }
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

void mailbox_free(struct mailbox *inbox)
{
    if (!inbox)
        return;
    free_items(inbox->first);
    hash_table_free(&inbox->known);
    pthread_mutex_destroy(&inbox->lock);
    free(inbox);
}

/* ---- with the lock held ---- */

static bool is_known(const struct mailbox *inbox, uint64_t hash, struct slice key)
{
    for (struct hash_node *node = hash_table_find(&inbox->known, hash); node; node = hash_table_next(node)) {
        const struct item *item = (const struct item *)node;
        if (slice_equal(slice_of(item->key, item->len), key))
            return true;
    }
    return false;
}

static bool keep_key(struct mailbox *inbox, uint64_t hash, struct slice key)
{
    struct item *item = inbox->known.count < KEYS_MOST ? malloc(sizeof *item + key.len) : NULL;
    if (!item)
        return false;
    *item = (struct item){.len = key.len};
    memcpy(item->key, key.at, key.len);
    if (!hash_table_insert(&inbox->known, &item->node, hash)) {
        free(item);
        return false;
    }
    *inbox->last = item;
    inbox->last = &item->next;
    return true;
}

/* ---- */

bool mailbox_put(struct mailbox *inbox, struct slice key)
{
    if (key.len > MAILBOX_KEY)
        return false;
    uint64_t hash = hash_keyed(&inbox->secret, key);
    pthread_mutex_lock(&inbox->lock);
    bool was_empty = !inbox->first && !inbox->lost;
    if (!inbox->lost && !is_known(inbox, hash, key))
        inbox->lost = !keep_key(inbox, hash, key);
    pthread_mutex_unlock(&inbox->lock);
    return was_empty;
}

bool mailbox_lost(struct mailbox *inbox)
{
    struct item *items = NULL;
    pthread_mutex_lock(&inbox->lock);
    bool lost = inbox->lost;
    if (lost) {
        items = inbox->first;
        inbox->first = NULL;
        inbox->last = &inbox->first;
        hash_table_free(&inbox->known);
        inbox->lost = false;
    }
    pthread_mutex_unlock(&inbox->lock);
    free_items(items);
    return lost;
}

bool mailbox_take(struct mailbox *inbox, uint8_t memory[MAILBOX_KEY], struct slice *key)
{
    pthread_mutex_lock(&inbox->lock);
    struct item *item = inbox->first;
    if (item) {
        inbox->first = item->next;
        if (!item->next)
            inbox->last = &inbox->first;
        hash_table_remove(&inbox->known, &item->node);
    }
    pthread_mutex_unlock(&inbox->lock);
    if (!item)
        return false;
    memcpy(memory, item->key, item->len);
    *key = slice_of(memory, item->len);
    free(item);
    return true;
}
