/* SPDX-License-Identifier: MIT */
/* key_inbox: keys of sandboxes that other threads put in for one thread to look at. A key that is in there is put in
 * once, however often it is told. Bounded: then its thread has to look at all. */
#ifndef CELLGATE_AGENT_SERVE_KEY_INBOX_H
#define CELLGATE_AGENT_SERVE_KEY_INBOX_H

#include "spoa/base/slice.h"

enum { KEY_INBOX_KEY = 255 }; /* a longer key is nobody's */

struct key_inbox;

struct key_inbox *key_inbox_new(void);        /* NULL when out of memory */
void key_inbox_free(struct key_inbox *inbox); /* NULL is fine */
/* Any thread. True: the inbox was empty, its thread has to be woken. */
bool key_inbox_put(struct key_inbox *inbox, struct slice key);

/* Whether some did not fit since this was asked last: all have to be looked at. The inbox is empty then. */
bool key_inbox_lost(struct key_inbox *inbox);
/* Takes the oldest; false: there is none. */
bool key_inbox_take(struct key_inbox *inbox, uint8_t memory[KEY_INBOX_KEY], struct slice *key);

#endif
