/* SPDX-License-Identifier: MIT */
#include "examples/worker/session/process.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pty.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { IN, OUT, ERR };

static const char *const kept_names[] = {"PATH", "HOME",   "USER", "LOGNAME", "SHELL",
                                         "LANG", "LC_ALL", "TZ",   "TMPDIR"};

/* The session manager's own environment may hold what a sandbox must not see, so only a few names pass. */
static void set_environment(const struct process_plan *plan)
{
    const char *kept[sizeof kept_names / sizeof *kept_names];
    for (size_t i = 0; i < sizeof kept_names / sizeof *kept_names; i++)
        kept[i] = getenv(kept_names[i]);
    clearenv();
    for (size_t i = 0; i < sizeof kept_names / sizeof *kept_names; i++)
        if (kept[i])
            setenv(kept_names[i], kept[i], 1);
    if (plan->terminal)
        setenv("TERM", "xterm-256color", 1);
    for (char *const *env = plan->env; env && *env; env++)
        putenv(*env);
}

static void reset_signals(void)
{
    sigset_t none;
    sigemptyset(&none);
    for (int n = 1; n < NSIG; n++)
        signal(n, SIG_DFL);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

/* Runs in the child: executes the program, or writes errno to `report` and exits. */
static void become(const struct process_plan *plan, int report)
{
    reset_signals();
    close_range(ERR + 1, ~0u, CLOSE_RANGE_CLOEXEC);
    set_environment(plan);
    if (!plan->cwd || !*plan->cwd || chdir(plan->cwd) == 0)
        execvp(plan->argv[0], plan->argv);
    int error = errno;
    ssize_t ignored = write(report, &error, sizeof error);
    (void)ignored;
    _exit(127);
}

/* Runs in a child on pipes: makes the pipes its descriptors 0 to 2, and executes the program. */
static void become_piped(const struct process_plan *plan, int report, int ends[3])
{
    setsid();
    for (int n = IN; n <= ERR; n++)
        if (dup2(ends[n], n) < 0)
            _exit(127);
    become(plan, report);
}

static void close_all(int *fds, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (fds[i] >= 0)
            close(fds[i]);
}

static bool unblock(int fd)
{
    return fcntl(fd, F_SETFL, O_NONBLOCK) == 0 && fcntl(fd, F_SETFD, FD_CLOEXEC) == 0;
}

/* Returns whether the child has executed the program: exec closes the write end of `report` without a byte in it. */
static enum process_result what_became(int report, pid_t pid, const struct process_plan *plan,
                                       struct fail *why)
{
    int error = 0;
    ssize_t got;
    do
        got = read(report, &error, sizeof error);
    while (got < 0 && errno == EINTR);
    if (got == 0)
        return PROCESS_STARTED;
    waitpid(pid, NULL, 0);
    errno = error;
    fail(why, "cannot start %.64s: %m", plan->argv[0]);
    return fail_of_resources(error) || error == EAGAIN ? PROCESS_NO_ROOM : PROCESS_IMPOSSIBLE;
}

static bool start_terminal(const struct process_plan *plan, int report[2], struct process *p,
                           struct fail *why)
{
    struct winsize size = {.ws_col = plan->cols, .ws_row = plan->rows};
    int master = -1;
    p->pid = forkpty(&master, NULL, NULL, &size);
    if (p->pid < 0)
        return fail(why, "no terminal: %m");
    if (p->pid == 0)
        become(plan, report[1]);
    p->in = p->out = master;
    p->err = -1;
    unblock(master);
    return true;
}

static bool start_piped(const struct process_plan *plan, int report[2], struct process *p, struct fail *why)
{
    int pipes[3][2] = {{-1, -1}, {-1, -1}, {-1, -1}};
    for (int n = IN; n <= ERR; n++)
        if (pipe2(pipes[n], O_CLOEXEC) < 0) {
            close_all(&pipes[0][0], 6);
            return fail(why, "no pipe: %m");
        }
    p->pid = fork();
    if (p->pid == 0)
        become_piped(plan, report[1], (int[]){pipes[IN][0], pipes[OUT][1], pipes[ERR][1]});
    close_all((int[]){pipes[IN][0], pipes[OUT][1], pipes[ERR][1]}, 3);
    p->in = pipes[IN][1];
    p->out = pipes[OUT][0];
    p->err = pipes[ERR][0];
    if (p->pid < 0) {
        close_all((int[]){p->in, p->out, p->err}, 3);
        return fail(why, "cannot fork: %m");
    }
    unblock(p->in);
    unblock(p->out);
    unblock(p->err);
    return true;
}

enum process_result process_start(const struct process_plan *plan, struct process *p, struct fail *why)
{
    int report[2];
    enum process_result result = PROCESS_NO_ROOM;
    if (pipe2(report, O_CLOEXEC) < 0) {
        fail(why, "no pipe: %m");
        return result;
    }
    bool forked = (plan->terminal ? start_terminal : start_piped)(plan, report, p, why);
    close(report[1]);
    if (forked)
        result = what_became(report[0], p->pid, plan, why);
    close(report[0]);
    if (forked && result != PROCESS_STARTED)
        close_all((int[]){p->in, plan->terminal ? -1 : p->out, p->err}, 3);
    return result;
}

/* Returns true if the process group belongs to another session than the terminal's. A terminal reports its foreground group even after
 * the group has ended and the kernel has given its number to another process; while the group has members, the number is not reused. */
static bool is_strange(pid_t group, int terminal)
{
    pid_t session = getsid(group);
    return session >= 0 && session != tcgetsid(terminal);
}

void process_signal(pid_t leader, int terminal, int number)
{
    pid_t foreground = terminal >= 0 ? tcgetpgrp(terminal) : -1;
    if (foreground > 1 && foreground != leader && !is_strange(foreground, terminal))
        kill(-foreground, number);
    kill(-leader, number);
}

/* Returns the session of a process, or -1: field 6 of /proc/PID/stat (proc_pid_stat(5)). The fields are counted after the program's name
 * in brackets, because the name may hold any bytes. */
static pid_t session_of(const char *pid)
{
    char path[64], text[512];
    uint64_t session = 0;
    snprintf(path, sizeof path, "/proc/%.20s/stat", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (fd >= 0)
        close(fd);
    text[got > 0 ? got : 0] = '\0';
    struct slice rest = slice_text(strrchr(text, ')')), part = {NULL, 0};
    for (int field = 2; field <= 6; field++)
        slice_split(&rest, ' ', &part);
    return slice_u64(part, INT32_MAX, &session) ? (pid_t)session : -1;
}

static bool is_one_of(pid_t pid, const pid_t *leaders, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (leaders[i] == pid)
            return true;
    return false;
}

void process_kill_sessions(const pid_t *leaders, size_t count)
{
    DIR *all = count ? opendir("/proc") : NULL;
    for (struct dirent *entry; all && (entry = readdir(all));) {
        uint64_t pid;
        if (slice_u64(slice_text(entry->d_name), INT32_MAX, &pid) &&
            is_one_of(session_of(entry->d_name), leaders, count))
            kill((pid_t)pid, SIGKILL);
    }
    if (all)
        closedir(all);
}

void process_resize(int terminal, uint16_t cols, uint16_t rows)
{
    struct winsize size = {.ws_col = cols, .ws_row = rows};
    ioctl(terminal, TIOCSWINSZ, &size);
}

uint32_t process_exit_code(int status)
{
    return WIFSIGNALED(status) ? 128u + (uint32_t)WTERMSIG(status) : (uint32_t)WEXITSTATUS(status);
}
