/* SPDX-License-Identifier: MIT */
/*
 * tunnel_io_parts: what the files of a tunnel share. A tunnel at which nothing happens takes little: of each there is
 * always a seat; its work exists while something happens, and for up to half a second behind that. Then it rests: only its image is
 * left, until an event wakes it (tunnel_work_begin). Who only looks at it visits it (tunnel_visit). On the tunnel's thread.
 */
#ifndef CELLGATE_RELAY_IO_TUNNEL_IO_PARTS_H
#define CELLGATE_RELAY_IO_TUNNEL_IO_PARTS_H

#include "spoa/relay/tunnel_io/tunnel_io.h"
#include "spoa/relay/tunnel_io/tunnel_stats.h"

struct dial;
struct recheck_io;

#define EARLY_MAX (LEG_FRAME_WHOLE + HTTP_HEAD_MAX) /* bytes of a client that does not wait for its 101 */

enum { TUNNEL_FRAMES = 256 };      /* that one event of a tunnel handles */
enum { TUNNEL_LEFT_MOST = 16384 }; /* bytes for a side that are still sent to it when a tunnel gives way */

/* A connection that was made before the tunnel left its worker. */
struct ahead {
    int fd;
    const struct target *to;
};

enum replay_permit {
    PERMIT_NONE,
    PERMIT_TAKEN, /* counted by the limits */
    PERMIT_OVER,  /* it goes on without: others do not wait longer */
};

/* A tunnel at rest is its image (spoa/base/image.h), in one piece of memory: first of its work, then of its upgrade. What its work owns on
 * the heap stays where it is. */
struct tunnel_image {
    uint32_t
        sum; /* of all that follows: another process reads it after the death of this one (tunnel_salvage) */
    uint16_t work_len;
    uint16_t upgrade_len; /* 0: the upgrade is too long to be packed, and stays where it is, too */
    uint16_t kept_len;    /* bytes of the pointers */
    uint8_t kept_count;
    uint8_t bytes[]; /* both images, and pointers to the memory that its work owns */
};

/* What is always there of a tunnel, and what others point to. */
struct tunnel_seat {
    struct relay_thread *thread;
    struct loop_share *share; /* of the thread's time: its owner's */
    union {
        struct tunnel_io *io;       /* its work */
        struct tunnel_image *image; /* at rest */
    };
    struct deadline deadline; /* of its thread's */
    uint8_t kind;             /* of rest.kinds */
    bool rests;
    bool holds; /* at rest: what it holds counts where memory is short */
    struct loop_io sockets[2];
    struct tunnel_seat *next, **link;
    union {
        struct question watch;
        struct loop_task free_task; /* once it is gone */
    };
};

/* What there is of it while something happens, and behind it its adapter's state. Nothing that outlasts an event points here, but
 * a dial. */
struct tunnel_io {
    struct tunnel_seat *seat;
    struct relay_thread *thread;
    bool stirred;   /* since the thread last looked for those that rest */
    bool little[2]; /* came with the last read: the next one is for little */
    bool dense
        [2]; /* the last read brought more frames than one event handles: the next one is for little, too */
    bool broken[2]; /* found out while sending; reported to the tunnel behind its event */
    bool accepted;
    bool gone;
    bool entered;       /* counted by the limits */
    bool gives_way;     /* its memory goes to those that wait */
    bool moving;        /* counted by thread.moves */
    bool upgrade_small; /* of rest.upgrades, not malloc's */
    struct tunnel tunnel;
    struct tunnel_stats stats;
    struct upgrade_kept *upgrade;   /* NULL: it is in `image` */
    struct tunnel_image *image;     /* since it rested, until its upgrade was needed; NULL else */
    struct tunnel_io *next, **link; /* of those that do not rest */
    uint64_t patient_until;         /* nobody's silence is judged before */
    struct buffer early;            /* from the client, before its 101 */
    struct buffer left[2];          /* that was read from a side, and waits for its turn */
    struct pipe *pipe;              /* payload of a large frame for the client is in it */
    bool client_bounded;            /* its socket has room for less than what is moved at once */
    struct dial *dial;
    struct recheck_io *recheck; /* NULL: there is none */
    struct ahead *ahead;        /* within tunnel_io_go */
    bool probing;               /* what is dialled is asked about the session first */
    uint64_t dialled_at;
    struct question *ask;      /* while it is open */
    struct move *move;         /* while it waits */
    enum replay_permit permit; /* to collect what the worker replays */
    uint64_t permit_since;
};

/* ---- tunnel_rest.c ---- */
/* How the work of a tunnel is written out. */
extern const struct image_table tunnel_io_table;
/* Returns the work of a new one, zeroed, and of which kind it is; NULL if memory is short. */
struct tunnel_io *tunnel_rest_take(struct tunnel_rest *rest, const struct adapter *adapter, uint8_t *kind);
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
/* Returns its upgrade, until it rests again. If memory is short, which a NULL in io.upgrade says, it is only to be looked at, and
 * only until another one is. */
struct upgrade_kept *tunnel_rest_upgrade(struct tunnel_io *io);
/* Returns a copy of its upgrade with this handover, to replace it by or to free; NULL if memory is short. */
struct upgrade_kept *tunnel_rest_with_handover(struct tunnel_io *io, const struct handover *handover);
/* Frees its upgrade, which no dial may use, and takes over this one. */
void tunnel_rest_replace_upgrade(struct tunnel_io *io, struct upgrade_kept *fresh);
/* For what it tells of the tunnel's upgrade. */
const struct tunnel_stats *tunnel_rest_stats(struct tunnel_io *io);

/* Of a new one: takes over upgrade, which malloc gave. */
void tunnel_rest_keep_upgrade(struct tunnel_io *io, struct upgrade_kept *upgrade);
/* Returns false if the memory of a tunnel, in a process that has died, is not what a tunnel's is between two events. */
bool tunnel_rest_is_sound(const struct tunnel_seat *seat, const struct relay_thread *thread) MUST_CHECK;
/* Ties the work of a tunnel to its seat. */
void tunnel_rest_place(struct tunnel_io *io, struct tunnel_seat *seat);
/* Counts a new one as awake. */
void tunnel_rest_stir(struct tunnel_io *io);
/* It has ended, awake. */
void tunnel_rest_leave(struct tunnel_io *io);
/* Gives the memory of a tunnel's work to the next one that wakes. The tunnel was handed over and is not used any more: what it owns
 * elsewhere ends with the process. */
void tunnel_rest_abandon(struct tunnel_seat *seat);
/* And its upgrade is not needed any more. */
void tunnel_rest_free_upgrade(struct tunnel_io *io);

/* ---- tunnel_times.c ---- */
/* When tunnel_io_due is called; UINT64_MAX: not at all. */
uint64_t tunnel_times_at(const struct tunnel_seat *seat);
void tunnel_times_set(struct tunnel_seat *seat, uint64_t at);

/* ---- tunnel_limits.c ---- */
/* For whom it counts. Refused tunnels do not count against the sandbox's limit. */
struct limits_owner tunnel_limits_owner(const struct handover *h);
/* Counts a tunnel; one that is taken over is counted whatever the limits are. Returns false if a limit is reached, which is logged, or memory is
 * short. */
bool tunnel_limits_enter(struct relay_thread *thread, const struct handover *h, bool taken_over);
/* Its organisation is known by now: counts it there. False: as tunnel_limits_enter. */
bool tunnel_limits_name_org(struct tunnel_io *io, const struct handover *h);
/* It has ended, and is counted no longer. */
void tunnel_limits_leave(struct tunnel_io *io);
/* As host.may_hold. */
size_t tunnel_limits_room(void *io, bool whole, size_t grows);
/* Whether there is room for more of it by the limits of memory. */
bool tunnel_limits_may_hold(struct tunnel_io *io);
/* As host.permits_replay. */
bool tunnel_limits_permit_replay(void *io);
/* When its permit is given back, whether or not the replay has ended. */
uint64_t tunnel_limits_permit_until(const struct tunnel_io *io);
void tunnel_limits_end_permit(struct tunnel_io *io);

/* ---- tunnel_agent.c ---- */
/* Of each watch and question of a tunnel; their owner is its seat. */
extern const struct question_user tunnel_agent_user;
void tunnel_agent_ask(struct tunnel_io *io);
void tunnel_agent_drop_ask(struct tunnel_io *io);
/* Its move, if there is one, is over: others have their turn. */
void tunnel_agent_end_move(struct tunnel_io *io);

/* ---- tunnel_commands.c ---- */
/* Carries out what its tunnel commands. */
void tunnel_io_obey(struct tunnel_io *io);
typedef void tunnel_dial_done(void *owner, enum dial_outcome outcome);
/* A dial to `to` beside the connection that serves, with the client's upgrade. NULL: that address is not allowed, or memory is
 * short. */
struct dial *tunnel_dial_beside(struct tunnel_io *io, const struct target *to, tunnel_dial_done *done,
                                void *owner);
/* A connection to where it will dial, made ahead: a descriptor, or -1: it is not allowed, or there is none. */
int tunnel_connect_ahead(const struct tunnel_io *io, const struct target *to);

/* ---- tunnel_read.c ---- */
/* Once, what there is from that side, up to TUNNEL_FRAMES frames of it; behind a head that was read its payload is moved at once.
 * What was left of the last read comes before anything else, and counts as what recv returns. As recv. *done, false before: as
 * tunnel_read says, the tunnel need not be looked at. */
ssize_t tunnel_read_some(struct tunnel_io *io, enum side from, bool *done);
/* The same, never through a pipe. */
ssize_t tunnel_read_into_memory(struct tunnel_io *io, enum side from, bool *done);
/* Some of what was read waits for another event. */
static inline bool tunnel_read_left(const struct tunnel_io *io, enum side from)
{
    return buffer_len(&io->left[from]) > 0;
}
/* The side's socket goes away, and with it what was read and waits. */
void tunnel_read_forget(struct tunnel_io *io, enum side from);
/* Of what they returned: there was nothing. */
bool tunnel_read_nothing(ssize_t got);
/* Behind an event: its pipe is for others if nothing is left in it. */
void tunnel_read_end(struct tunnel_io *io);

/* ---- tunnel_io.c ---- */
/* Makes a tunnel of a request, which `upgrade` shows and `kept` holds, and takes over `kept`. `taken_over` is true if another process has opened
 * the tunnel. Returns NULL, and `kept` is still the caller's, if a limit is reached or memory is short. */
struct tunnel_seat *tunnel_io_of(struct relay_thread *thread, const struct upgrade *upgrade,
                                 struct upgrade_kept *kept, struct slice early, bool taken_over) MUST_CHECK;
/* Returns when the tunnel ends with its token, in µs of loop_clock; 0: never. */
uint64_t tunnel_io_expiry(const struct handover *h);
/* The client's socket is ready, as tunnel_io_worker_ready. */
void tunnel_io_client_ready(void *owner, int events);
/* Its worker's socket is ready: events as loop_io says, owner is its seat. */
void tunnel_io_worker_ready(void *owner, int events);
/* Bytes that were received before the tunnel could take them. */
void tunnel_io_feed(struct tunnel_io *io, enum side from, struct slice bytes);
/* The same of what its client said before its 101, once it has that. */
void tunnel_io_feed_early(struct tunnel_io *io);
/* Behind each event: carries out what is commanded, and sets what is waited for. Afterwards io may be gone. */
void tunnel_io_update(struct tunnel_io *io);
/* Something of it was due then. */
void tunnel_io_due(struct tunnel_seat *seat, uint64_t then);

#endif
