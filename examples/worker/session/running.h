/* SPDX-License-Identifier: MIT */
/*
 * running: a session with its process: the descriptors, the input that waits for it, its readers and its
 * times.
 *
 * Readers are members of whoever reads; each has a place in the output. While there are readers, output that
 * the slowest has not taken is not pushed out of the ring: the process is not read, for at most stall_ms;
 * then the reader is dropped. Without readers the process is always read.
 */
#ifndef CELLGATE_WORKER_SESSION_RUNNING_H
#define CELLGATE_WORKER_SESSION_RUNNING_H

#include "examples/worker/session/process.h"
#include "examples/worker/session/session.h"
#include "spoa/base/bytes/buffer.h"
#include "spoa/net/loop.h"

struct running;

struct running_reader {
    void (*wake)(struct running_reader *reader); /* there is output, the end, or room for input */
    void (*drop)(struct running_reader *reader, enum manager_code code); /* it was detached */
    /* It was taken over, and has left but for the input that it has; NULL: it is dropped. */
    void (*taken_over)(struct running_reader *reader);

    /* private */
    struct running *running; /* NULL: not attached */
    struct running_reader *next;
    uint64_t at, taken; /* given to it; known to have left this process */
    uint64_t owed;      /* what there was when it came ends here */
    bool leaving;       /* it has been taken over, and is detached as soon as it has that */
    bool ending;        /* it has gone; there may be input of it yet, which goes first */
    bool left;          /* besides, it counts as a reader no more */
    uint64_t moved;     /* clock of its last step */
    bool told_end;
};

/* `over` is called once, when the session has ended and is to be forgotten; the owner then frees it. NULL, *code and
 * *why when out of memory or when create holds nonsense. */
struct running *running_new(struct loop *loop, const struct manager_message *create, struct slice id,
                            void (*over)(void *owner, struct running *r), void *owner,
                            enum manager_code *code, struct fail *why);
void running_free(
    struct running *r); /* detaches readers; a process that still runs is killed, not waited for */
const struct session *running_session(const struct running *r);

/* Its first reader has to come within that time, in seconds, if it is to start for one; else it is over. Without this one
 * that outlives its readers waits for ever. */
void running_expect(struct running *r, uint64_t patience);
/* kind 0: as it was created. False, *code and *why when that cannot be, or not now. */
bool running_start(struct running *r, uint8_t kind, enum manager_code *code, struct fail *why);
void running_forget(
    struct running *r); /* hangs it up if it runs; it is over when it has ended and nobody reads */
bool running_is_forgotten(const struct running *r);
/* Whether all of its session ends with its process, which has died and was not waited for yet. */
bool running_ends_all(const struct running *r);
void running_exited(struct running *r, int status);
void running_signal(struct running *r, int signal);
void running_resize(struct running *r, uint16_t cols, uint16_t rows);

/* Whether more input may be given; wake is called when there is room again. */
bool running_wants_input(const struct running *r);
/* Whether it is a reader's turn to give input: that of those who came before it and have left goes first. */
bool running_wants_input_of(const struct running_reader *reader);
bool running_input_is_empty(const struct running *r);
bool running_reads(const struct running *r); /* somebody may still read input */
/* False: nobody will read it, or memory is short. */
bool running_input(struct running *r, struct slice bytes);

void running_attach(struct running *r, struct running_reader *reader, uint64_t since);
void running_detach(struct running_reader *reader);
/* It has gone, and stays attached for the input that it has not given yet; with running_leave it is no reader besides. */
void running_end(struct running_reader *reader);
void running_leave(struct running_reader *reader);
/* Who is owed output gets that first: it may be in the middle of what it says as one. */
void running_take_over(struct running *r);
/* The next OUTPUT, or EXIT after the last; false when there is none yet. Valid until the loop's next step. */
bool running_next(struct running_reader *reader, struct manager_message *m);
/* All that running_next gave has been sent. */
void running_taken(struct running_reader *reader);
/* For a reader that takes output by its offset and not by running_next: what it needs from now on. */
void running_keep(struct running_reader *reader, uint64_t offset);

#endif
