/* SPDX-License-Identifier: MIT */
/*
 * arrival: a connection from HAProxy until its upgrade's head is there and was judged. What comes of it is a
 * port, or an error in JSON.
 */
#ifndef CELLGATE_RELAY_IO_ARRIVAL_H
#define CELLGATE_RELAY_IO_ARRIVAL_H

#include "spoa/relay/io/lane.h"

#define ARRIVALS_MOST 1024 /* of a lane; one more, and the oldest is closed */

/* Takes over fd. */
void arrival_begin(struct lane *lane, int fd);
/* Closes all of a lane. */
void arrivals_end(struct lane *lane);

#endif
