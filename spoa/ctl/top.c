/* SPDX-License-Identifier: MIT */
/* cellgate top: shows the relay's activity on a terminal, refreshed periodically. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "spoa/base/json/json_write.h"
#include "spoa/base/os/time.h"
#include "spoa/ctl/arguments.h"
#include "spoa/ctl/attach/attach.h"
#include "spoa/ctl/ctl.h"
#include "spoa/ctl/daemons.h"
#include "spoa/ctl/top_frame.h"
#include "spoa/service/control.h"
#include "spoa/service/options.h"
#include "spoa/service/settings.h"

enum { EXIT_FAILED = 1, EXIT_USAGE = 2, FRAME_MOST = 1 << 20, FILTER_MOST = 100, ROWS = 200 };
enum { LAST_WORDS = 100 }; /* milliseconds for the terminal to take what restores its screen */
#define PATIENCE SECOND    /* time for one answer; a daemon that answers later counts as not answering */

#define ENTER_SCREEN "\x1b[?1049h\x1b[?25l\x1b[?7l" /* another screen, no cursor, long lines are cut */
#define LEAVE_SCREEN "\x1b[?7h\x1b[?25h\x1b[?1049l"

static const char usage[] =
    "usage: cellgate top [--config FILE | --agent ADDRESS --relay ADDRESS] [--sort KEY] [--filter TEXT]\n"
    "                    [--interval TIME] [--once] [--json]\n"
    "\n"
    "What the relay of this machine does: tunnels and memory against their limits, redials by cause, gaps, "
    "the last\n"
    "ends with their reasons, the sandboxes with most tunnels, and the tunnels that are first in an order.\n"
    "\n"
    "  --sort KEY       held (default), age, idle, bytes, redials or gap: the largest first\n"
    "  --filter TEXT    only tunnels with this in their sandbox, route, worker, organisation or state\n"
    "  --interval TIME  between two looks; 2s, at least 250ms\n"
    "  --once           once, as plain text; also where standard output is no terminal\n"
    "  --json           once, as the relay says it\n"
    "  --config, --agent, --relay   as of cellgate status\n"
    "\n"
    "Keys: q quits, s changes the order, / filters (Enter keeps it, Esc ends it). What is not ASCII is shown "
    "as '?'.\n"
    "Exit code: 0; 1 a daemon does not answer (--once), or neither does; 2 wrong usage.\n";

static const char *const sorts[] = {"held", "age", "idle", "bytes", "redials", "gap"};
enum { SORTS = sizeof sorts / sizeof *sorts };

struct arguments {
    const char *config, *agent, *relay, *sort, *filter, *interval;
    bool once, json, help;
};

struct session {
    struct net_address agent_address, relay_address;
    unsigned sort;
    char filter[FILTER_MOST + 1];
    bool edits, ends;
    int64_t interval; /* microseconds */
    struct json *agent, *relay;
    struct buffer relay_answer;
    struct fail agent_why, relay_why;
    struct top_sums before, now;
    struct attach_screen screen;
    int signals; /* on a terminal */
};

/* ---- arguments ---- */

static bool take_any(char ***argv, struct arguments *a)
{
    return argument_take(argv, "--config", &a->config) || argument_take(argv, "--agent", &a->agent) ||
           argument_take(argv, "--relay", &a->relay) || argument_take(argv, "--sort", &a->sort) ||
           argument_take(argv, "--filter", &a->filter) || argument_take(argv, "--interval", &a->interval) ||
           argument_flag(argv, "--once", &a->once) || argument_flag(argv, "--json", &a->json) ||
           argument_flag(argv, "--help", &a->help) || argument_flag(argv, "-h", &a->help);
}

static bool wrong(const char *what, const char *argument)
{
    fprintf(stderr, "cellgate top: %s%s\n", argument, what);
    return false;
}

static bool read_session(const struct arguments *a, struct session *s)
{
    int64_t milliseconds = 2000;
    while (a->sort && s->sort < SORTS && strcmp(a->sort, sorts[s->sort]) != 0)
        s->sort++;
    if (s->sort == SORTS)
        return wrong("--sort is one of held, age, idle, bytes, redials, gap", "");
    if (a->filter && strlen(a->filter) > FILTER_MOST)
        return wrong("--filter is too long", "");
    if (a->interval && (!options_duration(slice_text(a->interval), &milliseconds) || milliseconds < 250))
        return wrong("--interval is a time like 500ms, 2s, and 250ms at least", "");
    snprintf(s->filter, sizeof s->filter, "%s", a->filter ? a->filter : "");
    s->interval = milliseconds * (int64_t)MILLISECOND;
    return true;
}

static bool read_arguments(char **argv, struct arguments *a, struct session *s)
{
    for (argv++; *argv && !a->help;)
        if (!take_any(&argv, a))
            return wrong(" is not understood, lacks its value or is given twice", *argv);
    a->config = a->config ? a->config : SETTINGS_PATH;
    return a->help || read_session(a, s);
}

static bool find_daemons(const struct arguments *a, struct session *s)
{
    struct fail why;
    if (daemon_address(DAEMON_AGENT, a->agent, a->config, &s->agent_address, &why) &&
        daemon_address(DAEMON_RELAY, a->relay, a->config, &s->relay_address, &why))
        return true;
    fprintf(stderr, "cellgate: ");
    daemon_put_text(stderr, slice_text(why.text));
    fputc('\n', stderr);
    return false;
}

/* ---- asking ---- */

static bool write_question(const struct session *s, struct buffer *to)
{
    return json_write(to, "{\"command\":\"top\",\"rows\":\"%d\",\"sort\":\"%s\",\"filter\":", ROWS,
                      sorts[s->sort]) &&
           json_write_text(to, slice_text(s->filter)) && json_write(to, "}");
}

static void forget(struct session *s)
{
    json_free(s->agent);
    json_free(s->relay);
    buffer_free(&s->relay_answer);
    s->agent = s->relay = NULL;
}

static struct top_view view_of(const struct session *s)
{
    return (struct top_view){.relay = s->relay,
                             .agent = s->agent,
                             .relay_error = s->relay_why.text,
                             .agent_error = s->agent_why.text,
                             .before = s->before,
                             .now = s->now,
                             .filter = slice_text(s->filter),
                             .sort = sorts[s->sort],
                             .edits = s->edits};
}

static void look(struct session *s)
{
    struct buffer question = buffer_with_limit(CONTROL_REQUEST_MAX), ignored;
    forget(s);
    if (write_question(s, &question))
        s->relay = daemon_ask(DAEMON_RELAY, &s->relay_address, buffer_slice(&question), PATIENCE,
                              &s->relay_answer, &s->relay_why);
    else
        fail(&s->relay_why, "out of memory");
    buffer_free(&question);
    s->agent = daemon_ask(DAEMON_AGENT, &s->agent_address, SLICE_LITERAL("{\"command\":\"status\"}"),
                          PATIENCE, &ignored, &s->agent_why);
    buffer_free(&ignored);
    struct top_view view = view_of(s);
    s->before = s->now;
    top_frame_sums(&view, (int64_t)loop_clock(), &s->now);
}

/* ---- once ---- */

static void print_error(enum daemon daemon, const struct fail *why)
{
    fprintf(stderr, "cellgate: the %s: ", daemon_name(daemon));
    daemon_put_text(stderr, slice_text(why->text));
    fputc('\n', stderr);
}

static int print_once(struct session *s, bool json)
{
    struct buffer frame = buffer_with_limit(FRAME_MOST);
    struct top_view view = view_of(s);
    if (!s->relay)
        print_error(DAEMON_RELAY, &s->relay_why);
    if (!s->agent)
        print_error(DAEMON_AGENT, &s->agent_why);
    if (json && s->relay)
        daemon_put_json(stdout, buffer_slice(&s->relay_answer));
    else if (!json && (s->relay || s->agent) && top_frame(&view, (struct top_screen){0, 0}, &frame))
        fwrite(buffer_slice(&frame).at, 1, buffer_len(&frame), stdout);
    buffer_free(&frame);
    return s->relay && s->agent ? 0 : EXIT_FAILED;
}

/* ---- on a terminal ---- */

/* Writes the text. A terminal may block for long: `patience` limits the wait (milliseconds; -1 is unlimited), a signal ends it, and the
 * rest of the text is dropped. */
static void send_all(const struct session *s, struct slice text, int patience)
{
    while (text.len) {
        ssize_t n = write(s->screen.output, text.at, text.len);
        struct pollfd fds[] = {{.fd = s->screen.output, .events = POLLOUT},
                               {.fd = s->signals, .events = POLLIN}};
        nfds_t count = patience < 0 ? 2 : 1;
        if (n < 0 && errno != EAGAIN && errno != EINTR)
            return;
        if (n < 0 && (poll(fds, count, patience) <= 0 || (count == 2 && fds[1].revents)))
            return;
        text = slice_from(text, n > 0 ? (size_t)n : 0);
    }
}

static void draw(const struct session *s)
{
    struct winsize size;
    struct top_screen screen = {80, 24};
    struct buffer frame = buffer_with_limit(FRAME_MOST);
    struct top_view view = view_of(s);
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col && size.ws_row)
        screen = (struct top_screen){size.ws_col, size.ws_row};
    if (buffer_put(&frame, SLICE_LITERAL("\x1b[H")) && top_frame(&view, screen, &frame) &&
        buffer_put(&frame, SLICE_LITERAL("\x1b[J")))
        send_all(s, buffer_slice(&frame), -1);
    buffer_free(&frame);
}

static void enter(struct session *s)
{
    attach_screen_raw(&s->screen);
    send_all(s, SLICE_LITERAL(ENTER_SCREEN), -1);
}

static void leave(struct session *s)
{
    send_all(s, SLICE_LITERAL(LEAVE_SCREEN), LAST_WORDS);
    attach_screen_restore(&s->screen);
}

/* The shell gets its terminal as it was. */
static void pause_session(struct session *s)
{
    leave(s);
    raise(SIGSTOP);
    enter(s);
}

/* ---- keys ---- */

enum { INTERRUPT = 3, BACKSPACE = 8, SUSPEND = 26, ESCAPE = 27, DELETE = 127 };

/* Handles a key of the filter. Returns true if the relay must be queried again. */
static bool edit(struct session *s, uint8_t key)
{
    size_t len = strlen(s->filter);
    if (key == '\r' || key == '\n') {
        s->edits = false;
        return false;
    }
    if (key == ESCAPE) {
        s->edits = false;
        s->filter[0] = '\0';
    } else if ((key == BACKSPACE || key == DELETE) && len) {
        s->filter[len - 1] = '\0';
    } else if (key >= ' ' && key < DELETE && len < FILTER_MOST) {
        s->filter[len] = (char)key;
        s->filter[len + 1] = '\0';
    }
    return true;
}

static bool take_key(struct session *s, uint8_t key)
{
    if (key == INTERRUPT)
        s->ends = true;
    else if (key == SUSPEND)
        pause_session(s);
    else if (s->edits)
        return edit(s, key);
    else if (key == 'q' || key == 'Q')
        s->ends = true;
    else if (key == '/')
        s->edits = true;
    else if (key == 's')
        s->sort = (s->sort + 1) % SORTS;
    return key == 's';
}

/* Handles typed keys. Sequences that begin with Esc, such as arrows, are ignored. */
static bool take_keys(struct session *s)
{
    uint8_t keys[256];
    bool again = false;
    ssize_t n = read(STDIN_FILENO, keys, sizeof keys);
    if (n == 0 || (n < 0 && errno != EINTR && errno != EAGAIN))
        s->ends = true; /* the terminal has gone */
    if (n > 1 && keys[0] == ESCAPE)
        return false;
    for (ssize_t i = 0; i < n && !s->ends; i++)
        again = take_key(s, keys[i]) || again;
    return again;
}

/* ---- the loop ---- */

static int open_signals(sigset_t *before)
{
    static const int numbers[] = {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGWINCH};
    sigset_t set;
    sigemptyset(&set);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        sigaddset(&set, numbers[i]);
    sigprocmask(SIG_BLOCK, &set, before);
    return signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
}

static void take_signals(struct session *s)
{
    struct signalfd_siginfo info;
    while (read(s->signals, &info, sizeof info) == (ssize_t)sizeof info) {
        if (info.ssi_signo == SIGTSTP)
            pause_session(s);
        else if (info.ssi_signo != SIGWINCH) /* SIGWINCH only needs a new drawing */
            s->ends = true;
    }
}

static void run_session(struct session *s)
{
    int64_t next = (int64_t)loop_clock() + s->interval;
    while (!s->ends) {
        draw(s);
        int64_t left = next - (int64_t)loop_clock();
        struct pollfd fds[] = {{.fd = STDIN_FILENO, .events = POLLIN}, {.fd = s->signals, .events = POLLIN}};
        bool again = left <= 0;
        if (!again && poll(fds, 2, (int)(left / (int64_t)MILLISECOND) + 1) > 0) {
            if (fds[1].revents)
                take_signals(s);
            if (fds[0].revents)
                again = take_keys(s);
        }
        if (!again || s->ends)
            continue;
        look(s);
        next = (int64_t)loop_clock() + s->interval;
    }
}

static int show(struct session *s)
{
    sigset_t before;
    s->signals = open_signals(&before);
    if (s->signals < 0)
        return EXIT_FAILED;
    s->screen = attach_screen_open();
    enter(s);
    run_session(s);
    leave(s);
    attach_screen_close(&s->screen);
    close(s->signals);
    sigprocmask(SIG_SETMASK, &before, NULL);
    return 0;
}

int ctl_top(int argc, char **argv)
{
    struct arguments a = {.config = NULL};
    struct session s = {.sort = 0};
    (void)argc;
    if (!read_arguments(argv, &a, &s) || a.help) {
        fputs(usage, a.help ? stdout : stderr);
        return a.help ? 0 : EXIT_USAGE;
    }
    if (!find_daemons(&a, &s))
        return EXIT_FAILED;
    look(&s);
    bool once = a.once || a.json || !isatty(STDOUT_FILENO) || !isatty(STDIN_FILENO) || (!s.relay && !s.agent);
    int code = once ? print_once(&s, a.json) : show(&s);
    forget(&s);
    return code;
}
