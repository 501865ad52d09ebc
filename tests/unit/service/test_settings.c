/* SPDX-License-Identifier: MIT */
#include "tests/unit/support.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "spoa/service/settings.h"

static char folder[] = "/tmp/cellgate-settings-XXXXXX", path[64];
static struct fail why;

static int make_folder(void **state)
{
    (void)state;
    if (!mkdtemp(folder))
        return -1;
    snprintf(path, sizeof path, "%s/c.json", folder);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    unlink(path);
    return rmdir(folder);
}

static void write_file(const char *text)
{
    FILE *to = fopen(path, "w");
    assert_non_null(to);
    fputs(text, to);
    fclose(to);
}

static struct settings *load(const char *text)
{
    write_file(text);
    return settings_load(path, NULL, 0, &why);
}

#define NETWORKS "\"worker_networks\": [\"127.0.0.0/8\", \"::1/128\"]"
#define SMALLEST "{\"directory\": {}, \"open\": true, " NETWORKS "}"

static void the_smallest_file_gets_the_documented_defaults(void **state)
{
    (void)state;
    struct settings *s = load(SMALLEST);
    char text[NET_TEXT];
    assert_non_null(s);
    assert_string_equal(s->base_dir, folder);
    assert_string_equal(s->cell, "cell");
    assert_null(s->tokens);
    assert_null(s->routes);
    assert_string_equal(net_text(&s->agent.listen, text), "unix@/run/cellgate/agent.sock");
    assert_string_equal(net_text(&s->relay.admin, text), "127.0.0.1:9102");
    assert_true(s->agent.threads >= 1 && s->relay.threads >= 1);
    const struct settings_relay *r = &s->relay;
    assert_int_equal(r->keepalive, 25000);
    assert_int_equal(r->dead_after, 60000);
    assert_int_equal(r->buffer, 262144);
    assert_int_equal(r->connect_budget, 5000);
    assert_int_equal(r->dial_timeout, 10000);
    assert_int_equal(r->grace_period, 500);
    assert_int_equal(r->redial_budget, 30000);
    assert_int_equal(r->migration_budget, 600000);
    assert_int_equal(r->flap_limit, 3);
    assert_int_equal(r->flap_window, 60000);
    assert_int_equal(r->stall, 300000);
    assert_int_equal(r->drain, 30000);
    assert_int_equal(r->redial_backoff_count, 10);
    assert_int_equal(r->redial_backoff[0], 1);
    assert_int_equal(r->redial_backoff[9], 4000);
    settings_free(s);
}

static void workers_may_be_where_the_operator_says(void **state)
{
    (void)state;
    struct settings *s = load(SMALLEST);
    assert_true(settings_worker_allowed(s, &(struct address){4, {127, 9, 9, 9}}));
    assert_true(settings_worker_allowed(s, &(struct address){6, {[15] = 1}}));
    assert_false(settings_worker_allowed(s, &(struct address){4, {10, 0, 0, 1}}));
    assert_false(settings_worker_allowed(s, &(struct address){4, {8, 8, 8, 8}}));
    assert_null(settings_socket_folder(s, SLICE_LITERAL("/run/cell/w.sock")));
    settings_free(s);
    s = load("{\"directory\": {}, \"open\": true, \"worker_networks\": [\"8.8.8.0/24\"]}");
    assert_true(settings_worker_allowed(s, &(struct address){4, {8, 8, 8, 8}}));
    assert_false(settings_worker_allowed(s, &(struct address){4, {127, 0, 0, 1}}));
    settings_free(s);
}

static void a_metadata_service_is_no_worker_whatever_the_networks_are(void **state)
{
    (void)state;
    struct settings *s =
        load("{\"directory\": {}, \"open\": true, \"worker_networks\": [\"0.0.0.0/0\", \"::/0\"]}");
    assert_true(settings_worker_allowed(s, &(struct address){4, {8, 8, 8, 8}}));
    assert_true(settings_worker_allowed(s, &(struct address){6, {0x20, 1}}));
    assert_false(settings_worker_allowed(s, &(struct address){4, {169, 254, 169, 254}}));
    assert_false(settings_worker_allowed(s, &(struct address){6, {0xfd, 0, 0x0e, 0xc2, [14] = 2, 0x54}}));
    settings_free(s);
}

static void sockets_may_be_beneath_the_folders_that_are_named(void **state)
{
    (void)state;
    static const char *const outside[] = {
        "/run/cell",    "/run/cell/",    "/run/cellar/w",  "/run/cell/../w",     "/run/cell/a/../w",
        "/run/cell//w", "/run/cell/./w", "/run/cell/w/",   "/run/cell/w/.",      "run/cell/w",
        "/etc/w",       "/run/cell/..",  "/srv/x/../../w", "/run/cell/a/../../w"};
    struct settings *s = load("{\"directory\": {}, \"open\": true, " NETWORKS
                              ", \"worker_sockets\": [\"/srv/x/\", \"/run/cell/\"]}");
    assert_string_equal(settings_socket_folder(s, SLICE_LITERAL("/run/cell/w.sock")), "/run/cell/");
    assert_string_equal(settings_socket_folder(s, SLICE_LITERAL("/srv/x/a/..b/w")), "/srv/x/");
    for (size_t i = 0; i < sizeof outside / sizeof *outside; i++)
        if (settings_socket_folder(s, slice_text(outside[i])))
            fail_msg("%s", outside[i]);
    settings_free(s);
}

static void the_example_of_the_contract_is_read(void **state)
{
    (void)state;
    struct settings *s = load(
        "{\n"
        "  \"cell\": \"cell-a\",\n"
        "  \"directory\": { \"kind\": \"file\", \"path\": \"sandboxes.json\" },   // see directory.md\n"
        "  \"tokens\": [ /* see tokens.md */\n"
        "    { \"kind\": \"jwt\", \"alg\": \"HS256\", \"kid\": \"k1\", \"secret_file\": \"k1.secret\" }\n"
        "  ],\n"
        "  \"routes\": [{ \"name\": \"pty\", \"path\": \"/api/sandboxes/{sandbox}/pty/{session}\" }],\n"
        "  \"domains\": { \"sandbox-sdk\": [\"preview.example.com\"] },\n"
        "  \"worker_networks\": [\"127.0.0.0/8\", \"10.0.0.0/8\"],\n"
        "  \"agent\": { \"listen\": \"unix@/run/cellgate/agent.sock\", \"relay_listen\": "
        "\"unix@/run/cellgate/agent-relay.sock\",\n"
        "             \"admin\": \"127.0.0.1:9101\", \"control\": \"unix@/run/cellgate/agent.control.sock\", "
        "\"threads\": 0 },\n"
        "  \"relay\": { \"listen\": \"unix@/run/cellgate/relay.sock\", \"agent\": "
        "\"unix@/run/cellgate/agent-relay.sock\", \"admin\": \"127.0.0.1:9102\",\n"
        "             \"control\": \"unix@/run/cellgate/relay.control.sock\", \"threads\": 0, \"keepalive\": "
        "\"25s\", \"buffer\": \"256KiB\" }\n"
        "}\n");
    assert_non_null(s);
    assert_string_equal(s->cell, "cell-a");
    assert_int_equal(json_count(s->tokens), 1);
    assert_int_equal(json_count(s->routes), 1);
    assert_int_equal(s->networks_count, 2);
    settings_free(s);
}

static void an_error_has_file_line_and_column(void **state)
{
    (void)state;
    static const struct {
        const char *text, *why;
    } cases[] = {
        {"{\n  \"directory\": {}, \"open\": true,\n  \"relay\": {\"keepalive\": \"25\"}\n}",
         ":3:26: relay.keepalive must be a duration from 50ms to 1h"},
        {"{\"directory\": {}, \"open\": true, \"rellay\": {}}", ":1:33: unknown key rellay"},
        {"{\"directory\": {},\n \"directory\": {}}", ":2:2: duplicate key"},
        {"{\"open\": true}", ":1:1: directory is missing"},
        {"{\"directory\": []}", ":1:15: directory must be an object"},
        {"{\"directory\": {}}", ":1:1: tokens is missing: say \"open\": true to let everybody in"},
        {"{\"directory\": {},\n\"tokens\": []}",
         ":2:11: tokens is empty: say \"open\": true to let everybody in"},
        {"{\"directory\": {}, \"open\": true, \"tokens\": [{}]}",
         ":1:27: open lets everybody in, whatever tokens says: leave one of them out"},
        {"{\"worker_networks\": [\"169.254.169.254\"]}",
         ":1:22: worker_networks must be a list of networks without metadata services, which "
         "are never dialled"},
        {"{\"worker_sockets\": [\"/run/cell\"]}", ":1:21: worker_sockets must be a list of folders such as "
                                                  "\"/run/cell/\", from the root, with a slash at the "
                                                  "end"},
        {"{\"directory\": {}, \"tokens\": {}}", ":1:29: tokens must be a list"},
        {"{\"directory\": {}, \"tokens\": [1], \"routes\": 1}", ":1:44: routes must be a list"},
        {"{\"directory\": {}, \"tokens\": [1], \"domains\": []}", ":1:45: domains must be an object"},
        {"{\"cell\": \"a b\"}", ":1:10: cell must be a name of letters, digits, '-', '_' and '.'"},
        {"{\"worker_networks\": [\"10.0.0.0/8\", \"10.0.0.1/8\"]}",
         ":1:36: worker_networks must be a list of networks such as \"10.0.0.0/8\", without bits after the "
         "prefix"},
        {"{\"relay\": {\"redial_backoff\": [\"1s\", \"0s\"]}}",
         ":1:37: relay.redial_backoff must be a list of durations from 1ms to 10m"},
        {"{\"relay\": {\"redial_backoff\": []}}",
         ":1:30: relay.redial_backoff must be a list of 1 to 16 texts"},
        {"{\"directory\": {}, \"open\": true, \"agent\": {\"listen\": \"127.0.0.1:1\"}}",
         ":1:53: agent.listen must be a Unix socket (unix@PATH), or set agent.trust_tcp"},
        {"{\"directory\": {}, \"open\": true, \"agent\": {\"admin\": \"10.0.0.1:1\"}}",
         ":1:52: agent.admin must be a loopback address or a Unix socket"},
        {"{\"directory\": {}, \"open\": true, \"relay\": {\"control\": \"[::1]:1\"}}",
         ":1:54: relay.control must be a Unix socket (unix@PATH)"},
        {"{\"directory\": {}, \"open\": true, \"relay\": {\"memory\": \"1MiB\", \"buffer\": "
         "\"2MiB\"}, " NETWORKS "}",
         ":1:53: relay.memory must not be less than relay.buffer"},
        {"", ":1:1: the document ends too early"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_null(load(cases[i].text));
        assert_int_equal(strncmp(why.text, path, strlen(path)), 0);
        assert_string_equal(why.text + strlen(path), cases[i].why);
    }
}

static void a_missing_file_is_named(void **state)
{
    (void)state;
    assert_null(settings_load("/nowhere/c.json", NULL, 0, &why));
    assert_string_equal(why.text, "/nowhere/c.json: No such file or directory");
}

static void overrides_win_and_are_checked_like_the_file(void **state)
{
    (void)state;
    const char *good[] = {"relay.listen=unix@/tmp/r.sock", "relay.keepalive=1s", "agent.trust_tcp=true",
                          "agent.listen=127.0.0.1:7000", "worker_networks=[\"10.1.0.0/16\"]"};
    write_file("{\"directory\": {}, \"open\": true, \"relay\": {\"keepalive\": \"2s\"}}");
    struct settings *s = settings_load(path, good, 5, &why);
    char text[NET_TEXT];
    assert_non_null(s);
    assert_string_equal(net_text(&s->relay.listen, text), "unix@/tmp/r.sock");
    assert_int_equal(s->relay.keepalive, 1000);
    assert_int_equal(s->networks_count, 1);
    settings_free(s);
    const char *bad[] = {"relay.keepalive=never"};
    assert_null(settings_load(path, bad, 1, &why));
    assert_string_equal(why.text, "-o relay.keepalive: relay.keepalive must be a duration from 50ms to 1h");
    const char *refused[] = {"agent.listen=127.0.0.1:7000"};
    assert_null(settings_load(path, refused, 1, &why));
    assert_string_equal(why.text + strlen(path),
                        ": agent.listen must be a Unix socket (unix@PATH), or set agent.trust_tcp");
}

static void old_names_of_keys_are_read_with_a_warning(void **state)
{
    (void)state;
    const char *overrides[] = {"agent.max_watches=2000"};
    char *text = NULL;
    size_t len = 0;
    write_file("{\"directory\": {}, \"open\": true,\n \"agent\": {\"guesses\": 7}, \"relay\": {\"settle\": "
               "\"2s\"}}");
    struct settings *s = settings_load(path, overrides, 1, &why);
    assert_non_null(s);
    assert_int_equal(s->agent.auth_failures, 7);
    assert_int_equal(s->agent.max_subscriptions, 2000);
    assert_int_equal(s->relay.grace_period, 2000);
    FILE *to = open_memstream(&text, &len);
    settings_print_warnings(s, to);
    fclose(to);
    char wanted[1024];
    snprintf(wanted, sizeof wanted,
             "warning: %s:2:12: agent.guesses is now called agent.auth_failures\n"
             "warning: %s:2:37: relay.settle is now called relay.grace_period\n"
             "warning: -o agent.max_watches is now called agent.max_subscriptions\n",
             path, path);
    assert_string_equal(text, wanted);
    free(text);
    settings_free(s);
}

static void the_folder_of_the_file_is_the_base(void **state)
{
    (void)state;
    write_file(SMALLEST);
    char *before = get_current_dir_name();
    assert_int_equal(chdir(folder), 0);
    struct settings *s = settings_load("c.json", NULL, 0, &why);
    assert_int_equal(chdir(before), 0);
    free(before);
    assert_string_equal(s->base_dir, ".");
    settings_free(s);
}

static void running_out_of_memory_is_an_error(void **state)
{
    (void)state;
    write_file("{\"directory\": {}, \"tokens\": [1], \"cell\": \"x\", " NETWORKS "}");
    cJSON_InitHooks(&(cJSON_Hooks){malloc, free});
    struct settings *s = NULL;
    unsigned n = 0;
    while (!s) {
        alloc_fail_at(++n);
        s = settings_load(path, NULL, 0, &why);
        alloc_fail_at(0);
        assert_true(n < 500);
    }
    assert_true(n > 20);
    settings_free(s);
    cJSON_InitHooks(NULL);
}

static void every_key_is_unique_and_explained(void **state)
{
    (void)state;
    size_t count;
    const struct option *table = settings_options(&count);
    assert_true(count > 40);
    for (size_t i = 0; i < count; i++) {
        assert_true(strlen(table[i].help) > 10 || strncmp(table[i].help, "see ", 4) == 0);
        assert_int_not_equal(table[i].help[strlen(table[i].help) - 1], '.');
        for (size_t j = 0; j < i; j++)
            assert_string_not_equal(table[i].key, table[j].key);
        for (size_t j = 0; table[i].old && j < count; j++) {
            assert_string_not_equal(table[i].old, table[j].key);
            if (j != i && table[j].old)
                assert_string_not_equal(table[i].old, table[j].old);
        }
    }
}

static void what_a_reload_does_not_change_is_said_by_the_row(void **state)
{
    (void)state;
    size_t count, restart = 0;
    const struct option *table = settings_options(&count);
    for (size_t i = 0; i < count; i++) {
        restart += table[i].restart;
        assert_null(strstr(table[i].help, "at start"));
        char *text = NULL;
        size_t len = 0;
        FILE *to = open_memstream(&text, &len);
        options_help(to, &table[i], 1);
        options_manual(to, &table[i], 1);
        fclose(to);
        const char *first = strstr(text, "; a change needs a restart)"),
                   *second = strstr(text, "; a change needs a restart.");
        assert_int_equal(first && second, table[i].restart);
        free(text);
    }
    assert_true(restart > 30);
    assert_true(options_find(table, count, slice_text("agent.lookup"))->restart);
    assert_false(options_find(table, count, slice_text("relay.keepalive"))->restart);
}

static void the_sample_says_what_is_so_without_it(void **state)
{
    (void)state;
    size_t count;
    const struct option *table = settings_options(&count);
    FILE *to = fopen(path, "w");
    options_sample(to, table, count);
    fclose(to);
    struct settings *sample = settings_load(path, NULL, 0, &why);
    if (!sample)
        fail_msg("%s", why.text);
    struct settings *plain = load(SMALLEST);
    for (size_t i = 0; i < count; i++) {
        bool text = table[i].type == OPTION_TEXT, number = table[i].type == OPTION_INT;
        const char *a = (const char *)sample + table[i].offset, *b = (const char *)plain + table[i].offset;
        number = number || table[i].type == OPTION_DURATION || table[i].type == OPTION_SIZE;
        const char *said = text ? *(char *const *)(const void *)a : NULL;
        const char *unsaid = text ? *(char *const *)(const void *)b : NULL;
        assert_int_equal(!said, !unsaid);
        if (said && unsaid)
            assert_string_equal(said, unsaid);
        if (number)
            assert_memory_equal(a, b, sizeof(int64_t));
    }
    assert_memory_equal(&sample->relay.agent, &plain->relay.agent, sizeof plain->relay.agent);
    assert_int_equal(json_count(sample->tokens), 1);
    assert_int_equal(sample->networks_count, plain->networks_count);
    settings_free(sample);
    settings_free(plain);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_smallest_file_gets_the_documented_defaults),
        cmocka_unit_test(workers_may_be_where_the_operator_says),
        cmocka_unit_test(a_metadata_service_is_no_worker_whatever_the_networks_are),
        cmocka_unit_test(sockets_may_be_beneath_the_folders_that_are_named),
        cmocka_unit_test(the_example_of_the_contract_is_read),
        cmocka_unit_test(an_error_has_file_line_and_column),
        cmocka_unit_test(a_missing_file_is_named),
        cmocka_unit_test(overrides_win_and_are_checked_like_the_file),
        cmocka_unit_test(old_names_of_keys_are_read_with_a_warning),
        cmocka_unit_test(the_folder_of_the_file_is_the_base),
        cmocka_unit_test(running_out_of_memory_is_an_error),
        cmocka_unit_test(the_sample_says_what_is_so_without_it),
        cmocka_unit_test(every_key_is_unique_and_explained),
        cmocka_unit_test(what_a_reload_does_not_change_is_said_by_the_row),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
