/* SPDX-License-Identifier: MIT */
#include "spoa/spop/client.h"

#include <stdlib.h>

#define LIMIT_MAX (1u << 20) /* questions in flight */
#define NO_PLACE  LIMIT_MAX
#define FRAME_ID  1 /* each stream-id has one NOTIFY; HAProxy uses this frame-id, too */

/* The place of a question in flight. Its stream-id is round * limit + index: the id finds the place, and is used only once. Each
 * tunnel that watches keeps a question open for its whole life, so a place is small. */
struct place {
    union {
        void *context;       /* while the place waits */
        uintptr_t next_free; /* index of the next free place, or NO_PLACE */
    };
    uint64_t round : 62; /* number of earlier questions in this place */
    bool waiting : 1;    /* a question is in flight */
    bool forgotten : 1;  /* the caller does not want its answer */
};

struct spop_client {
    enum { NEW, GREETED, OPEN, ENDED } state;
    size_t frame_size;       /* offered; agreed in state OPEN */
    unsigned limit, waiting; /* places, questions in flight */
    unsigned lost;           /* places that spop_client_lost has visited */
    unsigned free;           /* index of the first place that is free again, or NO_PLACE */
    /* places used so far; the memory of later ones was never touched, so the kernel has no pages for it */
    unsigned used;
    struct place places[];
};

struct spop_client *spop_client_new(unsigned limit)
{
    if (limit == 0 || limit > LIMIT_MAX)
        return NULL;
    struct spop_client *client = calloc(1, sizeof *client + limit * sizeof client->places[0]);
    if (!client)
        return NULL;
    client->limit = limit;
    client->free = NO_PLACE;
    return client;
}

void spop_client_free(struct spop_client *client)
{
    free(client);
}

void spop_client_hello(struct spop_client *client, const struct spop_offer *offer, struct writer *out)
{
    client->state = GREETED;
    client->frame_size = offer->frame_size;
    spop_offer_write(out, offer);
}

bool spop_client_ready(const struct spop_client *client)
{
    return client->state == OPEN && client->waiting < client->limit;
}

unsigned spop_client_waiting(const struct spop_client *client)
{
    return client->waiting;
}

/* ---- asking ---- */
/* Returns the place of a question in flight, or NULL if there is no such question. */
static struct place *place_of(struct spop_client *client, uint64_t id)
{
    struct place *place = &client->places[id % client->limit];
    return place->waiting && place->round == id / client->limit ? place : NULL;
}

static void release(struct spop_client *client, struct place *place)
{
    place->waiting = place->forgotten = false;
    place->round++;
    place->next_free = client->free;
    client->free = (unsigned)(place - client->places);
    client->waiting--;
}

bool spop_client_ask_begin(struct spop_client *client, struct slice message, void *context,
                           struct writer *out, struct spop_ask *ask)
{
    if (!spop_client_ready(client))
        return false;
    unsigned taken = client->free == NO_PLACE ? client->used++ : client->free;
    struct place *place = &client->places[taken];
    if (taken == client->free)
        client->free = (unsigned)place->next_free;
    ask->id = place->round * client->limit + taken;
    client->waiting++;
    place->waiting = true;
    place->context = context;
    ask->out = out;
    ask->frame = spop_frame_begin(out, SPOP_TYPE_NOTIFY, ask->id, FRAME_ID);
    ask->message = spop_message_begin(out, message);
    return true;
}

void spop_client_ask_arg(struct spop_ask *ask, struct slice name, struct spop_value value)
{
    spop_arg_write(ask->out, ask->message, name, value);
}

bool spop_client_ask_end(struct spop_client *client, struct spop_ask *ask)
{
    if (spop_frame_end(ask->out, ask->frame, client->frame_size))
        return true;
    release(client, place_of(client, ask->id));
    return false;
}

void spop_client_forget(struct spop_client *client, uint64_t id)
{
    struct place *place = place_of(client, id);
    if (place) {
        place->forgotten = true;
        place->context = NULL;
    }
}

bool spop_client_lost(struct spop_client *client, void **context)
{
    client->state = ENDED;
    while (client->lost < client->used) {
        struct place *place = &client->places[client->lost++];
        bool wanted = place->waiting && !place->forgotten;
        *context = wanted ? place->context : NULL;
        if (place->waiting)
            release(client, place);
        if (wanted)
            return true;
    }
    return false;
}

/* ---- frames of the agent ---- */
/* Ends the connection with a DISCONNECT, because the agent broke the protocol. */
static enum spop_client_step refuse(struct spop_client *client, enum spop_status status,
                                    struct spop_client_event *event, struct writer *out)
{
    client->state = ENDED;
    spop_disconnect_write(out, SPOP_TYPE_HAPROXY_DISCONNECT, status);
    event->status = status;
    return SPOP_CLIENT_ENDED;
}

static enum spop_client_step on_hello(struct spop_client *client, const struct spop_frame *frame,
                                      struct spop_client_event *event, struct writer *out)
{
    struct spop_agreement agreement;
    enum spop_status judged = spop_agreement_read(frame->payload, client->frame_size, &agreement);
    if (judged != SPOP_STATUS_NORMAL)
        return refuse(client, judged, event, out);
    client->state = OPEN;
    client->frame_size = agreement.frame_size;
    if (!agreement.pipelining)
        client->limit = 1;
    return SPOP_CLIENT_READY;
}

/* Returns SPOP_CLIENT_MORE for the answer to a forgotten question: other frames may follow it. */
static enum spop_client_step on_ack(struct spop_client *client, const struct spop_frame *frame,
                                    struct spop_client_event *event, struct writer *out)
{
    struct place *place = place_of(client, frame->stream_id);
    if (!place || frame->frame_id != FRAME_ID)
        return refuse(client, SPOP_STATUS_NO_FRAME, event, out);
    event->actions = reader_of(frame->flags & SPOP_ABORT ? slice_of(NULL, 0) : frame->payload);
    struct reader actions = event->actions;
    struct spop_action action;
    while (spop_action_next(&actions, &action))
        ;
    if (actions.failed)
        return refuse(client, SPOP_STATUS_INVALID, event, out);
    bool forgotten = place->forgotten;
    event->context = place->context;
    release(client, place);
    return forgotten ? SPOP_CLIENT_MORE : SPOP_CLIENT_ANSWER;
}

static enum spop_client_step judge_frame(struct spop_client *client, const struct spop_frame *frame,
                                         struct spop_client_event *event, struct writer *out)
{
    if (frame->type == SPOP_TYPE_UNSET || !(frame->flags & SPOP_FIN))
        return refuse(client, SPOP_STATUS_FRAGMENTED, event, out);
    if (frame->type == SPOP_TYPE_AGENT_DISCONNECT) {
        struct slice message;
        client->state = ENDED;
        if (!spop_disconnect_read(frame->payload, &event->status, &message))
            event->status = SPOP_STATUS_UNKNOWN;
        return SPOP_CLIENT_ENDED;
    }
    if (frame->type == SPOP_TYPE_AGENT_HELLO && client->state == GREETED)
        return on_hello(client, frame, event, out);
    if (frame->type == SPOP_TYPE_ACK && client->state == OPEN)
        return on_ack(client, frame, event, out);
    return refuse(client, SPOP_STATUS_INVALID, event, out);
}

enum spop_client_step spop_client_next(struct spop_client *client, struct slice *in,
                                       struct spop_client_event *event, struct writer *out)
{
    event->need = 0;
    while (client->state != ENDED) {
        struct spop_frame frame;
        switch (spop_frame_read(*in, client->frame_size, &frame, &event->need)) {
        case SPOP_STEP_MORE:
            return SPOP_CLIENT_MORE;
        case SPOP_STEP_TOO_BIG:
            return refuse(client, SPOP_STATUS_TOO_BIG, event, out);
        case SPOP_STEP_INVALID:
            return refuse(client, SPOP_STATUS_INVALID, event, out);
        case SPOP_STEP_FRAME:
            *in = slice_from(*in, event->need);
        }
        if (!spop_type_known(frame.type))
            continue;
        enum spop_client_step step = judge_frame(client, &frame, event, out);
        if (step != SPOP_CLIENT_MORE)
            return step;
    }
    return SPOP_CLIENT_MORE;
}
