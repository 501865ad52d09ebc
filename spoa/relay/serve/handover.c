/* SPDX-License-Identifier: MIT */
#include "spoa/relay/serve/handover.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "spoa/relay/tunnel_io/tunnel_handover.h"
#include "spoa/service/keeper_exec.h"

enum { RECORD_MAX = 1 << 30 };

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

void handover_begin(struct handover_file *file, size_t tunnels)
{
    *file = (struct handover_file){.fd = memfd_create("cellgate tunnels", MFD_CLOEXEC),
                                   .tunnels = tunnels,
                                   .fds = calloc(tunnels ? tunnels : 1, 2 * sizeof *file->fds)};
    if (!file->fds || (file->fd >= 0 && lseek(file->fd, (off_t)records_at(tunnels), SEEK_SET) < 0))
        give_up(file);
}

/* Appends the record of a tunnel. Returns false if nobody can go on with it. */
static bool write_tunnel(struct handover_file *file, struct tunnel_seat *seat)
{
    struct buffer record = buffer_with_limit(RECORD_MAX);
    int fds[2];
    bool good = file->fd >= 0 && file->written < file->tunnels && tunnel_hand_over(seat, &record, fds);
    uint32_t len = (uint32_t)buffer_len(&record);

    if (good && (!write_all(file->fd, slice_of((const uint8_t *)&len, sizeof len)) ||
                 !write_all(file->fd, buffer_slice(&record)))) {
        give_up(file); /* memory is short: half a record is in the file */
        good = false;
    }
    buffer_free(&record);
    if (good) {
        file->fds[2 * file->written] = fds[CLIENT];
        file->fds[2 * file->written++ + 1] = fds[WORKER];
    }
    return good;
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
        file->fd >= 0 && lseek(file->fd, 0, SEEK_SET) == 0 &&
        write_all(file->fd, slice_of((const uint8_t *)&head, sizeof head)) &&
        write_all(file->fd, slice_of((const uint8_t *)file->fds, records_at(file->tunnels) - sizeof head));

    if (!good)
        give_up(file);
    free(file->fds);
    file->fds = NULL;
    return file->fd;
}

/* ---- to read ---- */

bool handover_map(int fd, struct handover_records *records)
{
    struct keeper_images head;
    struct stat file;

    *records = (struct handover_records){.step = 1};
    if (fstat(fd, &file) != 0 || pread(fd, &head, sizeof head, 0) != (ssize_t)sizeof head ||
        head.magic != KEEPER_IMAGES || head.count % 2 || head.count > INT32_MAX)
        return false;
    size_t at = records_at(head.count / 2), size = (size_t)file.st_size;
    if (size <= at)
        return false;
    records->map = mmap(NULL, size, PROT_READ, MAP_PRIVATE, fd, 0);
    records->map_size = size;
    if (records->map == MAP_FAILED)
        return false;
    records->bytes = slice_of((const uint8_t *)records->map + at, size - at);
    return true;
}

void handover_unmap(struct handover_records *records)
{
    munmap(records->map, records->map_size);
}

void handover_read(struct handover_records *r, struct relay_thread *thread)
{
    struct slice rest = r->bytes;
    uint32_t len;

    for (size_t i = 0; rest.len >= sizeof len; i++) {
        memcpy(&len, rest.at, sizeof len);
        rest = slice_from(rest, sizeof len);
        if (len > rest.len)
            return;
        if (i % r->step == r->first) {
            bool taken = tunnel_take_over(thread, slice_of(rest.at, len));
            r->taken += taken;
            r->lost += !taken;
        }
        rest = slice_from(rest, len);
    }
}
