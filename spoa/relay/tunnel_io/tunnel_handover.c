/* SPDX-License-Identifier: MIT */
#include "spoa/relay/tunnel_io/tunnel_handover.h"

#include <stdlib.h>

#include "spoa/base/bytes/image.h"
#include "spoa/relay/tunnel_io/tunnel_io_parts.h"

enum { VERSION = 1, PART_MAX = 1 << 30 };

/* The content of a record. The tunnel and its request are separate images, each with its own version. */
struct tunnel_record {
    struct buffer upgrade, tunnel;
    struct buffer left[2]; /* bytes of each side that were read, and wait for their turn */
};

static const struct image_field fields[] = {
    IMAGE_BUFFER(struct tunnel_record, upgrade, PART_MAX),
    IMAGE_BUFFER(struct tunnel_record, tunnel, PART_MAX),
    IMAGE_BUFFERS(struct tunnel_record, left, BUFFER_LIMIT_MAX),
};
static IMAGE_TABLE(record_table, struct tunnel_record, fields);

/* ---- to hand over ---- */

/* A tunnel that is closing goes on too: its client may not have read the last output and the Close yet. */
static bool can_go_on(const struct tunnel_io *io, const struct tunnel_seat *seat)
{
    return io->accepted && !io->gone && io->tunnel.state > TUNNEL_opening &&
           io->tunnel.state < TUNNEL_ended && seat->sockets[CLIENT].share;
}

/* Appends the record of a tunnel. The bytes in its pipe move to memory. */
static bool write_record(struct tunnel_io *io, const struct tunnel_seat *seat,
                         const struct upgrade_kept *upgrade, struct buffer *to, int fds[2])
{
    struct tunnel_record record = {.upgrade = buffer_with_limit(PART_MAX),
                                   .tunnel = buffer_with_limit(PART_MAX)};
    struct image image = image_to(to, VERSION, loop_clock());

    bool good = can_go_on(io, seat) && forward_gather(&io->tunnel.forward, CLIENT) &&
                upgrade_save(upgrade, seat->thread->rest.words, &record.upgrade) &&
                tunnel_save(&io->tunnel, &record.tunnel, loop_clock());
    if (good) {
        fds[CLIENT] = loop_io_fd(&seat->sockets[CLIENT]);
        fds[WORKER] = seat->sockets[WORKER].share ? loop_io_fd(&seat->sockets[WORKER]) : -1;
        record.left[CLIENT] = io->left[CLIENT];
        record.left[WORKER] = io->left[WORKER];
        image_part(&image, &record_table, &record);
    }
    buffer_free(&record.upgrade);
    buffer_free(&record.tunnel);
    return image_done(&image) && good;
}

bool tunnel_hand_over(struct tunnel_seat *seat, struct buffer *to, int fds[2])
{
    struct tunnel_io *io = tunnel_work_begin(seat);
    bool good = write_record(io, seat, tunnel_rest_upgrade(io), to, fds);

    tunnel_work_end(seat);
    if (good)
        tunnel_rest_abandon(seat);
    return good;
}

enum tunnel_remains tunnel_remains(const struct tunnel_seat *seat, const struct relay_thread *thread)
{
    for (unsigned i = 0; i < thread->at_work_count && i < TUNNELS_AT_WORK; i++)
        if (thread->at_work[i] == seat)
            return REMAINS_TORN;
    return tunnel_rest_is_sound(seat, thread) ? REMAINS_WHOLE : REMAINS_DAMAGED;
}

bool tunnel_salvage(struct tunnel_seat *seat, struct buffer *to, int fds[2])
{
    struct tunnel_visit visit;
    struct tunnel_head head;

    tunnel_visit(seat, &visit, head.memory);
    /* gathering changes the tunnel, which is nobody's any more */
    return write_record((struct tunnel_io *)visit.io, seat, visit.stats.upgrade, to, fds);
}

/* ---- to take over ---- */

static struct upgrade_kept *load_upgrade(const struct relay_thread *thread, struct slice saved)
{
    size_t size = upgrade_saved_size(saved);
    struct upgrade_kept *kept = size ? malloc(size) : NULL;

    if (kept && upgrade_load(saved, thread->rest.words, kept))
        return kept;
    free(kept);
    return NULL;
}

static void open_socket(struct tunnel_seat *seat, enum side side, int fd)
{
    static void (*const ready[])(void *owner, int events) = {
        [CLIENT] = tunnel_io_client_ready, [WORKER] = tunnel_io_worker_ready};

    if (fd < 0)
        return;
    loop_io_open(&seat->sockets[side], seat->thread->loop, fd, ready[side], seat);
    loop_io_join(&seat->sockets[side], seat->share);
}

/* Makes the tunnel of a record. The memory that the tunnel keeps moves out of *record. */
static bool make(struct relay_thread *thread, struct tunnel_record *record, const int fds[2])
{
    struct upgrade_kept *kept = load_upgrade(thread, buffer_slice(&record->upgrade));
    if (!kept)
        return false;
    const struct upgrade upgrade = upgrade_unpack(kept);
    struct tunnel_seat *seat = tunnel_io_of(thread, &upgrade, kept, SLICE_LITERAL(""), true);
    if (!seat) {
        free(kept);
        return false;
    }
    struct tunnel_io *io = tunnel_work_begin(seat);
    const struct upgrade of = upgrade_unpack(io->upgrade);
    const struct tunnel_opening opening = {{&thread->host, io, &thread->settings.tunnel},
                                           &of.handover,
                                           of.target,
                                           of.client_resumes,
                                           tunnel_io_expiry(&of.handover),
                                           io + 1};

    io->accepted = true;
    for (enum side side = CLIENT; side <= WORKER; side++) {
        buffer_free(&io->left[side]);
        io->left[side] = record->left[side];
        record->left[side] = buffer_with_limit(0);
    }
    if (!tunnel_load(&io->tunnel, &opening, buffer_slice(&record->tunnel), loop_clock())) {
        io->accepted = false; /* the metrics have not counted the tunnel, so its end must not count */
        tunnel_io_cut(seat);
        tunnel_work_end(seat);
        return false;
    }
    open_socket(seat, CLIENT, fds[CLIENT]);
    open_socket(seat, WORKER, fds[WORKER]);
    tunnel_stats_taken_over(tunnel_rest_stats(io));
    agent_client_ask(thread->agent, &seat->watch);
    tunnel_io_update(io);
    tunnel_work_end(seat);
    return true;
}

bool tunnel_take_over(struct relay_thread *thread, struct slice bytes, const int fds[2])
{
    struct tunnel_record record = {.upgrade = buffer_with_limit(0)};
    struct image image = image_from(bytes, VERSION, loop_clock());

    image_part(&image, &record_table, &record);
    bool good = image_done(&image) && fds[CLIENT] >= 0 && make(thread, &record, fds);
    buffer_free(&record.upgrade); /* memory that the tunnel has taken is no longer in the record */
    buffer_free(&record.tunnel);
    buffer_free(&record.left[CLIENT]);
    buffer_free(&record.left[WORKER]);
    return good;
}
