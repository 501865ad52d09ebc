/* SPDX-License-Identifier: MIT */
/* The connection to Redis, with a server of the test's own on the same loop. */
#include "tests/unit/support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "spoa/agent/directory/redis_link.h"

#define MANY_SECS (20 * SECOND) /* that a busy machine may take */

struct world {
    struct loop *loop;
    struct loop_timer tick; /* so that turns end */
    char folder[32], password[64], why[512];
    int listener, fd;
    struct redis_link_options options;
    struct redis_link *link;
    const char *answer; /* to whatever comes first */
    bool ready;
};

static void on_tick(void *owner)
{
    loop_timer_set(&((struct world *)owner)->tick, 10 * MILLISECOND);
}

static void on_ready(void *context)
{
    ((struct world *)context)->ready = true;
}

static void on_lost(void *context, const char *why)
{
    struct world *w = context;
    snprintf(w->why, sizeof w->why, "%s", why);
}

/* One turn of the loop and of the server. */
static void turn(struct world *w)
{
    char memory[4096];
    loop_turn(w->loop, true);
    if (w->fd < 0)
        w->fd = net_accept(w->listener);
    if (w->fd < 0 || !w->answer || recv(w->fd, memory, sizeof memory, MSG_DONTWAIT) <= 0)
        return;
    assert_int_equal(send(w->fd, w->answer, strlen(w->answer), MSG_NOSIGNAL), strlen(w->answer));
    w->answer = NULL;
}

static int setup(void **state)
{
    struct world *w = calloc(1, sizeof *w);
    struct fail why;
    char text[64];
    snprintf(w->folder, sizeof w->folder, "/tmp/cellgate-unit.XXXXXX");
    assert_non_null(mkdtemp(w->folder));
    snprintf(w->password, sizeof w->password, "%s/password", w->folder);
    snprintf(text, sizeof text, "unix@%s/redis.sock", w->folder);
    assert_true(redis_server_parse(slice_text(text), &w->options.server, &why));
    w->fd = -1;
    w->listener = net_listen(&w->options.server.address, 0600, &why);
    assert_true(w->listener >= 0);
    w->loop = loop_new(&why);
    assert_non_null(w->loop);
    loop_timer_open(&w->tick, w->loop, on_tick, w);
    on_tick(w);
    w->options.loop = w->loop;
    w->options.timeout = 20 * SECOND;
    w->options.ready = on_ready;
    w->options.lost = on_lost;
    w->options.context = w;
    *state = w;
    return 0;
}

static int teardown(void **state)
{
    struct world *w = *state;
    redis_link_free(w->link);
    loop_timer_close(&w->tick);
    loop_free(w->loop);
    if (w->fd >= 0)
        close(w->fd);
    net_unlisten(w->listener);
    unlink(w->password);
    rmdir(w->folder);
    free(w);
    return 0;
}

static void set_password(struct world *w, const char *text)
{
    FILE *file = fopen(w->password, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
    w->options.user = "cellgate";
    w->options.password_file = w->password;
}

/* Why the link is lost when the server says that to the greeting. */
static const char *refused(struct world *w, const char *answer)
{
    w->answer = answer;
    w->link = redis_link_new(&w->options);
    assert_non_null(w->link);
    for (uint64_t since = loop_clock(); !w->why[0] && !w->ready && loop_clock() - since < MANY_SECS;)
        turn(w);
    assert_false(w->ready);
    return w->why;
}

/* ---- answers ---- */

enum { COMMANDS = 6 };

static struct redis_command commands[COMMANDS];
static unsigned replies, losses;

static void on_reply(struct redis_command *command, const struct resp *reply)
{
    (void)command;
    replies += reply != NULL;
    losses += reply == NULL;
}

static const struct slice get[] = {SLICE_LITERAL("GET"), SLICE_LITERAL("x")};

/* Connected, with that many commands that the server has yet to answer. */
static void owe(struct world *w, size_t count)
{
    replies = losses = 0;
    w->answer = "+PONG\r\n";
    w->link = redis_link_new(&w->options);
    assert_non_null(w->link);
    for (uint64_t since = loop_clock(); !w->ready && loop_clock() - since < MANY_SECS;)
        turn(w);
    assert_true(w->ready);
    for (size_t i = 0; i < count; i++) {
        commands[i] = (struct redis_command){.replied = on_reply};
        assert_true(redis_link_send(w->link, get, 2, &commands[i]));
    }
}

/* The server says that at times, until so many were answered or the link is lost. */
static void say_slowly(struct world *w, const char *what, uint64_t pause, unsigned until)
{
    uint64_t begun = loop_clock(), said = begun;
    while (replies < until && !w->why[0] && loop_clock() - begun < MANY_SECS) {
        turn(w);
        if (loop_clock() - said < pause)
            continue;
        said = loop_clock();
        (void)send(w->fd, what, strlen(what), MSG_NOSIGNAL);
    }
}

static void a_server_is_waited_for_while_its_answers_come(void **state)
{
    struct world *w = *state;
    w->options.timeout = 2 * SECOND;
    owe(w, COMMANDS);
    say_slowly(w, "+x\r\n", 500000, COMMANDS); /* half as long again as `timeout` */
    assert_string_equal(w->why, "");
    assert_int_equal(replies, COMMANDS);
}

static void drops_of_an_answer_are_none(void **state)
{
    struct world *w = *state;
    w->options.timeout = 500 * MILLISECOND;
    owe(w, COMMANDS);
    assert_int_equal(send(w->fd, "+x", 2, MSG_NOSIGNAL), 2);
    say_slowly(w, "x", 50000, 1);
    assert_string_equal(w->why, "the server does not answer");
    assert_int_equal(losses, COMMANDS);
}

static void an_answer_that_came_while_this_thread_stood_still_is_read(void **state)
{
    struct world *w = *state;
    w->options.timeout = SECOND;
    owe(w, 1);
    while (recv(w->fd, (char[64]){0}, 64, MSG_DONTWAIT) <= 0)
        loop_turn(w->loop, true);
    assert_int_equal(send(w->fd, "+x\r\n", 4, MSG_NOSIGNAL), 4);
    usleep(1100000);
    loop_turn(w->loop, true);
    assert_string_equal(w->why, "");
    assert_int_equal(replies, 1);
}

/* ---- the greeting ---- */

static void a_refusal_is_told(void **state)
{
    struct world *w = *state;
    set_password(w, "a secret of theirs\n");
    assert_string_equal(refused(w, "-WRONGPASS invalid username-password pair\r\n"),
                        "the server refuses: WRONGPASS: wrong user or password");
}

static void a_server_that_repeats_the_password_has_it_told_to_nobody(void **state)
{
    struct world *w = *state;
    set_password(w, "a secret of theirs\n");
    assert_string_equal(refused(w, "-ERR unknown command 'AUTH', with args beginning with: 'cellgate' "
                                   "'a secret of theirs' \r\n"),
                        "the server refuses: ERR");
}

static void nor_any_part_of_it(void **state)
{
    struct world *w = *state;
    set_password(w, "a secret of theirs\n");
    assert_string_equal(refused(w, "-ERR unknown command AUTH cellgate  secret of theirs\r\n"),
                        "the server refuses: ERR");
}

static void nor_where_it_is_the_first_word(void **state)
{
    struct world *w = *state;
    set_password(w, "a-secret-of-theirs\n");
    assert_string_equal(refused(w, "-secret-of-theirs\r\n"),
                        "the server refuses: an error that is not known here");
}

static void a_password_in_a_pipe_holds_nobody(void **state)
{
    struct world *w = *state;
    assert_int_equal(mkfifo(w->password, 0600), 0);
    w->options.password_file = w->password;
    const char *why = refused(w, NULL);
    assert_non_null(strstr(why, w->password));
    assert_non_null(strstr(why, "not a regular file"));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_server_is_waited_for_while_its_answers_come),
        TEST(drops_of_an_answer_are_none),
        TEST(an_answer_that_came_while_this_thread_stood_still_is_read),
        TEST(a_refusal_is_told),
        TEST(a_server_that_repeats_the_password_has_it_told_to_nobody),
        TEST(nor_any_part_of_it),
        TEST(nor_where_it_is_the_first_word),
        TEST(a_password_in_a_pipe_holds_nobody),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
