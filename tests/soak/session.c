/* SPDX-License-Identifier: MIT */
/*
 * The session's end of a soak's tunnel: session STREAM
 *
 * Answers each record with one of its own, now and then with a burst, and says something once a second besides.
 * Told to stop ('s'), it says what it has heard: 'r' bytes received, 'l' lost, 'a' again, 't' torn, 'f' foreign.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <termios.h>
#include <unistd.h>

#include "tests/soak/record.h"

enum { BURST = 64, BURST_EVERY = 16 };

struct session {
    struct record_reader in;
    uint64_t stream, number;
};

static void say(struct session *s, char kind, uint64_t value)
{
    uint8_t bytes[RECORD_SIZE];
    struct record_line line = {.kind = kind, .stream = s->stream, .number = s->number++, .value = value};
    record_write(bytes, &line, 1);
    for (size_t done = 0; done < sizeof bytes;) {
        ssize_t wrote = write(1, bytes + done, sizeof bytes - done);
        if (wrote < 0 && errno != EINTR)
            exit(1);
        done += wrote > 0 ? (size_t)wrote : 0;
    }
}

static void on_line(void *owner, const struct record_line *line)
{
    struct session *s = owner;
    if (line->kind == 's') {
        say(s, 'r', s->in.bytes);
        say(s, 'l', s->in.lost);
        say(s, 'a', s->in.repeated);
        say(s, 't', s->in.torn);
        say(s, 'f', s->in.foreign);
        return;
    }
    for (int count = line->number % BURST_EVERY == BURST_EVERY - 1 ? BURST : 1; count; count--)
        say(s, 'd', s->in.next);
}

int main(int argc, char **argv)
{
    static struct session s;
    struct termios terminal;
    uint8_t bytes[4096];
    if (argc != 2) {
        fprintf(stderr, "usage: session STREAM\n");
        return 2;
    }
    s.stream = strtoull(argv[1], NULL, 10);
    s.in = (struct record_reader){.stream = s.stream, .seed = 2, .taken = on_line, .owner = &s};
    if (tcgetattr(0, &terminal) == 0) {
        cfmakeraw(&terminal);
        tcsetattr(0, TCSANOW, &terminal);
    }
    say(&s, 'd', 0); /* it is raw now */
    for (;;) {
        struct pollfd in = {.fd = 0, .events = POLLIN};
        if (poll(&in, 1, 1000) == 0) {
            say(&s, 'd', s.in.next);
            continue;
        }
        ssize_t got = read(0, bytes, sizeof bytes);
        if (got <= 0 && errno != EINTR)
            return 0;
        if (got > 0)
            record_read(&s.in, slice_of(bytes, (size_t)got));
    }
}
