/* SPDX-License-Identifier: MIT */
/* mailbox: keys of sandboxes that other threads put in for one thread to look at. A key that is in there is put in
 * once, however often it is posted. Bounded: then its thread has to look at all. */
#ifndef CELLGATE_AGENT_DECISION_THREAD_MAILBOX_H
#define CELLGATE_AGENT_DECISION_THREAD_MAILBOX_H

#include "spoa/base/bytes/slice.h"

enum { MAILBOX_KEY = 255 }; /* a longer key is nobody's */

struct mailbox;

struct mailbox *mailbox_new(void);        /* NULL when out of memory */
void mailbox_free(struct mailbox *inbox); /* NULL is fine */
/* Any thread. True: the inbox was empty, its thread has to be woken. */
bool mailbox_put(struct mailbox *inbox, struct slice key);

/* Whether some did not fit since this was asked last: all have to be looked at. The inbox is empty then. */
bool mailbox_lost(struct mailbox *inbox);
/* Takes the oldest; false: there is none. */
bool mailbox_take(struct mailbox *inbox, uint8_t memory[MAILBOX_KEY], struct slice *key);

#endif
