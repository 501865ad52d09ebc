/* SPDX-License-Identifier: MIT */
#include "spoa/spop/conversation.h"

void spop_conversation_end(struct spop_conversation *conversation, enum spop_status status,
                           struct writer *out)
{
    if (conversation->state == SPOP_CONVERSATION_ENDED)
        return;
    conversation->state = SPOP_CONVERSATION_ENDED;
    spop_disconnect_write(out, SPOP_TYPE_AGENT_DISCONNECT, status);
}

static enum spop_conversation_step refuse(struct spop_conversation *conversation, enum spop_status status,
                                          struct spop_conversation_event *event, struct writer *out)
{
    spop_conversation_end(conversation, status, out);
    event->status = status;
    return SPOP_CONVERSATION_REFUSED;
}

static enum spop_conversation_step hello(struct spop_conversation *conversation,
                                         struct spop_conversation_event *event, struct writer *out)
{
    enum spop_status judged = spop_offer_read(event->frame.payload, &event->offer);
    if (judged != SPOP_STATUS_NORMAL)
        return refuse(conversation, judged, event, out);
    conversation->state = SPOP_CONVERSATION_OPEN;
    conversation->agreed = event->offer.frame_size;
    /* early releases of HAProxy 3.1 send frames up to their own max-frame-size, whatever was agreed */
    conversation->accepted =
        conversation->agreed > SPOP_FRAME_USUAL ? conversation->agreed : SPOP_FRAME_USUAL;
    spop_agreement_write(out,
                         &(struct spop_agreement){.frame_size = conversation->agreed, .pipelining = true});
    return SPOP_CONVERSATION_HELLO;
}

static enum spop_conversation_step judge_frame(struct spop_conversation *conversation,
                                               struct spop_conversation_event *event, struct writer *out)
{
    const struct spop_frame *frame = &event->frame;
    if (frame->type == SPOP_TYPE_UNSET || (frame->flags & (SPOP_FIN | SPOP_ABORT)) != SPOP_FIN)
        return refuse(conversation, SPOP_STATUS_FRAGMENTED, event, out);
    if (frame->type == SPOP_TYPE_HAPROXY_DISCONNECT) {
        struct slice message;
        if (!spop_disconnect_read(frame->payload, &event->status, &message))
            event->status = SPOP_STATUS_UNKNOWN;
        spop_conversation_end(conversation, SPOP_STATUS_NORMAL, out);
        return SPOP_CONVERSATION_DISCONNECT;
    }
    if (frame->type == SPOP_TYPE_HAPROXY_HELLO && conversation->state == SPOP_CONVERSATION_NEW)
        return hello(conversation, event, out);
    if (frame->type == SPOP_TYPE_NOTIFY && conversation->state == SPOP_CONVERSATION_OPEN)
        return SPOP_CONVERSATION_NOTIFY;
    return refuse(conversation, SPOP_STATUS_INVALID, event, out);
}

enum spop_conversation_step spop_conversation_next(struct spop_conversation *conversation, struct slice *in,
                                                   struct spop_conversation_event *event, struct writer *out)
{
    event->need = 0;
    while (conversation->state != SPOP_CONVERSATION_ENDED) {
        size_t max = conversation->state == SPOP_CONVERSATION_NEW ? SPOP_FRAME_USUAL : conversation->accepted;
        switch (spop_frame_read(*in, max, &event->frame, &event->need)) {
        case SPOP_STEP_MORE:
            return SPOP_CONVERSATION_MORE;
        case SPOP_STEP_TOO_BIG:
            return refuse(conversation, SPOP_STATUS_TOO_BIG, event, out);
        case SPOP_STEP_INVALID:
            return refuse(conversation, SPOP_STATUS_INVALID, event, out);
        case SPOP_STEP_FRAME:
            *in = slice_from(*in, event->need);
            if (spop_type_known(event->frame.type))
                return judge_frame(conversation, event, out);
        }
    }
    return SPOP_CONVERSATION_MORE;
}
