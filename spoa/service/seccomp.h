/* SPDX-License-Identifier: MIT */
/*
 * seccomp: limits a daemon to the system calls of its table once it runs (Linux, Documentation/userspace-api/seccomp_filter.rst). An
 * attacker who takes the daemon over cannot start a program, open a file for writing, listen, or send raw packets. Any other
 * call fails with ENOSYS, as in a kernel that does not have it.
 */
#ifndef CELLGATE_SERVICE_SECCOMP_H
#define CELLGATE_SERVICE_SECCOMP_H

#include <stddef.h>

#include "spoa/base/os/fail.h"

/* The values of the key `seccomp`. */
enum seccomp_mode {
    SECCOMP_OFF,
    SECCOMP_ON,
    SECCOMP_KILL, /* another call ends the process, and the kernel logs its number */
};

extern const char *const seccomp_modes[]; /* names of the modes, NULL-terminated */

/* What every daemon needs: memory, threads, descriptors, clocks, the loop, connections, files that are read. */
#define SECCOMP_CALLS(X)                                                                                    \
    X(read)                                                                                                 \
    X(readv)                                                                                                \
    X(pread64)                                                                                              \
    X(write)                                                                                                \
    X(writev) X(close) X(lseek) X(fcntl) X(dup) X(ioctl) X(fstat) X(newfstatat) X(statx) X(getxattr)        \
        X(fgetxattr) X(faccessat) X(readlinkat) X(getdents64) X(getcwd) X(unlinkat) X(brk) X(munmap)        \
            X(mremap) X(madvise) X(mincore) X(futex) X(sched_yield) X(sched_getaffinity) X(set_robust_list) \
                X(membarrier) X(exit) X(exit_group) X(restart_syscall) X(rt_sigaction) X(rt_sigprocmask)    \
                    X(rt_sigreturn) X(rt_sigtimedwait) X(sigaltstack) X(tgkill) X(getpid) X(gettid)         \
                        X(getuid) X(geteuid) X(getgid) X(getegid) X(getrandom) X(prlimit64) X(sysinfo)      \
                            X(uname) X(getrusage) X(clock_gettime) X(clock_getres) X(clock_nanosleep)       \
                                X(nanosleep) X(gettimeofday) X(epoll_create1) X(epoll_ctl) X(epoll_pwait)   \
                                    X(ppoll) X(pselect6) X(eventfd2) X(pipe2) X(timerfd_create)             \
                                        X(timerfd_settime) X(signalfd4) X(accept4) X(connect) X(shutdown)   \
                                            X(getsockname) X(getpeername) X(getsockopt) X(setsockopt)       \
                                                X(sendto) X(sendmsg) X(sendmmsg) X(recvfrom) X(recvmsg)     \
                                                    X(recvmmsg)

/* Confines all threads of the process for good. `more` has the numbers of further system calls. Returns false with *why if the kernel
 * cannot. A build with a sanitizer or for coverage does nothing, because these need more calls. */
bool seccomp_confine(enum seccomp_mode mode, const int *more, size_t count, struct fail *why)
    __attribute__((warn_unused_result));

#endif
