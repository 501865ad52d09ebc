/* SPDX-License-Identifier: MIT */
/*
 * monitor: /livez, /readyz and /metrics for a kubelet and a Prometheus, on any address. Everybody there may read them, but
 * for the metrics if there is a token. What says more, or changes something, stays with the admin and control listeners.
 */
#ifndef CELLGATE_SERVICE_MONITOR_H
#define CELLGATE_SERVICE_MONITOR_H

#include "spoa/net/net.h"
#include "spoa/service/admin.h"

struct monitor_options {               /* borrowed while the monitor is there */
    const struct net_address *address; /* of length 0: there is to be none */
    const char *token_file;            /* NULL: none */
    const struct admin_page *pages;    /* of the admin listener: /metrics and /readyz are among them */
    size_t count;
};

struct monitor;
/* Listens. NULL in *monitor if there is to be none. False and *why: the address is taken, the token cannot be read, out of
 * memory. */
bool monitor_open(struct monitor **monitor, struct loop *loop, const struct monitor_options *options,
                  struct fail *why);
void monitor_close(struct monitor *monitor); /* NULL is fine */

#endif
