/* SPDX-License-Identifier: MIT */
/*
 * running: a session with its process: the descriptors, the pending input, the readers and the timers.
 *
 * A reader is embedded in its owner, and has a position in the output. Back-pressure: the ring never drops output that the slowest reader
 * has not taken; if the ring is full, the process's output is not read for up to stall_ms, and then the slow reader is dropped. Without
 * readers the output is always read.
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
    /* The reader was detached. */
    void (*drop)(struct running_reader *reader, enum manager_code code);
    /* Another reader has taken over. This one gets no more output, but may still give its pending input. NULL to be dropped instead. */
    void (*taken_over)(struct running_reader *reader);

    /* private */
    struct running *running; /* NULL while the reader is not attached */
    struct running_reader *next;
    uint64_t at,
        taken;     /* offset after the output handed to the reader; offset after the output it has sent on */
    uint64_t owed; /* end of the output when the reader was attached */
    bool
        leaving; /* another reader has taken over: this one is detached once it has the output until `owed` */
    bool ending; /* the reader's client has gone; its pending input goes before that of others */
    bool left;   /* the reader no longer counts as one: only its pending input is of interest */
    uint64_t moved; /* time at which the reader last took output, in µs */
    bool told_end;  /* the reader has got EXIT */
};

/* Makes a session of a CREATE message. `over` is called once, when the session has ended and nobody needs it any more; the owner then
 * frees it. Returns NULL with *code and *why if memory is short or `create` is invalid. */
struct running *running_new(struct loop *loop, const struct manager_message *create, struct slice id,
                            void (*over)(void *owner, struct running *r), void *owner,
                            enum manager_code *code, struct fail *why);
/* Frees the session. Detaches all readers; a process that still runs is killed, and not waited for. */
void running_free(struct running *r);
const struct session *running_session(const struct running *r);

/* Limits the time until the first reader of a session that starts for it, in µs; after that the session is over. Without this call, a
 * session that outlives its readers waits without limit. */
void running_expect(struct running *r, uint64_t patience);
/* Starts the process. `kind` is an enum manager_kind, or 0 for that of the CREATE message. Returns false with *code and *why if the
 * process cannot be started. */
bool running_start(struct running *r, uint8_t kind, enum manager_code *code, struct fail *why);
/* Hangs up a running session. The session is over once it has ended and has no readers. */
void running_forget(struct running *r);
bool running_is_forgotten(const struct running *r);
/* Returns true if the other processes of the session must be killed when its process, which has died, is waited for. */
bool running_ends_all(const struct running *r);
/* Call after the process was waited for, with its wait status. */
void running_exited(struct running *r, int status);
void running_signal(struct running *r, int signal);
void running_resize(struct running *r, uint16_t cols, uint16_t rows);

/* Returns true if the session takes more input. Otherwise `wake` is called when it does. */
bool running_wants_input(const struct running *r);
/* Returns true if this reader may give input: the input of earlier readers that have gone must come first. */
bool running_wants_input_of(const struct running_reader *reader);
bool running_input_is_empty(const struct running *r);
/* Returns true if a process may still read input. */
bool running_reads(const struct running *r);
/* Returns false if no process will read the input, or memory is short. */
bool running_input(struct running *r, struct slice bytes);

/* Attaches a reader that begins at offset `since`, or as near as the ring allows. */
void running_attach(struct running *r, struct running_reader *reader, uint64_t since);
void running_detach(struct running_reader *reader);
/* Marks a reader whose client has gone. The reader stays attached until its pending input is given. */
void running_end(struct running_reader *reader);
/* Like running_end; besides, the reader no longer counts as one, and gets no output. */
void running_leave(struct running_reader *reader);
/* Lets a new reader take over: detaches the others. A reader first gets the output until `owed`, because it may be in the middle of a
 * replay that its client gets as one message. */
void running_take_over(struct running *r);
/* Fills in the next OUTPUT message, or EXIT after the last. Returns false if there is none yet. The message is valid until the next event
 * of the loop. */
bool running_next(struct running_reader *reader, struct manager_message *m);
/* Call when all messages of running_next were sent. */
void running_taken(struct running_reader *reader);
/* Sets the offset from which on a reader still needs output. For a reader that takes output by its offset, not with running_next. */
void running_keep(struct running_reader *reader, uint64_t offset);

#endif
