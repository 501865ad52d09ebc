/* SPDX-License-Identifier: MIT */
/*
 * tunnel_io_parts: structures and functions that the files of tunnel_io share. They run on the tunnel's thread.
 *
 * An idle tunnel takes little memory. Each tunnel has a *seat*, a small structure that exists until its end. Its *work* (struct
 * tunnel_io) exists while events arrive, and for up to half a second after the last one. Then the tunnel *rests*: its work is written to
 * an image and freed, until the next event wakes the tunnel (tunnel_work_begin). Code that only reads a tunnel uses tunnel_visit,
 * which does not wake it.
 */
#ifndef CELLGATE_RELAY_IO_TUNNEL_IO_PARTS_H
#define CELLGATE_RELAY_IO_TUNNEL_IO_PARTS_H

#include "spoa/relay/tunnel_io/tunnel_io.h"
#include "spoa/relay/tunnel_io/tunnel_stats.h"

struct dial;
struct recheck_io;

#define EARLY_MAX (LEG_FRAME_WHOLE + HTTP_HEAD_MAX) /* bytes that a client may send before its 101 */

enum { TUNNEL_FRAMES = 256 };      /* largest number of frames that one event of a tunnel handles */
enum { TUNNEL_LEFT_MOST = 16384 }; /* bytes that an evicted tunnel still delivers to a side */

/* A connection to the next worker, opened before the tunnel leaves its present worker. */
struct ahead {
    int fd;
    const struct target *to;
};

/* The permit to collect a worker's replay: many replays at once would need much memory. */
enum replay_permit {
    PERMIT_NONE,
    PERMIT_TAKEN, /* the limits count the tunnel's permit */
    PERMIT_OVER,  /* the replay goes on, but other tunnels no longer wait for this permit */
};

/* The image of a tunnel at rest (spoa/base/bytes/image.h), in one piece of memory. Heap memory that the work owns stays in place. */
struct tunnel_image {
    uint32_t
        sum; /* checksum of all that follows, for a process that reads the image after the death of this one (tunnel_salvage) */
    uint16_t work_len;
    uint16_t upgrade_len; /* 0 if the upgrade is too long to be packed, and stays in place, too */
    uint16_t kept_len;    /* bytes of the packed pointers */
    uint8_t kept_count;   /* number of the pointers */
    /* image of the work, image of the upgrade, then packed pointers to the memory that the work owns */
    uint8_t bytes[];
};

/* The part of a tunnel that always exists. Only the seat may be pointed to between events. */
struct tunnel_seat {
    struct relay_thread *thread;
    struct loop_share *share; /* the owner's share of the thread's time */
    union {
        struct tunnel_io *io;       /* work of a tunnel that is awake */
        struct tunnel_image *image; /* image of a tunnel at rest */
    };
    struct deadline deadline; /* entry in the thread's deadlines */
    uint8_t kind;             /* index in rest.kinds, by the size of the work */
    bool rests;
    bool holds; /* a tunnel at rest holds memory that counts for eviction */
    struct loop_io sockets[2];
    struct tunnel_seat *next, **link;
    union {
        struct question watch;
        struct loop_task free_task; /* used after the tunnel has ended */
    };
};

/* The work of a tunnel that is awake, followed in memory by its adapter's state. Invariant: between events, nothing points here but a
 * dial. */
struct tunnel_io {
    struct tunnel_seat *seat;
    struct relay_thread *thread;
    bool stirred;   /* an event has arrived after the thread last looked for idle tunnels */
    bool little[2]; /* the last read from this side returned few bytes: the next one asks for few */
    bool dense
        [2]; /* the last read brought more frames than one event handles: the next one is for little, too */
    bool broken[2];     /* sending to this side has failed; reported to the tunnel after the current event */
    bool accepted;      /* the client has its 101 */
    bool gone;          /* the tunnel has ended, and is freed at the end of the turn */
    bool entered;       /* the limits count the tunnel */
    bool gives_way;     /* the tunnel is being evicted: other tunnels wait for its memory */
    bool moving;        /* thread.moves counts the tunnel's move to another worker */
    bool upgrade_small; /* the memory of `upgrade` belongs to rest.upgrades, not to malloc */
    struct tunnel tunnel;
    struct tunnel_stats stats;
    struct upgrade_kept *upgrade; /* NULL while the upgrade is only in `image` */
    struct tunnel_image
        *image; /* image of the last rest, until the upgrade is read from it; otherwise NULL */
    struct tunnel_io *next, **link; /* list of the tunnels that are awake */
    uint64_t patient_until;         /* time in µs before which no peer is judged by its silence */
    struct buffer early;            /* input from the client before its 101 */
    struct buffer left[2];          /* input of a side that waits for the next event */
    struct pipe *pipe;              /* pipe with payload of a large frame to the client, or NULL */
    bool client_bounded;            /* the client's socket buffer was made smaller than a pipe */
    struct dial *dial;              /* dial under way, or NULL */
    struct recheck_io *recheck;     /* second connection to the worker, or NULL */
    struct ahead *ahead;            /* connection made ahead; only valid within tunnel_io_go */
    bool probing;                   /* the dial first asks the worker about the session (tunnel_probe) */
    uint64_t dialled_at;            /* time when the dial began, in µs */
    struct question *ask;           /* question to the agent under way, or NULL */
    struct move *move;              /* waits for its turn to move, or NULL */
    enum replay_permit permit;      /* permit to collect a replay */
    uint64_t permit_since;          /* time when the permit was taken, in µs */
};

/* ---- tunnel_rest.c ---- */
/* Layout of the work in an image. */
extern const struct image_table tunnel_io_table;
/* Returns zeroed work for a new tunnel and sets *kind (see tunnel_seat), or returns NULL if memory is short. */
struct tunnel_io *tunnel_rest_take(struct tunnel_rest *rest, const struct adapter *adapter, uint8_t *kind);
/* Frees the work of a tunnel. */
void tunnel_rest_give(struct tunnel_rest *rest, struct tunnel_io *io, uint8_t kind);
/* Each way into a tunnel is between these two; one event may lie within another one's, of another tunnel or of the same. A tunnel that is at
 * work when the process dies is torn: its client's and its worker's bytes may be half moved, and nobody goes on with it. tunnel_work_begin
 * wakes the tunnel and returns its work. It needs no memory, as the place of the work is kept while the tunnel rests. After
 * tunnel_work_end the tunnel may be gone. */
struct tunnel_io *tunnel_work_begin(struct tunnel_seat *seat);
void tunnel_work_end(struct tunnel_seat *seat);
/* Returns true if the innermost event that is being handled is the tunnel's. */
static inline bool tunnel_is_at_work(const struct tunnel_seat *seat)
{
    const struct relay_thread *thread = seat->thread;
    return thread->at_work_count && thread->at_work[thread->at_work_count - 1] == seat;
}
/* Returns the tunnel's upgrade, which is valid until the tunnel rests again. If memory is short, io->upgrade stays NULL, and the result is
 * read-only and valid only until the thread's next call. */
struct upgrade_kept *tunnel_rest_upgrade(struct tunnel_io *io);
/* Returns a copy of the tunnel's upgrade with another handover, which the caller owns; NULL if memory is short. */
struct upgrade_kept *tunnel_rest_with_handover(struct tunnel_io *io, const struct handover *handover);
/* Replaces the tunnel's upgrade, which no dial may be using, and takes ownership of `fresh`. */
void tunnel_rest_replace_upgrade(struct tunnel_io *io, struct upgrade_kept *fresh);
/* Returns the tunnel's stats with the upgrade in them, which a tunnel that has just woken lacks. */
const struct tunnel_stats *tunnel_rest_stats(struct tunnel_io *io);

/* Gives a new tunnel its upgrade, which must be from malloc, and takes ownership of it. */
void tunnel_rest_keep_upgrade(struct tunnel_io *io, struct upgrade_kept *upgrade);
/* Returns false if the memory of a tunnel, in a process that has died, is not what a tunnel's is between two events. */
bool tunnel_rest_is_sound(const struct tunnel_seat *seat, const struct relay_thread *thread) MUST_CHECK;
/* Connects the work of a tunnel with its seat. */
void tunnel_rest_place(struct tunnel_io *io, struct tunnel_seat *seat);
/* Adds a new tunnel to the list of those that are awake. */
void tunnel_rest_stir(struct tunnel_io *io);
/* Removes a tunnel that has ended from that list. */
void tunnel_rest_leave(struct tunnel_io *io);
/* Releases the work of a tunnel that was handed over, for the next tunnel that wakes. The other memory of the tunnel ends with the
 * process. */
void tunnel_rest_abandon(struct tunnel_seat *seat);
/* Frees the upgrade of a tunnel that has ended. */
void tunnel_rest_free_upgrade(struct tunnel_io *io);

/* ---- tunnel_times.c ---- */
/* Returns the time for the next call of tunnel_io_due, in µs; UINT64_MAX if there is none. */
uint64_t tunnel_times_at(const struct tunnel_seat *seat);
/* Sets that time. */
void tunnel_times_set(struct tunnel_seat *seat, uint64_t at);

/* ---- tunnel_limits.c ---- */
/* Returns the owner for whom a tunnel counts. A tunnel that only carries a refusal does not count against the sandbox's limit. */
struct limits_owner tunnel_limits_owner(const struct handover *h);
/* Counts a tunnel; one that is taken over is counted whatever the limits are. Returns false if a limit is reached, which is logged, or memory is
 * short. */
bool tunnel_limits_enter(struct relay_thread *thread, const struct handover *h, bool taken_over);
/* Counts the tunnel for the organisation of `h`, which the agent has named after the tunnel began. Returns false if a limit of the
 * organisation is reached or memory is short. */
bool tunnel_limits_name_org(struct tunnel_io *io, const struct handover *h);
/* Reverts tunnel_limits_enter at the tunnel's end. */
void tunnel_limits_leave(struct tunnel_io *io);
/* Implements may_hold of struct tunnel_host. */
size_t tunnel_limits_room(void *io, bool whole, size_t grows);
/* Returns true if the limits of memory let the tunnel hold more. */
bool tunnel_limits_may_hold(struct tunnel_io *io);
/* Implements permits_replay of struct tunnel_host. */
bool tunnel_limits_permit_replay(void *io);
/* Returns the time in µs when the tunnel loses its permit, even if the replay goes on. */
uint64_t tunnel_limits_permit_until(const struct tunnel_io *io);
/* Gives the permit back. */
void tunnel_limits_end_permit(struct tunnel_io *io);

/* ---- tunnel_agent.c ---- */
/* The call-backs of a tunnel's subscription and questions; their owner is the seat. */
extern const struct question_user tunnel_agent_user;
/* Asks the agent for the tunnel's worker. */
void tunnel_agent_ask(struct tunnel_io *io);
/* Drops that question. */
void tunnel_agent_drop_ask(struct tunnel_io *io);
/* Ends the tunnel's move, if there is one, so that the next tunnel may move. */
void tunnel_agent_end_move(struct tunnel_io *io);

/* ---- tunnel_commands.c ---- */
/* Carries out the tunnel's commands. */
void tunnel_io_obey(struct tunnel_io *io);
typedef void tunnel_dial_done(void *owner, enum dial_outcome outcome);
/* Dials a second connection to the worker `to`, with the client's upgrade request. Returns NULL if the address is not allowed, or memory
 * is short. */
struct dial *tunnel_dial_beside(struct tunnel_io *io, const struct target *to, tunnel_dial_done *done,
                                void *owner);
/* Connects to the worker that the tunnel will dial next. Returns a descriptor, or -1 if the address is not allowed or connecting fails. */
int tunnel_connect_ahead(const struct tunnel_io *io, const struct target *to);

/* ---- tunnel_read.c ---- */
/* Reads once from a side, and hands up to TUNNEL_FRAMES frames to the tunnel. Input that was left by the last read comes first. The
 * payload of a large frame is spliced right after its head. Returns what recv(2) would return. Sets *done, which must be false before,
 * if the tunnel has forwarded everything and needs no further attention (see tunnel_read). */
ssize_t tunnel_read_some(struct tunnel_io *io, enum side from, bool *done);
/* Like tunnel_read_some, but never splices. */
ssize_t tunnel_read_into_memory(struct tunnel_io *io, enum side from, bool *done);
/* Returns true if input of this side waits for the next event. */
static inline bool tunnel_read_left(const struct tunnel_io *io, enum side from)
{
    return buffer_len(&io->left[from]) > 0;
}
/* Drops the waiting input of a side whose socket is closed or replaced. */
void tunnel_read_forget(struct tunnel_io *io, enum side from);
/* Returns true if `got`, from a read of above, means that no input was there. */
bool tunnel_read_nothing(ssize_t got);
/* Call after each event. Returns the pipe to the pool if it is empty. */
void tunnel_read_end(struct tunnel_io *io);

/* ---- tunnel_io.c ---- */
/* Makes a tunnel of a request, which `upgrade` shows and `kept` holds, and takes over `kept`. `taken_over` is true if another process has opened
 * the tunnel. Returns NULL, and `kept` is still the caller's, if a limit is reached or memory is short. */
struct tunnel_seat *tunnel_io_of(struct relay_thread *thread, const struct upgrade *upgrade,
                                 struct upgrade_kept *kept, struct slice early, bool taken_over) MUST_CHECK;
/* Returns the time in µs of loop_clock when the tunnel's token expires, which ends the tunnel; 0 if it does not. */
uint64_t tunnel_io_expiry(const struct handover *h);
/* Call-back of loop_io for the client's socket. `owner` is the seat. */
void tunnel_io_client_ready(void *owner, int events);
/* Call-back of loop_io for the worker's socket. `owner` is the seat. */
void tunnel_io_worker_ready(void *owner, int events);
/* Hands input to the tunnel that was received together with a head. */
void tunnel_io_feed(struct tunnel_io *io, enum side from, struct slice bytes);
/* Hands the client's early input to the tunnel once the client has its 101. */
void tunnel_io_feed_early(struct tunnel_io *io);
/* Call after each event: carries out the commands, and sets the sockets' events and the deadline. Afterwards `io` may be gone. */
void tunnel_io_update(struct tunnel_io *io);
/* Handles the tunnel's deadline, which was at `then`. */
void tunnel_io_due(struct tunnel_seat *seat, uint64_t then);

#endif
