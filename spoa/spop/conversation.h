/* SPDX-License-Identifier: MIT */
/*
 * spop_conversation: the agent's end of one SPOP connection, without I/O: bytes go in, events come out, and replies are put into a
 * writer. The conversation itself answers HELLO and DISCONNECT and refuses everything that the protocol forbids. The caller
 * acknowledges each NOTIFY, with a frame of SPOP_TYPE_ACK that has at least one action: HAProxy 3.1.0 takes an ACK without an action
 * for a missing one.
 */
#ifndef CELLGATE_SPOP_CONVERSATION_H
#define CELLGATE_SPOP_CONVERSATION_H

#include "spoa/spop/hello.h"

/* Zero bytes are a new connection. Callers read the fields and do not change them. */
struct spop_conversation {
    enum { SPOP_CONVERSATION_NEW, SPOP_CONVERSATION_OPEN, SPOP_CONVERSATION_ENDED } state;
    size_t agreed;   /* largest frame to send, in bytes */
    size_t accepted; /* largest frame to accept; may be larger than `agreed` (see conversation.c) */
};

enum spop_conversation_step {
    SPOP_CONVERSATION_MORE,   /* there is no whole frame; the input needs event.need bytes in all */
    SPOP_CONVERSATION_HELLO,  /* event.offer has been answered */
    SPOP_CONVERSATION_NOTIFY, /* the caller must acknowledge event.frame */
    /* the peer disconnects with event.status: send the reply in `out`, then close */
    SPOP_CONVERSATION_DISCONNECT,
    /* the peer broke the protocol: send the DISCONNECT in `out`, with event.status, then close */
    SPOP_CONVERSATION_REFUSED
};

struct spop_conversation_event {
    size_t need;
    struct spop_frame frame;
    struct spop_offer offer;
    uint64_t status;
};

/* Takes the next frame off *in. Frames of unknown types are skipped. `out` must have room for SPOP_HELLO_MAX bytes. Takes nothing
 * after the conversation has ended. */
enum spop_conversation_step spop_conversation_next(struct spop_conversation *conversation, struct slice *in,
                                                   struct spop_conversation_event *event, struct writer *out)
    MUST_CHECK;

/* Ends the conversation with a DISCONNECT, for a timeout, a malformed NOTIFY or draining. Does nothing if it has ended. */
void spop_conversation_end(struct spop_conversation *conversation, enum spop_status status,
                           struct writer *out);

#endif
