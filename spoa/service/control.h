/* SPDX-License-Identifier: MIT */
/*
 * control: the operator's commands over a Unix socket. Its mode, 0600, is the only authentication. A connection carries one line of
 * JSON each way:
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

/* One command. */
struct control_command {
    const char *name;
    /* Runs the command, and appends members of the answer's object, each with a comma in front (",\"tunnels\":3"), or nothing. Returns
     * false with *why, which is the answer's error. */
    bool (*run)(void *context, const struct json *doc, const json_node *request, struct buffer *members,
                struct fail *why);
    void *context;
};

enum {
    CONTROL_REQUEST_MAX = 64 << 10,
    CONTROL_MEMBERS_MAX = 32 << 20
}; /* bytes of a request; of an answer's members */

struct control;
/* Serves `commands` on `listener`, which it takes over in any case. The commands must outlive the result. Returns NULL if memory is
 * short. */
struct control *control_new(struct loop *loop, int listener, const struct control_command *commands,
                            size_t count) MUST_CHECK;
/* Closes the listener and its connections; NULL is fine. */
void control_free(struct control *control);

/* Writes the answer to one request. Returns false if `bytes` do not hold a whole line yet. */
bool control_respond(const struct control_command *commands, size_t count, struct slice bytes,
                     struct buffer *answer) MUST_CHECK;

/* Sends a command and waits for the answer, at most `patience` [µs] in all. `request` is one line of JSON without its end; the answer is
 * appended to *answer without its end. Returns false with *why and errno; ETIMEDOUT means that nobody has answered. */
bool control_ask(const struct net_address *address, struct slice request, uint64_t patience,
                 struct buffer *answer, struct fail *why) MUST_CHECK;

#endif
