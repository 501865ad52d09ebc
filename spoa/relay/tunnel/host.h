/* SPDX-License-Identifier: MIT */
/*
 * host: what a tunnel and its parts are given: what they ask of their owner while they work on an event, and settings.
 */
#ifndef CELLGATE_RELAY_TUNNEL_HOST_H
#define CELLGATE_RELAY_TUNNEL_HOST_H

#include "spoa/relay/tunnel/command.h"
#include "spoa/relay/tunnel/redial.h"

/* None of these may call the tunnel. */
struct tunnel_host {
    /* Sends what can be sent now. A run that is nowhere is of the pipe that the host has for this tunnel's client. */
    size_t (*send)(void *io, enum side to, const struct slice *runs, size_t count);
    /* Of the bytes that were told by tunnel_unseen, the next ones. */
    void (*peel)(void *io, uint8_t *to, size_t len);
    /* Puts a head into the client's pipe, and behind it so many of these bytes. How many of them did not fit, which are taken
     * all the same and come next when it is gathered; SIZE_MAX: not even the head did, nothing was done. */
    size_t (*pipe)(void *io, struct slice head, size_t len);
    /* Takes so many bytes out of the client's pipe: they go on from memory. */
    void (*gather)(void *io, uint8_t *to, size_t len);
    /* How many more bytes the memory of the process lets this tunnel hold. whole: what it holds cannot be given back
     * before more has come: a message that is acknowledged as one, a replay, what stands in front of an acknowledgement.
     * grows: bytes that the buffer has taken into which it comes. */
    size_t (*may_hold)(void *io, bool whole, size_t grows);
    /* Whether this tunnel may collect what its worker replays now; then it may for as long as it has this worker. */
    bool (*permits_replay)(void *io);
    uint32_t (*random)(void *io); /* unpredictable: masks (RFC 6455 section 5.3) */
    struct commands *commands;
};

struct tunnel_limits { /* of its route; 0: none */
    uint64_t hold, idle, max_age, max_message;
};

struct tunnel_settings {
    struct tunnel_limits limits; /* where the handover has none */
    uint64_t keepalive, dead_after, stall, grace_period, close_timeout, connect_budget, migration_budget;
    size_t buffer; /* bytes held for one leg */
    bool rechecks; /* the owner carries out COMMAND_RECHECK */
    struct redial_settings redial;
};

/* The surroundings of one tunnel. */
struct tunnel_place {
    const struct tunnel_host *host;
    void *io; /* for its functions */
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
