/* SPDX-License-Identifier: MIT */
#include "spoa/spop/agent.h"

void spop_agent_end(struct spop_agent *agent, enum spop_status status, struct writer *out)
{
    if (agent->state == SPOP_AGENT_ENDED)
        return;
    agent->state = SPOP_AGENT_ENDED;
    spop_disconnect_write(out, SPOP_TYPE_AGENT_DISCONNECT, status);
}

static enum spop_agent_step refuse(struct spop_agent *agent, enum spop_status status,
                                   struct spop_agent_event *event, struct writer *out)
{
    spop_agent_end(agent, status, out);
    event->status = status;
    return SPOP_AGENT_REFUSED;
}

static enum spop_agent_step hello(struct spop_agent *agent, struct spop_agent_event *event,
                                  struct writer *out)
{
    enum spop_status judged = spop_offer_read(event->frame.payload, &event->offer);
    if (judged != SPOP_STATUS_NORMAL)
        return refuse(agent, judged, event, out);
    agent->state = SPOP_AGENT_OPEN;
    agent->agreed = event->offer.frame_size;
    /* early 3.1 sends frames up to its own size, whatever was agreed */
    agent->accepted = agent->agreed > SPOP_FRAME_USUAL ? agent->agreed : SPOP_FRAME_USUAL;
    spop_agreement_write(out, &(struct spop_agreement){.frame_size = agent->agreed, .pipelining = true});
    return SPOP_AGENT_HELLO;
}

static enum spop_agent_step goodbye(struct spop_agent *agent, struct spop_agent_event *event,
                                    struct writer *out)
{
    struct slice message;
    if (!spop_disconnect_read(event->frame.payload, &event->status, &message))
        event->status = SPOP_STATUS_UNKNOWN;
    spop_agent_end(agent, SPOP_STATUS_NORMAL, out);
    return SPOP_AGENT_DISCONNECT;
}

static enum spop_agent_step judge(struct spop_agent *agent, struct spop_agent_event *event,
                                  struct writer *out)
{
    const struct spop_frame *frame = &event->frame;
    if (frame->type == SPOP_TYPE_UNSET || (frame->flags & (SPOP_FIN | SPOP_ABORT)) != SPOP_FIN)
        return refuse(agent, SPOP_STATUS_FRAGMENTED, event, out);
    if (frame->type == SPOP_TYPE_HAPROXY_DISCONNECT)
        return goodbye(agent, event, out);
    if (frame->type == SPOP_TYPE_HAPROXY_HELLO && agent->state == SPOP_AGENT_NEW)
        return hello(agent, event, out);
    if (frame->type == SPOP_TYPE_NOTIFY && agent->state == SPOP_AGENT_OPEN)
        return SPOP_AGENT_NOTIFY;
    return refuse(agent, SPOP_STATUS_INVALID, event, out);
}

enum spop_agent_step spop_agent_next(struct spop_agent *agent, struct slice *in,
                                     struct spop_agent_event *event, struct writer *out)
{
    event->need = 0;
    while (agent->state != SPOP_AGENT_ENDED) {
        size_t most = agent->state == SPOP_AGENT_NEW ? SPOP_FRAME_USUAL : agent->accepted;
        switch (spop_frame_read(*in, most, &event->frame, &event->need)) {
        case SPOP_STEP_MORE:
            return SPOP_AGENT_MORE;
        case SPOP_STEP_TOO_BIG:
            return refuse(agent, SPOP_STATUS_TOO_BIG, event, out);
        case SPOP_STEP_INVALID:
            return refuse(agent, SPOP_STATUS_INVALID, event, out);
        case SPOP_STEP_FRAME:
            *in = slice_from(*in, event->need);
            if (spop_type_known(event->frame.type))
                return judge(agent, event, out);
        }
    }
    return SPOP_AGENT_MORE;
}
