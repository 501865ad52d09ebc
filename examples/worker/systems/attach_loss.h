/* SPDX-License-Identifier: MIT */
/*
 * attach_loss: what a client of OpenComputer's own worker loses when it attaches to a command, for --lossy-attach. That worker
 * fills its ring from the sandbox while its first client is attached already, and hands live output to each client through a
 * queue of 256 chunks that drops what does not fit; and it takes the snapshot before it subscribes, so what the command says in
 * between is in neither. Its ring is complete: a later client has all of it in front of `04`.
 */
#ifndef CELLGATE_WORKER_SYSTEMS_ATTACH_LOSS_H
#define CELLGATE_WORKER_SYSTEMS_ATTACH_LOSS_H

#include "examples/worker/bridge/bridge.h"

/* The client is attached. Returns true if it is the first one of that session at this worker: its replay comes after `04`. */
bool attach_loss_begin(struct bridge *b);
/* The snapshot was sent, and its `04`. */
void attach_loss_subscribe(struct bridge *b);
/* Sends a session's output in chunks of a line, but for those that are lost. replayed: they are of the ring. */
void attach_loss_send(struct bridge *b, int tag, struct slice bytes, bool replayed);

#endif
