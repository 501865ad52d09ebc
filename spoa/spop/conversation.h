/* SPDX-License-Identifier: MIT */
/*
 * spop_conversation: the agent's side of one SPOP connection, without I/O: bytes go in, events come out, and what is
 * to be sent is put into a writer. It answers HELLO and DISCONNECT itself and refuses what the protocol does
 * not allow; NOTIFY frames are the caller's to acknowledge (every one, with spop_frame_begin(SPOP_TYPE_ACK),
 * and with an action: HAProxy 3.1.0 takes an ACK without one for none).
 */
#ifndef CELLGATE_SPOP_CONVERSATION_H
#define CELLGATE_SPOP_CONVERSATION_H

#include "spoa/spop/hello.h"

struct spop_conversation { /* zero bytes are a new connection; read only */
    enum { SPOP_CONVERSATION_NEW, SPOP_CONVERSATION_OPEN, SPOP_CONVERSATION_ENDED } state;
    size_t agreed; /* the longest frame that we may send */
    size_t accepted;
};

enum spop_conversation_step {
    SPOP_CONVERSATION_MORE,       /* the input holds no further frame; `need` bytes are needed in all */
    SPOP_CONVERSATION_HELLO,      /* `offer`; it was answered */
    SPOP_CONVERSATION_NOTIFY,     /* `frame` is to be acknowledged */
    SPOP_CONVERSATION_DISCONNECT, /* the peer goes, for `status`; it was answered: close when that is written */
    SPOP_CONVERSATION_REFUSED     /* `status` was sent to the peer: close when that is written */
};

struct spop_conversation_event {
    size_t need;
    struct spop_frame frame;
    struct spop_offer offer;
    uint64_t status;
};

/* Takes the next frame off *in. `out` has room for SPOP_HELLO_MAX bytes. After the end it takes nothing any
 * more. A frame of a type that the protocol does not know is skipped. */
enum spop_conversation_step spop_conversation_next(struct spop_conversation *conversation, struct slice *in,
                                                   struct spop_conversation_event *event, struct writer *out);

/* Ends the conversation with a DISCONNECT of ours, once: a timeout, a bad NOTIFY, draining. */
void spop_conversation_end(struct spop_conversation *conversation, enum spop_status status,
                           struct writer *out);

#endif
