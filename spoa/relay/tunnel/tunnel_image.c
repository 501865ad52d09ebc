/* SPDX-License-Identifier: MIT */
#include "spoa/relay/tunnel/tunnel_parts.h"

#define VERSION 6

static void forward_image(struct image *image, struct forward *f)
{
    bool plain = f->adapter == &adapter_none;

    IMAGE_BOOL(image, plain);
    if (plain)
        f->adapter = &adapter_none; /* the worker did not know the protocol of its route */
    else if (f->adapter->image)
        f->adapter->image(image, f->adapter_state);
    leg_image(image, &f->legs[CLIENT]);
    leg_image(image, &f->legs[WORKER]);
    IMAGE_BOOL(image, f->there[CLIENT]);
    IMAGE_BOOL(image, f->there[WORKER]);
    IMAGE_U64(image, f->max_message);
    IMAGE_BOOL(image, f->end_said);
    IMAGE(image, f->input, INPUT_OTHER);
    pings_image(image, &f->pings);
    IMAGE_U64(image, f->used);
    IMAGE(image, f->gaps, UINT32_MAX);
    IMAGE_U64(image, f->missing);
    IMAGE_U64(image, f->permit_at);
    IMAGE_BOOL(image, f->replay_short);
    IMAGE_U64(image, f->short_at);
    IMAGE(image, f->short_for, FORWARD_SHORT);
    IMAGE_U64(image, f->short_noted);
}

static void tunnel_image(struct image *image, struct tunnel *t)
{
    uint64_t version = VERSION;

    image_number(image, &version, VERSION);
    image_check(image, version == VERSION);
    IMAGE(image, t->state, TUNNEL_ended);
    forward_image(image, &t->forward);
    connector_image(image, &t->connector);
    IMAGE_BOOL(image, t->one_leg);
    IMAGE(image, t->ends_with, CLOSE_REASON_COUNT - 1);
    IMAGE_U64(image, t->opened);
    IMAGE_U64(image, t->expires);
    IMAGE_U64(image, t->worker_since);
    IMAGE_U64(image, t->lost_at);
    IMAGE(image, t->loss, LOSS_moved);
    IMAGE(image, t->redials, UINT32_MAX);
    IMAGE_U64(image, t->longest_gap);
    IMAGE(image, t->gaps_before, UINT32_MAX);
    IMAGE_U64(image, t->progress_before);
    IMAGE_BOOL(image, t->was_empty);
    IMAGE_BOOL(image, t->exit_held);
    IMAGE(image, t->exits_held, UINT32_MAX);
    IMAGE(image, t->reason, CLOSE_REASON_COUNT - 1);
    IMAGE_U64(image, t->close_at);
    IMAGE(image, t->pending_code, UINT16_MAX);
    image_buffer(image, &t->pending_close);
    image_check(image, t->state != TUNNEL_opening && t->state != TUNNEL_ended);
    image_check(image,
                t->state == TUNNEL_closing || t->forward.there[WORKER] == (t->state == TUNNEL_serving));
    image_check(image, t->state == TUNNEL_closing || t->forward.there[CLIENT]);
}

bool tunnel_save(const struct tunnel *t, struct buffer *to)
{
    struct image image = image_to(to);

    tunnel_image(&image, (struct tunnel *)t); /* one that writes changes nothing */
    return image_done(&image);
}

bool tunnel_load(struct tunnel *t, const struct tunnel_opening *opening, struct slice saved, uint64_t now)
{
    struct image image = image_from(saved);

    if (!tunnel_set_up(t, opening, now))
        return false;
    target_free(&t->connector.target);
    tunnel_image(&image, t);
    if (!image_done(&image)) {
        tunnel_free(t);
        return false;
    }
    tunnel_tell_parts(t);
    if (t->state < TUNNEL_closing)
        connector_take_over(&t->connector, now);
    if (t->forward.adapter->recheck_ended)
        t->forward.adapter->recheck_ended(t->forward.adapter_state, now);
    forward_decide(&t->forward, now);
    return true;
}
