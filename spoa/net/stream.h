/* SPDX-License-Identifier: MIT */
/*
 * stream: a connected socket with a bounded buffer for each direction. A member of the object that speaks a protocol over it. Buffers
 * have memory only while they hold bytes, so an idle stream costs none.
 *
 *     CONNECTING  the descriptor came from net_connect: nothing is read or sent before `connected`
 *     OPEN        `in` is filled until it is full, the stream is paused, or the peer ends; `out` is sent as the socket takes it
 *     FINISHING   unsent bytes are sent, then FIN; input is dropped until the peer ends, too
 *     CLOSED      no call-back but `gone`; a zeroed stream is closed
 *
 * Back-pressure: the stream does not read while `in` is full, so an owner that does not consume stops its peer. The owner bounds `out` by
 * out.limit, and checks buffer_len(&s->out) before it adds more.
 *
 * Call-backs come from the loop or from stream_look, never from within another call of the owner's. Each of them may close, finish or
 * release the stream. The owner must stay in memory until the call-back has returned: an owner that frees itself sets `gone` and does it
 * there. Times are in microseconds (loop_clock). For the loop's own thread.
 */
#ifndef CELLGATE_NET_STREAM_H
#define CELLGATE_NET_STREAM_H

#include "spoa/base/bytes/buffer.h"
#include "spoa/net/loop.h"

enum { STREAM_STEPS = 6 };

/* The call-backs of an owner. */
struct stream_user {
    /* the connection is made; NULL if the descriptor is connected from the start */
    void (*connected)(void *owner);
    /* Called before each read, which is as large as in.limit allows. May be NULL. */
    void (*reading)(void *owner);
    void (*input)(void *owner); /* `in` has more bytes */
    /* some of `out` was sent; also called while the stream finishes; may be NULL */
    void (*sent)(void *owner);
    /* With error 0, the peer sends no more, and `out` can still reach it. Otherwise `error` is the errno with which connecting, reading or
     * writing failed (ENOMEM if there is no memory for input), and nothing is read or sent any more. The owner closes or finishes. */
    void (*ended)(void *owner, int error);
    /* The time of stream_set_time is over, and all input that had arrived by then was read. May be NULL if no time is set. */
    void (*late)(void *owner);
    /* called once, at the end of the turn in which the stream was closed; may be NULL */
    void (*gone)(void *owner);
    /* bytes that each read has room for at least, as far as in.limit allows; 0 means all that it allows */
    size_t read_size;
    /* Set if a failed write must not call `ended` at once, because the peer may still have something to say: `out` is then dropped, and
     * `sent` is called, except when stream_send itself detects the failure. `ended` is called when everything from the peer has been read,
     * even if the stream is paused or full meanwhile. */
    bool hears_out;
};

struct stream {
    /* set by the owner before stream_open, with the limits of both buffers */
    const struct stream_user *user;
    void *owner;
    struct buffer in;  /* received bytes; taken with stream_consume */
    struct buffer out; /* bytes to send; filled by the owner, then stream_send or stream_send_soon */
    struct loop *loop; /* read-only; NULL if closed */

    /* private */
    struct loop_io io;
    struct loop_timer timer;
    struct loop_task task;
    bool connecting, paused, half_closing, finishing;
    bool shut;  /* FIN was sent */
    bool ended; /* the peer sends no more */
    bool dead;  /* `ended` was called with an error */
    bool late;  /* the time is over, and nothing has changed it since */
    bool taken; /* the result of stream_was_taken */
    bool busy;  /* one of the call-backs is running */
    bool again; /* stream_offer_again was called */
    int failed; /* errno of a failed write, or 0 */
    /* The times of a lingering close (stream_finish). */
    struct stream_linger {
        /* Longest time for the peer to take a part of the unsent bytes. It may take all of them STREAM_STEPS times as long, however small the
         * parts are. 0 means that `grace` bounds everything. */
        uint64_t step;
        uint64_t grace; /* longest time for the peer to end its side after everything was sent */
        /* Largest number of bytes to drop after `rest`: a peer that sends more is not waiting for the last bytes from this side. */
        size_t drain;
        /* Number of bytes that the peer still has to send of a frame before it reads from this side. `step` and `grace` begin anew with each
         * part of them, for at most `most` in all, and FIN is sent after them: HAProxy ends both sides of a tunnel at a FIN. */
        uint64_t most, rest;
    } linger;
    size_t drained;   /* bytes dropped that count against linger.drain */
    uint64_t over_at; /* time at which a finishing stream is closed at the latest */
};

/* Opens a stream on a descriptor, which it owns. A closed stream without `gone` may be opened again, but not in its own call-back. */
void stream_open(struct stream *s, struct loop *loop, int fd);

/* Sends `out`: as much as the socket takes now, and the rest as it takes more. A failure is reported by `ended`, later. */
void stream_send(struct stream *s);
/* Sends `out` in the loop's next turn, so that bytes that are added until then leave in the same packet. */
void stream_send_soon(struct stream *s);
/* Sends `out` on a connecting stream, if the connection is made by now; `connected` is then not called. Returns false if the connection is
 * not made, or if the write failed, which is reported later. */
bool stream_send_early(struct stream *s) MUST_CHECK;
/* Drops the first `len` bytes of `in`. Slices of `in` become invalid. */
void stream_consume(struct stream *s, size_t len);
/* Stops or continues reading. Bytes that `in` already has stay there; stream_offer reports them. */
void stream_pause(struct stream *s, bool paused);
/* Calls `input` now if `in` has bytes, for example after a pause. Has no effect in the stream's own call-backs. */
void stream_offer(struct stream *s);
/* Calls `input` in the next turn of the stream's share (loop.h), before more is read: for an owner that left input unhandled so that
 * others have their turn. Also works in the stream's own call-backs. */
void stream_offer_again(struct stream *s);
/* Moves the stream to a share of the thread's time. */
void stream_join(struct stream *s, struct loop_share *share);
/* Reads once, now, and calls `input` or `ended`. Has no effect in the stream's own call-backs. */
void stream_look(struct stream *s);
/* Sets the stream's only time, after which `late` is called. The socket is read once more before that call: if this thread was delayed,
 * input that has arrived counts as in time. Replaces an earlier setting. */
void stream_set_time(struct stream *s, uint64_t microseconds);
void stream_stop_time(struct stream *s);

/* Sends FIN after `out`; nothing may be added to `out` any more. Input is still read. */
void stream_half_close(struct stream *s);
/* Closes gracefully (a lingering close): sends `out` and FIN, then drops input until the peer ends. A socket that is closed with unread
 * input would reset the connection, and the peer could lose the last bytes. `in` is dropped, but not before the next turn of the loop. */
void stream_finish(struct stream *s, const struct stream_linger *linger);
/* Closes at once. A closed stream, or one that was never opened, is fine. `in` and `out` are freed after a running call-back has
 * returned. */
void stream_close(struct stream *s);
/* Returns the descriptor, which is then the caller's, or -1. `in` stays until stream_close, which the caller must still call. */
int stream_release(struct stream *s);

/* Returns the descriptor, for socket options and the like, or -1 if closed. */
static inline int stream_fd(const struct stream *s)
{
    return loop_io_fd(&s->io);
}

/* Returns true if the stream is neither finishing nor closed. */
bool stream_is_open(const struct stream *s);
/* Returns true if the connection is broken, or ended on both sides. An owner checks this now and then while the stream is paused: without
 * a read, no call-back reports it. */
bool stream_is_broken(const struct stream *s);
/* Returns true if the peer's kernel had received everything when the peer ended its side of a finishing stream. */
bool stream_was_taken(const struct stream *s);
/* Returns the bytes of memory of both buffers. */
size_t stream_held(const struct stream *s);

#endif
