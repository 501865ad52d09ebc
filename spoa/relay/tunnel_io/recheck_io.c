/* SPDX-License-Identifier: MIT */
#include "spoa/relay/tunnel_io/recheck_io.h"

#include <limits.h>
#include <stdlib.h>

#include "spoa/net/stream.h"
#include "spoa/relay/thread/dial.h"

#define READ_SIZE 65536 /* bytes of a snapshot that are read at once */

struct recheck_io {
    struct tunnel_io *io;
    struct dial *dial;    /* dial under way; NULL once the connection is open */
    struct stream stream; /* the open connection */
};

void recheck_io_end(struct tunnel_io *io)
{
    struct recheck_io *r = io->recheck;

    if (!r)
        return;
    io->recheck = NULL;
    dial_free(r->dial);
    r->dial = NULL;
    if (r->stream.loop)
        stream_close(&r->stream); /* on_gone frees it */
    else
        free(r);
}

/* ---- input ---- */

/* Hands bytes to the tunnel, which may end the connection. Returns the number of bytes that it has handled. */
static size_t give(struct tunnel_io *io, struct slice bytes, unsigned frames)
{
    return tunnel_recheck_bytes(&io->tunnel, bytes, frames, loop_clock());
}

/* Hands input to the tunnel, with a limited number of frames per event, because the worker chooses the size of its frames. The rest waits
 * for the next turn. */
static void on_input(void *owner)
{
    struct recheck_io *r = owner;
    struct tunnel_seat *seat = r->io->seat;
    struct tunnel_io *io = tunnel_work_begin(seat);

    stream_consume(&r->stream, give(io, buffer_slice(&r->stream.in), TUNNEL_FRAMES));
    if (io->recheck == r && buffer_len(&r->stream.in))
        stream_offer_again(&r->stream);
    tunnel_io_update(io);
    tunnel_work_end(seat);
}

static void over(struct tunnel_io *io)
{
    recheck_io_end(io);
    tunnel_recheck_over(&io->tunnel, loop_clock());
}

static void on_ended(void *owner, int error)
{
    struct tunnel_seat *seat = ((struct recheck_io *)owner)->io->seat;
    struct tunnel_io *io = tunnel_work_begin(seat);

    (void)error;
    over(io);
    tunnel_io_update(io);
    tunnel_work_end(seat);
}

static void on_gone(void *owner)
{
    free(owner);
}

static const struct stream_user stream_user = {
    .input = on_input, .ended = on_ended, .gone = on_gone, .read_size = READ_SIZE};

/* ---- the dial ---- */
static void open_stream(struct recheck_io *r)
{
    r->stream = (struct stream){.user = &stream_user,
                                .owner = r,
                                .in = buffer_with_limit(READ_SIZE),
                                .out = buffer_with_limit(WS_CONTROL_FRAME_MAX)};
    stream_open(&r->stream, r->io->thread->loop, dial_take(r->dial));
    stream_join(&r->stream, r->io->seat->share);
}

static void on_dialled(void *owner, enum dial_outcome outcome)
{
    struct recheck_io *r = owner;
    struct tunnel_seat *seat = r->io->seat;
    struct tunnel_io *io = tunnel_work_begin(seat);
    struct dial *dial = r->dial;

    if (outcome != DIAL_OPEN) {
        over(io);
    } else {
        open_stream(r);
        /* Few bytes arrive together with the head, so they need no limit. The tunnel may command its end, which tunnel_io_update carries out. */
        give(io, dial_rest(dial), UINT_MAX);
        dial_free(dial);
        r->dial = NULL;
    }
    tunnel_io_update(io);
    tunnel_work_end(seat);
}

void recheck_io_begin(struct tunnel_io *io)
{
    struct recheck_io *r = calloc(1, sizeof *r);

    recheck_io_end(io);
    if (r) {
        r->io = io;
        r->dial = tunnel_dial_beside(io, tunnel_recheck_target(&io->tunnel), on_dialled, r);
    }
    if (r && !r->dial) {
        free(r);
        r = NULL;
    }
    io->recheck = r;
    if (r)
        dial_hurry(r->dial);
    else
        tunnel_recheck_over(&io->tunnel, loop_clock());
}

size_t recheck_io_held(const struct recheck_io *r)
{
    return r ? sizeof *r + dial_held(r->dial) + (r->stream.loop ? stream_held(&r->stream) : 0) : 0;
}
