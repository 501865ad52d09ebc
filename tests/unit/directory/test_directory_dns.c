/* SPDX-License-Identifier: MIT */
#include "tests/unit/support.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "spoa/agent/directory/directory.h"

#define DNS "\"kind\": \"dns\", \"servers\": [\"127.0.0.1:1\"]"

static struct directory_options *options_of(const char *keys, struct fail *why)
{
    char path[] = "/tmp/cellgate-dns.XXXXXX", text[1024];
    int fd = mkstemp(path);
    int len = snprintf(
        text, sizeof text,
        "{\"open\": true, \"worker_networks\": [\"10.0.0.0/8\"],\n \"directory\": {" DNS ", %s}}", keys);
    assert_true(fd >= 0 && write(fd, text, (size_t)len) == len);
    close(fd);
    struct settings *s = settings_load(path, NULL, 0, why);
    unlink(path);
    if (!s)
        fail_msg("%s", why->text);
    struct directory_options *options = directory_options_read(s, why);
    settings_free(s);
    return options;
}

static void a_name_is_of_one_sandbox_only(void **state)
{
    static const char *const good[] = {
        "{sandbox}.svc.test",         "{sandbox}.{namespace}.svc.test",
        "{namespace}.{sandbox}.test", "sb-{sandbox}-x.ns-{namespace}.test",
        "{sandbox}.{sandbox}.test",
    };
    static const char *const bad[] = {
        "{sandbox}-{namespace}.svc.test",     "{namespace}-{sandbox}.svc.test",
        "{sandbox}{namespace}.svc.test",      "{sandbox}.x.{namespace}-{sandbox}.test",
        "{sandbox}.a{namespace}1{namespace}", "x.{sandbox}-{sandbox}.test",
    };
    char keys[256];
    struct fail why;
    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        snprintf(keys, sizeof keys, "\"name\": \"%s\"", good[i]);
        struct directory_options *options = options_of(keys, &why);
        if (!options)
            fail_msg("%s: %s", good[i], why.text);
        directory_options_release(options);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        snprintf(keys, sizeof keys, "\"name\": \"%s\"", bad[i]);
        if (options_of(keys, &why))
            fail_msg("%s is accepted", bad[i]);
        if (!strstr(why.text, ":2:67: name must be") || !strstr(why.text, "in a label"))
            fail_msg("%s: %s", bad[i], why.text);
    }
    assert_null(options_of("\"name\": \"{sandbox}.{namespace}.test\", \"namespace\": \"Team\"", &why));
    assert_non_null(strstr(why.text, "namespace must be one label of a name, without capital letters"));
}

/* ---- what is looked up: port 1 answers nobody, so what is not asked for is absent, all else unavailable ---- */

static enum lookup outcome;
static int answers;

static void on_answered(void *context, enum lookup what, uint64_t took)
{
    (void)context, (void)took;
    outcome = what;
    answers++;
}

static void on_notified(void *context, struct slice key, uint64_t waiters)
{
    (void)context, (void)key, (void)waiters;
}

static void on_health(void *context, bool answering, bool pushing, const char *why)
{
    (void)context, (void)answering, (void)pushing, (void)why;
}

static void finds(const char *options_text, const char *key, enum lookup expected)
{
    static const struct directory_owner owner = {
        .answered = on_answered, .notify = on_notified, .health = on_health};
    struct fail why = {.text = ""};
    struct shared_record *box;
    struct directory_options *options = options_of(options_text, &why);
    struct loop *loop = loop_new(&why);
    struct directory *directory =
        options && loop ? directory_start(options, &owner, 200000, loop, NULL, &why) : NULL;
    if (!directory)
        fail_msg("%s", why.text);
    answers = 0;
    assert_int_equal(directory_cache_find(directory_cache(directory), slice_text(key), false, 1,
                                          (struct fair_owner){0}, &box),
                     LOOKUP_PENDING);
    for (int i = 0; i < 10000 && !answers; i++)
        loop_turn(loop, true); /* it has timers */
    directory_stop(directory);
    directory_release(directory);
    loop_free(loop);
    directory_options_release(options);
    assert_int_equal(answers, 1);
    if (outcome != expected)
        fail_msg("%s of %s: %d", key, options_text, (int)outcome);
}

static void what_dns_does_not_tell_apart_is_not_there(void **state)
{
    static const char *const name = "\"timeout\": \"50ms\", \"name\": \"{sandbox}.{namespace}.test\"";
    (void)state;
    finds(name, "sb-1", LOOKUP_UNAVAILABLE);
    finds(name, "team/sb-1", LOOKUP_UNAVAILABLE);
    finds(name, "SB-1", LOOKUP_ABSENT);
    finds(name, "sb-Z", LOOKUP_ABSENT);
    finds(name, "Team/sb-1", LOOKUP_ABSENT);
    finds(name, "a.b/c", LOOKUP_ABSENT);
    finds(name, "a/b.c", LOOKUP_ABSENT);
    finds(name, "b.c", LOOKUP_ABSENT);
}

static void a_name_without_a_namespace_is_of_one_namespace(void **state)
{
    static const char *const name = "\"timeout\": \"50ms\", \"name\": \"{sandbox}.test\"";
    static const char *const team =
        "\"timeout\": \"50ms\", \"name\": \"{sandbox}.test\", \"namespace\": \"team\"";
    (void)state;
    finds(name, "sb-1", LOOKUP_UNAVAILABLE);
    finds(name, "team/sb-1", LOOKUP_ABSENT);
    finds(team, "sb-1", LOOKUP_UNAVAILABLE);
    finds(team, "team/sb-1", LOOKUP_UNAVAILABLE);
    finds(team, "other/sb-1", LOOKUP_ABSENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_name_is_of_one_sandbox_only),
        cmocka_unit_test(what_dns_does_not_tell_apart_is_not_there),
        cmocka_unit_test(a_name_without_a_namespace_is_of_one_namespace),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
