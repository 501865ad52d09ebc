/* SPDX-License-Identifier: MIT */
#include "tests/unit/support.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "spoa/base/json/json_write.h"
#include "spoa/net/net.h"
#include "spoa/service/admin.h"
#include "spoa/service/control.h"
#include "spoa/service/monitor.h"

/* ---- pages ---- */

static bool make_metrics(void *context, struct slice query, struct admin_answer *answer)
{
    (void)context;
    answer->type = ADMIN_PROMETHEUS;
    return buffer_put(&answer->body, SLICE_LITERAL("up 1\n")) && buffer_put(&answer->body, query);
}

static bool make_ready(void *context, struct slice query, struct admin_answer *answer)
{
    (void)context, (void)query;
    answer->status = 503;
    return buffer_put(&answer->body, SLICE_LITERAL("draining\n"));
}

static bool make_nothing(void *context, struct slice query, struct admin_answer *answer)
{
    (void)context, (void)query;
    return !buffer_put(&answer->body, SLICE_LITERAL("half a page"));
}

static bool make_big(void *context, struct slice query, struct admin_answer *answer)
{
    (void)context, (void)query;
    static char block[1 << 20];
    memset(block, 'x', sizeof block);
    for (int i = 0; i < 8; i++)
        if (!buffer_put(&answer->body, slice_of(block, sizeof block)))
            return false;
    return true;
}

static const struct admin_page pages[] = {
    {"/metrics", make_metrics, NULL},
    {"/readyz", make_ready, NULL},
    {"/broken", make_nothing, NULL},
    {"/big", make_big, NULL},
};
enum { PAGES = sizeof pages / sizeof *pages };

/* ---- one answer ---- */

/* The whole answer to a request on a connection of its own; NULL while there is none. */
static char *respond_by(const struct admin_page *its_pages, size_t count, const struct admin_rules *rules,
                        const char *request)
{
    static char text[1 << 20];
    struct net_address address;
    struct fail why;
    ssize_t got = -1;
    size_t len = 0;
    struct loop *loop = loop_new(&why);
    assert_true(loop && net_parse(SLICE_LITERAL("127.0.0.1:0"), &address, &why));
    int listener = net_listen(&address, 0, &why);
    assert_true(listener >= 0 && net_local(listener, &address));
    struct admin *admin = admin_new(loop, listener, its_pages, count, rules);
    assert_non_null(admin);
    int fd = net_connect(&address, &why);
    assert_true(fd >= 0);
    for (int turns = 0, said = 0; turns < 20 && got != 0; turns = got > 0 ? 0 : turns + 1) {
        loop_turn(loop, false);
        if (!said)
            said = send(fd, request, strlen(request), MSG_NOSIGNAL) == (ssize_t)strlen(request);
        got = recv(fd, text + len, sizeof text - 1 - len, MSG_DONTWAIT);
        len += got > 0 ? (size_t)got : 0;
    }
    close(fd);
    admin_free(admin);
    loop_free(loop);
    return len ? slice_dup(slice_of(text, len)) : NULL;
}

static char *respond_with(const struct admin_page *its_pages, size_t count, const char *request)
{
    return respond_by(its_pages, count, NULL, request);
}

static char *respond(const char *request)
{
    return respond_with(pages, PAGES, request);
}

static void pages_are_served(void **state)
{
    (void)state;
    static const struct {
        const char *request, *start, *end;
    } cases[] = {
        {"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1:9101\r\n\r\n",
         "HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\nContent-Length: 5\r\n",
         "\r\n\r\nup 1\n"},
        {"GET /metrics?a=b HTTP/1.1\r\nHost: localhost\r\n\r\n", "HTTP/1.1 200 OK\r\n", "\r\n\r\nup 1\na=b"},
        {"HEAD /metrics HTTP/1.1\r\nHost: [::1]:9\r\n\r\n", "HTTP/1.1 200 OK\r\n",
         "Connection: close\r\n\r\n"},
        {"GET /readyz HTTP/1.1\r\nHost: LOCALHOST:1\r\n\r\n", "HTTP/1.1 503 Service Unavailable\r\n",
         "\r\n\r\ndraining\n"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *text = respond(cases[i].request);
        assert_non_null(text);
        assert_int_equal(strncmp(text, cases[i].start, strlen(cases[i].start)), 0);
        assert_string_equal(text + strlen(text) - strlen(cases[i].end), cases[i].end);
        free(text);
    }
}

static void anything_else_is_refused_as_json(void **state)
{
    (void)state;
    static const struct {
        const char *request, *status, *code;
    } cases[] = {
        {"POST /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n", "405",
         "method_not_allowed"},
        {"DELETE /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n", "405", "method_not_allowed"},
        {"get /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n", "405", "method_not_allowed"},
        {"GET /metric HTTP/1.1\r\nHost: localhost\r\n\r\n", "404", "not_found"},
        {"GET /metrics/ HTTP/1.1\r\nHost: localhost\r\n\r\n", "404", "not_found"},
        {"GET /%6detrics HTTP/1.1\r\nHost: localhost\r\n\r\n", "404", "not_found"},
        {"GET /metrics HTTP/1.1\r\nHost: evil.example\r\n\r\n", "421", "bad_request"},
        {"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1.evil.example\r\n\r\n", "421", "bad_request"},
        {"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1/8\r\n\r\n", "4", "bad_request"},
        {"GET /metrics HTTP/1.1\r\nHost: [::1].evil.example\r\n\r\n", "421", "bad_request"},
        {"GET /metrics HTTP/1.1\r\nHost: localhost:1\r\nOrigin: http://evil.example\r\n\r\n", "403",
         "origin_refused"},
        {"GET /metrics HTTP/1.1\r\nHost: localhost:1\r\nOrigin: http://localhost:2\r\n\r\n", "403",
         "origin_refused"},
        {"GET /metrics HTTP/1.1\r\nHost: localhost:1\r\nOrigin: null\r\n\r\n", "403", "origin_refused"},
        {"OPTIONS /metrics HTTP/1.1\r\nHost: localhost:1\r\nOrigin: http://localhost:1\r\n\r\n", "405",
         "method_not_allowed"},
        {"GET /broken HTTP/1.1\r\nHost: localhost\r\n\r\n", "500", "internal"},
        {"nonsense\r\n\r\n", "400", "bad_request"},
        {"GET /metrics HTTP/1.1\r\n\r\n", "400", "bad_request"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *text = respond(cases[i].request), expected[64];
        assert_non_null(text);
        assert_int_equal(strncmp(text + 9, cases[i].status, strlen(cases[i].status)), 0);
        snprintf(expected, sizeof expected, "\r\n\r\n{\"error\":\"%s\",", cases[i].code);
        assert_non_null(strstr(text, expected));
        assert_null(strstr(text, "half a page"));
        free(text);
    }
}

static bool make_page(void *context, struct slice query, struct admin_answer *answer)
{
    (void)query;
    answer->policy = context;
    return buffer_put(&answer->body, SLICE_LITERAL("<p>"));
}

static void no_answer_is_framed_guessed_at_or_read_by_other_sites(void **state)
{
    (void)state;
    static char own[] = "default-src 'self'; frame-ancestors 'none'";
    const struct admin_page page = {"/", make_page, own};
    static const char *const requests[] = {
        "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n",
        "GET /metrics HTTP/1.1\r\nHost: localhost:1\r\nOrigin: http://localhost:1\r\n\r\n",
        "GET /none HTTP/1.1\r\nHost: localhost\r\n\r\n",
        "GET /metrics HTTP/1.1\r\nHost: evil.example\r\n\r\n",
        "POST /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n",
        "nonsense\r\n\r\n",
    };
    static const char *const fields[] = {
        "\r\nContent-Security-Policy: default-src 'none'; frame-ancestors 'none'\r\n",
        "\r\nX-Frame-Options: DENY\r\n",
        "\r\nX-Content-Type-Options: nosniff\r\n",
        "\r\nReferrer-Policy: no-referrer\r\n",
        "\r\nCross-Origin-Resource-Policy: same-origin\r\n",
        "\r\nCache-Control: no-store\r\n",
    };
    for (size_t i = 0; i < sizeof requests / sizeof *requests; i++) {
        char *text = respond(requests[i]);
        assert_non_null(text);
        for (size_t j = 0; j < sizeof fields / sizeof *fields; j++)
            assert_non_null(strstr(text, fields[j]));
        free(text);
    }
    char *text = respond_with(&page, 1, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert_non_null(text);
    assert_non_null(
        strstr(text, "\r\nContent-Security-Policy: default-src 'self'; frame-ancestors 'none'\r\n"));
    assert_null(strstr(text, "default-src 'none'"));
    free(text);
}

static void an_unfinished_request_is_waited_for(void **state)
{
    (void)state;
    const char *request = "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n";
    for (size_t len = 0; len < strlen(request); len++) {
        char part[64] = "";
        memcpy(part, request, len);
        assert_null(respond(part));
    }
}

/* ---- a listener that others reach ---- */

static void write_file(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

static void assert_status(const struct admin_rules *rules, const char *request, const char *status)
{
    char *text = respond_by(pages, PAGES, rules, request);
    assert_non_null(text);
    assert_int_equal(strncmp(text + 9, status, 3), 0);
    assert_true((strstr(text, "\r\nWWW-Authenticate: Bearer\r\n") != NULL) == (strcmp(status, "401") == 0));
    free(text);
}

static void any_name_is_served_where_anyone_may_ask(void **state)
{
    (void)state;
    static const struct admin_rules anyone = {.anyone = true};
    assert_status(&anyone, "GET /metrics HTTP/1.1\r\nHost: cellgate.example:9103\r\n\r\n", "200");
    assert_status(&anyone, "GET /metrics HTTP/1.1\r\nHost: a\r\nOrigin: http://b\r\n\r\n", "403");
    assert_status(&anyone, "POST /metrics HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n", "405");
    assert_status(&anyone, "GET /tunnels HTTP/1.1\r\nHost: a\r\n\r\n", "404");
}

static void a_guarded_page_wants_the_token_of_the_file_as_it_is_now(void **state)
{
    (void)state;
    char path[] = "/tmp/cellgate-token-XXXXXX", request[256];
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    const struct admin_rules rules = {.anyone = true, .guarded = "/metrics", .token_file = path};
    static const struct {
        const char *file, *field, *status;
    } cases[] = {
        {"s3cret\n", "Authorization: Bearer s3cret\r\n", "200"},
        {" s3cret \r\nmore", "Authorization: bearer   s3cret \r\n", "200"},
        {"new", "Authorization: Bearer new\r\n", "200"},
        {"new", "Authorization: Bearer s3cret\r\n", "401"},
        {"new", "Authorization: Bearer ne\r\n", "401"},
        {"new", "Authorization: Bearer neww\r\n", "401"},
        {"new", "Authorization: Basic new\r\n", "401"},
        {"new", "Authorization: Bearer\r\n", "401"},
        {"new", "Authorization: new\r\n", "401"},
        {"new", "", "401"},
        {"new", "Authorization: Bearer new\r\nAuthorization: Bearer new\r\n", "401"},
        {"", "Authorization: Bearer \r\n", "401"},
        {"\nnew", "Authorization: Bearer new\r\n", "401"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        write_file(path, cases[i].file);
        snprintf(request, sizeof request, "GET /metrics?a=b HTTP/1.1\r\nHost: h\r\n%s\r\n", cases[i].field);
        assert_status(&rules, request, cases[i].status);
    }
    assert_status(&rules, "GET /readyz HTTP/1.1\r\nHost: h\r\n\r\n", "503"); /* its own */
    unlink(path);
    assert_status(&rules, "GET /metrics HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer new\r\n\r\n", "401");
}

static void a_monitor_has_three_pages(void **state)
{
    (void)state;
    char path[] = "/tmp/cellgate-monitor-XXXXXX", text[128];
    struct net_address none = {.len = 0}, address;
    struct monitor *monitor;
    struct fail why;
    struct loop *loop = loop_new(&why);
    assert_non_null(mkdtemp(path));
    snprintf(text, sizeof text, "unix@%s/m", path);
    assert_true(loop && net_parse(slice_text(text), &address, &why));
    struct monitor_options options = {.address = &none, .pages = pages, .count = PAGES};
    assert_true(monitor_open(&monitor, loop, &options, &why));
    assert_null(monitor);
    options.address = &address;
    options.token_file = "/nowhere/token";
    assert_false(monitor_open(&monitor, loop, &options, &why));
    assert_non_null(strstr(why.text, "/nowhere/token"));
    options.token_file = "/dev/null";
    assert_false(monitor_open(&monitor, loop, &options, &why));
    options.token_file = NULL;
    assert_true(monitor_open(&monitor, loop, &options, &why));
    static const struct {
        const char *path, *status;
    } cases[] = {{"/livez", "200"}, {"/metrics", "200"}, {"/readyz", "503"}, {"/big", "404"}, {"/", "404"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char answer[1024] = "";
        int fd = net_connect(&address, &why);
        assert_true(fd >= 0);
        int len = snprintf(text, sizeof text, "GET %s HTTP/1.1\r\nHost: a.b\r\n\r\n", cases[i].path);
        assert_int_equal(send(fd, text, (size_t)len, MSG_NOSIGNAL), len);
        for (int turns = 0; turns < 20 && !*answer; turns++) {
            loop_turn(loop, false);
            (void)!recv(fd, answer, sizeof answer - 1, MSG_DONTWAIT);
        }
        assert_int_equal(strncmp(answer + 9, cases[i].status, 3), 0);
        close(fd);
    }
    monitor_close(monitor);
    loop_free(loop);
    assert_int_equal(rmdir(path), 0); /* fails if the socket is still there */
}

/* ---- commands ---- */

static bool run_echo(void *context, const struct json *doc, const json_node *request, struct buffer *members,
                     struct fail *why)
{
    (void)context;
    struct slice text;
    if (!json_text(json_member(request, "text"), &text))
        return json_fail(doc, json_member(request, "text"), why, "text must be a text");
    return buffer_put(members, SLICE_LITERAL(",\"echo\":")) && json_write_text(members, text);
}

static bool run_refuse(void *context, const struct json *doc, const json_node *request,
                       struct buffer *members, struct fail *why)
{
    (void)context, (void)doc, (void)request, (void)members;
    return fail(why, "there is no \"t-1\"");
}

static const struct control_command commands[] = {{"echo", run_echo, NULL}, {"refuse", run_refuse, NULL}};

static void commands_are_answered(void **state)
{
    (void)state;
    static const struct {
        const char *request, *answer;
    } cases[] = {
        {"{\"command\":\"echo\",\"text\":\"a\\u0001\\\"\xc3\xa9\"}\n",
         "{\"ok\":true,\"echo\":\"a\\u0001\\\"\xc3\xa9\"}\n"},
        {"{\"command\":\"echo\",\"text\":1}\n",
         "{\"ok\":false,\"error\":\"request:1:26: text must be a text\"}\n"},
        {"{\"command\":\"refuse\"}\nignored", "{\"ok\":false,\"error\":\"there is no \\\"t-1\\\"\"}\n"},
        {"{\"command\":\"nothing\"}\n", "{\"ok\":false,\"error\":\"unknown command\"}\n"},
        {"{\"command\":1}\n",
         "{\"ok\":false,\"error\":\"the request must be an object with a \\\"command\\\"\"}\n"},
        {"[]\n", "{\"ok\":false,\"error\":\"the request must be an object with a \\\"command\\\"\"}\n"},
        {"\n", "{\"ok\":false,\"error\":\"request:1:1: the document ends too early\"}\n"},
        {"{\"command\":\"echo\",\"command\":\"refuse\"}\n",
         "{\"ok\":false,\"error\":\"request:1:19: duplicate key\"}\n"},
        {"", NULL},
        {"{\"command\":\"echo\"}", NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct buffer answer = buffer_with_limit(4096);
        struct slice bytes = guarded(slice_text(cases[i].request));
        assert_int_equal(control_respond(commands, 2, bytes, &answer), cases[i].answer != NULL);
        if (cases[i].answer)
            assert_true(slice_is(buffer_slice(&answer), cases[i].answer));
        buffer_free(&answer);
        guarded_free(bytes);
    }
}

static void any_bytes_become_valid_json(void **state)
{
    (void)state;
    struct fail why;
    for (int a = 0; a < 256; a++)
        for (int b = 0; b < 256; b++) {
            struct buffer out = buffer_with_limit(256);
            struct slice text = guarded(slice_of((const uint8_t[]){(uint8_t)a, (uint8_t)b}, 2));
            if (a || b)
                assert_true(json_write_text(&out, text));
            if (a && b)
                assert_true(json_check(buffer_slice(&out), "n", 0, (struct json_limits){256, 1}, &why));
            buffer_free(&out);
            guarded_free(text);
        }
}

/* ---- over sockets, with the loop on a thread of its own ---- */

static struct {
    char folder[40];
    struct net_address admin, control;
    struct loop *loop;
    struct admin *pages;
    struct control *commands;
    pthread_t thread;
    struct loop_task stop;
} server;

static void stop_loop(void *context)
{
    loop_stop(context);
}

static void *run_loop(void *context)
{
    loop_run(context);
    return NULL;
}

static int start(void **state)
{
    struct fail why;
    char text[80];
    strcpy(server.folder, "/tmp/cellgate-admin-XXXXXX");
    if (!mkdtemp(server.folder) || !(server.loop = loop_new(&why)))
        return -1;
    assert_true(net_parse(SLICE_LITERAL("127.0.0.1:0"), &server.admin, &why));
    snprintf(text, sizeof text, "unix@%s/c", server.folder);
    assert_true(net_parse(slice_text(text), &server.control, &why));
    int admin = net_listen(&server.admin, 0, &why), control = net_listen(&server.control, 0600, &why);
    if (admin < 0 || control < 0)
        return -1;
    assert_true(net_local(admin, &server.admin));
    static const struct admin_rules anyone = {.anyone = true};
    server.pages = admin_new(server.loop, admin, pages, PAGES, *state ? &anyone : NULL);
    server.commands = control_new(server.loop, control, commands, 2);
    return pthread_create(&server.thread, NULL, run_loop, server.loop);
}

static int stop(void **state)
{
    (void)state;
    server.stop = (struct loop_task){.run = stop_loop, .context = server.loop};
    loop_post(server.loop, &server.stop);
    pthread_join(server.thread, NULL);
    admin_free(server.pages);
    control_free(server.commands);
    loop_free(server.loop);
    return rmdir(server.folder); /* fails if the socket is still there */
}

static int dial(void)
{
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(connect(fd, &server.admin.any, server.admin.len), 0);
    return fd;
}

static size_t read_to_end(int fd, char *text, size_t size)
{
    size_t total = 0;
    for (ssize_t n; (n = recv(fd, text, size, 0)) > 0;)
        total += (size_t)n;
    close(fd);
    return total;
}

static void send_text(int fd, const char *text)
{
    assert_int_equal(send(fd, text, strlen(text), MSG_NOSIGNAL), strlen(text));
}

static void a_request_in_pieces_is_answered_and_closed(void **state)
{
    (void)state;
    char text[1024] = "";
    int fd = dial();
    send_text(fd, "GET /metrics HT");
    usleep(20000);
    send_text(fd, "TP/1.1\r\nHost: localhost\r\n\r\n");
    assert_true(read_to_end(fd, text, sizeof text) > 100);
    assert_int_equal(strncmp(text, "HTTP/1.1 200 OK\r\n", 17), 0);
}

static void a_large_page_arrives_whole(void **state)
{
    (void)state;
    static char text[65536];
    int fd = dial();
    send_text(fd, "GET /big HTTP/1.1\r\nHost: localhost\r\n\r\n");
    usleep(50000);
    assert_true(read_to_end(fd, text, sizeof text) > 8 << 20);
}

static void a_head_without_end_is_refused(void **state)
{
    (void)state;
    static char junk[9000], text[1024];
    memset(junk, 'a', sizeof junk);
    int fd = dial();
    send_text(fd, "GET /");
    send(fd, junk, sizeof junk, MSG_NOSIGNAL);
    read_to_end(fd, text, sizeof text);
    assert_int_equal(strncmp(text, "HTTP/1.1 431 ", 13), 0);
}

static void idle_connections_do_not_keep_others_out_for_long(void **state)
{
    (void)state;
    static char text[1024];
    int fds[ADMIN_CONNECTIONS];
    for (int i = 0; i < ADMIN_CONNECTIONS; i++)
        fds[i] = dial();
    int late = dial();
    send_text(late, "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n");
    close(fds[0]);
    assert_true(read_to_end(late, text, sizeof text) > 0);
    assert_int_equal(strncmp(text, "HTTP/1.1 200 OK\r\n", 17), 0);
    for (int i = 1; i < ADMIN_CONNECTIONS; i++)
        close(fds[i]);
}

/* Four times as many as there is room for, which say nothing and do not leave: a probe is answered at once. */
static void idle_connections_keep_no_probe_out(void **state)
{
    (void)state;
    static char text[1024];
    int fds[4 * ADMIN_CONNECTIONS];
    for (int i = 0; i < 4 * ADMIN_CONNECTIONS; i++)
        fds[i] = dial();
    uint64_t before = loop_clock();
    int late = dial();
    send_text(late, "GET /metrics HTTP/1.1\r\nHost: cellgate.example\r\n\r\n");
    assert_true(read_to_end(late, text, sizeof text) > 0);
    assert_int_equal(strncmp(text, "HTTP/1.1 200 OK\r\n", 17), 0);
    assert_in_range(loop_clock() - before, 0, 2000000);
    for (int i = 0; i < 4 * ADMIN_CONNECTIONS; i++)
        close(fds[i]);
}

static void a_slow_request_is_ended(void **state)
{
    (void)state;
    static char text[1024];
    int fd = dial();
    send_text(fd, "GET /metrics HTTP/1.1\r\n");
    uint64_t before = loop_clock();
    read_to_end(fd, text, sizeof text);
    assert_int_equal(strncmp(text, "HTTP/1.1 408 ", 13), 0);
    assert_in_range(loop_clock() - before, 4000000, 8000000);
}

static void control_is_private_and_answers(void **state)
{
    (void)state;
    struct stat st;
    struct fail why;
    struct buffer answer = buffer_with_limit(4096);
    assert_int_equal(stat(server.control.path.sun_path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    assert_true(control_ask(&server.control, SLICE_LITERAL("{\"command\":\"echo\",\"text\":\"x\"}"),
                            5 * SECOND, &answer, &why));
    assert_true(slice_is(buffer_slice(&answer), "{\"ok\":true,\"echo\":\"x\"}"));
    buffer_free(&answer);
}

static void asking_nobody_is_an_error_that_names_the_socket(void **state)
{
    (void)state;
    struct fail why;
    struct net_address nowhere;
    struct buffer answer = buffer_with_limit(4096);
    assert_true(net_parse(SLICE_LITERAL("unix@/nowhere/x.sock"), &nowhere, &why));
    assert_false(control_ask(&nowhere, SLICE_LITERAL("{}"), SECOND, &answer, &why));
    assert_non_null(strstr(why.text, "/nowhere/x.sock"));
}

int main(void)
{
#define SERVED(test) cmocka_unit_test_setup_teardown(test, start, stop)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pages_are_served),
        cmocka_unit_test(anything_else_is_refused_as_json),
        cmocka_unit_test(no_answer_is_framed_guessed_at_or_read_by_other_sites),
        cmocka_unit_test(an_unfinished_request_is_waited_for),
        cmocka_unit_test(any_name_is_served_where_anyone_may_ask),
        cmocka_unit_test(a_guarded_page_wants_the_token_of_the_file_as_it_is_now),
        cmocka_unit_test(a_monitor_has_three_pages),
        cmocka_unit_test(commands_are_answered),
        cmocka_unit_test(any_bytes_become_valid_json),
        SERVED(a_request_in_pieces_is_answered_and_closed),
        SERVED(a_large_page_arrives_whole),
        SERVED(a_head_without_end_is_refused),
        SERVED(idle_connections_do_not_keep_others_out_for_long),
        cmocka_unit_test_prestate_setup_teardown(idle_connections_keep_no_probe_out, start, stop, "anyone"),
        SERVED(a_slow_request_is_ended),
        SERVED(control_is_private_and_answers),
        SERVED(asking_nobody_is_an_error_that_names_the_socket),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
