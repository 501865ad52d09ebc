/* SPDX-License-Identifier: MIT */
#include "examples/worker/signals.h"

#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

static void ready(void *owner, int events)
{
    struct signals *s = owner;
    struct signalfd_siginfo info;
    (void)events;
    if (read(loop_io_fd(&s->io), &info, sizeof info) == sizeof info)
        s->on(s->owner, (int)info.ssi_signo);
}

bool signals_open(struct signals *s, struct loop *loop, const int *numbers,
                  void (*on)(void *owner, int number), void *owner, struct fail *why)
{
    sigset_t set;
    sigemptyset(&set);
    for (; *numbers; numbers++)
        sigaddset(&set, *numbers);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGCHLD,
           SIG_DFL); /* an inherited SIG_IGN would reap children before this process can wait for them */
    sigprocmask(SIG_BLOCK, &set, NULL);
    int fd = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
    if (fd < 0)
        return fail(why, "no signals: %m");
    s->on = on;
    s->owner = owner;
    loop_io_open(&s->io, loop, fd, ready, s);
    loop_io_want(&s->io, LOOP_READ);
    return true;
}

void signals_close(struct signals *s)
{
    loop_io_close(&s->io);
}
