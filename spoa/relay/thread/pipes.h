/* SPDX-License-Identifier: MIT */
/*
 * pipes: the pipes through which splice(2) moves bytes from one socket to another without a copy. A thread has a few; a tunnel
 * keeps a pipe while its bytes are inside. These bytes count as held by the tunnel.
 */
#ifndef CELLGATE_RELAY_THREAD_PIPES_H
#define CELLGATE_RELAY_THREAD_PIPES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "spoa/base/bytes/buffer.h"

#define PIPES_MOST  32 /* largest number of pipes of a thread; each needs two descriptors */
#define PIPES_FILES (2 * PIPES_MOST)

struct pipe {
    int in, out;
    size_t len; /* the number of bytes in the pipe */
    struct pipe *next;
};

struct pipes {
    struct pipe *unused; /* empty */
    struct pipe *raw;    /* the pipe of pipes_raw; NULL if not opened yet */
    unsigned count;      /* the number of open pipes */
    bool failed;         /* the kernel does not support or allow splicing, so no further pipe is opened */
};

/* Returns an empty pipe, or NULL if all are in use or none can be opened. */
struct pipe *pipes_take(struct pipes *pipes);
/* Returns a pipe to the pool and drops its bytes. NULL is allowed. */
void pipes_give(struct pipes *pipes, struct pipe *pipe);
/* Returns the thread's pipe for undecoded bytes, which is empty between events. Its capacity is smaller, so that another pipe has
 * room for all its bytes in pieces. Returns NULL like pipes_take. */
struct pipe *pipes_raw(struct pipes *pipes);
/* Drops the bytes in the pipe of pipes_raw. */
void pipes_clear_raw(struct pipes *pipes);
/* Closes all pipes. The owners must have returned them before. */
void pipes_free(struct pipes *pipes);

/* pipe_fill moves bytes from a socket into an empty pipe, pipe_drain from a pipe to a socket. Like recv and send, they return the
 * number of bytes, 0 at the end, or -1 with errno. EINVAL, ENOSYS or EPERM mean that splicing is impossible, and nothing has moved.
 * SIGPIPE must be ignored. */
ssize_t pipe_fill(struct pipe *pipe, int from, size_t most);
ssize_t pipe_drain(struct pipe *pipe, int to, size_t most);
/* Moves up to `len` bytes to the end of another pipe and returns the number moved. `from` must hold `len` bytes. */
size_t pipe_move(struct pipe *from, struct pipe *to, size_t len);
/* Writes a few bytes of memory into the pipe. Returns false if none were written. */
bool pipe_put(struct pipe *to, struct slice bytes);
/* Reads `len` bytes into memory. The pipe must hold them. */
void pipe_read(struct pipe *pipe, uint8_t *to, size_t len);

/* Moves up to `most` bytes from one socket to another, and appends those that the latter does not take to `rest`, which must have
 * room. *passed is the number of bytes read; 0 also at an end or error, which the next reader of the socket gets, or without a pipe.
 * Returns false if memory for the rest was short, and the rest is lost. */
bool pipes_pass(struct pipes *pipes, int from, int to, size_t most, struct buffer *rest, size_t *passed);

#endif
