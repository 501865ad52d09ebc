/* SPDX-License-Identifier: MIT */
#include "spoa/relay/tunnel_io/tunnel_io_parts.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdlib.h>

#define UPGRADE_SMALL 1024                /* bytes */
#define REST_AFTER    (250 * MILLISECOND) /* a tunnel rests after one to two of these without an event */
#define LOOKED_AT     256                 /* tunnels at a time, which takes up to a millisecond */

enum {
    VERSION = 1,
    KEPT_MAX = 48,    /* pieces of memory that the work of a tunnel owns */
    IMAGE_MAX = 65536 /* bytes of both images of a tunnel at rest */
};

void tunnel_rest_place(struct tunnel_io *io, struct tunnel_seat *seat)
{
    io->seat = seat;
    io->thread = seat->thread;
    io->stats.thread = seat->thread;
    io->stats.upgrade = NULL; /* tunnel_rest_stats */
    io->stats.tunnel = &io->tunnel;
}

/* ---- the image of the work ---- */
/* The account of the tunnel's owner (limits.h) stays in place. Another process opens an account of its own. */
static void image_holder(struct image *image, void *object)
{
    struct limits_use *use = object;
    void *holder = use->holder;

    if (image->kept)
        image_memory(image, &holder, 0, 0);
    use->holder = holder;
}

static const struct image_field use_fields[] = {
    IMAGE_BY(struct limits_use, holder, image_holder),
    IMAGE_ANY(struct limits_use, held),
    IMAGE_ANY(struct limits_use, wanted),
    IMAGE_FLAG(struct limits_use, replays),
};
static IMAGE_TABLE(use_table, struct limits_use, use_fields);

static const struct image_field stats_fields[] = {
    IMAGE_DERIVED(struct tunnel_stats, thread), /* these by tunnel_rest_place */
    IMAGE_DERIVED(struct tunnel_stats, upgrade),
    IMAGE_DERIVED(struct tunnel_stats, tunnel),
    IMAGE_ANY(struct tunnel_stats, id),
    IMAGE_ANY(struct tunnel_stats, route),
    IMAGE_PART(struct tunnel_stats, use, &use_table),
    IMAGE_ANY(struct tunnel_stats, opening),
};
static IMAGE_TABLE(stats_table, struct tunnel_stats, stats_fields);

/* An upgrade that is not in an image of its own (upgrade_save) stays where it is. */
static void image_upgrade(struct image *image, void *object)
{
    struct tunnel_io *io = object;
    void *upgrade = io->upgrade;

    image_check(image, image->kept || !upgrade);
    image_memory(image, &upgrade, 0, 0);
    io->upgrade = upgrade;
}

/* Fields whose memory stays in place while a tunnel rests, and that are NULL in another process. forward_gather empties the pipe before a
 * handover. */
#define STAYS(field)                                             \
    static void image_##field(struct image *image, void *object) \
    {                                                            \
        struct tunnel_io *io = object;                           \
        void *memory = io->field;                                \
        if (image->kept)                                         \
            image_memory(image, &memory, 0, 0);                  \
        io->field = memory;                                      \
    }
STAYS(pipe)
STAYS(ask)
STAYS(move)

/* Invariant: the fields marked ANEW have no meaning in a tunnel that rests (may_rest). */
static const struct image_field fields[] = {
    IMAGE_DERIVED(struct tunnel_io, seat), /* tunnel_rest_place sets this and the next field */
    IMAGE_DERIVED(struct tunnel_io, thread),
    IMAGE_DERIVED(struct tunnel_io, stirred), /* and the list by tunnel_rest_stir */
    IMAGE_FLAGS(struct tunnel_io, little),
    IMAGE_FLAGS(struct tunnel_io, dense),
    IMAGE_FLAGS(struct tunnel_io, broken),
    IMAGE_FLAG(struct tunnel_io, accepted),
    IMAGE_ANEW(struct tunnel_io, gone), /* a tunnel that has ended is never written */
    IMAGE_FLAG(struct tunnel_io, entered),
    IMAGE_FLAG(struct tunnel_io, gives_way),
    IMAGE_ANEW(struct tunnel_io, moving),
    IMAGE_FLAG(struct tunnel_io, upgrade_small),
    IMAGE_PART(struct tunnel_io, tunnel, &tunnel_table),
    IMAGE_PART(struct tunnel_io, stats, &stats_table),
    IMAGE_BY(struct tunnel_io, upgrade, image_upgrade),
    IMAGE_DERIVED(struct tunnel_io, image), /* the seat's */
    IMAGE_DERIVED(struct tunnel_io, next),
    IMAGE_DERIVED(struct tunnel_io, link),
    IMAGE_TIME(struct tunnel_io, patient_until),
    IMAGE_BUFFER(struct tunnel_io, early, EARLY_MAX),
    IMAGE_BUFFERS(struct tunnel_io, left, BUFFER_LIMIT_MAX),
    IMAGE_BY(struct tunnel_io, pipe, image_pipe),
    IMAGE_FLAG(struct tunnel_io, client_bounded),
    IMAGE_ANEW(struct tunnel_io, dial),
    IMAGE_ANEW(struct tunnel_io, recheck),
    IMAGE_ANEW(struct tunnel_io, ahead),
    IMAGE_ANEW(struct tunnel_io, probing), /* this and the next field belong to a dial */
    IMAGE_ANEW(struct tunnel_io, dialled_at),
    IMAGE_BY(struct tunnel_io, ask, image_ask),
    IMAGE_BY(struct tunnel_io, move, image_move),
    IMAGE_NUMBER(struct tunnel_io, permit, PERMIT_OVER),
    IMAGE_TIME(struct tunnel_io, permit_since),
};
IMAGE_TABLE(tunnel_io_table, struct tunnel_io, fields);

/* ---- the memory of the work ---- */
static struct tunnel_kind *kind_of(const struct tunnel_seat *seat)
{
    return &seat->thread->rest.kinds[seat->kind];
}

static struct tunnel_kind kind_for(const struct adapter *adapter)
{
    size_t size = sizeof(struct tunnel_io) + ((adapter->state_len + 7) & ~(size_t)7);

    assert(adapter->state_len <= ADAPTER_STATE_MOST);
    static_assert(sizeof(struct tunnel_io) + ADAPTER_STATE_MOST <= TUNNEL_WORK_MAX, "a visit holds the work");
    return (struct tunnel_kind){adapter, slabs_of(size)};
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

/* ---- the upgrade ---- */
static struct slice work_image(const struct tunnel_image *image)
{
    return slice_of(image->bytes, image->work_len);
}

static struct slice upgrade_image(const struct tunnel_image *image)
{
    return slice_of(image->bytes + image->work_len, image->upgrade_len);
}

/* ---- the memory that stays where it is: pointers behind both images, in a few bytes, as they are not far from the seat ---- */
enum { POINTER_MAX = 10 /* bytes of one */, POINTER_UNIT = 8, BITS = 7, MORE = 1 << BITS };

static uint8_t *put_pointer(uint8_t *to, const void *pointer, const struct tunnel_seat *near)
{
    intptr_t units = ((intptr_t)pointer - (intptr_t)near) / POINTER_UNIT;
    uint64_t value = units < 0 ? ~((uint64_t)units << 1) : (uint64_t)units << 1;

    assert((uintptr_t)pointer % POINTER_UNIT == 0);
    for (; value >= MORE; value >>= BITS)
        *to++ = (uint8_t)(value | MORE);
    *to++ = (uint8_t)value;
    return to;
}

static const uint8_t *take_pointer(const uint8_t *from, void **pointer, const struct tunnel_seat *near)
{
    uint64_t value = 0;
    unsigned shift = 0;

    do
        value |= (uint64_t)(*from & (MORE - 1)) << shift;
    while (shift += BITS, *from++ & MORE);
    intptr_t units = value & 1 ? (intptr_t) ~(value >> 1) : (intptr_t)(value >> 1);
    *pointer = (void *)((intptr_t)near + units * POINTER_UNIT);
    return from;
}

static size_t put_kept(uint8_t *to, void *const *kept, size_t count, const struct tunnel_seat *seat)
{
    uint8_t *at = to;

    for (size_t i = 0; i < count; i++)
        at = put_pointer(at, kept[i], seat);
    return (size_t)(at - to);
}

static void take_kept(const struct tunnel_seat *seat, void **kept)
{
    const struct tunnel_image *image = seat->image;
    const uint8_t *at = image->bytes + image->work_len + image->upgrade_len;

    for (size_t i = 0; i < image->kept_count; i++)
        at = take_pointer(at, &kept[i], seat);
}

/* Reads what this thread has written. */
static struct upgrade_kept *load_upgrade(const struct tunnel_rest *rest, const struct tunnel_image *image,
                                         void *to)
{
    bool loaded = upgrade_load(upgrade_image(image), rest->words, to);

    assert(loaded);
    (void)loaded;
    return to;
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
    free(io->image);
    io->upgrade = NULL;
    io->image = NULL;
}

struct upgrade_kept *tunnel_rest_upgrade(struct tunnel_io *io)
{
    struct tunnel_rest *rest = &io->thread->rest;

    if (io->upgrade)
        return io->upgrade;
    size_t size = upgrade_saved_size(upgrade_image(io->image));
    bool small = size <= UPGRADE_SMALL;
    void *memory = small ? slabs_take(&rest->upgrades) : malloc(size);
    if (!memory)
        return load_upgrade(rest, io->image, rest->head);
    io->upgrade = load_upgrade(rest, io->image, memory);
    io->upgrade_small = small;
    free(io->image);
    io->image = NULL;
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

/* ---- to rest ---- */
static uint32_t add_to_sum(uint32_t sum, uint32_t more)
{
    return (sum ^ more) * 16777619U;
}

/* FNV-1a, of an image and of what tells whose it is. Finds damage, not malice: who can write here can compute the sum, too. */
static uint32_t sum_of(const struct tunnel_image *image, const struct tunnel_seat *seat)
{
    const uint8_t *at = (const uint8_t *)image + sizeof image->sum,
                  *end = image->bytes + image->work_len + image->upgrade_len + image->kept_len;
    uint32_t sum = add_to_sum(2166136261U, seat->kind);

    for (enum side side = CLIENT; side <= WORKER; side++)
        if (seat->sockets[side].share)
            sum = add_to_sum(sum, (uint32_t)loop_io_fd(&seat->sockets[side]));
    for (; at < end; at++)
        sum = add_to_sum(sum, *at);
    return sum;
}

/* Appends the image of the upgrade, or the one that is there if the upgrade was not needed since. Returns false if it stays where it is. */
static bool write_upgrade(struct tunnel_io *io, struct buffer *to)
{
    if (!io->upgrade)
        return buffer_put(to, upgrade_image(io->image));
    (void)upgrade_forget_key(io->upgrade); /* a tunnel that rests for the first time still has the key */
    if (upgrade_kept_size(io->upgrade) > TUNNEL_HEAD_MAX ||
        !upgrade_save(io->upgrade, io->thread->rest.words, to)) {
        buffer_cut(to, 0);
        return false;
    }
    return true;
}

/* Returns the images of a tunnel in memory of their own, or NULL if memory is short; io is as before then. */
static struct tunnel_image *write_images(struct tunnel_io *io, struct buffer *to)
{
    void *kept[KEPT_MAX];
    uint8_t near[KEPT_MAX * POINTER_MAX];
    struct upgrade_kept *upgrade = io->upgrade;
    bool small = io->upgrade_small, written = write_upgrade(io, to);
    size_t upgrade_len = buffer_len(to);

    if (written) {
        io->upgrade = NULL;
        io->upgrade_small = false;
    }
    struct image image = image_to(to, VERSION, loop_clock());
    image_keep(&image, kept, KEPT_MAX);
    image_part(&image, &tunnel_io_table, io);
    size_t work_len = buffer_len(to) - upgrade_len,
           kept_len = put_kept(near, kept, image.kept_count, io->seat);
    size_t size = offsetof(struct tunnel_image, bytes) + buffer_len(to) + kept_len;
    struct tunnel_image *images = image_done(&image) && (written || upgrade) ? malloc(size) : NULL;
    if (!images) {
        io->upgrade = upgrade;
        io->upgrade_small = small;
        return NULL;
    }
    *images = (struct tunnel_image){.work_len = (uint16_t)work_len,
                                    .upgrade_len = (uint16_t)upgrade_len,
                                    .kept_len = (uint16_t)kept_len,
                                    .kept_count = (uint8_t)image.kept_count};
    memcpy(images->bytes, buffer_slice(to).at + upgrade_len, work_len);
    if (upgrade_len)
        memcpy(images->bytes + work_len, buffer_slice(to).at, upgrade_len);
    memcpy(images->bytes + buffer_len(to), near, kept_len);
    images->sum = sum_of(images, io->seat);
    if (written && upgrade)
        give_upgrade(&io->thread->rest, upgrade, small);
    free(io->image);
    io->image = NULL;
    return images;
}

/* ---- tunnels at work ---- */
static void note_work(struct tunnel_seat *seat)
{
    struct relay_thread *thread = seat->thread;

    assert(thread->at_work_count < TUNNELS_AT_WORK);
    thread->at_work[thread->at_work_count] = seat;
    thread->at_work_count++;
    atomic_signal_fence(memory_order_seq_cst);
}

void tunnel_work_end(struct tunnel_seat *seat)
{
    assert(tunnel_is_at_work(seat));
    atomic_signal_fence(memory_order_seq_cst);
    seat->thread->at_work_count--;
}

static void lay_down(struct tunnel_io *io)
{
    struct tunnel_seat *seat = io->seat;
    struct tunnel_rest *rest = &seat->thread->rest;

    buffer_cut(&rest->image, 0);
    note_work(seat);
    struct tunnel_image *image = write_images(io, &rest->image);
    if (!image) {
        io->stirred = true;
        tunnel_work_end(seat);
        return;
    }
    seat->holds = tunnel_stats_held(&io->stats) > 0;
    tunnel_rest_leave(io);
    slabs_rest(&kind_of(seat)->works, io);
    seat->image = image;
    seat->rests = true;
    rest->resting++;
    tunnel_work_end(seat);
}

/* Returns true if a tunnel has nothing that would have to be begun anew, and nothing has happened to it for a while. */
static bool may_rest(const struct tunnel_io *io)
{
    return !io->stirred && io->tunnel.state == TUNNEL_serving && !io->dial && !io->recheck && !io->moving &&
           !io->gone;
}

/* Looks for idle tunnels, a limited number at a time, so that events of other tunnels are handled in between. */
static void on_look(void *owner)
{
    struct tunnel_rest *rest = &((struct relay_thread *)owner)->rest;
    struct tunnel_io *io = rest->look_from ? rest->look_from : rest->awake, *next;

    for (unsigned i = 0; io && i < LOOKED_AT; i++, io = next) {
        next = io->next;
        if (may_rest(io))
            lay_down(io);
        else
            io->stirred = false;
    }
    rest->look_from = io;
    if (rest->awake)
        loop_timer_set(&rest->look, io ? 0 : REST_AFTER);
}

/* ---- to wake, and to visit ---- */
/* Reads the work of a tunnel at rest into zeroed memory. This cannot fail: the thread itself has written the image, and reading allocates
 * nothing. */
static void read_work(struct tunnel_seat *seat, struct tunnel_io *io)
{
    struct tunnel_image *resting = seat->image;
    void *kept[KEPT_MAX];
    struct image image = image_from(work_image(resting), VERSION, UINT64_MAX);
    const struct tunnel_place place = {&seat->thread->host, io, &seat->thread->settings.tunnel};

    take_kept(seat, kept);
    image_keep(&image, kept, resting->kept_count);
    io->tunnel.forward.adapter = kind_of(seat)->adapter;
    tunnel_place(&io->tunnel, &place, io + 1);
    image_part(&image, &tunnel_io_table, io);
    assert(image_done(&image));
    tunnel_rest_place(io, seat);
}

struct tunnel_io *tunnel_work_begin(struct tunnel_seat *seat)
{
    note_work(seat);
    if (!seat->rests) {
        seat->io->stirred = true;
        return seat->io;
    }
    struct tunnel_io *io = slabs_wake(&kind_of(seat)->works);
    read_work(seat, io);
    if (seat->image->upgrade_len)
        io->image = seat->image;
    else
        free(seat->image);
    seat->rests = false;
    seat->io = io;
    seat->thread->rest.resting--;
    tunnel_rest_stir(io);
    return io;
}

void tunnel_rest_abandon(struct tunnel_seat *seat)
{
    tunnel_rest_free_upgrade(seat->io);
    tunnel_rest_leave(seat->io);
    slabs_give(&kind_of(seat)->works, seat->io);
    seat->io = NULL;
}

bool tunnel_rest_is_sound(const struct tunnel_seat *seat, const struct relay_thread *thread)
{
    if (seat->thread != thread || seat->kind >= ADAPTER_KINDS || !thread->rest.kinds[seat->kind].adapter)
        return false;
    if (!seat->rests)
        return seat->io->seat == seat && seat->io->thread == thread;
    return seat->image->sum == sum_of(seat->image, seat) && seat->image->kept_count <= KEPT_MAX;
}

void tunnel_visit(const struct tunnel_seat *seat, struct tunnel_visit *visit, void *head)
{
    struct tunnel_io *io = seat->rests ? (struct tunnel_io *)(void *)visit->work : seat->io;
    const struct tunnel_image *image = seat->rests ? seat->image : io->image;

    if (seat->rests) {
        memset(io, 0, kind_of(seat)->works.size);
        read_work((struct tunnel_seat *)seat, io);
    }
    visit->io = io;
    visit->stats = io->stats;
    visit->stats.upgrade =
        io->upgrade || !head ? io->upgrade : load_upgrade(&seat->thread->rest, image, head);
}

bool tunnel_rest_open(struct tunnel_rest *rest, struct relay_thread *thread)
{
    *rest = (struct tunnel_rest){.seats = slabs_of(sizeof(struct tunnel_seat)),
                                 .upgrades = slabs_of(UPGRADE_SMALL),
                                 .words = image_words_new(upgrade_words()),
                                 .image = buffer_with_limit(IMAGE_MAX),
                                 .head = malloc(TUNNEL_HEAD_MAX)};
    loop_timer_open(&rest->look, thread->loop, on_look, thread);
    return rest->words && rest->head;
}

void tunnel_rest_close(struct tunnel_rest *rest)
{
    slabs_free(&rest->seats);
    for (size_t i = 0; i < ADAPTER_KINDS; i++)
        slabs_free(&rest->kinds[i].works);
    slabs_free(&rest->upgrades);
    image_words_free(rest->words);
    buffer_free(&rest->image);
    free(rest->head);
}
