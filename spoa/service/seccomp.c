/* SPDX-License-Identifier: MIT */
#include "spoa/service/seccomp.h"

const char *const seccomp_modes[] = {"off", "on", "kill", NULL};

#ifdef WITHOUT_SECCOMP

bool seccomp_confine(enum seccomp_mode mode, const int *more, size_t count, struct fail *why)
{
    (void)mode, (void)more, (void)count, (void)why;
    return true;
}

#else

#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__x86_64__)
#define ARCHITECTURE AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define ARCHITECTURE AUDIT_ARCH_AARCH64
#else
#error "seccomp.c does not know this processor: add its AUDIT_ARCH, or build with -DWITHOUT_SECCOMP"
#endif

static const int calls[] = {
#define X(name) SYS_##name,
    SECCOMP_CALLS(X)
#undef X
#ifdef SYS_rseq
        SYS_rseq,
#endif
#ifdef SYS_faccessat2
    SYS_faccessat2,
#endif
#ifdef SYS_epoll_pwait2
    SYS_epoll_pwait2,
#endif
#ifdef __x86_64__ /* newer processors do not have these */
    SYS_stat,
    SYS_lstat,
    SYS_access,
    SYS_readlink,
    SYS_unlink,
    SYS_getrlimit,
    SYS_epoll_wait,
    SYS_poll,
    SYS_select,
    SYS_time,
    SYS_accept,
#endif
};

/* A call of which only some forms are allowed: the argument under this mask has these bits. The arguments are ints, or have their flags
 * in the lower half. */
struct form {
    int call;
    unsigned argument;
    uint32_t mask, bits;
};

#define READS   (O_ACCMODE | O_CREAT | O_TRUNC)
#define THREAD  (CLONE_VM | CLONE_THREAD)
#define EXACTLY UINT32_MAX

static const struct form forms[] = {
    {SYS_openat, 2, READS, O_RDONLY},
#ifdef SYS_open
    {SYS_open, 1, READS, O_RDONLY},
#endif
    {SYS_socket, 0, EXACTLY, AF_UNIX},
    {SYS_socket, 0, EXACTLY, AF_INET},
    {SYS_socket, 0, EXACTLY, AF_INET6},
    {SYS_socketpair, 0, EXACTLY, AF_UNIX},
    /* threads, but not processes; clone3 hides its flags, and libc falls back to clone */
    {SYS_clone, 0, THREAD, THREAD},
    /* memory that is writable or executable, never both */
    {SYS_mmap, 2, PROT_EXEC, 0},
    {SYS_mmap, 2, PROT_EXEC | PROT_WRITE, PROT_EXEC},
    {SYS_mprotect, 2, PROT_EXEC, 0},
    {SYS_mprotect, 2, PROT_EXEC | PROT_WRITE, PROT_EXEC},
    {SYS_prctl, 0, EXACTLY, PR_SET_NAME},
};

/* Calls that libc tries first and can do without: they fail in both modes. */
static const int absent[] = {
#ifdef SYS_clone3
    SYS_clone3,
#endif
#ifdef SYS_close_range
    SYS_close_range,
#endif
};

#define LENGTH(array) (sizeof(array) / sizeof *(array))

enum {
    MORE_MAX = 16, /* system calls of one daemon */
    FORM_STEPS = 6,
    PROGRAM_MAX = 16 + 2 * (LENGTH(calls) + MORE_MAX + LENGTH(absent)) + FORM_STEPS * LENGTH(forms)
};

/* A BPF program in the making. */
struct program {
    unsigned short length;
    struct sock_filter steps[PROGRAM_MAX];
};

#define REFUSE (SECCOMP_RET_ERRNO | ENOSYS)
#define NUMBER offsetof(struct seccomp_data, nr)

static void put(struct program *p, uint16_t code, uint32_t value, uint8_t if_true, uint8_t if_false)
{
    p->steps[p->length++] = (struct sock_filter){code, if_true, if_false, value};
}

static void put_load(struct program *p, size_t offset)
{
    put(p, BPF_LD | BPF_W | BPF_ABS, (uint32_t)offset, 0, 0);
}

static void put_return(struct program *p, uint32_t action)
{
    put(p, BPF_RET | BPF_K, action, 0, 0);
}

/* Allows one form of a call; the number is loaded before and after. */
static void put_form(struct program *p, const struct form *form)
{
    /* all supported processors store the lower half first */
    size_t lower = offsetof(struct seccomp_data, args) + form->argument * sizeof(uint64_t);

    put(p, BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)form->call, 0, FORM_STEPS - 1);
    put_load(p, lower);
    put(p, BPF_ALU | BPF_AND | BPF_K, form->mask, 0, 0);
    put(p, BPF_JMP | BPF_JEQ | BPF_K, form->bits, 0, 1);
    put_return(p, SECCOMP_RET_ALLOW);
    put_load(p, NUMBER);
}

/* Decides about calls whose number is loaded. */
static void put_calls(struct program *p, const int *numbers, size_t count, uint32_t action)
{
    for (size_t i = 0; i < count; i++) {
        put(p, BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)numbers[i], 0, 1);
        put_return(p, action);
    }
}

static void write_program(struct program *p, enum seccomp_mode mode, const int *more, size_t count)
{
    put_load(p, offsetof(struct seccomp_data, arch));
    put(p, BPF_JMP | BPF_JEQ | BPF_K, ARCHITECTURE, 1, 0);
    put_return(p, SECCOMP_RET_KILL_PROCESS);
    put_load(p, NUMBER);
    put_calls(p, calls, LENGTH(calls), SECCOMP_RET_ALLOW);
    put_calls(p, more, count, SECCOMP_RET_ALLOW);
    for (size_t i = 0; i < LENGTH(forms); i++)
        put_form(p, &forms[i]);
    put_calls(p, absent, LENGTH(absent), REFUSE);
    put_return(p, mode == SECCOMP_KILL ? SECCOMP_RET_KILL_PROCESS : REFUSE);
}

bool seccomp_confine(enum seccomp_mode mode, const int *more, size_t count, struct fail *why)
{
    struct program program = {.length = 0};

    if (mode == SECCOMP_OFF)
        return true;
    if (count > MORE_MAX)
        return fail(why, "too many system calls");
    write_program(&program, mode, more, count);
    const struct sock_fprog filter = {program.length, program.steps};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
        syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &filter) == 0)
        return true;
    return fail(why, "cannot confine the process to its system calls: %s (\"seccomp\": \"off\" does without)",
                strerror(errno));
}

#endif
