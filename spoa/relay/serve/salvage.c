/* SPDX-License-Identifier: MIT */
#include "spoa/relay/serve/salvage.h"

#include <sys/resource.h>

#include "spoa/base/bytes/heap.h"
#include "spoa/base/bytes/min_max.h"
#include "spoa/relay/serve/handover.h"
#include "spoa/relay/tunnel_io/tunnel_handover.h"
#include "spoa/relay/tunnel_io/tunnel_io_parts.h"
#include "spoa/service/keeper/salvager.h"

struct salvage {
    struct relay_thread *const *threads;
    size_t count, number; /* number of entries in `threads`; index of `thread` in it */
    struct keeper_board *board;
    size_t files; /* largest number of descriptors of a process */
    struct handover_file file;
    uint64_t *owners; /* per descriptor, the offset of the record that names it, or 0 */
    const struct relay_thread *thread;
    struct tunnel_seat *seat; /* present tunnel, and `next` the one after it in the list */
    struct tunnel_seat *next;
    enum keeper_fate fate;
};

static void begin(void *context)
{
    struct salvage *s = context;
    struct rlimit files;
    size_t tunnels = 0;

    s->files = getrlimit(RLIMIT_NOFILE, &files) == 0 ? (size_t)files.rlim_cur : 0;
    for (size_t i = 0; i < s->count; i++)
        tunnels += min_size(s->threads[i]->tunnels_count, s->files);
    s->owners = heap_take((s->files + 1) * sizeof *s->owners); /* fresh memory is zero */
    handover_begin(&s->file, min_size(tunnels, s->files));
}

static uint64_t *owner_of(struct salvage *s, enum side side)
{
    int fd = s->seat->sockets[side].share ? loop_io_fd(&s->seat->sockets[side]) : -1;
    return fd >= 0 && (size_t)fd < s->files ? &s->owners[fd] : NULL;
}

/* Returns true if another tunnel has the same descriptor. Then one of the two is damaged, but it is not known which: neither is saved. */
static bool is_shared(struct salvage *s)
{
    bool shared = false;

    for (enum side side = CLIENT; side <= WORKER; side++) {
        uint64_t *owner = owner_of(s, side);
        if (!owner || !*owner)
            continue;
        handover_spoil(&s->file, *owner);
        shared = true;
    }
    return shared;
}

static void save(void *context)
{
    struct salvage *s = context;

    s->next = s->seat->next;
    enum tunnel_remains remains = tunnel_remains(s->seat, s->thread);
    if (remains != REMAINS_WHOLE || is_shared(s)) {
        s->fate = remains == REMAINS_TORN ? KEEPER_TORN : KEEPER_POISONED;
        return;
    }
    uint64_t record = handover_salvage(&s->file, s->seat);
    s->fate = record ? KEEPER_SAVED : KEEPER_ENDING;
    for (enum side side = CLIENT; record && side <= WORKER; side++)
        if (owner_of(s, side))
            *owner_of(s, side) = record;
}

static void find_first(void *context)
{
    struct salvage *s = context;

    s->thread = s->threads[s->number];
    s->next = s->thread->tunnels;
}

/* Saves the tunnels of a thread. After a damaged link of the list, the remaining tunnels are lost. */
static void save_thread(struct salvage *s)
{
    const size_t mark = heap_mark();

    s->next = NULL;
    if (!salvager_try(find_first, s))
        return;
    for (size_t left = s->files; s->next && left; left--) {
        s->seat = s->next;
        s->next = NULL;
        if (!salvager_try(save, s))
            s->fate = KEEPER_POISONED;
        atomic_fetch_add(&s->board->fates[s->fate], 1);
        heap_return(mark);
    }
}

static void end(void *context)
{
    struct salvage *s = context;
    atomic_store(&s->board->images, handover_end(&s->file));
}

void salvage(struct relay_thread *const *threads, size_t count, struct keeper_board *board)
{
    static struct salvage s; /* salvager_try leaves no local variable as it was */

    s = (struct salvage){.threads = threads, .count = min_size(count, SETTINGS_THREADS_MAX), .board = board};
    if (!heap_leave() || !salvager_try(begin, &s) || !s.owners)
        return;
    for (s.number = 0; s.number < s.count; s.number++)
        save_thread(&s);
    (void)!salvager_try(end, &s);
}
