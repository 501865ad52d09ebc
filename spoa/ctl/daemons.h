/* SPDX-License-Identifier: MIT */
/* daemons: queries the agent and the relay of this machine over their control sockets and prints their answers. */
#ifndef CELLGATE_CTL_DAEMONS_H
#define CELLGATE_CTL_DAEMONS_H

#include <stdio.h>

#include "spoa/base/bytes/buffer.h"
#include "spoa/base/json/json.h"
#include "spoa/net/net.h"

enum daemon { DAEMON_AGENT, DAEMON_RELAY };

const char *daemon_name(enum daemon daemon);
/* Finds the control socket of a daemon: `given`, or the configuration's if `given` is NULL. Returns false and sets *why on failure. */
bool daemon_address(enum daemon daemon, const char *given, const char *config, struct net_address *address,
                    struct fail *why);
/* Returns the answer's document; *answer, which the caller frees, holds its bytes. Returns NULL and sets *why if the answer has `"ok":
 * false`, or if no answer arrives within `patience` microseconds; *why then ends with advice for the operator. */
struct json *daemon_ask(enum daemon daemon, const struct net_address *address, struct slice request,
                        uint64_t patience, struct buffer *answer, struct fail *why);

/* Prints text that a worker or a client may have chosen: characters that are not visible become '?'. */
void daemon_put_text(FILE *to, struct slice text);
/* Prints a document and a line end; control characters are escaped. */
void daemon_put_json(FILE *to, struct slice document);

#endif
