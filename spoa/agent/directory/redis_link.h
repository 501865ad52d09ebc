/* SPDX-License-Identifier: MIT */
/*
 * redis_link: one connection to a Redis server that restores itself. The link resolves the server's name, connects, authenticates,
 * selects the database and subscribes if it has a channel. It sends a PING if nothing was received for a while, and starts
 * again after a jittered pause if anything fails. For one loop's thread.
 *
 * Commands are answered in order. The link ends a connection on which an answer is due for `timeout` and nothing is received, or on
 * which anything but the protocol is received. As long as answers come, commands may wait for theirs however many they are.
 */
#ifndef CELLGATE_AGENT_DIRECTORY_REDIS_LINK_H
#define CELLGATE_AGENT_DIRECTORY_REDIS_LINK_H

#include "spoa/net/dns.h"
#include "spoa/net/net.h"
#include "spoa/proto/resp.h"

/* The address of a server. */
struct redis_server {
    struct net_address address; /* len 0: `host` is a name to resolve */
    struct slice host;
    uint16_t port;
};

/* Reads "HOST:PORT", "[IPv6]:PORT" or "unix@PATH"; slices of *server point into the text. Returns false with *why. */
bool redis_server_parse(struct slice text, struct redis_server *server, struct fail *why) MUST_CHECK;

struct redis_link;

struct redis_link_options { /* the link copies them; texts are borrowed while it lives */
    struct loop *loop;
    struct dns *dns;
    struct redis_server server;
    const char *user, *password_file; /* or NULL; the file is read for every connection */
    int64_t database;                 /* number for SELECT */
    struct slice channel;             /* channel to subscribe to; absent: the link is for commands */
    uint64_t timeout; /* maximum time until a connection is ready, and until the next answer [µs] */

    /* The link is ready for commands, or subscribed. */
    void (*ready)(void *context);
    /* A message was published on the channel. */
    void (*message)(void *context, struct slice message);
    /* A connection was lost, or an attempt failed; all commands were replied to before. `why` holds no secret. */
    void (*lost)(void *context, const char *why);
    void *context;
};

/* A command in flight. The memory belongs to the caller, and must live until `replied`. */
struct redis_command {
    /* Takes the reply, or NULL if the connection was lost. The command's memory may be freed here. */
    void (*replied)(struct redis_command *command, const struct resp *reply);
    struct redis_command *next; /* private */
};

/* Returns a link that begins to connect in the loop's next turn, or NULL if memory is short. */
struct redis_link *redis_link_new(const struct redis_link_options *options) MUST_CHECK;
/* Replies to the commands in flight with NULL and frees the link. Free the dns first. NULL is fine. */
void redis_link_free(struct redis_link *link);
/* Sends a command. Returns false, and will not reply, if the link is not ready or too much is in flight. */
bool redis_link_send(struct redis_link *link, const struct slice *words, size_t count,
                     struct redis_command *command) MUST_CHECK;
/* Returns whether the link is ready for commands, or subscribed. */
bool redis_link_ready(const struct redis_link *link);
/* Returns whether the link waits for its next attempt after a failed one. */
bool redis_link_pausing(const struct redis_link *link);

#endif
