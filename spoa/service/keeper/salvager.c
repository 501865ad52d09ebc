/* SPDX-License-Identifier: MIT */
#include "spoa/service/keeper/salvager.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

enum { STACK = 1 << 20, HANDLER_STACK = 1 << 16 };

static const int fatal[] = {SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL};
enum { FATAL = sizeof fatal / sizeof *fatal };

static struct salvager_options options;
static sigjmp_buf back;
static volatile sig_atomic_t tries; /* 1: within salvager_try */
static uint8_t handler_stack[HANDLER_STACK];

/* ---- the board ---- */
static void set_state(struct salvager_board *board, enum salvager_state state)
{
    atomic_store(&board->state, state);
    (void)syscall(SYS_futex, &board->state, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

/* Waits until the state is another one than this, or for that time; NULL: for any time. Returns the state. */
static enum salvager_state await_other(struct salvager_board *board, enum salvager_state state,
                                       const struct timespec *most)
{
    unsigned now;

    while ((now = atomic_load(&board->state)) == (unsigned)state)
        if (syscall(SYS_futex, &board->state, FUTEX_WAIT, state, most, NULL, 0) != 0 && errno == ETIMEDOUT)
            break;
    return now;
}

/* ---- its own process ---- */
static void on_fatal(int number)
{
    (void)number;
    if (!tries)
        _exit(1);
    siglongjmp(back, 1);
}

bool salvager_try(void (*run)(void *context), void *context)
{
    bool lived = sigsetjmp(back, 1) == 0;

    if (lived) {
        tries = 1;
        run(context);
    }
    tries = 0;
    return lived;
}

/* Everything the dead server has set for signals holds here, too, and must not. */
static void catch_fatal(void)
{
    const stack_t stack = {.ss_sp = handler_stack, .ss_size = sizeof handler_stack};
    struct sigaction action = {.sa_handler = on_fatal, .sa_flags = SA_ONSTACK};
    sigset_t set;

    (void)sigaltstack(&stack, NULL);
    sigemptyset(&set);
    for (size_t i = 0; i < FATAL; i++) {
        (void)sigaction(fatal[i], &action, NULL);
        sigaddset(&set, fatal[i]);
    }
    (void)sigprocmask(SIG_UNBLOCK, &set, NULL);
}

/* Until it works, it shares the storage of the thread that has begun it (errno among others), and so calls nothing that would use that. */
static int run(void *context)
{
    struct salvager_board *board = options.board;
    sigset_t all;

    (void)context;
    sigfillset(&all);
    (void)sigprocmask(SIG_BLOCK, &all,
                      NULL); /* a service manager signals all processes: the keeper decides */
    (void)setpgid(0, 0);
    bool good = prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 && getppid() == options.keeper &&
                options.confine(options.context);
    set_state(board, good ? SALVAGER_SLEEPS : SALVAGER_FAILED);
    if (!good || await_other(board, SALVAGER_SLEEPS, NULL) != SALVAGER_WORKS)
        return 1;
    catch_fatal();
    options.salvage(options.context);
    return 0;
}

/* ---- for the server ---- */
/* Before Linux 5.16 a core dump kills all that share the memory. */
static bool dumps_kill_all(void)
{
    struct utsname name;
    unsigned major, minor;

    return uname(&name) == 0 && sscanf(name.release, "%u.%u", &major, &minor) == 2 &&
           (major < 5 || (major == 5 && minor < 16));
}

bool salvager_begin(const struct salvager_options *o, struct fail *why)
{
    const struct timespec patience = {.tv_sec = 5};
    uint8_t *stack =
        mmap(NULL, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);

    if (stack == MAP_FAILED)
        return fail(why, "out of memory");
    options = *o;
    /* CLONE_PARENT: the keeper waits for its end. CLONE_PARENT_SETTID: the keeper knows of it at once */
    const int flags = CLONE_VM | CLONE_FILES | CLONE_PARENT | CLONE_PARENT_SETTID | SIGCHLD;
    if (clone(run, stack + STACK, flags, NULL, &o->board->pid) < 0) {
        munmap(stack, STACK);
        return fail(why, "cannot clone a process that shares memory: %s", strerror(errno));
    }
    if (await_other(o->board, SALVAGER_NONE, &patience) != SALVAGER_SLEEPS)
        return fail(why, "the salvager cannot be confined");
    if (dumps_kill_all())
        (void)prctl(PR_SET_DUMPABLE, 0);
    return true;
}

/* ---- for the keeper ---- */
/* Returns the salvager's process id, or 0. The server can write the number: it must be a child, and the keeper has no others by then. */
static pid_t pid_of(const struct salvager_board *board)
{
    pid_t pid = atomic_load(&board->pid);
    siginfo_t ended;

    return pid > 0 && waitid(P_PID, (id_t)pid, &ended, WEXITED | WNOHANG | WNOWAIT) == 0 ? pid : 0;
}

void salvager_forget(struct salvager_board *board)
{
    atomic_store(&board->pid, 0);
    atomic_store(&board->state, SALVAGER_NONE);
}

void salvager_end(struct salvager_board *board)
{
    pid_t pid = pid_of(board);

    if (!pid)
        return;
    (void)kill(pid, SIGKILL);
    (void)waitpid(pid, NULL, 0);
}

pid_t salvager_wake(struct salvager_board *board)
{
    pid_t pid = pid_of(board);

    if (pid)
        set_state(board, SALVAGER_WORKS);
    return pid;
}
