/* SPDX-License-Identifier: MIT */
/*
 * monitor: /livez, /readyz and /metrics for a kubelet and Prometheus, on any address. Everybody who reaches the listener may read
 * them, except that metrics may require a token. Pages that say more, or change something, are on the admin and control listeners.
 */
#ifndef CELLGATE_SERVICE_MONITOR_H
#define CELLGATE_SERVICE_MONITOR_H

#include "spoa/net/net.h"
#include "spoa/service/admin.h"

struct monitor_options {               /* the pages must outlive the monitor */
    const struct net_address *address; /* len 0 for no monitor */
    const char *token_file;            /* file of the token for /metrics, or NULL; the path is copied */
    const struct admin_page *pages;    /* pages of the admin listener, among them /metrics and /readyz */
    size_t count;
};

struct monitor;
/* Listens. *monitor is NULL if the address has len 0. Returns false with *why if the address cannot be used, the token cannot be read or
 * memory is short. */
bool monitor_open(struct monitor **monitor, struct loop *loop, const struct monitor_options *options,
                  struct fail *why) MUST_CHECK;
/* Closes the listener; NULL is fine. */
void monitor_close(struct monitor *monitor);

#endif
