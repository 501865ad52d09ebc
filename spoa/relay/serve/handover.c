/* SPDX-License-Identifier: MIT */
#include "spoa/relay/serve/handover.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "spoa/relay/tunnel_io/tunnel_handover.h"
#include "spoa/service/keeper_exec.h"

enum { RECORD_MAX = 1 << 30, FLUSH = 1 << 18 };

static size_t records_at(size_t tunnels)
{
    return sizeof(struct keeper_images) + 2 * tunnels * sizeof(int32_t);
}

/* ---- to write ---- */

static bool write_all(int fd, struct slice bytes)
{
    while (bytes.len) {
        ssize_t put = write(fd, bytes.at, bytes.len);
        if (put <= 0)
            return false;
        bytes = slice_from(bytes, (size_t)put);
    }
    return true;
}

static void give_up(struct handover_file *file)
{
    if (file->fd >= 0)
        close(file->fd);
    file->fd = -1;
}

/* Writes what waits; returns false if memory is short. */
static bool flush(struct handover_file *file)
{
    bool good = write_all(file->fd, buffer_slice(&file->out));

    buffer_cut(&file->out, 0);
    if (!good)
        give_up(file);
    return good;
}

void handover_begin(struct handover_file *file, size_t tunnels)
{
    const uint64_t now = loop_clock();

    *file = (struct handover_file){.fd = memfd_create("cellgate tunnels", MFD_CLOEXEC),
                                   .tunnels = tunnels,
                                   .out = buffer_with_limit(RECORD_MAX),
                                   .fds = calloc(tunnels ? tunnels : 1, 2 * sizeof *file->fds)};
    if (!file->fds || !buffer_put(&file->out, slice_of((const uint8_t *)&now, sizeof now)) ||
        (file->fd >= 0 && lseek(file->fd, (off_t)records_at(tunnels), SEEK_SET) < 0))
        give_up(file);
}

/* Appends the record of a tunnel. Returns false if nobody can go on with it. */
static bool write_tunnel(struct handover_file *file, struct tunnel_seat *seat)
{
    size_t at = buffer_len(&file->out);
    uint32_t len = 0;
    int fds[2];

    if (file->fd < 0 || file->written == file->tunnels ||
        !buffer_put(&file->out, slice_of((const uint8_t *)&len, sizeof len)) ||
        !tunnel_hand_over(seat, &file->out, fds)) {
        buffer_cut(&file->out, at);
        return false;
    }
    len = (uint32_t)(buffer_len(&file->out) - at - sizeof len);
    memcpy(file->out.memory + file->out.start + at, &len, sizeof len);
    file->fds[2 * file->written] = fds[CLIENT];
    file->fds[2 * file->written++ + 1] = fds[WORKER];
    return buffer_len(&file->out) < FLUSH || flush(file);
}

void handover_write(struct handover_file *file, struct relay_thread *thread)
{
    for (struct tunnel_seat *p = thread->tunnels, *next; p; p = next) {
        next = tunnel_io_next(p);
        if (!write_tunnel(file, p))
            tunnel_io_end(p, CLOSE_restarting);
    }
}

int handover_end(struct handover_file *file)
{
    const struct keeper_images head = {KEEPER_IMAGES, 2 * file->tunnels};
    bool good =
        file->fd >= 0 && flush(file) && lseek(file->fd, 0, SEEK_SET) == 0 &&
        write_all(file->fd, slice_of((const uint8_t *)&head, sizeof head)) &&
        write_all(file->fd, slice_of((const uint8_t *)file->fds, records_at(file->tunnels) - sizeof head));

    if (!good)
        give_up(file);
    buffer_free(&file->out);
    free(file->fds);
    file->fds = NULL;
    return file->fd;
}

/* ---- to read ---- */

/* Takes the next record off the front of `rest`. Returns false if there is none that is whole. */
static bool next_record(struct slice *rest, struct slice *record)
{
    uint32_t len;

    if (rest->len < sizeof len)
        return false;
    memcpy(&len, rest->at, sizeof len);
    if (len > rest->len - sizeof len)
        return false;
    *record = slice_of(rest->at + sizeof len, len);
    *rest = slice_from(*rest, sizeof len + len);
    return true;
}

/* The sockets of tunnels whose records are not in the file would stay open, and nobody would serve them. */
static void close_rest(struct handover_records *records, const uint8_t *descriptors, size_t tunnels)
{
    struct slice rest = records->bytes, record;
    int32_t fds[2];

    for (size_t i = 0; i < tunnels; i++) {
        memcpy(fds, descriptors + i * sizeof fds, sizeof fds);
        if (next_record(&rest, &record))
            continue;
        records->lost += fds[CLIENT] > STDERR_FILENO;
        for (enum side side = CLIENT; side <= WORKER; side++)
            if (fds[side] > STDERR_FILENO)
                close(fds[side]);
    }
}

bool handover_map(int fd, struct handover_records *records)
{
    struct keeper_images head;
    struct stat file;

    *records = (struct handover_records){.step = 1};
    if (fstat(fd, &file) != 0 || pread(fd, &head, sizeof head, 0) != (ssize_t)sizeof head ||
        head.magic != KEEPER_IMAGES || head.count % 2 || head.count > INT32_MAX)
        return false;
    size_t at = records_at(head.count / 2), size = (size_t)file.st_size;
    if (size < at + sizeof records->begun)
        return false;
    const uint8_t *bytes = mmap(NULL, size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (bytes == MAP_FAILED)
        return false;
    records->map = bytes;
    records->map_size = size;
    memcpy(&records->begun, bytes + at, sizeof records->begun);
    at += sizeof records->begun;
    records->bytes = slice_of(bytes + at, size - at);
    close_rest(records, bytes + sizeof head, head.count / 2);
    return true;
}

void handover_unmap(struct handover_records *records)
{
    munmap((void *)records->map, records->map_size);
}

void handover_read(struct handover_records *r, struct relay_thread *thread)
{
    struct slice rest = r->bytes, record;

    for (size_t i = 0; next_record(&rest, &record); i++) {
        if (i % r->step != r->first)
            continue;
        bool taken = tunnel_take_over(thread, record);
        r->taken += taken;
        r->lost += !taken;
    }
}
