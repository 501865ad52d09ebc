/* SPDX-License-Identifier: MIT */
/* mailbox: keys of sandboxes that other threads post for one thread to look at. A key in the mailbox is not added again, however often
 * it is posted. The size is bounded: after an overflow the thread must look at all keys. */
#ifndef CELLGATE_AGENT_DECISION_THREAD_MAILBOX_H
#define CELLGATE_AGENT_DECISION_THREAD_MAILBOX_H

#include "spoa/base/bytes/slice.h"

enum { MAILBOX_KEY = 255 }; /* longest key in bytes; no sandbox has a longer one */

struct mailbox;

struct mailbox *mailbox_new(void);        /* returns NULL if memory is short */
void mailbox_free(struct mailbox *inbox); /* inbox may be NULL */
/* For any thread. Returns true if the inbox was empty; the caller must then wake its thread. */
bool mailbox_put(struct mailbox *inbox, struct slice key);

/* Returns whether keys did not fit since the last call: all keys must then be looked at. In this case the inbox is empty. */
bool mailbox_lost(struct mailbox *inbox);
/* Takes the oldest key; returns false if there is none. */
bool mailbox_take(struct mailbox *inbox, uint8_t memory[MAILBOX_KEY], struct slice *key);

#endif
