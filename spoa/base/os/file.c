/* SPDX-License-Identifier: MIT */
#include "spoa/base/os/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/xattr.h>
#include <unistd.h>

/* Reads until the end of the file or until the memory is full. Returns the number of bytes, or -1 on an error. */
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

/* Reads a file of fewer than `room` bytes. The last byte of the room stays empty unless the file is longer than the caller expected,
 * which shows that the file exceeds `limit` or grew since its size was looked up. */
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

/* Opens a regular file and looks at it. Returns its descriptor, or -1 and fills *why. Without O_NONBLOCK, opening a FIFO would wait
 * for a writer. */
static int open_regular(const char *path, struct stat *look, struct fail *why)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd < 0 || fstat(fd, look) < 0)
        fail(why, "%s: %s", path, strerror(errno));
    else if (S_ISDIR(look->st_mode))
        fail(why, "%s: %s", path, strerror(EISDIR));
    else if (!S_ISREG(look->st_mode))
        fail(why, "%s: not a regular file", path);
    else
        return fd;
    if (fd >= 0)
        close(fd);
    return -1;
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

/* ---- secrets ---- */

/* The kernel's form of a POSIX ACL, an extended attribute: a version, then entries of a tag, permissions and an id. */
enum { ACL_HEAD = 4, ACL_ENTRY = 8, ACL_MAX = ACL_HEAD + 64 * ACL_ENTRY };         /* bytes */
enum { ACL_USER = 0x02, ACL_GROUP_OBJ = 0x04, ACL_GROUP = 0x08, ACL_MASK = 0x10 }; /* tags */
enum { WRITES = 2, ALL = 7 };                                                      /* permissions */
static const char acl_name[] = "system.posix_acl_access";

/* The facts about a file. If the file has an ACL, the group bits of the mode are the ACL's mask. */
struct judged {
    struct stat look;
    uint8_t acl[ACL_MAX];
    ssize_t acl_len;  /* 0 if there is no ACL */
    bool acl_unknown; /* there may be an ACL that cannot be read */
    bool by_root;
    const char *path;
};

/* The widest exposure found so far. */
struct finding {
    enum file_exposure exposure;
    const char *who; /* words for an error */
};

/* Notes the result of getxattr(2). */
static void note_acl(struct judged *j, ssize_t len)
{
    j->acl_len = len < 0 ? 0 : len;
    j->acl_unknown = len < 0 && errno != ENODATA && errno != ENOTSUP;
}

/* Returns true if the file may have an ACL: one that grants anything shows in the group bits of the mode. */
static bool may_have_acl(const struct judged *j)
{
    return S_ISREG(j->look.st_mode) && j->look.st_mode & S_IRWXG;
}

/* Notes permissions if they are wider than those found so far. `trusted` says that reading is fine. */
static void find(struct finding *f, unsigned permissions, bool trusted, const char *who)
{
    enum file_exposure exposure = permissions & WRITES      ? FILE_WRITABLE
                                  : permissions && !trusted ? FILE_READABLE
                                                            : FILE_PRIVATE;
    if (exposure > f->exposure)
        *f = (struct finding){exposure, who};
}

/* Returns true if only this process's own group is meant. */
static bool is_own_group(const struct judged *j, gid_t group)
{
    return j->by_root || (!j->acl_unknown && group == getegid());
}

static unsigned acl_u16(const uint8_t *at)
{
    return at[0] | (unsigned)at[1] << 8;
}

static void find_in_acl(const struct judged *j, struct finding *f)
{
    const uint8_t *end = j->acl + j->acl_len;
    unsigned mask = ALL;
    for (const uint8_t *e = j->acl + ACL_HEAD; end - e >= ACL_ENTRY; e += ACL_ENTRY)
        if (acl_u16(e) == ACL_MASK)
            mask = acl_u16(e + 2);
    for (const uint8_t *e = j->acl + ACL_HEAD; end - e >= ACL_ENTRY; e += ACL_ENTRY) {
        unsigned tag = acl_u16(e), permissions = acl_u16(e + 2) & mask;
        uint32_t id = acl_u16(e + 4) | acl_u16(e + 6) << 16;
        if (tag == ACL_USER && id != 0 && id != geteuid() && !j->by_root)
            find(f, permissions, false, "another user, by its ACL,");
        else if (tag == ACL_GROUP)
            find(f, permissions, is_own_group(j, id), "a group, by its ACL,");
        else if (tag == ACL_GROUP_OBJ)
            find(f, permissions, is_own_group(j, j->look.st_gid), "a group");
    }
}

/* Returns the widest exposure by mode, ACL and owner, and describes it in *what unless the file is private. */
static enum file_exposure judge(const struct judged *j, struct fail *what)
{
    struct finding f = {FILE_PRIVATE, NULL};
    unsigned mode = j->look.st_mode & 0777;
    if (!S_ISREG(j->look.st_mode))
        return FILE_PRIVATE;
    find(&f, mode & ALL, false, "everybody");
    if (j->acl_len)
        find_in_acl(j, &f);
    else
        find(&f, mode >> 3 & ALL, is_own_group(j, j->look.st_gid), "a group");
    if (j->look.st_uid != 0 && j->look.st_uid != geteuid() && !j->by_root)
        find(&f, mode >> 6 & ALL & ~(unsigned)WRITES, false, "another user, whose it is,");
    if (f.exposure != FILE_PRIVATE)
        fail(what, "%s: %s can %s it (mode %03o, should be 600)", j->path, f.who,
             f.exposure == FILE_WRITABLE ? "write" : "read", mode);
    return f.exposure;
}

enum file_exposure file_exposure(const char *path, enum file_reader reader, struct fail *what)
{
    struct judged j = {.path = path, .by_root = reader == FILE_READ_BY_ROOT || geteuid() == 0};
    file_look(path, &j.look);
    if (may_have_acl(&j))
        note_acl(&j, getxattr(path, acl_name, j.acl, sizeof j.acl));
    return judge(&j, what);
}

enum file_exposure file_exposure_of(int fd, const char *path, struct fail *what)
{
    struct judged j = {.path = path, .by_root = geteuid() == 0};
    if (fstat(fd, &j.look) != 0) {
        fail(what, "%s: %s", path, strerror(errno));
        return FILE_WRITABLE;
    }
    if (may_have_acl(&j))
        note_acl(&j, fgetxattr(fd, acl_name, j.acl, sizeof j.acl));
    return judge(&j, what);
}

/* Opens a secret and judges the open file. Returns -1 and fills *why if the file is more exposed than `most`. */
static int open_secret(const char *path, enum file_exposure most, struct stat *look, struct fail *why)
{
    struct fail exposed;
    int fd = open_regular(path, look, why);
    if (fd < 0 || file_exposure_of(fd, path, &exposed) <= most)
        return fd;
    close(fd);
    *why = exposed; /* filled only here: an exposure that is tolerated is no error */
    return -1;
}

bool file_read_secret(const char *path, size_t limit, enum file_exposure most, struct slice *content,
                      struct fail *why)
{
    struct stat look;
    *content = (struct slice){NULL, 0};
    int fd = open_secret(path, most, &look, why);
    if (fd < 0)
        return false;
    bool good = read_sized(fd, path, &look, limit, content, why);
    close(fd);
    return good;
}

bool file_readable_secret(const char *path, enum file_exposure most, struct fail *why)
{
    struct stat look;
    int fd = open_secret(path, most, &look, why);
    if (fd >= 0)
        close(fd);
    return fd >= 0;
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

/* Compares st_ctim, too: unlike the size and st_mtim, no program can set the time of the last change. */
bool file_looks_same(const struct stat *before, const struct stat *now)
{
    return before->st_dev == now->st_dev && before->st_ino == now->st_ino &&
           before->st_size == now->st_size && same_time(&before->st_mtim, &now->st_mtim) &&
           same_time(&before->st_ctim, &now->st_ctim);
}
