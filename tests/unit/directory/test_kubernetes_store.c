/* SPDX-License-Identifier: MIT */
#include "tests/unit/support.h"

#include <stdio.h>
#include <stdlib.h>

#include "spoa/agent/directory/kubernetes/store.h"
#include "spoa/agent/model/worker_url.h"

/* What was told of which key, as the store says it then: "KEY=HOST;", "KEY=-;" of none, "KEY=?;" */
static char told[65536];
static size_t told_len;
static struct kubernetes_store *store;

static const char *found(const char *key)
{
    static char text[256];
    struct record record;
    size_t source;
    enum lookup lookup = kubernetes_store_find(store, slice_text(key), &record, &source);
    if (lookup == LOOKUP_ABSENT)
        return "-";
    if (lookup != LOOKUP_FOUND)
        return "?";
    snprintf(text, sizeof text, "%.*s", SLICE_PRINTF(record.worker.host));
    return text[0] ? text : "nowhere";
}

static void on_changed(void *context, struct slice key)
{
    char text[256];
    (void)context;
    snprintf(text, sizeof text, "%.*s", SLICE_PRINTF(key));
    if (told_len + 300 < sizeof told)
        told_len += (size_t)snprintf(told + told_len, sizeof told - told_len, "%s=%s;", text, found(text));
}

static const char *tell(void)
{
    static char last[sizeof told];
    memcpy(last, told, told_len);
    last[told_len] = '\0';
    told_len = 0;
    return last;
}

static void open_store(size_t most, size_t sources)
{
    const struct kubernetes_store_options options = {.most = most, .sources = sources, .changed = on_changed};
    store = kubernetes_store_new(&options);
    assert_non_null(store);
    told_len = 0;
}

static void list_all(size_t sources)
{
    for (size_t i = 0; i < sources; i++) {
        kubernetes_store_list(store, i);
        kubernetes_store_listed(store, i);
    }
}

static bool put_sort(size_t source, enum kubernetes_sort sort, const char *space, const char *name,
                     const char *key, const char *host)
{
    struct kubernetes_object o = {
        .space = slice_text(space), .name = slice_text(name), .key = slice_text(key)};
    o.record.state = *host ? RECORD_RUNNING : RECORD_WAKING;
    if (*host) {
        o.record.worker.kind = WORKER_HTTP;
        o.record.worker.host = slice_text(host);
        assert_true(address_parse(slice_text(host), &o.record.worker.addr));
    }
    return kubernetes_store_put(store, source, sort, &o);
}

static bool put(size_t source, const char *space, const char *name, const char *key, const char *host)
{
    return put_sort(source, KUBERNETES_AGENT_SANDBOX, space, name, key, host);
}

static void nothing_is_absent_before_every_source_was_listed(void **state)
{
    (void)state;
    open_store(10, 2);
    assert_string_equal(found("sb-1"), "?");
    kubernetes_store_list(store, 0);
    assert_true(put(0, "default", "sb-1", "sb-1", "10.0.0.1"));
    assert_string_equal(tell(), "sb-1=10.0.0.1;");
    assert_string_equal(found("sb-1"), "10.0.0.1"); /* what is there is there */
    kubernetes_store_listed(store, 0);
    assert_false(kubernetes_store_whole(store));
    assert_string_equal(found("sb-2"), "?");
    kubernetes_store_list(store, 1);
    kubernetes_store_listed(store, 1);
    assert_true(kubernetes_store_whole(store));
    assert_string_equal(found("sb-2"), "-");
    assert_string_equal(tell(), "");
    kubernetes_store_free(store);
}

static void a_change_is_told_and_the_same_again_is_not(void **state)
{
    (void)state;
    open_store(10, 1);
    list_all(1);
    assert_true(put(0, "default", "sb-1", "sb-1", ""));
    assert_string_equal(tell(), "sb-1=nowhere;");
    assert_true(put(0, "default", "sb-1", "sb-1", "10.0.0.1"));
    assert_string_equal(tell(), "sb-1=10.0.0.1;");
    assert_true(put(0, "default", "sb-1", "sb-1", "10.0.0.1"));
    assert_string_equal(tell(), "");
    assert_true(put(0, "other", "sb-1", "other/sb-1", "10.0.0.2"));
    assert_string_equal(tell(), "other/sb-1=10.0.0.2;");
    assert_int_equal(kubernetes_store_count(store), 2);
    kubernetes_store_remove(store, 0, SLICE_LITERAL("default"), SLICE_LITERAL("sb-1"));
    assert_string_equal(tell(), "sb-1=-;");
    kubernetes_store_remove(store, 0, SLICE_LITERAL("default"), SLICE_LITERAL("sb-1"));
    assert_string_equal(tell(), "");
    kubernetes_store_free(store);
}

static void a_list_removes_what_it_does_not_name(void **state)
{
    (void)state;
    open_store(5000, 2);
    list_all(2);
    char name[32];
    for (unsigned i = 0; i < 4000; i++) {
        snprintf(name, sizeof name, "sb-%u", i);
        assert_true(put(i % 4 == 0, "default", name, name, "10.0.0.1"));
    }
    (void)tell();
    kubernetes_store_list(store, 0);
    for (unsigned i = 0; i < 4000; i += 2) {
        snprintf(name, sizeof name, "sb-%u", i);
        if (i % 4)
            assert_true(put(0, "default", name, name, "10.0.0.1"));
    }
    assert_string_equal(tell(), "");
    kubernetes_store_listed(store, 0);
    assert_int_equal(kubernetes_store_count(store), 2000); /* all of the other source's, too */
    for (unsigned i = 0; i < 4000; i++) {
        snprintf(name, sizeof name, "sb-%u", i);
        assert_string_equal(found(name), i % 2 ? "-" : "10.0.0.1");
    }
    kubernetes_store_list(store, 0); /* one that is cut removes nothing */
    kubernetes_store_list(store, 0);
    kubernetes_store_listed(store, 0);
    assert_int_equal(kubernetes_store_count(store), 1000);
    kubernetes_store_list(store, 1);
    kubernetes_store_listed(store, 1);
    assert_int_equal(kubernetes_store_count(store), 0);
    assert_true(kubernetes_store_bytes(store) < 20000);
    kubernetes_store_free(store);
}

static void two_sandboxes_of_one_key_are_none_of_the_two(void **state)
{
    (void)state;
    open_store(10, 2);
    list_all(2);
    assert_true(put_sort(0, KUBERNETES_OPENSANDBOX, "a", "sb-1", "sb-1", "10.0.0.1"));
    assert_true(put_sort(0, KUBERNETES_OPENSANDBOX, "b", "sb-1", "sb-1", "10.0.0.2"));
    assert_string_equal(tell(), "sb-1=10.0.0.1;sb-1=?;");
    assert_true(kubernetes_store_ambiguous(store, SLICE_LITERAL("sb-1")));
    assert_false(kubernetes_store_ambiguous(store, SLICE_LITERAL("sb-2")));
    size_t source;
    struct slice space, name;
    assert_false(kubernetes_store_object(store, SLICE_LITERAL("sb-1"), &source, &space, &name));
    assert_true(
        put_sort(0, KUBERNETES_OPENSANDBOX, "a", "sb-1", "sb-1", "10.0.0.3")); /* that changes nothing */
    assert_string_equal(tell(), "sb-1=?;");
    kubernetes_store_remove(store, 0, SLICE_LITERAL("b"), SLICE_LITERAL("sb-1"));
    assert_string_equal(tell(), "sb-1=10.0.0.3;");
    assert_true(kubernetes_store_object(store, SLICE_LITERAL("sb-1"), &source, &space, &name));
    assert_true(slice_is(space, "a") && slice_is(name, "sb-1") && source == 0);
    assert_true(put(1, "default", "sb-1", "sb-1", "10.0.0.4")); /* of another sort */
    assert_string_equal(tell(), "sb-1=?;");
    kubernetes_store_free(store);
}

static void several_slices_are_one_sandbox(void **state)
{
    (void)state;
    open_store(10, 1);
    list_all(1);
    assert_true(put_sort(0, KUBERNETES_ENDPOINT_SLICES, "default", "x-1", "sb-1", "10.0.0.9"));
    assert_true(put_sort(0, KUBERNETES_ENDPOINT_SLICES, "default", "x-2", "sb-1", "10.0.0.8"));
    assert_true(put_sort(0, KUBERNETES_ENDPOINT_SLICES, "default", "x-3", "sb-1", ""));
    assert_string_equal(found("sb-1"), "10.0.0.8");
    assert_true(
        put_sort(0, KUBERNETES_ENDPOINT_SLICES, "default", "x-2", "sb-2", "10.0.0.8")); /* another label */
    assert_string_equal(found("sb-1"), "10.0.0.9");
    assert_string_equal(found("sb-2"), "10.0.0.8");
    (void)tell();
    kubernetes_store_remove(store, 0, SLICE_LITERAL("default"), SLICE_LITERAL("x-1"));
    assert_string_equal(tell(), "sb-1=nowhere;");
    kubernetes_store_free(store);
}

static void what_has_no_room_is_not_absent(void **state)
{
    (void)state;
    open_store(2, 1);
    list_all(1);
    assert_true(put(0, "default", "sb-1", "sb-1", "10.0.0.1"));
    assert_true(put(0, "default", "sb-2", "sb-2", "10.0.0.2"));
    assert_false(put(0, "default", "sb-3", "sb-3", "10.0.0.3"));
    assert_string_equal(found("sb-1"), "10.0.0.1");
    assert_string_equal(found("sb-3"), "?");
    assert_string_equal(found("sb-4"), "?");
    assert_true(put(0, "default", "sb-2", "sb-2", "10.0.0.4")); /* what is there may change */
    (void)tell();
    kubernetes_store_list(store, 0);
    assert_true(put(0, "default", "sb-2", "sb-2", "10.0.0.4"));
    kubernetes_store_lose(store, 0); /* an object that cannot be read may have been sb-1 */
    kubernetes_store_listed(store, 0);
    assert_string_equal(tell(), "sb-1=?;"); /* nobody knows */
    assert_string_equal(found("sb-1"), "?");
    assert_false(kubernetes_store_ambiguous(store, SLICE_LITERAL("sb-1")));
    assert_string_equal(found("sb-4"), "?");
    assert_true(put(0, "default", "sb-1", "sb-1", "10.0.0.1")); /* by an event: it is there */
    assert_string_equal(tell(), "sb-1=10.0.0.1;");
    kubernetes_store_list(store, 0);
    assert_true(put(0, "default", "sb-2", "sb-2", "10.0.0.4"));
    kubernetes_store_listed(store, 0);
    assert_string_equal(tell(), "sb-1=-;");
    assert_string_equal(found("sb-4"), "-");
    kubernetes_store_free(store);
}

/* Its name is known: it is none of those that the list has not named. */
static void what_has_no_room_keeps_nothing_that_is_gone(void **state)
{
    (void)state;
    open_store(2, 1);
    list_all(1);
    assert_true(put(0, "default", "old-1", "old-1", "10.0.0.1"));
    assert_true(put(0, "default", "old-2", "old-2", "10.0.0.2"));
    (void)tell();
    kubernetes_store_list(store, 0);
    assert_false(put(0, "default", "new-1", "new-1", "10.0.0.1"));
    assert_false(put(0, "default", "new-2", "new-2", "10.0.0.2"));
    assert_true(kubernetes_store_listed(store, 0)); /* there is room now */
    assert_int_equal(kubernetes_store_count(store), 0);
    assert_string_equal(found("old-1"), "?");
    kubernetes_store_list(store, 0);
    assert_true(put(0, "default", "new-1", "new-1", "10.0.0.1"));
    assert_true(put(0, "default", "new-2", "new-2", "10.0.0.2"));
    assert_false(kubernetes_store_listed(store, 0));
    assert_string_equal(found("new-2"), "10.0.0.2");
    assert_string_equal(found("old-1"), "-");
    kubernetes_store_free(store);
}

static void without_memory_a_sandbox_is_unknown_not_absent(void **state)
{
    (void)state;
    open_store(10, 1);
    list_all(1);
    alloc_fail_at(1);
    bool good = put(0, "default", "sb-1", "sb-1", "10.0.0.1");
    alloc_fail_at(0);
    assert_false(good);
    assert_string_equal(found("sb-1"), "?");
    list_all(1);
    assert_true(put(0, "default", "sb-1", "sb-1", "10.0.0.1"));
    (void)tell();
    alloc_fail_at(1);
    good = put(0, "default", "sb-1", "sb-1", "10.0.0.2"); /* where it was it is not any more */
    alloc_fail_at(0);
    assert_false(good);
    assert_string_equal(tell(), "sb-1=?;");
    for (unsigned at = 1; at < 4; at++) {
        const struct kubernetes_store_options options = {.most = 1, .sources = 1, .changed = on_changed};
        alloc_fail_at(at);
        struct kubernetes_store *other = kubernetes_store_new(&options);
        alloc_fail_at(0);
        assert_int_equal(other == NULL, at < 3);
        kubernetes_store_free(other);
    }
    kubernetes_store_free(store);
}

static void a_record_takes_some_two_hundred_bytes(void **state)
{
    enum { COUNT = 100000 };
    (void)state;
    open_store(COUNT, 1);
    list_all(1);
    char name[64], host[32];
    for (unsigned i = 0; i < COUNT; i++) {
        snprintf(name, sizeof name, "sandbox-%08x-1b2c-4d5e-8f90-%012x", i * 2654435761u, i);
        snprintf(host, sizeof host, "10.%u.%u.%u", i >> 16, (i >> 8) & 255, i & 255);
        assert_true(put(0, "default", name, name, host));
        told_len = 0;
    }
    assert_in_range(kubernetes_store_bytes(store) / COUNT, 100, 260);
    kubernetes_store_free(store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_absent_before_every_source_was_listed),
        cmocka_unit_test(a_change_is_told_and_the_same_again_is_not),
        cmocka_unit_test(a_list_removes_what_it_does_not_name),
        cmocka_unit_test(two_sandboxes_of_one_key_are_none_of_the_two),
        cmocka_unit_test(several_slices_are_one_sandbox),
        cmocka_unit_test(what_has_no_room_is_not_absent),
        cmocka_unit_test(what_has_no_room_keeps_nothing_that_is_gone),
        cmocka_unit_test(without_memory_a_sandbox_is_unknown_not_absent),
        cmocka_unit_test(a_record_takes_some_two_hundred_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
