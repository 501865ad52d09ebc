/* SPDX-License-Identifier: MIT */
/*
 * loop_memory: a reserve for libev's memory. libev ends the process if it gets no memory, and every open connection would end with it. So
 * a few blocks are set aside while there is enough: one for each array of libev that may have to grow. A block has twice the largest
 * size so far, because these arrays double. Once a block is given out, no new connection is accepted (net_accept) until the reserve is
 * whole again. One reserve for the process; any thread may use it.
 */
#ifndef CELLGATE_NET_LOOP_MEMORY_H
#define CELLGATE_NET_LOOP_MEMORY_H

#include <stdbool.h>

#include "spoa/base/bytes/must_check.h"

/* Fills the reserve. Call before the first loop; later calls only check it. Returns false if memory is short. */
bool loop_memory_set_aside(void) MUST_CHECK;
/* Returns true if the reserve is whole, or could be refilled just now. */
bool loop_memory_whole(void);

#endif
