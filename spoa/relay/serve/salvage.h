/* SPDX-License-Identifier: MIT */
/* salvage: what a salvager (spoa/service/keeper/salvager.h) does for a dead relay: it writes the tunnels that nobody was at work at into a memory file
 * (handover.h), for the next relay. */
#ifndef CELLGATE_RELAY_SERVE_SALVAGE_H
#define CELLGATE_RELAY_SERVE_SALVAGE_H

#include "spoa/relay/thread/relay_thread.h"
#include "spoa/service/keeper/keeper.h"

/* Writes the tunnels of these threads, none of which runs any more, and tells the board of the file and of what became of all tunnels. */
void salvage(struct relay_thread *const *threads, size_t count, struct keeper_board *board);

#endif
