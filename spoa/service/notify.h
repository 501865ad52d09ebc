/* SPDX-License-Identifier: MIT */
/*
 * notify: reports the daemon's state to the service manager (sd_notify(3): datagrams to $NOTIFY_SOCKET). Without a manager nothing
 * happens. Never blocks. For one thread.
 */
#ifndef CELLGATE_SERVICE_NOTIFY_H
#define CELLGATE_SERVICE_NOTIFY_H

#include <stdbool.h>

#include "spoa/base/os/fail.h"

/* Opens the socket; call it at the start, so that later reports need no descriptor. Returns false with *why. */
bool notify_open(struct fail *why) MUST_CHECK;
/* Returns the descriptor that notify_open has opened, or -1. */
int notify_descriptor(void);
/* Report a state; `status` is one line for operators, or NULL. They return false if there is a manager and the report could not be sent. */
bool notify_ready(const char *status);
bool notify_reloading(void); /* must be followed by notify_ready */
bool notify_stopping(const char *status);

#endif
