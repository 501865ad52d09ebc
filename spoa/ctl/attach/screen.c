/* SPDX-License-Identifier: MIT */
#include "spoa/ctl/attach/attach.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

/* Opens standard output for writes that do not block. The inherited file description is shared with the shell, which must not find
 * O_NONBLOCK set. /dev/tty opens even if the terminal belongs to another user, as after su. */
static int open_output(void)
{
    static const int flags = O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;
    int fd = -1;

    if (!isatty(STDOUT_FILENO))
        return STDOUT_FILENO;
    if (tcgetpgrp(STDOUT_FILENO) >= 0)
        fd = open("/dev/tty", flags);
    if (fd < 0)
        fd = open("/proc/self/fd/1", flags);
    return fd < 0 ? STDOUT_FILENO : fd;
}

struct attach_screen attach_screen_open(void)
{
    struct attach_screen screen = {.output = open_output()};
    screen.terminal = isatty(STDIN_FILENO) && tcgetattr(STDIN_FILENO, &screen.before) == 0;
    return screen;
}

void attach_screen_close(struct attach_screen *screen)
{
    if (screen->output != STDOUT_FILENO)
        close(screen->output);
    screen->output = STDOUT_FILENO;
}

void attach_screen_raw(struct attach_screen *screen)
{
    struct termios raw = screen->before;

    if (!screen->terminal)
        return;
    cfmakeraw(&raw);
    screen->raw = tcsetattr(STDIN_FILENO, TCSANOW, &raw) == 0;
}

void attach_screen_restore(struct attach_screen *screen)
{
    if (screen->raw)
        tcsetattr(STDIN_FILENO, TCSANOW, &screen->before);
    screen->raw = false;
}

bool attach_screen_size(const struct attach_screen *screen, unsigned *cols, unsigned *rows)
{
    struct winsize size;

    if (!screen->terminal || ioctl(STDIN_FILENO, TIOCGWINSZ, &size) < 0 || size.ws_col == 0 ||
        size.ws_row == 0)
        return false;
    *cols = size.ws_col;
    *rows = size.ws_row;
    return true;
}
