/* SPDX-License-Identifier: MIT */
#include "spoa/relay/tunnel_io/tunnel_io_parts.h"

#include <assert.h>
#include <stdlib.h>

#define UPGRADE_SMALL 1024                /* bytes */
#define REST_AFTER    (250 * MILLISECOND) /* that nothing has happened: less than twice as long */
#define LOOKED_AT     256                 /* tunnels at a time, which takes up to a millisecond */

void tunnel_rest_place(struct tunnel_io *io, struct tunnel_seat *seat)
{
    io->seat = seat;
    io->stats.upgrade = NULL; /* tunnel_rest_stats */
    io->stats.tunnel = seat ? &io->tunnel : NULL;
    tunnel_moved(&io->tunnel, seat ? io : NULL, seat ? io + 1 : NULL);
}

/* ---- its work ---- */
static struct tunnel_kind *kind_of(const struct tunnel_seat *seat)
{
    return &seat->thread->rest.kinds[seat->kind];
}

static struct tunnel_kind kind_for(const struct adapter *adapter)
{
    size_t size = sizeof(struct tunnel_io) + ((adapter->state_len + 7) & ~(size_t)7);

    assert(adapter->state_len <= ADAPTER_STATE_MOST);
    return (struct tunnel_kind){adapter, slabs_of(size), {.size = size}};
}

struct tunnel_io *tunnel_rest_take(struct tunnel_rest *rest, const struct adapter *adapter, uint8_t *kind)
{
    uint8_t i = 0;

    while (i < ADAPTER_KINDS - 1 && rest->kinds[i].adapter && rest->kinds[i].adapter != adapter)
        i++;
    if (!rest->kinds[i].adapter)
        rest->kinds[i] = kind_for(adapter);
    assert(rest->kinds[i].adapter == adapter);
    *kind = i;
    return slabs_take(&rest->kinds[i].works);
}

void tunnel_rest_give(struct tunnel_rest *rest, struct tunnel_io *io, uint8_t kind)
{
    slabs_give(&rest->kinds[kind].works, io);
}

/* ---- its upgrade ---- */
static struct slice packed_work(const struct tunnel_packed *packed)
{
    return slice_of(packed->bytes, packed->work_len);
}

/* Absent: it is not packed. */
static struct slice packed_upgrade(const struct tunnel_packed *packed)
{
    return packed && packed->upgrade_len ? slice_of(packed->bytes + packed->work_len, packed->upgrade_len)
                                         : slice_text(NULL);
}

struct upgrade_kept *tunnel_rest_look_at_upgrade(const struct tunnel_seat *seat)
{
    const struct tunnel_rest *rest = &seat->thread->rest;
    struct slice packed = packed_upgrade(seat->rests ? seat->packed : seat->io->packed);
    union tunnel_memory memory;

    return slice_present(packed) ? upgrade_open(packed, rest->alike, rest->head)
                                 : tunnel_rest_read(seat, &memory)->upgrade;
}

void tunnel_rest_keep_upgrade(struct tunnel_io *io, struct upgrade_kept *upgrade)
{
    size_t size = upgrade_kept_size(upgrade);
    void *small = size <= UPGRADE_SMALL ? slabs_take(&io->thread->rest.upgrades) : NULL;

    io->upgrade_small = small != NULL;
    io->upgrade = small ? memcpy(small, upgrade, size) : upgrade;
    if (small)
        free(upgrade);
}

static void give_upgrade(struct tunnel_rest *rest, struct upgrade_kept *upgrade, bool small)
{
    if (small)
        slabs_give(&rest->upgrades, upgrade);
    else
        free(upgrade);
}

void tunnel_rest_free_upgrade(struct tunnel_io *io)
{
    give_upgrade(&io->thread->rest, io->upgrade, io->upgrade_small);
    free(io->packed);
    io->upgrade = NULL;
    io->packed = NULL;
}

struct upgrade_kept *tunnel_rest_upgrade(struct tunnel_io *io)
{
    struct tunnel_rest *rest = &io->thread->rest;
    struct slice packed = packed_upgrade(io->packed);

    if (io->upgrade)
        return io->upgrade;
    size_t size = upgrade_packed_size(packed.at);
    bool small = size <= UPGRADE_SMALL;
    void *memory = small ? slabs_take(&rest->upgrades) : malloc(size);
    if (!memory)
        return tunnel_rest_look_at_upgrade(io->seat);
    io->upgrade = upgrade_open(packed, rest->alike, memory);
    io->upgrade_small = small;
    free(io->packed);
    io->packed = NULL;
    return io->upgrade;
}

struct upgrade_kept *tunnel_rest_with_handover(struct tunnel_io *io, const struct handover *handover)
{
    const struct upgrade_kept *kept = tunnel_rest_upgrade(io);
    return io->upgrade ? upgrade_with_handover(kept, handover) : NULL;
}

void tunnel_rest_replace_upgrade(struct tunnel_io *io, struct upgrade_kept *fresh)
{
    assert(!io->dial && io->upgrade);
    give_upgrade(&io->thread->rest, io->upgrade, io->upgrade_small);
    tunnel_rest_keep_upgrade(io, fresh);
}

const struct tunnel_stats *tunnel_rest_stats(struct tunnel_io *io)
{
    io->stats.upgrade = tunnel_rest_upgrade(io);
    return &io->stats;
}

void tunnel_rest_stir(struct tunnel_io *io)
{
    struct tunnel_rest *rest = &io->thread->rest;

    io->stirred = true;
    io->next = rest->awake;
    io->link = &rest->awake;
    if (io->next)
        io->next->link = &io->next;
    rest->awake = io;
    if (!loop_timer_active(&rest->look))
        loop_timer_set(&rest->look, REST_AFTER);
}

void tunnel_rest_leave(struct tunnel_io *io)
{
    struct tunnel_rest *rest = &io->thread->rest;

    if (rest->look_from == io)
        rest->look_from = io->next;
    *io->link = io->next;
    if (io->next)
        io->next->link = io->link;
    io->next = NULL;
    io->link = NULL;
}

/* As it was packed before, if it was not needed since. w->full: it cannot be packed. */
static void pack_upgrade(struct tunnel_io *io, struct writer *w)
{
    struct alike *alike = io->thread->rest.alike;

    if (io->upgrade) {
        (void)upgrade_forget_key(io->upgrade); /* which is there if it rests for the first time */
        upgrade_pack(io->upgrade, alike, w);
    } else {
        writer_put(w, packed_upgrade(io->packed));
    }
}

/* In memory of its own; NULL when out of memory. io is nowhere. */
static struct tunnel_packed *pack(struct tunnel_io *io, struct fold *fold)
{
    static _Thread_local uint8_t upgrade_memory[UINT16_MAX], work_memory[FOLD_PACKED_MOST];
    struct writer upgrade = writer_of(upgrade_memory, sizeof upgrade_memory);
    struct upgrade_kept *kept = io->upgrade;
    struct tunnel_packed *before = io->packed;
    bool small = io->upgrade_small;

    pack_upgrade(io, &upgrade);
    size_t upgrade_len = upgrade.full ? 0 : upgrade.len;
    if (upgrade_len) {
        io->upgrade = NULL;
        io->upgrade_small = false;
    }
    io->packed = NULL;
    size_t work_len = fold_pack(fold, io, work_memory);
    struct tunnel_packed *packed =
        work_len == FOLD_NO_MEMORY ? NULL : malloc(sizeof *packed + work_len + upgrade_len);
    if (!packed) {
        io->upgrade = kept;
        io->upgrade_small = small;
        io->packed = before;
        return NULL;
    }
    *packed = (struct tunnel_packed){(uint16_t)work_len, (uint16_t)upgrade_len};
    memcpy(packed->bytes, work_memory, work_len);
    memcpy(packed->bytes + work_len, upgrade_memory, upgrade_len);
    if (upgrade_len)
        give_upgrade(&io->thread->rest, kept, small);
    free(before);
    return packed;
}

/* An object is byte for byte what it was, so that any state may rest; but a dial and what it belongs to end soon. */
static void lay_down(struct tunnel_io *io)
{
    struct tunnel_seat *seat = io->seat;
    bool holds = tunnel_stats_held(&io->stats) > 0;

    tunnel_rest_leave(io);
    tunnel_rest_place(io, NULL);
    struct tunnel_packed *packed = pack(io, &kind_of(seat)->fold);
    if (!packed) {
        tunnel_rest_place(io, seat);
        tunnel_rest_stir(io);
        return;
    }
    slabs_rest(&kind_of(seat)->works, io);
    seat->packed = packed;
    seat->rests = true;
    seat->holds = holds;
    seat->thread->rest.resting++;
}

/* Those that have something to do are served in between. */
static void on_look(void *owner)
{
    struct tunnel_rest *rest = &((struct relay_thread *)owner)->rest;
    struct tunnel_io *io = rest->look_from ? rest->look_from : rest->awake, *next;

    for (unsigned i = 0; io && i < LOOKED_AT; i++, io = next) {
        next = io->next;
        if (!io->stirred && !io->dial && !io->recheck && io->tunnel.state == TUNNEL_serving)
            lay_down(io);
        else
            io->stirred = false;
    }
    rest->look_from = io;
    if (rest->awake)
        loop_timer_set(&rest->look, io ? 0 : REST_AFTER);
}

static void unpack(const struct tunnel_seat *seat, struct tunnel_io *io)
{
    fold_unpack(&kind_of(seat)->fold, packed_work(seat->packed), io);
    tunnel_rest_place(io, (struct tunnel_seat *)seat);
}

static void take_up(struct tunnel_seat *seat, struct tunnel_io *io)
{
    unpack(seat, io);
    if (seat->packed->upgrade_len)
        io->packed = seat->packed;
    else
        free(seat->packed);
    seat->rests = false;
    seat->io = io;
    seat->thread->rest.resting--;
}

struct tunnel_io *tunnel_rest_wake(struct tunnel_seat *seat)
{
    if (!seat->rests) {
        seat->io->stirred = true;
        return seat->io;
    }
    struct tunnel_io *io = slabs_wake(&kind_of(seat)->works);
    take_up(seat, io);
    tunnel_rest_stir(io);
    return io;
}

const struct tunnel_io *tunnel_rest_read(const struct tunnel_seat *seat, union tunnel_memory *memory)
{
    if (!seat->rests)
        return seat->io;
    unpack(seat, &memory->io);
    return &memory->io;
}

struct tunnel_io *tunnel_rest_look_at(const struct tunnel_seat *seat)
{
    if (!seat->rests)
        return seat->io;
    unpack(seat, &seat->thread->rest.spare->io);
    return &seat->thread->rest.spare->io;
}

bool tunnel_rest_open(struct tunnel_rest *rest, struct relay_thread *thread)
{
    *rest = (struct tunnel_rest){.seats = slabs_of(sizeof(struct tunnel_seat)),
                                 .upgrades = slabs_of(UPGRADE_SMALL),
                                 .alike = alike_new(upgrade_words()),
                                 .head = malloc(ALIKE_MOST),
                                 .spare = calloc(1, sizeof *rest->spare)};
    loop_timer_open(&rest->look, thread->loop, on_look, thread);
    return rest->alike && rest->head && rest->spare;
}

void tunnel_rest_close(struct tunnel_rest *rest)
{
    slabs_free(&rest->seats);
    for (size_t i = 0; i < ADAPTER_KINDS; i++) {
        slabs_free(&rest->kinds[i].works);
        fold_free(&rest->kinds[i].fold);
    }
    slabs_free(&rest->upgrades);
    alike_free(rest->alike);
    free(rest->head);
    free(rest->spare);
}
