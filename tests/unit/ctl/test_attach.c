/* SPDX-License-Identifier: MIT */
/* The loop of `cellgate attach` on a clock of the test's own, with a socket pair for the wire and a pipe for the screen. */
#include "tests/unit/support.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static int64_t simulated_ms;

static int simulated_clock(clockid_t clock, struct timespec *t)
{
    (void)clock;
    *t = (struct timespec){.tv_sec = simulated_ms / 1000, .tv_nsec = simulated_ms % 1000 * 1000000};
    return 0;
}

#define clock_gettime simulated_clock
#include "spoa/ctl/attach/escape.c"
#include "spoa/ctl/attach/screen.c"
#include "spoa/ctl/attach/session.c"

struct attach_wire {
    int fd;
};

ssize_t attach_wire_read(struct attach_wire *wire, void *to, size_t len)
{
    ssize_t got = recv(wire->fd, to, len, MSG_DONTWAIT);
    return got < 0 ? ATTACH_WIRE_AGAIN : got;
}

ssize_t attach_wire_write(struct attach_wire *wire, struct slice bytes)
{
    return send(wire->fd, bytes.at, bytes.len, MSG_DONTWAIT | MSG_NOSIGNAL);
}

int attach_wire_fd(const struct attach_wire *wire)
{
    return wire->fd;
}

short attach_wire_events(const struct attach_wire *wire, bool read, bool write)
{
    (void)wire;
    return (short)((read ? POLLIN : 0) | (write ? POLLOUT : 0));
}

void attach_printable(char *to, size_t size, struct slice text)
{
    snprintf(to, size, "%.*s", SLICE_PRINTF(text));
}

struct world {
    struct session s;
    struct attach_wire wire;
    struct attach_screen screen;
    struct attach_end end;
    int far;      /* the other side of the wire */
    int shown[2]; /* what stands in for the screen */
    int signals;  /* ended, so that poll never waits */
};

static void begin(struct world *w)
{
    int pair[2], ended[2];

    *w = (struct world){.end = {0}};
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    assert_int_equal(pipe2(w->shown, O_NONBLOCK), 0);
    assert_int_equal(pipe2(ended, O_NONBLOCK), 0);
    close(ended[1]);
    w->wire.fd = pair[0];
    w->far = pair[1];
    w->signals = ended[0];
    w->screen.output = w->shown[1];
    simulated_ms = 1000000;
    w->s = (struct session){
        .wire = &w->wire,
        .screen = &w->screen,
        .end = &w->end,
        .decoder = ws_decoder_with(WS_SERVER, w->s.control),
        .to_wire = buffer_with_limit(4 * WIRE_HELD),
        .to_screen = buffer_with_limit(2 * SCREEN_HELD),
        .heard = simulated_ms,
        .asked = simulated_ms,
        .prodded = simulated_ms,
    };
}

static void end(struct world *w)
{
    close(w->wire.fd);
    close(w->far);
    close(w->shown[0]);
    close(w->shown[1]);
    close(w->signals);
    buffer_free(&w->s.to_wire);
    buffer_free(&w->s.to_screen);
}

static void permit_at(struct world *w, int64_t after_ms)
{
    simulated_ms += after_ms;
    turn(&w->s, w->signals);
}

static void other_side_says_hello(struct world *w)
{
    assert_int_equal(send(w->far, "\x82\x05hello", 7, 0), 7);
}

/* The screen takes nothing, and is behind by as much as is held for it. */
static void stop_screen(struct world *w)
{
    static const uint8_t bytes[SCREEN_HELD];

    while (write(w->shown[1], bytes, 4096) > 0)
        ;
    assert_true(buffer_put(&w->s.to_screen, slice_of(bytes, sizeof bytes)));
}

static void screen_takes_all(struct world *w)
{
    uint8_t bytes[65536];

    while (read(w->shown[0], bytes, sizeof bytes) > 0)
        ;
}

static void silence_ends_it_and_was_asked_about(void **state)
{
    struct world w;

    (void)state;
    begin(&w);
    for (int i = 0; i < 2; i++)
        permit_at(&w, QUIET_MS);
    enum phase before = w.s.phase;
    permit_at(&w, QUIET_MS);
    end(&w);
    assert_int_equal(before, RUNNING);
    assert_int_equal(w.s.phase, ENDED);
    assert_string_equal(w.end.lost, "the other side does not answer");
}

static void a_screen_that_stood_still_is_no_silence(void **state)
{
    struct world w;

    (void)state;
    begin(&w);
    stop_screen(&w);
    other_side_says_hello(&w);
    permit_at(&w, QUIET_MS);
    permit_at(&w, 2 * DEAD_MS);
    screen_takes_all(&w);
    for (int i = 0; i < 3; i++)
        permit_at(&w, 0);
    end(&w);
    assert_int_equal(w.s.phase, RUNNING);
    assert_int_equal(w.s.heard, simulated_ms);
}

static void the_time_in_which_it_was_stopped_is_no_silence(void **state)
{
    struct world w;

    (void)state;
    begin(&w);
    permit_at(&w, QUIET_MS);
    permit_at(&w, 2 * DEAD_MS);
    enum phase before = w.s.phase;
    for (int i = 0; i < 2; i++)
        permit_at(&w, QUIET_MS);
    other_side_says_hello(&w);
    permit_at(&w, 2 * QUIET_MS);
    end(&w);
    assert_int_equal(before, RUNNING);
    assert_int_equal(w.s.phase, RUNNING);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(silence_ends_it_and_was_asked_about),
        cmocka_unit_test(a_screen_that_stood_still_is_no_silence),
        cmocka_unit_test(the_time_in_which_it_was_stopped_is_no_silence),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
