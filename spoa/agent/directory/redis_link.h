/* SPDX-License-Identifier: MIT */
/*
 * redis_link: one connection to a Redis server that keeps itself up: finds the server's address, connects,
 * authenticates, chooses the database, subscribes if it is to, asks for a sign of life when nothing was said
 * for a while, and begins anew after a jittered pause whenever any of this fails. For one loop's thread.
 *
 * Commands are answered in order. A server that owes answers and gives none for `timeout` ends the connection; so does
 * anything that is not the protocol. While answers come the others are waited for, however many they are.
 */
#ifndef CELLGATE_AGENT_DIRECTORY_REDIS_LINK_H
#define CELLGATE_AGENT_DIRECTORY_REDIS_LINK_H

#include "spoa/net/dns.h"
#include "spoa/net/net.h"
#include "spoa/proto/resp.h"

struct redis_server {
    struct net_address address; /* len 0: host is a name to look up */
    struct slice host;
    uint16_t port;
};

/* "HOST:PORT", "[IPv6]:PORT" or "unix@PATH"; slices point into the text. */
bool redis_server_parse(struct slice text, struct redis_server *server, struct fail *why);

struct redis_link;

struct redis_link_options { /* borrowed while the link lives */
    struct loop *loop;
    struct dns *dns;
    struct redis_server server;
    const char *user, *password_file; /* NULL: none; the file is read for every connection */
    int64_t database;
    struct slice channel; /* to subscribe to; absent: the link is for commands */
    uint64_t timeout;     /* microseconds: for a connection until it is ready, and for the next answer */

    void (*ready)(void *context);
    void (*message)(void *context, struct slice message); /* on the channel */
    /* Also for each failed attempt; commands got no reply before. why holds no secret. */
    void (*lost)(void *context, const char *why);
    void *context;
};

/* Lives in whoever asks until it is replied to. */
struct redis_command {
    /* NULL: the connection was lost. The command may be freed here. */
    void (*replied)(struct redis_command *command, const struct resp *reply);
    struct redis_command *next;
};

/* Begins to connect in the loop's next turn. NULL when out of memory. */
struct redis_link *redis_link_new(const struct redis_link_options *options);
/* Commands in flight are replied to with NULL. The dns is freed first. NULL is fine. */
void redis_link_free(struct redis_link *link);
/* False: the link is not ready, or too much is in flight already; nothing follows. */
bool redis_link_send(struct redis_link *link, const struct slice *words, size_t count,
                     struct redis_command *command);
bool redis_link_ready(const struct redis_link *link);
/* It is between two attempts, the last of which failed. */
bool redis_link_pausing(const struct redis_link *link);

#endif
