/* SPDX-License-Identifier: MIT */
#include "tests/unit/support.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "spoa/service/seccomp.h"

#ifdef WITHOUT_SECCOMP
#define SKIPPED() skip()
#else
#define SKIPPED() ((void)0)
#endif

/* ---- what is tried in a confined process: 0 where it works, else errno ---- */

static int error_of(long result)
{
    return result >= 0 ? 0 : errno;
}

static int run_a_program(void)
{
    char *const nothing[] = {"/bin/true", NULL};
    return error_of(execve(nothing[0], nothing, nothing + 1));
}

static int fork_once(void)
{
    long child = syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    if (child == 0)
        _exit(0);
    return error_of(child);
}

static int open_to_write(void)
{
    return error_of(open("/tmp", O_WRONLY | O_TMPFILE, 0600));
}

static int create_file(void)
{
    return error_of(open("/tmp/cellgate-seccomp-unit", O_RDONLY | O_CREAT, 0600));
}

static int trace(void)
{
    return error_of(ptrace(PTRACE_TRACEME, 0, 0, 0));
}

static int netlink(void)
{
    return error_of(socket(AF_NETLINK, SOCK_RAW, 0));
}

static int listen_again(void)
{
    struct sockaddr address = {.sa_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    return bind(fd, &address, sizeof(sa_family_t)) == 0 ? 0 : error_of(listen(fd, 1));
}

static int write_and_run(void)
{
    void *at = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return at == MAP_FAILED ? errno : 0;
}

static int run_what_was_written(void)
{
    void *at = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return at == MAP_FAILED ? 0 : error_of(mprotect(at, 4096, PROT_READ | PROT_WRITE | PROT_EXEC));
}

static int change_user(void)
{
    return error_of(syscall(SYS_setuid, 0));
}

static int kill_another(void)
{
    return error_of(syscall(SYS_kill, getppid(), 0));
}

static int read_a_file(void)
{
    char byte;
    int fd = open("/proc/self/stat", O_RDONLY | O_CLOEXEC);
    return fd < 0 ? errno : error_of(read(fd, &byte, 1));
}

static void *idle(void *context)
{
    return context;
}

static int begin_a_thread(void)
{
    pthread_t thread;
    int error = pthread_create(&thread, NULL, idle, NULL);
    return error ? error : pthread_join(thread, NULL);
}

static int connect_somewhere(void)
{
    struct sockaddr address = {.sa_family = AF_UNIX};
    int error = error_of(connect(socket(AF_UNIX, SOCK_STREAM, 0), &address, sizeof address));
    return error == ENOSYS ? ENOSYS : 0; /* nobody listens there */
}

/* How a child ends that is confined and tries: its exit status says the error. */
static int confined(enum seccomp_mode mode, int (*try)(void))
{
    pid_t child = fork();
    struct fail why;
    int status;

    if (child == 0) {
        prctl(PR_SET_DUMPABLE, 0);
        _exit(seccomp_confine(mode, NULL, 0, &why) ? try() : 255);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

static void confined_it_can_do_nothing_but_its_work(void **state)
{
    (void)state;
    static int (*const refused[])(void) = {run_a_program, fork_once,    open_to_write, create_file,
                                           trace,         listen_again, write_and_run, run_what_was_written,
                                           change_user,   kill_another, netlink};
    SKIPPED();
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        int status = confined(SECCOMP_ON, refused[i]);
        if (!WIFEXITED(status) || WEXITSTATUS(status) != ENOSYS)
            fail_msg("call %zu: status %x", i, (unsigned)status);
    }
}

static void confined_it_can_do_its_work(void **state)
{
    (void)state;
    static int (*const allowed[])(void) = {read_a_file, begin_a_thread, connect_somewhere};
    for (size_t i = 0; i < sizeof allowed / sizeof *allowed; i++) {
        assert_int_equal(confined(SECCOMP_ON, allowed[i]), 0);
        assert_int_equal(confined(SECCOMP_KILL, allowed[i]), 0);
    }
}

static void another_call_can_end_it(void **state)
{
    (void)state;
    SKIPPED();
    int status = confined(SECCOMP_KILL, run_a_program);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGSYS);
}

static void it_may_be_off(void **state)
{
    (void)state;
    assert_int_equal(confined(SECCOMP_OFF, fork_once), 0);
}

/* ---- threads that were there before ---- */

static pthread_barrier_t both;

static void *try_later(void *context)
{
    (void)context;
    pthread_barrier_wait(&both); /* it runs */
    pthread_barrier_wait(&both); /* it is confined */
    return (void *)(intptr_t)run_a_program();
}

static int thread_before(void)
{
    pthread_t thread;
    struct fail why;
    void *error = NULL;

    pthread_barrier_init(&both, NULL, 2);
    if (pthread_create(&thread, NULL, try_later, NULL) != 0)
        return 254;
    pthread_barrier_wait(&both);
    if (!seccomp_confine(SECCOMP_ON, NULL, 0, &why))
        return 253;
    pthread_barrier_wait(&both);
    pthread_join(thread, &error);
    return (int)(intptr_t)error;
}

static void threads_that_were_there_are_confined_too(void **state)
{
    (void)state;
    SKIPPED();
    int status = confined(SECCOMP_OFF, thread_before);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), ENOSYS);
}

static void further_calls_can_be_named(void **state)
{
    (void)state;
    const int more[] = {SYS_setuid};
    pid_t child = fork();
    struct fail why;
    int status;

    if (child == 0)
        _exit(seccomp_confine(SECCOMP_ON, more, 1, &why) && change_user() != ENOSYS ? 0 : 1);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(confined_it_can_do_nothing_but_its_work),
        cmocka_unit_test(confined_it_can_do_its_work),
        cmocka_unit_test(another_call_can_end_it),
        cmocka_unit_test(it_may_be_off),
        cmocka_unit_test(threads_that_were_there_are_confined_too),
        cmocka_unit_test(further_calls_can_be_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
