/* SPDX-License-Identifier: MIT */
/*
 * shim: a library for LD_PRELOAD that makes the world less convenient for a daemon, where the environment says so:
 *
 *   SHIM_SHORT=N     reads and writes of sockets move at most N bytes, 1 to N by chance
 *   SHIM_CLOCK=FILE  the calendar (CLOCK_REALTIME, time) is wrong by the seconds that FILE holds; other clocks are right
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>

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
