/* SPDX-License-Identifier: MIT */
/* daemons: asks the agent and the relay of this machine over their control sockets, and shows what they say. */
#ifndef CELLGATE_CTL_DAEMONS_H
#define CELLGATE_CTL_DAEMONS_H

#include <stdio.h>

#include "spoa/base/bytes/buffer.h"
#include "spoa/base/json/json.h"
#include "spoa/net/net.h"

enum daemon { DAEMON_AGENT, DAEMON_RELAY };

const char *daemon_name(enum daemon daemon);
/* Of its control socket: `given`, or where there is none that of the configuration. False and *why. */
bool daemon_address(enum daemon daemon, const char *given, const char *config, struct net_address *address,
                    struct fail *why);
/* The answer's document; *answer, which the caller frees, has its bytes. NULL and *why: there is none within `patience`
 * microseconds, then *why ends with what an operator does about it, or it says `"ok": false`. */
struct json *daemon_ask(enum daemon daemon, const struct net_address *address, struct slice request,
                        uint64_t patience, struct buffer *answer, struct fail *why);

/* A worker or a client may have chosen a part of the text: what is no character that can be seen is a '?'. */
void daemon_put_text(FILE *to, struct slice text);
/* A document and a line's end; what a terminal would obey is escaped. */
void daemon_put_json(FILE *to, struct slice document);

#endif
