/* SPDX-License-Identifier: MIT */
/* key_inbox: keys of sandboxes that other threads put in for one thread to look at. Bounded: then it is told to
 * look at all. */
#ifndef CELLGATE_AGENT_KEY_INBOX_H
#define CELLGATE_AGENT_KEY_INBOX_H

#include "spoa/lib/slice.h"

struct key_inbox;

struct key_inbox *key_inbox_new(void);        /* NULL when out of memory */
void key_inbox_free(struct key_inbox *inbox); /* NULL is fine */
/* Any thread. True: the inbox was empty, its thread has to be woken. */
bool key_inbox_put(struct key_inbox *inbox, struct slice key);
/* Empties it, calling `each` for every key; false: some did not fit, all have to be looked at. */
bool key_inbox_take(struct key_inbox *inbox, void (*each)(void *context, struct slice key), void *context);

#endif
