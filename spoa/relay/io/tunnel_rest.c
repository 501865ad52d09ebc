/* SPDX-License-Identifier: MIT */
#include "spoa/relay/io/tunnel_io_parts.h"

#include <stdlib.h>

#define REST_AFTER (250 * MILLISECOND) /* that nothing has happened: less than twice as long */

void tunnel_rest_place(struct tunnel_io *io, struct tunnel_seat *seat)
{
    io->seat = seat;
    io->stats.upgrade = NULL; /* tunnel_rest_stats */
    io->stats.tunnel = seat ? &io->tunnel : NULL;
    tunnel_moved(&io->tunnel, seat ? io : NULL);
}

struct upgrade_kept *tunnel_rest_look_at_upgrade(const struct tunnel_seat *seat)
{
    const struct tunnel_rest *rest = &seat->thread->rest;
    return seat->packs ? upgrade_open(slice_of(seat->packed_upgrade, seat->upgrade_len), rest->alike, rest->head)
                       : seat->upgrade;
}

struct upgrade_kept *tunnel_rest_upgrade(struct tunnel_seat *seat)
{
    void *memory = seat->packs ? malloc(upgrade_packed_size(seat->packed_upgrade)) : NULL;

    if (memory) {
        struct slice packed = slice_of(seat->packed_upgrade, seat->upgrade_len);
        struct upgrade_kept *kept = upgrade_open(packed, seat->thread->rest.alike, memory);
        free(seat->packed_upgrade);
        seat->upgrade = kept;
        seat->packs = false;
    }
    return tunnel_rest_look_at_upgrade(seat);
}

static uint8_t *copy_of(struct slice bytes)
{
    uint8_t *copy = malloc(bytes.len);

    if (copy)
        memcpy(copy, bytes.at, bytes.len);
    return copy;
}

static void pack_upgrade(struct tunnel_seat *seat)
{
    static _Thread_local uint8_t memory[UINT16_MAX];
    struct writer w = writer_of(memory, sizeof memory);

    if (seat->packs)
        return;
    upgrade_forget_key(seat->upgrade);
    upgrade_pack(seat->upgrade, seat->thread->rest.alike, &w);
    uint8_t *packed = w.full ? NULL : copy_of(writer_slice(&w));
    if (!packed)
        return;
    free(seat->upgrade);
    seat->packed_upgrade = packed;
    seat->upgrade_len = (uint16_t)w.len;
    seat->packs = true;
}

const struct tunnel_stats *tunnel_rest_stats(struct tunnel_io *io)
{
    io->stats.upgrade = tunnel_rest_upgrade(io->seat);
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
    *io->link = io->next;
    if (io->next)
        io->next->link = io->link;
    io->next = NULL;
    io->link = NULL;
}

/* An object is byte for byte what it was, so that any state may rest; but a dial and what it belongs to end soon. */
static void lay_down(struct tunnel_io *io)
{
    struct tunnel_seat *seat = io->seat;
    struct tunnel_rest *rest = &io->thread->rest;
    bool holds = tunnel_stats_held(&io->stats) > 0;
    uint8_t memory[FOLD_PACKED_MOST];

    tunnel_rest_leave(io);
    tunnel_rest_place(io, NULL);
    size_t len = fold_pack(&rest->fold, io, memory);
    uint8_t *packed = len ? copy_of(slice_of(memory, len)) : NULL;
    if (!packed) {
        tunnel_rest_place(io, seat);
        tunnel_rest_stir(io);
        return;
    }
    slabs_give(&rest->works, io);
    seat->packed = packed;
    seat->rests = true;
    seat->holds = holds;
    pack_upgrade(seat);
}

static void on_look(void *owner)
{
    struct relay_thread *thread = owner;

    for (struct tunnel_io *io = thread->rest.awake, *next; io; io = next) {
        next = io->next;
        if (!io->stirred && !io->dial && io->tunnel.state == TUNNEL_serving)
            lay_down(io);
        else
            io->stirred = false;
    }
    if (thread->rest.awake)
        loop_timer_set(&thread->rest.look, REST_AFTER);
}

static void unpack(const struct tunnel_seat *seat, struct tunnel_io *io)
{
    fold_unpack(&seat->thread->rest.fold, seat->packed, io);
    tunnel_rest_place(io, (struct tunnel_seat *)seat);
}

static void take_up(struct tunnel_seat *seat, struct tunnel_io *io)
{
    unpack(seat, io);
    free(seat->packed);
    seat->rests = false;
    seat->io = io;
}

/* There is no memory to go on with it. */
static void lose(struct tunnel_seat *seat)
{
    struct tunnel_io *io = seat->thread->rest.spare;

    take_up(seat, io);
    tunnel_end(&io->tunnel, CLOSE_no_memory, loop_clock());
    tunnel_io_obey(io);
    tunnel_io_cut(seat);
}

struct tunnel_io *tunnel_rest_wake(struct tunnel_seat *seat)
{
    if (!seat->rests) {
        seat->io->stirred = true;
        return seat->io;
    }
    struct tunnel_io *io = slabs_take(&seat->thread->rest.works);
    if (!io) {
        lose(seat);
        return NULL;
    }
    take_up(seat, io);
    tunnel_rest_stir(io);
    return io;
}

const struct tunnel_io *tunnel_rest_read(const struct tunnel_seat *seat, struct tunnel_io *memory)
{
    if (!seat->rests)
        return seat->io;
    unpack(seat, memory);
    return memory;
}

struct tunnel_io *tunnel_rest_look_at(const struct tunnel_seat *seat)
{
    if (!seat->rests)
        return seat->io;
    unpack(seat, seat->thread->rest.spare);
    return seat->thread->rest.spare;
}

bool tunnel_rest_open(struct tunnel_rest *rest, struct relay_thread *thread)
{
    *rest = (struct tunnel_rest){.seats = slabs_of(sizeof(struct tunnel_seat)),
                                 .works = slabs_of(sizeof(struct tunnel_io)),
                                 .fold = {.size = sizeof(struct tunnel_io)},
                                 .alike = alike_new(),
                                 .head = malloc(ALIKE_MOST),
                                 .spare = calloc(1, sizeof(struct tunnel_io))};
    loop_timer_open(&rest->look, thread->loop, on_look, thread);
    return rest->alike && rest->head && rest->spare;
}

void tunnel_rest_close(struct tunnel_rest *rest)
{
    slabs_free(&rest->seats);
    slabs_free(&rest->works);
    fold_free(&rest->fold);
    alike_free(rest->alike);
    free(rest->head);
    free(rest->spare);
}
