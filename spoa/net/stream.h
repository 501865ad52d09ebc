/* SPDX-License-Identifier: MIT */
/*
 * stream: a connected socket as bytes in and bytes out, each in a bounded buffer. A member of the object that speaks a
 * protocol over it. Memory is taken when bytes are there; an idle stream holds none.
 *
 *     CONNECTING  the descriptor came from net_connect: nothing is read or sent before `connected`
 *     OPEN        `in` is filled until it is full, paused, or the peer ends; `out` is sent as the socket takes it
 *     FINISHING   what is unsent is sent, then FIN; what still comes is thrown away until the peer ends too
 *     CLOSED      no callback but `gone`; zeroed is closed
 *
 * Back-pressure: a full `in` is not read into, so an owner that does not consume stops its peer. The owner bounds `out`
 * by out.limit, and asks buffer_len(&s->out) before it adds more.
 *
 * Callbacks come from the loop, or from stream_look; never from within another call of the owner's. Each may close,
 * finish or release the stream. The owner's memory lives until the callback has returned: an owner that frees itself
 * sets `gone` and does it there. Times are microseconds (loop_clock). For the loop's own thread.
 */
#ifndef CELLGATE_NET_STREAM_H
#define CELLGATE_NET_STREAM_H

#include "spoa/base/bytes/buffer.h"
#include "spoa/net/loop.h"

enum { STREAM_STEPS = 6 };

struct stream_user {
    void (*connected)(void *owner); /* NULL: the descriptor is connected already */
    void (*reading)(
        void *owner); /* before each read, which is as large as in.limit allows behind it; may be NULL */
    void (*input)(void *owner); /* there is more in `in` */
    void (*sent)(void *owner);  /* some of `out` has left; also while it finishes; may be NULL */
    /* 0: the peer sends no more, what is in `out` can still reach it. Else the errno with which connecting, reading or
     * writing failed (ENOMEM: no memory for input), and nothing is read or sent any more. The owner closes or finishes. */
    void (*ended)(void *owner, int error);
    /* The time of stream_set_time is over, and what had arrived by then was read; may be NULL. */
    void (*late)(void *owner);
    void (*gone)(void *owner); /* once, at the end of the turn in which it was closed; may be NULL */
    size_t read_size;          /* bytes that each read has room for at least; 0: all that `in` has room for */
    /* That the peer takes nothing more does not call `ended`, because it may still have something to say: `out` is
     * dropped, for which `sent` is called, unless it is stream_send itself that finds it out. `ended` is called when all that the
     * peer said has been read, also if the stream is paused or full meanwhile. */
    bool hears_out;
};

struct stream {
    /* set by the owner before stream_open, with the limits of both buffers */
    const struct stream_user *user;
    void *owner;
    struct buffer in;  /* what has come: taken with stream_consume */
    struct buffer out; /* what is to leave: filled by the owner, then stream_send or stream_send_soon */
    struct loop *loop; /* read-only; NULL: closed */

    /* private */
    struct loop_io io;
    struct loop_timer timer;
    struct loop_task task;
    bool connecting, paused, half_closing, finishing, shut;
    bool ended; /* the peer sends no more */
    bool dead;  /* `ended` was called with an error */
    bool late;  /* the time is over, which nothing has changed since */
    bool taken; /* see stream_was_taken */
    bool busy;  /* in one of its callbacks */
    bool again; /* see stream_offer_again */
    int failed; /* errno of a write */
    struct stream_linger {
        /* for each part of what is unsent to be taken, and for all of it as often as STREAM_STEPS, however little the peer
         * takes at a time; 0: `grace` is for all together */
        uint64_t step;
        uint64_t grace; /* for the peer to end its side when all is sent */
        /* bytes that are thrown away at most, behind `rest`: who sends more is not waiting for our last words */
        size_t drain;
        /* A peer in the middle of a frame reads our last words when it has sent the other `rest` bytes of it. `step` and `grace`
         * begin anew with each part of them, for `most` in all, and our FIN follows them: HAProxy ends both sides of a tunnel
         * at a FIN. */
        uint64_t most, rest;
    } linger;
    size_t drained;
    uint64_t over_at; /* when a stream that finishes is closed at the latest */
};

/* Takes fd over. A stream without `gone` may be opened again when it was closed, but not in its own callback. */
void stream_open(struct stream *s, struct loop *loop, int fd);

/* Sends what is in `out`: as much as the socket takes now, the rest as it takes more. A failure is reported later. */
void stream_send(struct stream *s);
/* The same with the loop's next turn, so that what is added until then leaves together. */
void stream_send_soon(struct stream *s);
/* The same on a stream that connects, if the connection is made by now: `connected` is not called then. False: it is not,
 * or it takes nothing, which is reported later. */
bool stream_send_early(struct stream *s);
/* Drops the first `len` bytes of `in`. Slices of it are void. */
void stream_consume(struct stream *s, size_t len);
/* Reads nothing while paused. What is in `in` already is the owner's (stream_offer). */
void stream_pause(struct stream *s, bool paused);
/* Calls `input` now if there is anything in `in`: behind a pause. Does nothing in the stream's own callbacks. */
void stream_offer(struct stream *s);
/* The owner has left something in `in` so that others have their turn: `input` is called when its share has another one
 * (loop.h), before more is read. It also does so in the stream's own callbacks. */
void stream_offer_again(struct stream *s);
/* Serves the stream in that share of the thread's time from now on. */
void stream_join(struct stream *s, struct loop_share *share);
/* Reads once, now: calls `input` or `ended` if there is anything. Does nothing in the stream's own callbacks. */
void stream_look(struct stream *s);
/* One time for each stream: `late` is called when it is over; replaces an earlier one. Before that the socket is read
 * once more: where this thread stood still, what has arrived has come in time. */
void stream_set_time(struct stream *s, uint64_t microseconds);
void stream_stop_time(struct stream *s);

/* Ends our side when `out` is sent; nothing may be added. The peer's is read on. */
void stream_half_close(struct stream *s);
/* The lingering close: a socket that is closed with unread input resets the connection, and the peer may lose what was
 * sent to it last. Then as stream_close. What is in `in` is dropped, but not before the loop has its turn again. */
void stream_finish(struct stream *s, const struct stream_linger *linger);
/* Now. Closed, or never opened, is fine. `in` and `out` are freed, when a callback that is running has returned. */
void stream_close(struct stream *s);
/* The descriptor for the caller, or -1. `in` stays until stream_close, which is still to be called. */
int stream_release(struct stream *s);

/* For what the stream does not do itself; -1: closed. */
static inline int stream_fd(const struct stream *s)
{
    return loop_io_fd(&s->io);
}

bool stream_is_open(const struct stream *s); /* neither finishing nor closed */
/* Whether the connection is broken, or ended on both sides. To be asked now and then while it is paused: what is not read
 * tells nothing. */
bool stream_is_broken(const struct stream *s);
/* Whether the peer's kernel had all that was sent when the peer ended its side of a finishing stream. */
bool stream_was_taken(const struct stream *s);
size_t stream_held(const struct stream *s); /* bytes of memory */

#endif
