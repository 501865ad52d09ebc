/* SPDX-License-Identifier: MIT */
/*
 * notify: tells the service manager how the daemon is (sd_notify(3): datagrams to $NOTIFY_SOCKET). Without
 * such a manager nothing happens. Never blocks.
 */
#ifndef CELLGATE_SERVICE_NOTIFY_H
#define CELLGATE_SERVICE_NOTIFY_H

#include <stdbool.h>

#include "spoa/base/os/fail.h"

/* At the start, so that what is sent later needs no descriptor. All of this is for one thread. */
bool notify_open(struct fail *why);
/* Returns the descriptor that notify_open has opened, or -1. */
int notify_descriptor(void);
/* Each false when there is a manager and nothing could be sent to it. status: one line for people, may be NULL. */
bool notify_ready(const char *status);
bool notify_reloading(void); /* to be followed by notify_ready */
bool notify_stopping(const char *status);

#endif
