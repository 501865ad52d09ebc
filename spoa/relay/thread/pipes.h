/* SPDX-License-Identifier: MIT */
/*
 * pipes: what splice(2) moves bytes through, from one socket to another without a copy. A thread has a few; who has bytes
 * on their way has one of its own until they are gone. What they hold counts as held by its owner.
 */
#ifndef CELLGATE_RELAY_THREAD_PIPES_H
#define CELLGATE_RELAY_THREAD_PIPES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "spoa/base/bytes/buffer.h"

#define PIPES_MOST  32 /* of a thread: each takes two descriptors */
#define PIPES_FILES (2 * PIPES_MOST)

struct pipe {
    int in, out;
    size_t len; /* bytes in it */
    struct pipe *next;
};

struct pipes {
    struct pipe *unused; /* empty */
    struct pipe *raw;    /* NULL, or pipes_raw */
    unsigned count;      /* of all that are open */
    bool failed;         /* the kernel cannot, or may not: nobody gets another one */
};

/* An empty one; NULL: they are all in use, or there are none to be had. */
struct pipe *pipes_take(struct pipes *pipes);
/* What is left in it is dropped. NULL is fine. */
void pipes_give(struct pipes *pipes, struct pipe *pipe);
/* One that is empty between two events, as long as the thread lives. It takes so much less at a time than the others that
 * they have room for it in parts; NULL as above. */
struct pipe *pipes_raw(struct pipes *pipes);
/* What is left in it is dropped. */
void pipes_clear_raw(struct pipes *pipes);
/* All were given back. */
void pipes_free(struct pipes *pipes);

/* From a socket into an empty pipe, and out of it. As recv and send: how many bytes, 0: the end, or -1 with errno; EINVAL,
 * ENOSYS or EPERM: this cannot be done, and nothing was. No signal is raised where SIGPIPE is ignored. */
ssize_t pipe_fill(struct pipe *pipe, int from, size_t most);
ssize_t pipe_drain(struct pipe *pipe, int to, size_t most);
/* From one that holds so many to another one, behind what that holds; how many went. */
size_t pipe_move(struct pipe *from, struct pipe *to, size_t len);
/* All of a few bytes of memory, or none. */
bool pipe_put(struct pipe *to, struct slice bytes);
/* Into memory: len bytes that are in it. */
void pipe_read(struct pipe *pipe, uint8_t *to, size_t len);

/* What a socket has to read, up to `most` bytes, to another one; what that does not take is appended to `rest`, which has the
 * room. *passed: how many, 0 also where there is an end or an error, which is left to who reads the socket next, or no pipe.
 * False: there was no memory for the rest, and it is lost. */
bool pipes_pass(struct pipes *pipes, int from, int to, size_t most, struct buffer *rest, size_t *passed);

#endif
