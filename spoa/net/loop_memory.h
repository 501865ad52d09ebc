/* SPDX-License-Identifier: MIT */
/*
 * loop_memory: where libev's memory comes from. libev ends the process when it gets none, and with it every
 * connection that is open; so some is set aside while there is enough: for each of a few growths of its arrays
 * (they double), whatever their size. Once some of it had to be given out nobody new is let in (net_accept)
 * until it is whole again. One for the process; any thread.
 */
#ifndef CELLGATE_NET_LOOP_MEMORY_H
#define CELLGATE_NET_LOOP_MEMORY_H

#include <stdbool.h>

/* Before the first loop; again does nothing. False: out of memory. */
bool loop_memory_set_aside(void) __attribute__((warn_unused_result));
/* Whether all of it is there, or could be had just now. */
bool loop_memory_whole(void);

#endif
