/* SPDX-License-Identifier: MIT */
/*
 * shim: a library for LD_PRELOAD that makes the world less convenient for a daemon, where the environment says so:
 *
 *   SHIM_SHORT=N     reads and writes of sockets move at most N bytes, 1 to N by chance
 *   SHIM_CLOCK=FILE  the calendar (CLOCK_REALTIME, time) is wrong by the seconds that FILE holds; other clocks are right
 *   SHIM_ALLOC=FILE  allocations are counted in FILE, which is mapped and holds a struct allocations; those that it says fail
 *   SHIM_TRACE=FILE  where one fails is written there
 */
#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

static void *next(const char *name)
{
    void *symbol = dlsym(RTLD_NEXT, name);
    if (!symbol)
        abort();
    return symbol;
}

/* ---- short transfers ---- */
static size_t limit(void)
{
    static long most = -1;
    if (most < 0) {
        const char *text = getenv("SHIM_SHORT");
        most = text ? atol(text) : 0;
    }
    return (size_t)most;
}

static unsigned chance(void)
{
    static __thread unsigned state = 1;
    return state = state * 1103515245 + 12345;
}

static size_t shorter(size_t len)
{
    size_t most = limit() ? 1 + (chance() >> 16) % limit() : len;
    return most < len ? most : len;
}

ssize_t recv(int fd, void *to, size_t len, int flags)
{
    static ssize_t (*real)(int, void *, size_t, int);
    real = real ? real : (ssize_t(*)(int, void *, size_t, int))next("recv");
    return real(fd, to, flags & MSG_PEEK ? len : shorter(len), flags);
}

ssize_t send(int fd, const void *from, size_t len, int flags)
{
    static ssize_t (*real)(int, const void *, size_t, int);
    real = real ? real : (ssize_t(*)(int, const void *, size_t, int))next("send");
    return real(fd, from, shorter(len), flags);
}

ssize_t sendmsg(int fd, const struct msghdr *message, int flags)
{
    static ssize_t (*real)(int, const struct msghdr *, int);
    real = real ? real : (ssize_t(*)(int, const struct msghdr *, int))next("sendmsg");
    if (!limit() || message->msg_control || !message->msg_iovlen)
        return real(fd, message, flags);
    struct iovec one = {message->msg_iov[0].iov_base, shorter(message->msg_iov[0].iov_len)};
    struct msghdr cut = *message;
    cut.msg_iov = &one;
    cut.msg_iovlen = 1;
    return real(fd, &cut, flags);
}

ssize_t writev(int fd, const struct iovec *parts, int count)
{
    static ssize_t (*real)(int, const struct iovec *, int);
    real = real ? real : (ssize_t(*)(int, const struct iovec *, int))next("writev");
    int type;
    socklen_t size = sizeof type;
    if (!limit() || !count || getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) < 0)
        return real(fd, parts, count);
    struct iovec one = {parts[0].iov_base, shorter(parts[0].iov_len)};
    return real(fd, &one, 1);
}

/* ---- the calendar ---- */
static time_t offset(void)
{
    const char *name = getenv("SHIM_CLOCK");
    long seconds = 0;
    FILE *file = name ? fopen(name, "re") : NULL;
    if (file) {
        if (fscanf(file, "%ld", &seconds) != 1)
            seconds = 0;
        fclose(file);
    }
    return seconds;
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
    static int (*real)(clockid_t, struct timespec *);
    real = real ? real : (int (*)(clockid_t, struct timespec *))next("clock_gettime");
    int result = real(clock, now);
    if (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)
        now->tv_sec += offset();
    return result;
}

time_t time(time_t *to)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (to)
        *to = now.tv_sec;
    return now.tv_sec;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone)
{
    struct timespec exact;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &exact);
    *now = (struct timeval){exact.tv_sec, exact.tv_nsec / 1000};
    return 0;
}

/* ---- memory ---- */
/* What the file holds: the first three are the process's to write, the others those of who watches it. */
struct allocations {
    uint64_t asked;    /* so far */
    uint64_t failed;   /* of these, as was said */
    int64_t there;     /* not freed yet */
    uint64_t from, to; /* asked, from which on and up to which, that excluded, they fail */
};
static struct allocations *allocations;
static int traces = -1;

__attribute__((constructor)) static void map_allocations(void)
{
    const char *name = getenv("SHIM_ALLOC");
    int fd = name ? open(name, O_RDWR | O_CLOEXEC) : -1;
    void *map = fd < 0 ? MAP_FAILED
                       : mmap(NULL, sizeof *allocations, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (fd >= 0)
        close(fd);
    if (map != MAP_FAILED)
        allocations = map;
    if (name) /* what a daemon starts is not its own */
        unsetenv("LD_PRELOAD");
    if (getenv("SHIM_TRACE"))
        traces = open(getenv("SHIM_TRACE"), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
}

static void trace(void)
{
    static __thread bool within; /* it may allocate itself */
    void *frames[24];
    if (traces < 0 || within)
        return;
    within = true;
    backtrace_symbols_fd(frames, backtrace(frames, 24), traces);
    if (write(traces, "--\n", 3) < 0)
        traces = -1;
    within = false;
}

static bool fails(void)
{
    if (!allocations)
        return false;
    uint64_t n = __atomic_fetch_add(&allocations->asked, 1, __ATOMIC_SEQ_CST);
    if (n < __atomic_load_n(&allocations->from, __ATOMIC_SEQ_CST) ||
        n >= __atomic_load_n(&allocations->to, __ATOMIC_SEQ_CST))
        return false;
    __atomic_fetch_add(&allocations->failed, 1, __ATOMIC_SEQ_CST);
    trace();
    errno = ENOMEM;
    return true;
}

static void *more(void *memory)
{
    if (allocations && memory)
        __atomic_fetch_add(&allocations->there, 1, __ATOMIC_SEQ_CST);
    return memory;
}

/* glibc's own, which are there before any symbol can be looked up. */
void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *memory, size_t size);
void *__libc_memalign(size_t alignment, size_t size);
void __libc_free(void *memory);

void *malloc(size_t size)
{
    return fails() ? NULL : more(__libc_malloc(size));
}

void *calloc(size_t count, size_t size)
{
    return fails() ? NULL : more(__libc_calloc(count, size));
}

void *realloc(void *memory, size_t size)
{
    if (!memory)
        return malloc(size);
    return fails() ? NULL : __libc_realloc(memory, size); /* nobody here asks for 0 bytes */
}

int posix_memalign(void **memory, size_t alignment, size_t size)
{
    if (fails())
        return ENOMEM;
    *memory = more(__libc_memalign(alignment, size));
    return *memory ? 0 : ENOMEM;
}

void *aligned_alloc(size_t alignment, size_t size)
{
    return fails() ? NULL : more(__libc_memalign(alignment, size));
}

void free(void *memory)
{
    if (allocations && memory)
        __atomic_fetch_sub(&allocations->there, 1, __ATOMIC_SEQ_CST);
    __libc_free(memory);
}
