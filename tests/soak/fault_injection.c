/* SPDX-License-Identifier: MIT */
/*
 * fault_injection: a library for LD_PRELOAD that makes the world less convenient for a daemon, where the environment says so:
 *
 *   FAULT_SHORT=N     reads and writes of sockets move at most N bytes, 1 to N by chance
 *   FAULT_CUT=FILE    how many of them moved less than they could have is counted in FILE, which is mapped: a uint64_t
 *   FAULT_EIO=1       a terminal with something to read says EIO first, as Linux does now and then to its master
 *   FAULT_CLOCK=FILE  the calendar (CLOCK_REALTIME, time) is wrong by the seconds that FILE holds; other clocks are right
 *   FAULT_ALLOC=FILE  allocations are counted in FILE, which is mapped and holds a struct counted; those that it says fail
 *   FAULT_MAPS=FILE   the same of memory that is asked of the kernel, but that what is there is counted in bytes
 *   FAULT_FILES=FILE  the same of descriptors: EMFILE
 *   FAULT_WATCHES=FILE the same of what epoll is to watch: ENOSPC
 *   FAULT_THREAD=HOW  who starts a thread exits, hangs or crashes instead; a program that this one executes does so no more
 *   FAULT_CRASH=TEXT  who receives this text crashes
 *   FAULT_TAKING=FILE a relay that takes tunnels over crashes as many times as FILE says, which is mapped: a uint64_t
 *   FAULT_TRACE=FILE  where one fails is written there
 */
#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <pty.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
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
        const char *text = getenv("FAULT_SHORT");
        most = text ? atol(text) : 0;
    }
    return (size_t)most;
}

static unsigned chance(void)
{
    static __thread unsigned state = 1;
    return state = state * 1103515245 + 12345;
}

static _Atomic uint64_t *cuts;

static size_t shorter(size_t len)
{
    size_t most = limit() ? 1 + (chance() >> 16) % limit() : len;
    if (most >= len)
        return len;
    if (cuts)
        atomic_fetch_add_explicit(cuts, 1, memory_order_relaxed);
    return most;
}

ssize_t recv(int fd, void *to, size_t len, int flags)
{
    static ssize_t (*real)(int, void *, size_t, int);
    real = real ? real : (ssize_t(*)(int, void *, size_t, int))next("recv");
    ssize_t got = real(fd, to, flags & MSG_PEEK ? len : shorter(len), flags);
    const char *deadly = getenv("FAULT_CRASH");
    if (deadly && got > 0 && memmem(to, (size_t)got, deadly, strlen(deadly)))
        raise(SIGSEGV);
    return got;
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

/* ---- terminals ---- */
static bool says_eio(int fd)
{
    static int said_of = -1;
    int number;
    struct pollfd in = {.fd = fd, .events = POLLIN};
    if (!getenv("FAULT_EIO") || said_of == fd || ioctl(fd, TIOCGPTN, &number) < 0 || poll(&in, 1, 0) < 1) {
        said_of = -1;
        return false;
    }
    said_of = fd;
    errno = EIO;
    return true;
}

ssize_t read(int fd, void *to, size_t len)
{
    static ssize_t (*real)(int, void *, size_t);
    real = real ? real : (ssize_t(*)(int, void *, size_t))next("read");
    return says_eio(fd) ? -1 : real(fd, to, len);
}

/* ---- the calendar ---- */
static time_t offset(void)
{
    const char *name = getenv("FAULT_CLOCK");
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

/* ---- what runs out ---- */
/* What such a file holds: the first three are the process's to write, the others those of who watches it. */
struct counted {
    _Atomic uint64_t asked;    /* so far */
    _Atomic uint64_t failed;   /* of these, as was said */
    _Atomic int64_t there;     /* not freed yet */
    _Atomic uint64_t from, to; /* asked, from which on and up to which, that excluded, they fail */
};
static struct counted *allocations, *maps, *descriptors, *watches;
static int traces = -1;

static void *map_file(const char *name, size_t size)
{
    int fd = name ? open(name, O_RDWR | O_CLOEXEC) : -1;
    void *map = fd < 0 ? MAP_FAILED : mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (fd >= 0)
        close(fd);
    return map == MAP_FAILED ? NULL : map;
}

static const char *instead_of_thread;

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *context)
{
    static int (*real)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    real = real ? real : (int (*)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *))next("pthread_create");
    if (!instead_of_thread)
        return real(thread, attributes, run, context);
    if (strcmp(instead_of_thread, "hang") == 0)
        pause();
    if (strcmp(instead_of_thread, "crash") == 0)
        kill(getpid(), SIGSEGV);
    _exit(3);
}

static void take_thread(void)
{
    const char *how = getenv("FAULT_THREAD");
    if (!how)
        return;
    instead_of_thread = strdup(how);
    unsetenv("FAULT_THREAD");
    unsetenv("LD_PRELOAD");
}

static _Atomic uint64_t *takings;

/* Only a thread that takes a tunnel over asks whether its socket listens. */
int getsockopt(int fd, int level, int name, void *restrict value, socklen_t *restrict size)
{
    static int (*real)(int, int, int, void *, socklen_t *);

    if (name == SO_ACCEPTCONN && level == SOL_SOCKET && takings && atomic_load(takings)) {
        static atomic_bool dies; /* of one thread: two that crash at the same time are one death */
        if (atomic_exchange(&dies, true))
            pause();
        atomic_fetch_sub(takings, 1);
        raise(SIGSEGV);
    }
    real = real ? real : (int (*)(int, int, int, void *, socklen_t *))next("getsockopt");
    return real(fd, level, name, value, size);
}

__attribute__((constructor)) static void map_all(void)
{
    takings = map_file(getenv("FAULT_TAKING"), sizeof *takings);
    take_thread();
    /* not in force yet: the next ones take a descriptor */
    struct counted *files = map_file(getenv("FAULT_FILES"), sizeof *files);
    struct counted *mapped = map_file(getenv("FAULT_MAPS"), sizeof *mapped);
    allocations = map_file(getenv("FAULT_ALLOC"), sizeof *allocations);
    watches = map_file(getenv("FAULT_WATCHES"), sizeof *watches);
    cuts = map_file(getenv("FAULT_CUT"), sizeof *cuts);
    if (files || allocations || mapped || watches) /* what a daemon starts is not its own */
        unsetenv("LD_PRELOAD");
    if (getenv("FAULT_TRACE"))
        traces = open(getenv("FAULT_TRACE"), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    descriptors = files;
    maps = mapped;
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

static bool runs_out(struct counted *of, int error)
{
    if (!of)
        return false;
    uint64_t n = atomic_fetch_add(&of->asked, 1);
    if (n < atomic_load(&of->from) || n >= atomic_load(&of->to))
        return false;
    atomic_fetch_add(&of->failed, 1);
    trace();
    errno = error;
    return true;
}

/* ---- memory ---- */
static bool fails(void)
{
    return runs_out(allocations, ENOMEM);
}

static void *more(void *memory)
{
    if (allocations && memory)
        atomic_fetch_add(&allocations->there, 1);
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
        atomic_fetch_sub(&allocations->there, 1);
    __libc_free(memory);
}

void *mmap(void *at, size_t size, int protection, int flags, int fd, off_t offset)
{
    static void *(*real)(void *, size_t, int, int, int, off_t);
    real = real ? real : (void *(*)(void *, size_t, int, int, int, off_t))next("mmap");
    if (flags & MAP_ANONYMOUS && runs_out(maps, ENOMEM))
        return MAP_FAILED;
    void *memory = real(at, size, protection, flags, fd, offset);
    if (flags & MAP_ANONYMOUS && maps && memory != MAP_FAILED)
        atomic_fetch_add(&maps->there, (int64_t)size);
    return memory;
}

int munmap(void *memory, size_t size)
{
    static int (*real)(void *, size_t);
    real = real ? real : (int (*)(void *, size_t))next("munmap");
    if (maps) /* nobody gives back a file */
        atomic_fetch_sub(&maps->there, (int64_t)size);
    return real(memory, size);
}

/* ---- descriptors: what daemons open while they run ---- */
int socket(int domain, int type, int protocol)
{
    static int (*real)(int, int, int);
    real = real ? real : (int (*)(int, int, int))next("socket");
    return runs_out(descriptors, EMFILE) ? -1 : real(domain, type, protocol);
}

int accept4(int fd, struct sockaddr *restrict address, socklen_t *restrict len, int flags)
{
    static int (*real)(int, struct sockaddr *, socklen_t *, int);
    real = real ? real : (int (*)(int, struct sockaddr *, socklen_t *, int))next("accept4");
    return runs_out(descriptors, EMFILE) ? -1 : real(fd, address, len, flags);
}

int open(const char *path, int flags, ...)
{
    static int (*real)(const char *, int, ...);
    va_list more;
    va_start(more, flags);
    mode_t mode = flags & O_CREAT ? va_arg(more, mode_t) : 0;
    va_end(more);
    real = real ? real : (int (*)(const char *, int, ...))next("open");
    return runs_out(descriptors, EMFILE) ? -1 : real(path, flags, mode);
}

pid_t forkpty(int *master, char *name, const struct termios *settings, const struct winsize *size)
{
    static pid_t (*real)(int *, char *, const struct termios *, const struct winsize *);
    real = real ? real
                : (pid_t(*)(int *, char *, const struct termios *, const struct winsize *))next("forkpty");
    return runs_out(descriptors, EMFILE) ? -1 : real(master, name, settings, size);
}

int inotify_init1(int flags)
{
    static int (*real)(int);
    real = real ? real : (int (*)(int))next("inotify_init1");
    return runs_out(descriptors, EMFILE) ? -1 : real(flags);
}

int pipe2(int fds[2], int flags)
{
    static int (*real)(int *, int);
    real = real ? real : (int (*)(int *, int))next("pipe2");
    return runs_out(descriptors, EMFILE) ? -1 : real(fds, flags);
}

/* ---- watches of epoll, of which a user has fs.epoll.max_user_watches ---- */
int epoll_ctl(int set, int what, int fd, struct epoll_event *event)
{
    static int (*real)(int, int, int, struct epoll_event *);
    real = real ? real : (int (*)(int, int, int, struct epoll_event *))next("epoll_ctl");
    return what == EPOLL_CTL_ADD && runs_out(watches, ENOSPC) ? -1 : real(set, what, fd, event);
}
