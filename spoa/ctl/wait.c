/* SPDX-License-Identifier: MIT */
/* cellgate wait: waits for a time, or until a server has stopped listening. Hooks of an ending pod need this, because the images have no
 * shell. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "spoa/ctl/arguments.h"
#include "spoa/ctl/ctl.h"
#include "spoa/net/loop.h"
#include "spoa/net/net.h"
#include "spoa/service/options.h"

enum { EXIT_LATE = 1, EXIT_USAGE = 2, STEP = 100, ANSWER = 1000 }; /* milliseconds */

static const char usage[] = "usage: cellgate wait [--gone ADDRESS]... [--at-most TIME] [--for TIME]\n"
                            "\n"
                            "Waits until nobody listens at any of the addresses, and then for the time.\n"
                            "\n"
                            "  --gone ADDRESS   unix@/run/cellgate-relay/relay.sock, 127.0.0.1:8080\n"
                            "  --at-most TIME   for --gone; default 10m\n"
                            "  --for TIME       250ms, 30s, 10m; default 0s\n"
                            "\n"
                            "Exit code: 0 waited; 1 somebody listens for longer; 2 wrong usage.\n";

struct plan {
    struct argument_texts gone;
    struct net_address addresses[ARGUMENT_TEXTS_MAX];
    int64_t at_most, time;
};

static void rest(int64_t milliseconds)
{
    struct timespec t = {(time_t)(milliseconds / 1000), (long)(milliseconds % 1000) * 1000000};
    while (nanosleep(&t, &t) < 0 && errno == EINTR)
        continue;
}

/* Returns false if the connection is refused or the socket is missing. A full backlog, or any unclear error, counts as listening. */
static bool listens(const struct net_address *address)
{
    struct fail why;
    int fd = net_connect(address, &why);
    if (fd < 0)
        return errno != ECONNREFUSED && errno != ENOENT;
    struct pollfd ready = {.fd = fd, .events = POLLOUT};
    int error = poll(&ready, 1, ANSWER) == 1 ? net_connected(fd) : 0;
    close(fd);
    return error != ECONNREFUSED;
}

static const char *still_there(const struct plan *plan)
{
    for (size_t i = 0; i < plan->gone.count; i++)
        if (listens(&plan->addresses[i]))
            return plan->gone.at[i];
    return NULL;
}

static int carry_out(const struct plan *plan)
{
    const char *who;
    uint64_t end = loop_clock() + (uint64_t)plan->at_most * MILLISECOND;
    while ((who = still_there(plan)) && loop_clock() < end)
        rest(STEP);
    if (who)
        fprintf(stderr, "cellgate wait: somebody still listens at %s\n", who);
    rest(plan->time);
    return who ? EXIT_LATE : 0;
}

static bool read_time(const char *text, int64_t otherwise, int64_t *time)
{
    *time = otherwise;
    return !text || options_duration(slice_text(text), time);
}

static bool read_plan(char **argv, struct plan *plan, bool *help)
{
    const char *at_most = NULL, *time = NULL;
    struct fail why;
    while (*argv && !*help)
        if (!argument_add(&argv, "--gone", &plan->gone) && !argument_take(&argv, "--at-most", &at_most) &&
            !argument_take(&argv, "--for", &time) && !argument_flag(&argv, "--help", help) &&
            !argument_flag(&argv, "-h", help)) {
            fprintf(stderr, "cellgate wait: %s is not understood, lacks its value or is given twice\n",
                    *argv);
            return false;
        }
    if (!read_time(at_most, 10 * OPTION_MINUTE, &plan->at_most) || !read_time(time, 0, &plan->time)) {
        fprintf(stderr, "cellgate wait: a time is written 250ms, 30s, 10m\n");
        return false;
    }
    for (size_t i = 0; i < plan->gone.count; i++)
        if (!net_parse(slice_text(plan->gone.at[i]), &plan->addresses[i], &why)) {
            fprintf(stderr, "cellgate wait: %s\n", why.text);
            return false;
        }
    return true;
}

int ctl_wait(int argc, char **argv)
{
    struct plan plan = {.gone = {.count = 0}};
    bool help = false, good = argc > 1 && read_plan(argv + 1, &plan, &help);
    if (good && !help)
        return carry_out(&plan);
    fputs(usage, good ? stdout : stderr);
    return good ? 0 : EXIT_USAGE;
}
