/* SPDX-License-Identifier: MIT */
#include "tests/unit/support.h"

#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <pty.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "spoa/service/log.h"
#include "spoa/service/redact.h"

static int ends[2];
static struct log *the_log;

static int open_pipe(void **state)
{
    (void)state;
    if (pipe(ends) < 0)
        return -1;
    fcntl(ends[0], F_SETPIPE_SZ, 1 << 20);
    the_log = log_new(ends[1], LOG_INFO);
    return the_log ? 0 : -1;
}

static int close_pipe(void **state)
{
    (void)state;
    log_free(the_log);
    close(ends[0]);
    close(ends[1]);
    return 0;
}

/* Ends the log, so that all is written, and gives what was, without the 27 characters of the time. */
static const char *written(void)
{
    static char text[1 << 20];
    log_free(the_log);
    the_log = NULL;
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    ssize_t len = read(ends[0], text, sizeof text - 1);
    text[len > 0 ? len : 0] = '\0';
    return len > 27 ? text + 27 : text;
}

static void a_line_has_time_level_message_and_fields(void **state)
{
    (void)state;
    log_write(the_log, LOG_WARN, "tunnel opened", LOG_TEXT("route", "pty"), LOG_I64("n", -5),
              LOG_U64("b", UINT64_MAX), LOG_SECONDS("gap", 0.25), LOG_SLICE("none", slice_of(NULL, 0)));
    const char *line = written();
    assert_string_equal(
        line, " level=warn msg=\"tunnel opened\" route=pty n=-5 b=18446744073709551615 gap=0.250000 "
              "none=\"\"\n");
    int year, month, day, hour, minute, second, millisecond;
    assert_int_equal(sscanf(line - 27, "ts=%4d-%2d-%2dT%2d:%2d:%2d.%3dZ", &year, &month, &day, &hour, &minute,
                            &second, &millisecond),
                     7);
}

static void numbers_are_written_as_printf_writes_them(void **state)
{
    static const double seconds[] = {0,      4e-7,         6e-7, 0.999999, 0.9999996, 59.9999994,
                                     1234.5, 999999999.25, 1e9,  1e15,     -0.5};
    static const int64_t numbers[] = {0, -1, 9, 10, INT64_MIN, INT64_MAX};
    char expected[1024];
    (void)state;
    for (size_t i = 0; i < sizeof seconds / sizeof *seconds; i++)
        log_write(the_log, LOG_INFO, "m", LOG_SECONDS("s", seconds[i]), LOG_I64("i", numbers[i % 6]));
    const char *text = written();
    for (size_t i = 0; i < sizeof seconds / sizeof *seconds; i++) {
        snprintf(expected, sizeof expected, "msg=m s=%.6f i=%" PRId64 "\n", seconds[i], numbers[i % 6]);
        assert_non_null(text = strstr(text, "msg="));
        assert_memory_equal(text, expected, strlen(expected));
        text += strlen(expected);
    }
}

static void values_are_quoted_and_escaped(void **state)
{
    (void)state;
    log_write(the_log, LOG_INFO, "m", LOG_TEXT("a", "x y"), LOG_TEXT("b", "\"\\="), LOG_TEXT("c", "1\n2\r\t"),
              LOG_SLICE("d", slice_of("\0\x7f\xc3\xa9\x1b", 5)), LOG_TEXT("e", "plain/1.2:3"));
    assert_string_equal(written(), " level=info msg=m a=\"x y\" b=\"\\\"\\\\=\" c=\"1\\n2\\r\\t\" "
                                   "d=\"\\x00\\x7f\\xc3\\xa9\\x1b\" e=plain/1.2:3\n");
}

static void lines_below_the_level_are_not_written(void **state)
{
    (void)state;
    log_write(the_log, LOG_DEBUG, "quiet");
    log_write(the_log, LOG_ERROR, "loud");
    assert_string_equal(written(), " level=error msg=loud\n");
}

static void no_log_is_fine(void **state)
{
    (void)state;
    log_write(NULL, LOG_ERROR, "nobody hears this", LOG_I64("n", 1));
    assert_int_equal(log_dropped(NULL), 0);
    log_free(NULL);
}

static void a_long_line_is_cut_and_says_so(void **state)
{
    (void)state;
    static char big[3000];
    memset(big, 'x', sizeof big - 1);
    log_write(the_log, LOG_INFO, "m", LOG_TEXT("a", big), LOG_TEXT("b", big), LOG_TEXT("c", big),
              LOG_TEXT("d", big), LOG_I64("e", 1));
    const char *line = written();
    size_t len = strlen(line);
    assert_true(len < 4096);
    assert_non_null(strstr(line, "x... b=x"));
    assert_null(strstr(line, " d="));
    assert_string_equal(line + len - 10, " cut=true\n");
}

static int open_blocked(void **state)
{
    (void)state;
    char junk[4096] = {0};
    if (pipe2(ends, O_NONBLOCK) < 0)
        return -1;
    while (write(ends[1], junk, sizeof junk) > 0)
        ;
    the_log = log_new(ends[1], LOG_INFO);
    return the_log ? 0 : -1;
}

static void a_blocked_pipe_costs_lines_not_time(void **state)
{
    (void)state;
    struct timespec start, end;
    clock_gettime(CLOCK_MONOTONIC, &start);
    for (int i = 0; i < 10000; i++)
        log_audit(the_log, LOG_INFO, "nobody reads this line", LOG_I64("n", i));
    clock_gettime(CLOCK_MONOTONIC, &end);
    assert_true(end.tv_sec - start.tv_sec < 20); /* if a line had to wait, it would for ever */
    assert_true(log_dropped(the_log) > 1000);
    clock_gettime(CLOCK_MONOTONIC, &start);
    log_free(the_log);
    the_log = NULL;
    clock_gettime(CLOCK_MONOTONIC, &end);
    assert_true(end.tv_sec - start.tv_sec <= 3);
}

static int open_terminal(void **state)
{
    (void)state;
    if (openpty(&ends[0], &ends[1], NULL, NULL, NULL) < 0)
        return -1;
    the_log = log_new(ends[1], LOG_INFO);
    return the_log ? 0 : -1;
}

/* The log's thread, which goes on now, has the other end. */
static int hang_up(void **state)
{
    (void)state;
    return close(ends[0]);
}

/* As with one that was stopped by ^S: it is said to be ready, and a write to it waits for ever. */
static void a_terminal_that_takes_nothing_does_not_hold_up_the_end(void **state)
{
    (void)state;
    for (int i = 0; i < 2000; i++)
        log_audit(the_log, LOG_INFO, "a line that is longer than others, so that there are 100 KiB",
                  LOG_I64("n", i));
    alarm(60); /* instead of for ever */
    log_free(the_log);
    alarm(0);
    the_log = NULL;
}

/* Of a pipe with O_DIRECT each read gives what one write has put there. */
static int open_full_pipe(void **state)
{
    (void)state;
    if (pipe2(ends, O_DIRECT | O_NONBLOCK) < 0)
        return -1;
    while (write(ends[1], "x", 1) == 1)
        ;
    fcntl(ends[0], F_SETFL, O_DIRECT);
    fcntl(ends[1], F_SETFL, O_DIRECT);
    the_log = log_new(ends[1], LOG_INFO);
    return the_log ? 0 : -1;
}

/* Others may write to the same pipe: what they say must not come to stand within a line. */
static void each_write_is_of_whole_lines(void **state)
{
    (void)state;
    char got[8192];
    for (int i = 0; i < 1000; i++)
        log_audit(the_log, LOG_INFO, "many lines in one write", LOG_I64("n", i));
    for (int lines = 0; lines < 1000;) {
        ssize_t len = read(ends[0], got, sizeof got);
        assert_true(len > 0);
        if (got[0] == 'x')
            continue;
        assert_memory_equal(got, "ts=", 3);
        assert_int_equal(got[len - 1], '\n');
        for (ssize_t i = 0; i < len; i++)
            lines += got[i] == '\n';
    }
}

static int64_t clock_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* A socket of packets has each write as one. */
static void lines_that_come_close_together_are_written_together(void **state)
{
    enum { LINES = 400, PART = 4096 };
    char text[2 * PART];
    int packets[2];
    unsigned lines = 0, writes = 0;
    size_t bytes = 0;
    (void)state;
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, packets), 0);
    struct log *log = log_new(packets[1], LOG_INFO);
    int64_t began = clock_ms();
    for (unsigned i = 0; i < LINES; i++) {
        log_audit(log, LOG_INFO, "m", LOG_U64("n", i));
        nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
    }
    log_free(log);
    int64_t took = clock_ms() - began;
    close(packets[1]);
    for (ssize_t len; (len = recv(packets[0], text, sizeof text, 0)) > 0; writes++, bytes += (size_t)len)
        for (ssize_t i = 0; i < len; i++)
            lines += text[i] == '\n';
    close(packets[0]);
    assert_int_equal(lines, LINES);
    assert_in_range(writes, 1, took / 4 + (int64_t)(2 * bytes / PART) + 2);
}

static void trouble_is_written_at_once(void **state)
{
    char text[4096];
    unsigned soon = 0;
    (void)state;
    for (unsigned i = 0; i < 50; i++) {
        int64_t began = clock_ms();
        log_audit(the_log, LOG_INFO, "usual");
        log_audit(the_log, LOG_ERROR, "trouble");
        for (size_t len = 0; !memmem(text, len, "trouble", 7);) {
            ssize_t got = read(ends[0], text + len, sizeof text - len);
            assert_true(got > 0);
            len += (size_t)got;
        }
        soon += clock_ms() - began < 3;
    }
    assert_true(soon > 0); /* none is if it waits for the next write, whatever else the machine does */
}

static void a_closed_reader_is_survived(void **state)
{
    (void)state;
    close(ends[0]);
    log_audit(the_log, LOG_INFO, "into the void");
    for (int i = 0; i < 1000 && log_dropped(the_log) == 0; i++)
        usleep(1000);
    assert_int_equal(log_dropped(the_log), 1);
    ends[0] = -1;
}

static void *write_many(void *context)
{
    (void)context;
    for (int i = 0; i < 500; i++)
        log_audit(the_log, LOG_INFO, "many", LOG_TEXT("x", "0123456789"));
    return NULL;
}

static void threads_do_not_mix_their_lines(void **state)
{
    (void)state;
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        pthread_create(&threads[i], NULL, write_many, NULL);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(log_dropped(the_log), 0);
    size_t lines = 0;
    for (const char *at = written() - 27, *end; (end = strchr(at, '\n')); at = end + 1, lines++)
        assert_int_equal(strncmp(at + 27, " level=info msg=many x=0123456789\n", 34), 0);
    assert_int_equal(lines, 2000);
}

static void running_out_of_memory_is_an_error(void **state)
{
    (void)state;
    for (unsigned n = 1; n <= 3; n++) {
        alloc_fail_at(n);
        assert_null(log_new(2, LOG_INFO));
        alloc_fail_at(0);
    }
}

/* ---- redaction ---- */

#define JWS "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJ1LTEifQ.c2lnbmF0dXJlLW9mLTMyLWJ5dGVz"

static void planted_secrets_are_redacted(void **state)
{
    (void)state;
    static const struct {
        const char *value, *shown;
    } cases[] = {
        {JWS, "[redacted]"},
        {"token " JWS " refused", "token [redacted] refused"},
        {"\"" JWS "\"", "\"[redacted]\""},
        {"x=" JWS ",y", "x=[redacted],y"},
        {"eyAiYWxnIjoiSFMyNTYifQ.e30.c2ln", "[redacted]"},
        {"ewogImFsZyI6IkhTMjU2In0.e30.c2ln", "[redacted]"},
        {"ew0KICJhbGciOiJIUzI1NiJ9.e30.c2ln", "[redacted]"},
        {"Bearer abc", "Bearer [redacted]"},
        {"x=bEARER%20abc", "x=bEARER%20[redacted]"},
        {"BASIC abc", "BASIC [redacted]"},
        {"CELLGATE.BEARER.abc, CELLGATE_TOKEN=abc", "CELLGATE.BEARER.[redacted], CELLGATE_TOKEN[redacted]"},
        {"__HOST-CELLGATE=abc", "__HOST-CELLGATE[redacted]"},
        {"authorization: bearer s3cr3t; x", "authorization: bearer [redacted]; x"},
        {"BEARER x.y.z", "BEARER [redacted]"},
        {"Basic dXNlcjpwYXNz", "Basic [redacted]"},
        {"GET /a?cellgate_token=x&b=1 HTTP/1.1", "GET /a?[redacted] HTTP/1.1"},
        {"http://h/p?q", "http://h/p?[redacted]"},
        {"a=1&cellgate_token=abc&b=2", "a=1&cellgate_token[redacted]&b=2"},
        {"cellgate, cellgate.bearer.abc.def, x", "cellgate, cellgate.bearer.[redacted], x"},
        {"__Host-cellgate=abc; theme=dark", "__Host-cellgate[redacted]; theme=dark"},
        {"v1.AbCdEfGhIjKlMnOpQrSt.uvwxyz", "[redacted]"},
        {"v2.key-1.AbCdEfGhIjKlMnOpQrSt.uvwxyz", "[redacted]"},
        {"v1_AbCdEfGhIjKlMnOpQrStuvwxyz0123456789+/AbCdE", "[redacted]"},
        {"f1.bnM.c2ItMQ.8080.a.AbCdEfGhIjKlMnOpQrStuv", "[redacted]"},
        {"version v2.1.3 of f1.x", "version v2.1.3 of f1.x"},
        {"Bearer a Bearer b", "Bearer [redacted] Bearer [redacted]"},
        {"Bearer " JWS "?x", "Bearer [redacted]"},
        {"bearer Bearer abc", "bearer Bearer [redacted]"},
        {"basic cellgate.bearer.abc", "basic cellgate.bearer.[redacted]"},
        {"bearer bearer  Basic abc", "bearer bearer  Basic [redacted]"},
        /* and what is none */
        {"", ""},
        {"eyJ is short", "eyJ is short"},
        {"version v1.2.3", "version v1.2.3"},
        {"is it so? yes", "is it so? yes"},
        {"why?", "why?"},
        {"bearer", "bearer"},
        {"Bearer ", "Bearer "},
        {"every worker keeps going", "every worker keeps going"},
        {"http://127.0.0.1:9001/a/b.c", "http://127.0.0.1:9001/a/b.c"},
        {"cellgate_relay_tunnels", "cellgate_relay_tunnels"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char shown[512] = "";
        struct slice text = guarded(slice_text(cases[i].value)), rest = text, plain;
        do {
            bool secret = redact_split(&rest, &plain);
            strncat(shown, (const char *)plain.at, plain.len);
            strcat(shown, secret ? "[redacted]" : "");
        } while (rest.len);
        assert_string_equal(shown, cases[i].shown);
        guarded_free(text);
    }
}

static void no_field_and_no_message_shows_a_secret(void **state)
{
    (void)state;
    log_audit(the_log, LOG_INFO, "refused Bearer s3cr3t-1", LOG_TEXT("a", JWS),
              LOG_TEXT("b", "x \n?s3cr3t-2 z"));
    assert_string_equal(
        written(), " level=info msg=\"refused Bearer [redacted]\" a=[redacted] b=\"x \\n?[redacted] z\"\n");
}

static size_t count_of(const char *text, const char *what)
{
    size_t count = 0;
    for (const char *at = text; (at = strstr(at, what)); at++)
        count++;
    return count;
}

static void of_one_message_so_many_lines_are_written_and_then_their_number(void **state)
{
    (void)state;
    for (int i = 0; i < 3000; i++)
        log_write(the_log, LOG_INFO, "directory loaded", LOG_I64("i", i));
    log_write(the_log, LOG_INFO, "another");
    for (int i = 0; i < 2 * LOG_BURST; i++)
        log_audit(the_log, LOG_INFO, "tunnel opened");
    assert_int_equal(log_held_back(the_log), 3000 - LOG_BURST);
    const char *text = written();
    assert_int_equal(count_of(text, "msg=\"directory loaded\""), LOG_BURST);
    assert_int_equal(count_of(text, "msg=another"), 1);
    assert_int_equal(count_of(text, "msg=\"tunnel opened\""), 2 * LOG_BURST);
    assert_int_equal(
        count_of(text, "msg=\"more of these were held back\" like=\"directory loaded\" lines=2950"), 1);
}

int main(void)
{
#define WITH_PIPE(test) cmocka_unit_test_setup_teardown(test, open_pipe, close_pipe)
    const struct CMUnitTest tests[] = {
        WITH_PIPE(a_line_has_time_level_message_and_fields),
        WITH_PIPE(numbers_are_written_as_printf_writes_them),
        WITH_PIPE(values_are_quoted_and_escaped),
        WITH_PIPE(lines_below_the_level_are_not_written),
        WITH_PIPE(of_one_message_so_many_lines_are_written_and_then_their_number),
        cmocka_unit_test(no_log_is_fine),
        WITH_PIPE(a_long_line_is_cut_and_says_so),
        cmocka_unit_test_setup_teardown(a_blocked_pipe_costs_lines_not_time, open_blocked, close_pipe),
        cmocka_unit_test_setup_teardown(a_terminal_that_takes_nothing_does_not_hold_up_the_end, open_terminal,
                                        hang_up),
        cmocka_unit_test_setup_teardown(each_write_is_of_whole_lines, open_full_pipe, close_pipe),
        cmocka_unit_test(lines_that_come_close_together_are_written_together),
        WITH_PIPE(trouble_is_written_at_once),
        WITH_PIPE(a_closed_reader_is_survived),
        WITH_PIPE(threads_do_not_mix_their_lines),
        cmocka_unit_test(running_out_of_memory_is_an_error),
        cmocka_unit_test(planted_secrets_are_redacted),
        WITH_PIPE(no_field_and_no_message_shows_a_secret),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
