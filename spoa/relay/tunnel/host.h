/* SPDX-License-Identifier: MIT */
/* host: the call-backs and settings that a tunnel's owner gives to the tunnel and its parts. */
#ifndef CELLGATE_RELAY_TUNNEL_HOST_H
#define CELLGATE_RELAY_TUNNEL_HOST_H

#include "spoa/relay/tunnel/command.h"
#include "spoa/relay/tunnel/redial.h"

/* Call-backs for the time of an event. A call-back must not call the tunnel. */
struct tunnel_host {
    /* Sends as much as the socket takes and returns the number of bytes. A run with a NULL address stands for bytes in the pipe of this
     * tunnel's client. */
    size_t (*send)(void *io, enum side to, const struct slice *runs, size_t count);
    /* Reads the next `len` of the bytes that tunnel_unseen announced. */
    void (*peel)(void *io, uint8_t *to, size_t len);
    /* Puts a head and then the next `len` announced bytes into the client's pipe. Returns the number of bytes that did not fit; the host
     * has read those too, and the next `gather` returns them. Returns SIZE_MAX if not even the head fit; nothing was done then. */
    size_t (*pipe)(void *io, struct slice head, size_t len);
    /* Moves `len` bytes from the client's pipe to `to`; the tunnel sends them from memory. */
    void (*gather)(void *io, uint8_t *to, size_t len);
    /* Returns the number of further bytes that the process's memory lets this tunnel hold. `whole` is true if held bytes can only be freed
     * after more has arrived: a message that is acknowledged as one, a replay, or output before an acknowledgement. `grows` is the size
     * (bytes) of the buffer that receives the data. */
    size_t (*may_hold)(void *io, bool whole, size_t grows);
    /* Returns true if this tunnel may collect its worker's replay now; the permit lasts as long as the tunnel has this worker. */
    bool (*permits_replay)(void *io);
    uint32_t (*random)(void *io); /* unpredictable value for masks (RFC 6455 section 5.3) */
    struct commands *commands;
};

struct tunnel_limits { /* limits of a route, in µs and bytes; 0 means unlimited */
    uint64_t hold, idle, max_age, max_message;
};

struct tunnel_settings {
    struct tunnel_limits limits; /* limits that apply if the handover sets none */
    uint64_t keepalive, dead_after, stall, grace_period, close_timeout, connect_budget, migration_budget;
    size_t buffer; /* most bytes that are held for one leg */
    bool rechecks; /* true if the owner carries out COMMAND_RECHECK */
    struct redial_settings redial;
};

/* The surroundings of one tunnel. */
struct tunnel_place {
    const struct tunnel_host *host;
    void *io; /* first argument of the call-backs */
    const struct tunnel_settings *settings;
};

static inline void place_put(const struct tunnel_place *place, enum command_kind kind)
{
    commands_put(place->host->commands, &(struct command){.kind = kind});
}

static inline uint32_t place_random(const struct tunnel_place *place)
{
    return place->host->random(place->io);
}

#endif
