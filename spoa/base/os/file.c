/* SPDX-License-Identifier: MIT */
#include "spoa/base/os/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

/* Reads until the end of the file or until the memory is full; -1 on an error. */
static ssize_t read_all(int fd, uint8_t *memory, size_t size)
{
    size_t len = 0;
    while (len < size) {
        ssize_t got = read(fd, memory + len, size - len);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return -1;
        if (got == 0)
            break;
        len += (size_t)got;
    }
    return (ssize_t)len;
}

/* Reads at most `limit` bytes into `room`, of which one is for seeing that there is more. */
static bool read_open(int fd, const char *path, size_t room, size_t limit, struct slice *content,
                      struct fail *why)
{
    uint8_t *memory = malloc(room + 1);
    if (!memory)
        return fail(why, "%s: out of memory", path);
    ssize_t len = read_all(fd, memory, room);
    if (len < 0)
        fail(why, "%s: %s", path, strerror(errno));
    else if ((size_t)len > limit)
        fail(why, "%s: longer than %zu bytes", path, limit);
    else if ((size_t)len == room)
        fail(why, "%s: grew while it was read", path);
    if (len < 0 || (size_t)len >= room) {
        free(memory);
        return false;
    }
    memory[len] = '\0';
    *content = slice_of(memory, (size_t)len);
    return true;
}

static bool look_at(int fd, const char *path, struct stat *look, struct fail *why)
{
    if (fstat(fd, look) < 0)
        return fail(why, "%s: %s", path, strerror(errno));
    if (S_ISDIR(look->st_mode))
        return fail(why, "%s: %s", path, strerror(EISDIR));
    return S_ISREG(look->st_mode) || fail(why, "%s: not a regular file", path);
}

/* -1 and *why. O_NONBLOCK: the open of a FIFO that nobody writes to would wait for a writer. */
static int open_regular(const char *path, struct stat *look, struct fail *why)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd < 0)
        fail(why, "%s: %s", path, strerror(errno));
    else if (!look_at(fd, path, look, why)) {
        close(fd);
        return -1;
    }
    return fd;
}

static bool read_sized(int fd, const char *path, const struct stat *look, size_t limit, struct slice *content,
                       struct fail *why)
{
    size_t size = look->st_size < 0 ? 0 : (size_t)look->st_size;
    return read_open(fd, path, (size < limit ? size : limit) + 1, limit, content, why);
}

bool file_read(const char *path, size_t limit, struct slice *content, struct fail *why)
{
    struct stat look;
    *content = (struct slice){NULL, 0};
    int fd = open_regular(path, &look, why);
    if (fd < 0)
        return false;
    bool good = read_sized(fd, path, &look, limit, content, why);
    close(fd);
    return good;
}

/* The mode of the file that is open, so that nothing can be put in its place behind the look. */
static bool is_secret(const struct stat *look, const char *path, struct fail *why)
{
    unsigned mode = look->st_mode & 0777;
    if (mode & (S_IRWXO | S_IWGRP))
        return fail(why, "%s: others can read or write it (mode %03o, should be 600)", path, mode);
    return !(mode & S_IRGRP) || look->st_gid == getegid() || geteuid() == 0 ||
           fail(why, "%s: a group that is not the agent's can read it (mode %03o, should be 600)", path,
                mode);
}

bool file_read_secret(const char *path, size_t limit, struct slice *content, struct fail *why)
{
    struct stat look;
    *content = (struct slice){NULL, 0};
    int fd = open_regular(path, &look, why);
    if (fd < 0)
        return false;
    bool good = is_secret(&look, path, why) && read_sized(fd, path, &look, limit, content, why);
    close(fd);
    return good;
}

bool file_readable(const char *path, struct fail *why)
{
    struct stat look;
    int fd = open_regular(path, &look, why);
    if (fd >= 0)
        close(fd);
    return fd >= 0;
}

bool file_read_stream(const char *path, size_t limit, struct slice *content, struct fail *why)
{
    *content = (struct slice){NULL, 0};
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    if (fd < 0)
        return fail(why, "%s: %s", path, strerror(errno));
    bool good = read_open(fd, path, limit + 1, limit, content, why);
    close(fd);
    return good;
}

void file_free(struct slice content)
{
    void *memory = (void *)content.at;
    if (memory)
        explicit_bzero(memory, content.len);
    free(memory);
}

void file_look(const char *path, struct stat *look)
{
    if (stat(path, look) != 0)
        memset(look, 0, sizeof *look);
}

bool file_is_public(const char *path)
{
    struct stat look;
    file_look(path, &look);
    return S_ISREG(look.st_mode) && look.st_mode & S_IROTH;
}

static bool same_time(const struct timespec *a, const struct timespec *b)
{
    return a->tv_sec == b->tv_sec && a->tv_nsec == b->tv_nsec;
}

/* The time of its last change is the only one that nobody can set. */
bool file_looks_same(const struct stat *before, const struct stat *now)
{
    return before->st_dev == now->st_dev && before->st_ino == now->st_ino &&
           before->st_size == now->st_size && same_time(&before->st_mtim, &now->st_mtim) &&
           same_time(&before->st_ctim, &now->st_ctim);
}
