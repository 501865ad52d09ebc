/* SPDX-License-Identifier: MIT */
#include "spoa/relay/serve/handover.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "spoa/base/bytes/heap.h"
#include "spoa/relay/egress/egress_handover.h"
#include "spoa/relay/tunnel_io/tunnel_handover.h"

enum { RECORD_MAX = 1 << 30, FLUSH = 1 << 18, FDS = 2 /* of a record */ };

enum kind { TUNNEL = 't', EGRESS = 'e' };

/* In front of each record. */
struct record_head {
    uint32_t len; /* bytes of the record */
    uint32_t kind;
    int32_t fds[FDS]; /* -1 for none */
};

static size_t records_at(size_t descriptors)
{
    return sizeof(struct handover_head) + descriptors * sizeof(int32_t);
}

/* ---- to write ---- */

static bool write_all(int fd, struct slice bytes, uint64_t at)
{
    while (bytes.len) {
        ssize_t put = pwrite(fd, bytes.at, bytes.len, (off_t)at);
        if (put <= 0)
            return false;
        bytes = slice_from(bytes, (size_t)put);
        at += (uint64_t)put;
    }
    return true;
}

void handover_begin(struct handover_file *file, size_t tunnels)
{
    *file = (struct handover_file){.fd = memfd_create("cellgate tunnels", MFD_CLOEXEC),
                                   .begun = loop_clock(),
                                   .room = FDS * tunnels,
                                   .end = records_at(FDS * tunnels),
                                   .descriptors = heap_take((tunnels + 1) * FDS * sizeof(int32_t))};
    if (file->descriptors) {
        memset(file->descriptors, 0xff, (tunnels + 1) * FDS * sizeof(int32_t)); /* -1 each */
        return;
    }
    if (file->fd >= 0)
        close(file->fd);
    file->fd = -1;
}

/* Writes the records that wait. */
static void flush(struct handover_file *file, struct buffer *out)
{
    uint64_t at = atomic_fetch_add(&file->end, buffer_len(out));

    if (!write_all(file->fd, buffer_slice(out), at))
        atomic_store(&file->failed, true);
    buffer_cut(out, 0);
}

static bool hand_over_tunnel(void *seat, struct buffer *to, int fds[FDS])
{
    return tunnel_hand_over(seat, to, fds);
}

static bool salvage_tunnel(void *seat, struct buffer *to, int fds[FDS])
{
    return tunnel_salvage(seat, to, fds);
}

static bool hand_over_egress(void *io, struct buffer *to, int fds[FDS])
{
    return egress_hand_over(io, to, fds);
}

/* Appends the record of a tunnel or a connection to `out`, by `write`. Returns false if nobody can go on with it. */
static bool write_record(struct handover_file *file, struct buffer *out, enum kind kind, void *object,
                         bool (*write)(void *object, struct buffer *to, int fds[FDS]))
{
    size_t at = buffer_len(out), place = atomic_fetch_add(&file->taken, FDS);
    struct record_head head = {.kind = kind};
    int fds[FDS] = {-1, -1};

    if (file->fd < 0 || place + FDS > file->room)
        return false;
    bool good = buffer_put(out, slice_of((const uint8_t *)&head, sizeof head)) && write(object, out, fds);
    for (size_t i = 0; i < FDS; i++) {
        head.fds[i] = good && (fds[i] < 0 || fcntl(fds[i], F_SETFD, 0) == 0) ? fds[i] : -1;
        file->descriptors[place + i] = head.fds[i];
    }
    if (!good) {
        buffer_cut(out, at);
        return false;
    }
    head.len = (uint32_t)(buffer_len(out) - at - sizeof head);
    memcpy(out->memory + out->start + at, &head, sizeof head);
    if (buffer_len(out) >= FLUSH)
        flush(file, out);
    return true;
}

void handover_write(struct handover_file *file, struct relay_thread *thread)
{
    struct buffer out = buffer_with_limit(RECORD_MAX);

    for (struct tunnel_seat *p = thread->tunnels, *next; p; p = next) {
        next = tunnel_io_next(p);
        if (!write_record(file, &out, TUNNEL, p, hand_over_tunnel))
            tunnel_io_end(p, CLOSE_restarting);
    }
    for (struct egress_io *p = egress_io_next(thread, NULL), *next; p; p = next) {
        next = egress_io_next(thread, p);
        if (!write_record(file, &out, EGRESS, p, hand_over_egress))
            egress_io_end(p);
    }
    flush(file, &out);
    buffer_free(&out);
}

uint64_t handover_salvage(struct handover_file *file, struct tunnel_seat *seat)
{
    struct buffer out = buffer_with_limit(RECORD_MAX);
    uint64_t at = atomic_load(&file->end);

    if (!write_record(file, &out, TUNNEL, seat, salvage_tunnel))
        return 0;
    flush(file, &out);
    return at;
}

void handover_spoil(struct handover_file *file, uint64_t at)
{
    static const uint32_t no_kind;

    if (!write_all(file->fd, slice_of((const uint8_t *)&no_kind, sizeof no_kind),
                   at + offsetof(struct record_head, kind)))
        atomic_store(&file->failed, true);
}

int handover_end(struct handover_file *file)
{
    const struct handover_head head = {HANDOVER_MAGIC, file->room, file->begun};
    const struct slice descriptors =
        slice_of((const uint8_t *)file->descriptors, file->room * sizeof *file->descriptors);
    bool good = file->fd >= 0 && !atomic_load(&file->failed) &&
                write_all(file->fd, slice_of((const uint8_t *)&head, sizeof head), 0) &&
                write_all(file->fd, descriptors, sizeof head);

    if (!good && file->fd >= 0)
        close(file->fd);
    heap_give(file->descriptors);
    file->descriptors = NULL;
    return good ? file->fd : -1;
}

/* ---- to read ---- */

/* Takes the next record off the front of `rest`. Returns false if there is none that is whole. */
static bool next_record(struct slice *rest, struct record_head *head, struct slice *record)
{
    if (rest->len < sizeof *head)
        return false;
    memcpy(head, rest->at, sizeof *head);
    if (head->len > rest->len - sizeof *head)
        return false;
    *record = slice_of(rest->at + sizeof *head, head->len);
    *rest = slice_from(*rest, sizeof *head + head->len);
    return true;
}

bool handover_map(int fd, struct handover_records *records)
{
    struct handover_head head;
    struct stat file;
    struct rlimit files;

    if (fstat(fd, &file) != 0 || pread(fd, &head, sizeof head, 0) != (ssize_t)sizeof head ||
        head.magic != HANDOVER_MAGIC || head.descriptors > INT32_MAX || getrlimit(RLIMIT_NOFILE, &files) != 0)
        return false;
    size_t at = records_at(head.descriptors), size = (size_t)file.st_size;
    _Atomic uint8_t *seen = size >= at ? calloc(files.rlim_cur, 1) : NULL;
    if (!seen)
        return false;
    const uint8_t *bytes = mmap(NULL, size, PROT_READ, MAP_PRIVATE | MAP_POPULATE, fd, 0);
    if (bytes == MAP_FAILED) {
        free((void *)seen);
        return false;
    }
    *records = (struct handover_records){.bytes = slice_of(bytes + at, size - at),
                                         .descriptors = slice_of(bytes + sizeof head, at - sizeof head),
                                         .begun = head.begun,
                                         .step = 1,
                                         .seen = seen,
                                         .seen_size = files.rlim_cur,
                                         .map = bytes,
                                         .map_size = size};
    return true;
}

static void note_read(struct handover_records *r, unsigned number)
{
    if (r->reads)
        atomic_store_explicit(r->reads, number, memory_order_relaxed);
    atomic_signal_fence(memory_order_seq_cst);
}

static bool is_left_out(const struct handover_records *r, unsigned number)
{
    for (size_t i = 0; i < r->left_out_count; i++)
        if (r->left_out[i] == number)
            return true;
    return false;
}

/* Returns true for a socket that carries a stream: not for a listener, and not for another descriptor of keeper or server. */
static bool is_stream(int fd)
{
    int type, listens;
    socklen_t size[] = {sizeof type, sizeof listens};

    return getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size[0]) == 0 && type == SOCK_STREAM &&
           getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size[1]) == 0 && !listens;
}

/* Gives a record its sockets, -1 where the record does not get one. An attacker may have controlled the server that wrote the file: no
 * record gets a descriptor of another record, or a descriptor that is no stream. Returns false if the record named such a descriptor. */
static bool claim(struct handover_records *r, const struct record_head *head, int fds[FDS])
{
    bool good = true;

    for (size_t i = 0; i < FDS; i++) {
        int fd = head->fds[i];
        bool granted = fd > STDERR_FILENO && (size_t)fd < r->seen_size && is_stream(fd) &&
                       !atomic_exchange_explicit(&r->seen[fd], 1, memory_order_relaxed);
        fds[i] = granted ? fd : -1;
        good = good && (granted || fd == -1);
    }
    return good;
}

/* A record of a kind that this program does not know is lost, as one of another version. */
static bool read_one(struct handover_records *r, struct relay_thread *thread, const struct record_head *head,
                     struct slice record)
{
    int fds[FDS];
    bool taken = claim(r, head, fds);

    if (head->kind == TUNNEL)
        taken = taken && tunnel_take_over(thread, record, fds);
    else
        taken = taken && head->kind == EGRESS && egress_take_over(thread, record, fds);
    for (size_t i = 0; !taken && i < FDS; i++)
        if (fds[i] >= 0)
            close(fds[i]);
    return taken;
}

void handover_read(struct handover_records *r, struct relay_thread *thread)
{
    struct slice rest = r->bytes, record;
    struct record_head head;

    for (size_t i = 0; next_record(&rest, &head, &record); i++) {
        if (i % r->step != r->first)
            continue;
        note_read(r, (unsigned)i + 1);
        bool taken = !is_left_out(r, (unsigned)i) && read_one(r, thread, &head, record);
        note_read(r, 0);
        r->taken += taken;
        r->lost += !taken;
    }
}

void handover_unmap(struct handover_records *records)
{
    int32_t fd;

    for (struct slice rest = records->descriptors; rest.len; rest = slice_from(rest, sizeof fd)) {
        memcpy(&fd, rest.at, sizeof fd);
        if (fd > STDERR_FILENO && (size_t)fd < records->seen_size && !records->seen[fd])
            close(fd);
    }
    munmap((void *)records->map, records->map_size);
    free((void *)records->seen);
}
