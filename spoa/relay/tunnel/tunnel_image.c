/* SPDX-License-Identifier: MIT */
/* Saves a tunnel as an image and restores it (spoa/base/image.h). docs/architecture.md lists which state is written, derived, or started
 * again. */
#include "spoa/relay/tunnel/tunnel_parts.h"

enum { VERSION = 7 };

/* Reads or writes the adapter's state. The adapter is the one that the reader has set, or `none` if the worker did not know the protocol
 * of its route. */
static void image_adapter(struct image *image, void *object)
{
    struct forward *f = object;

    if (image_bit(image, f->adapter == &adapter_none))
        f->adapter = &adapter_none;
    else if (f->adapter->image)
        image_part(image, f->adapter->image, f->adapter_state);
}

static bool has_both_sides(const void *object)
{
    const struct forward *f = object;
    return f->legs[CLIENT].in.sender == WS_CLIENT && f->legs[WORKER].in.sender == WS_SERVER;
}

static const struct image_field forward_fields[] = {
    IMAGE_DERIVED(struct forward, place), /* tunnel_place */
    IMAGE_FLAGS(struct forward, there),
    IMAGE_DERIVED(struct forward, steady), /* derive sets this from the mode */
    IMAGE_FLAG(struct forward, end_said),
    IMAGE_FLAG(struct forward, stream),
    IMAGE_FLAG(struct forward, empty_frame),
    IMAGE_DERIVED(struct forward, mode), /* tunnel_tell_parts sets this */
    IMAGE_NUMBER(struct forward, end, HANDOVER_END_EXIT_JSON),
    IMAGE_USUALLY(struct forward, max_message, UINT64_MAX, 64 << 20),
    IMAGE_TIME(struct forward, used),
    IMAGE_PARTS(struct forward, legs, &leg_table),
    IMAGE_BY(struct forward, adapter, image_adapter),
    IMAGE_DERIVED(struct forward, adapter_state), /* image_adapter writes the state that this points to */
    IMAGE_NUMBER(struct forward, input, INPUT_OTHER),
    IMAGE_PART(struct forward, pings, &pings_table),
    IMAGE_ANY(struct forward, missing),
    IMAGE_ANY(struct forward, gaps),
    IMAGE_FLAG(struct forward, replay_short),
    IMAGE_DERIVED(struct forward, looked), /* forward_decide computes `looked` and `has_memory` anew */
    IMAGE_DERIVED(struct forward, has_memory),
    IMAGE_TIME(struct forward, permit_at),
    IMAGE_TIME(struct forward, short_at),
    IMAGE_NUMBER(struct forward, short_for, FORWARD_SHORT),
    IMAGE_TIME(struct forward, short_noted),
};
static IMAGE_TABLE(forward_table, struct forward, forward_fields, .holds = has_both_sides);

static void derive(void *object)
{
    struct tunnel *t = object;

    tunnel_tell_parts(t);
    for (enum side side = CLIENT; side <= WORKER; side++)
        t->forward.steady[side] = forward_is_steady(&t->forward, side);
}

static bool holds(const void *object)
{
    const struct tunnel *t = object;
    const bool *there = t->forward.there;

    return t->state == TUNNEL_closing ||
           (t->state < TUNNEL_closing && there[CLIENT] && there[WORKER] == (t->state == TUNNEL_serving));
}

static const struct image_field fields[] = {
    IMAGE_PART(struct tunnel, forward, &forward_table),
    IMAGE_PART(struct tunnel, connector, &connector_table),
    IMAGE_ANY(struct tunnel, idle),
    IMAGE_ANY(struct tunnel, max_age),
    IMAGE_NUMBER(struct tunnel, ends_with, CLOSE_REASON_COUNT - 1),
    IMAGE_FLAG(struct tunnel, overlap),
    IMAGE_FLAG(struct tunnel, one_leg),
    IMAGE_FLAG(struct tunnel, outside),
    IMAGE_FLAG(struct tunnel, named),
    IMAGE_USUALLY(struct tunnel, state, TUNNEL_ended, TUNNEL_serving),
    IMAGE_FLAG(struct tunnel, strayed),
    IMAGE_FLAG(struct tunnel, was_empty),
    IMAGE_NUMBER(struct tunnel, loss, LOSS_moved),
    /* tunnel_load reports its end to the adapter, which asks for another one */
    IMAGE_ANEW(struct tunnel, recheck),
    IMAGE_FLAG(struct tunnel, exit_held),
    IMAGE_ANY(struct tunnel, exits_held),
    IMAGE_ANY(struct tunnel, redials),
    IMAGE_TIME(struct tunnel, opened),
    IMAGE_TIME(struct tunnel, expires),
    IMAGE_TIME(struct tunnel, worker_since),
    IMAGE_TIME(struct tunnel, lost_at),
    IMAGE_ANY(struct tunnel, longest_gap),
    IMAGE_ANY(struct tunnel, progress_before),
    IMAGE_ANY(struct tunnel, gaps_before),
    IMAGE_NUMBER(struct tunnel, reason, CLOSE_REASON_COUNT - 1),
    IMAGE_NUMBER(struct tunnel, pending_code, UINT16_MAX),
    IMAGE_BUFFER(struct tunnel, pending_close, WS_CONTROL_MAX),
    IMAGE_TIME(struct tunnel, close_at),
};
IMAGE_TABLE(tunnel_table, struct tunnel, fields, .holds = holds, .derive = derive);

bool tunnel_save(const struct tunnel *t, struct buffer *to, uint64_t now)
{
    struct image image = image_to(to, VERSION, now);

    /* writing an image changes nothing in the tunnel */
    image_part(&image, &tunnel_table, (struct tunnel *)t);
    return image_done(&image);
}

bool tunnel_load(struct tunnel *t, const struct tunnel_opening *opening, struct slice saved, uint64_t now)
{
    struct image image = image_from(saved, VERSION, now);

    *t = (struct tunnel){.forward.adapter = adapter_find((enum handover_resume)opening->handover->resume,
                                                         opening->client_resumes)};
    tunnel_place(t, &opening->place, opening->state);
    image_part(&image, &tunnel_table, t);
    if (!image_done(&image)) {
        tunnel_free(t);
        return false;
    }
    if (t->state < TUNNEL_closing)
        connector_take_over(&t->connector, now);
    if (t->forward.adapter->recheck_ended)
        t->forward.adapter->recheck_ended(t->forward.adapter_state, now);
    t->forward.steady[CLIENT] = t->forward.steady[WORKER] = false;
    forward_decide(&t->forward, now);
    return true;
}
