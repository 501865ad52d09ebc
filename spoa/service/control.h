/* SPDX-License-Identifier: MIT */
/*
 * control: the operator's commands over a Unix socket of mode 0600, which is all the authentication there is.
 * One connection carries one line of JSON each way:
 *
 *     {"command":"kick","id":"t-17"}
 *     {"ok":true, ...}   or   {"ok":false,"error":"there is no tunnel t-17"}
 */
#ifndef CELLGATE_SERVICE_CONTROL_H
#define CELLGATE_SERVICE_CONTROL_H

#include "spoa/base/bytes/buffer.h"
#include "spoa/base/json/json.h"
#include "spoa/net/loop.h"
#include "spoa/net/net.h"

struct control_command {
    const char *name;
    /* Appends members of the answer's object, each with a comma in front (",\"tunnels\":3"), or nothing.
     * False: why is the answer's error. */
    bool (*run)(void *context, const struct json *doc, const json_node *request, struct buffer *members,
                struct fail *why);
    void *context;
};

enum { CONTROL_REQUEST_MAX = 64 << 10, CONTROL_MEMBERS_MAX = 32 << 20 };

struct control;
/* Takes over the listener, also when it fails: NULL when out of memory. The commands must outlive it. */
struct control *control_new(struct loop *loop, int listener, const struct control_command *commands,
                            size_t count);
void control_free(struct control *control); /* NULL is fine */

/* The answer to one request, for control_new and for tests: true when `bytes` held a line. */
bool control_respond(const struct control_command *commands, size_t count, struct slice bytes,
                     struct buffer *answer);

/* For the operator's command: asks and waits, for at most `patience` microseconds in all. request: one line of JSON without
 * its end. *answer is appended to without the line's end. False: errno says why, too; ETIMEDOUT is nobody's answer. */
bool control_ask(const struct net_address *address, struct slice request, uint64_t patience,
                 struct buffer *answer, struct fail *why);

#endif
