/* SPDX-License-Identifier: MIT */
#include "tests/unit/support.h"

#include <stdio.h>
#include <stdlib.h>

#include "spoa/agent/directory/kubernetes/abridged.h"
#include "spoa/agent/directory/kubernetes/object.h"

/* What is kept of it, in pieces of `step` bytes; "full". */
static const char *kept_of(bool event, struct slice text, size_t step)
{
    static struct kubernetes_abridged a; /* what an earlier one has left is of no consequence */
    static char said[KUBERNETES_ABRIDGED_MAX + 1];
    kubernetes_abridged_begin(&a, event, "example.com/sandbox");
    for (struct slice rest = text; rest.len; rest = slice_from(rest, step)) {
        struct slice piece = guarded(slice_sub(rest, 0, step));
        kubernetes_abridged_feed(&a, piece);
        guarded_free(piece);
    }
    struct slice kept = kubernetes_abridged_text(&a);
    if (!slice_present(kept))
        return "full";
    snprintf(said, sizeof said, "%.*s", SLICE_PRINTF(kept));
    return said;
}

static void keeps(bool event, const char *text, const char *expected)
{
    for (size_t step = 1; step <= strlen(text); step++)
        assert_string_equal(kept_of(event, slice_text(text), step), expected);
}

#define WHO "\"name\":\"sb-1\",\"namespace\":\"default\",\"resourceVersion\":\"7\""

static void who_it_is_is_kept_wherever_it_stands(void **state)
{
    (void)state;
    /* EndpointSlices begin with it, custom resources are sorted by their keys */
    keeps(false,
          "{\"metadata\":{" WHO
          ",\"labels\":{\"a\":\"b\",\"example.com/sandbox\":\"es-1\"}},\"ports\":[{\"name\":\"x\"}]}",
          "{\"metadata\":{" WHO ",\"labels\":{\"example.com/sandbox\":\"es-1\"}}}");
    keeps(false,
          "{ \"kind\" : \"Sandbox\" ,\n\"metadata\" : { "
          "\"annotations\":{\"name\":\"x\",\"metadata\":{\"name\":\"y\"}},\"generation\":7,"
          "\"managedFields\":[{\"name\":\"z\"},\"name\",[\"namespace\"]],\t" WHO
          " } , \"spec\":{\"metadata\":{\"name\":\"q\"}}}",
          "{\"metadata\":{" WHO "}}");
    keeps(true,
          "{\"type\":\"MODIFIED\",\"object\":{\"type\":\"no\",\"metadata\":{\"labels\":{},\"uid\":\"u\"," WHO
          "},\"object\":{}}}",
          "{\"type\":\"MODIFIED\",\"object\":{\"metadata\":{\"labels\":{}," WHO "}}}");
    keeps(false, "{\"type\":\"ADDED\",\"object\":{\"metadata\":{" WHO "}}}", "{}");
    keeps(true, "{\"metadata\":{" WHO "}}", "{}");
    keeps(false, "{}", "{}");
}

/* In a value, in a key of others, behind an escaped quote: none of it is a name. */
static void what_others_write_is_no_name(void **state)
{
    (void)state;
    keeps(false,
          "{\"a\":\"\\\"metadata\\\":{\\\"name\\\":\\\"x\\\"}\",\"b\":\"\\\\\",\"metadata\":{\"name\":\"sb-"
          "1\"}}",
          "{\"metadata\":{\"name\":\"sb-1\"}}");
    keeps(false,
          "{\"metadata\\\":{\\\"name\\\":\":1,\"metadat\":{\"name\":\"x\"},\"metadataa\":{\"name\":\"x\"}}",
          "{}");
    keeps(false, "{\"spec\":[{\"metadata\":{\"name\":\"x\"}}],\"status\":{\"metadata\":{\"name\":\"x\"}}}",
          "{}");
    keeps(false,
          "{\"metadata\":{\"a\":[\"name\",\"x\"],\"b\":\"name\",\"c\":{\"labels\":{\"example.com/"
          "sandbox\":\"x\"}}}}",
          "{\"metadata\":{}}");
    keeps(false, "{\"metadata\":{\"name\":\"a\\\"b\\\\\",\"n\\u0061me\":\"x\"}}",
          "{\"metadata\":{\"name\":\"a\\\"b\\\\\"}}");
}

static void what_is_of_another_type_is_none(void **state)
{
    (void)state;
    keeps(false, "{\"metadata\":[\"name\"]}", "{\"metadata\":null}");
    keeps(false, "{\"metadata\":{\"name\":{\"name\":\"x\"},\"namespace\":7,\"labels\":\"x\"}}",
          "{\"metadata\":{\"name\":null,\"namespace\":null,\"labels\":null}}");
    /* of several the last counts, as it does for spoa/agent/directory/kubernetes/json.h */
    keeps(false, "{\"metadata\":{\"name\":\"a\",\"name\":null}}",
          "{\"metadata\":{\"name\":\"a\",\"name\":null}}");
    keeps(false, "{\"metadata\":{},\"metadata\":{\"name\":\"b\"}}",
          "{\"metadata\":{},\"metadata\":{\"name\":\"b\"}}");
}

static struct slice repeated(const char *head, const char *part, size_t times, const char *tail)
{
    char *text = malloc(strlen(head) + times * strlen(part) + strlen(tail) + 1), *at = text;
    assert_non_null(text);
    at = stpcpy(at, head);
    for (size_t i = 0; i < times; i++)
        at = stpcpy(at, part);
    at = stpcpy(at, tail);
    return slice_of(text, (size_t)(at - text));
}

static void is_kept(size_t times, const char *head, const char *part, const char *tail, const char *expected)
{
    struct slice text = repeated(head, part, times, tail);
    assert_string_equal(kept_of(false, text, 4096), expected);
    free((void *)text.at);
}

static void how_much_stands_around_it_is_of_no_consequence(void **state)
{
    (void)state;
    is_kept(200000, "{\"metadata\":{\"annotations\":{\"a\":\"", "\\u003c", "\"}," WHO "}}",
            "{\"metadata\":{" WHO "}}");
    is_kept(200000, "{\"metadata\":{\"managedFields\":[", "{\"f:a\":[", "",
            "{\"metadata\":{"); /* it does not end */
    is_kept(100000, "{\"metadata\":{\"labels\":{\"a\":\"\"", ",\"b\":\"x\"", "}," WHO "}}",
            "{\"metadata\":{\"labels\":{}," WHO "}}");
    is_kept(300, "{\"metadata\":{\"", "k", "\":\"x\"," WHO "}}", "{\"metadata\":{" WHO "}}");
    is_kept(10000, "{\"metadata\":{\"", "k", "\":\"x\"," WHO "}}", "{\"metadata\":{" WHO "}}");
    is_kept(10000, "{\"metadata\":{\"name\":\"", "n", "\"}}", "full");
    is_kept(1000, "{\"metadata\":{" WHO, ",\"name\":\"x\"", "}}", "full");
    is_kept(100000, "", "[", "", "{"); /* its owner gives it objects only */
    is_kept(100000, "", "}", "", "");
}

/* It is read as the whole one would be. */
static void it_is_an_object_that_can_be_read(void **state)
{
    static const char event[] = "{\"type\":\"DELETED\",\"object\":{\"metadata\":{\"managedFields\":[],"
                                "\"labels\":{\"example.com/sandbox\":\"es-1\"}," WHO "}}}";
    static uint8_t memory[1024];
    static const struct kubernetes_slices slices = {"example.com/sandbox", NULL};
    struct writer scratch = writer_of(memory, sizeof memory);
    enum kubernetes_event sort;
    struct kubernetes_object o;
    struct slice object;
    struct fail why;
    (void)state;
    assert_true(kubernetes_event_read(slice_text(kept_of(true, slice_text(event), 3)), &sort, &object, &why));
    assert_int_equal(sort, KUBERNETES_GONE);
    assert_true(kubernetes_object_identify(object, &scratch, &o));
    assert_true(slice_is(o.space, "default") && slice_is(o.name, "sb-1") && slice_is(o.version, "7"));
    assert_int_equal(kubernetes_object_read(KUBERNETES_ENDPOINT_SLICES, &slices, object, &scratch, &o, &why),
                     KUBERNETES_FOUND);
    assert_true(slice_is(o.key, "es-1"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_it_is_is_kept_wherever_it_stands),
        cmocka_unit_test(what_others_write_is_no_name),
        cmocka_unit_test(what_is_of_another_type_is_none),
        cmocka_unit_test(how_much_stands_around_it_is_of_no_consequence),
        cmocka_unit_test(it_is_an_object_that_can_be_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
