/* SPDX-License-Identifier: MIT */
#include "tests/unit/support.h"

#include <errno.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "examples/worker/http/web_server.h"

static struct http_exchange *nothing(struct http_conn *h, const struct slice *parts)
{
    (void)parts;
    return web_server_not_found(h);
}

static void who_comes_as_it_ends_is_turned_away(void **state)
{
    static const struct web_server_route routes[] = {{NULL, NULL, nothing}};
    struct web_server_options options = {.routes = routes, .name = "test", .drain = SECOND};
    struct fail why;
    char text[64], byte;

    (void)state;
    snprintf(text, sizeof text, "unix@/tmp/test_web_server.%d", (int)getpid());
    assert_true(net_parse(slice_text(text), &options.listen, &why));
    struct loop *loop = loop_new(&why);
    struct web_server *server = loop ? web_server_new(loop, &options, &why) : NULL;
    assert_non_null(server);
    int client = net_connect(&options.listen, &why);
    assert_true(client >= 0);
    web_server_free(server);
    ssize_t got = recv(client, &byte, 1, MSG_DONTWAIT);
    assert_true(got == 0 || (got < 0 && errno == ECONNRESET));
    close(client);
    loop_free(loop);
    unlink(text + strlen("unix@"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(who_comes_as_it_ends_is_turned_away)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
