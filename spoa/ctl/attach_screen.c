/* SPDX-License-Identifier: MIT */
#include "spoa/ctl/attach.h"

#include <sys/ioctl.h>
#include <unistd.h>

struct attach_screen attach_screen_open(void)
{
    struct attach_screen screen = {0};
    screen.terminal = isatty(STDIN_FILENO) && tcgetattr(STDIN_FILENO, &screen.before) == 0;
    return screen;
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
