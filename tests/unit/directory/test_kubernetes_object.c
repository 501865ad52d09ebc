/* SPDX-License-Identifier: MIT */
#include "tests/unit/support.h"

#include <stdio.h>
#include <stdlib.h>

#include "spoa/agent/directory/kubernetes/json.h"
#include "spoa/agent/directory/kubernetes/object.h"
#include "spoa/agent/model/record_json.h"

static const struct kubernetes_slices slices = {"example.com/sandbox", "http"};
static uint8_t scratch_memory[8192];

/* "KEY STATE HOST:PORT[ bare][ SECRET]", "none", "unreadable"; "odd: " in front of one that is. */
static const char *read_with(enum kubernetes_sort sort, const struct kubernetes_slices *with,
                             struct slice text)
{
    static char said[1024];
    struct writer scratch = writer_of(scratch_memory, sizeof scratch_memory),
                  w = writer_of(said, sizeof said - 1);
    struct kubernetes_object o;
    struct fail why = {""};
    struct slice copy = guarded(text);
    enum kubernetes_reading reading = kubernetes_object_read(sort, with, copy, &scratch, &o, &why);
    memset(said, 0, sizeof said);
    assert_int_equal(why.text[0] != '\0', reading == KUBERNETES_ODD || reading == KUBERNETES_UNREADABLE);
    if (reading == KUBERNETES_NONE || reading == KUBERNETES_UNREADABLE) {
        writer_text(&w, reading == KUBERNETES_NONE ? "none" : "unreadable");
    } else {
        writer_text(&w, reading == KUBERNETES_ODD ? "odd: " : "");
        writer_put(&w, o.key);
        writer_printf(&w, " %s", record_state_text(o.record.state));
        if (o.record.worker.kind != WORKER_NONE)
            writer_printf(&w, " %.*s:%u", SLICE_PRINTF(o.record.worker.host), o.record.worker.port);
        writer_text(&w, o.record.bare ? " bare" : "");
        if (slice_present(o.record.access_sha256))
            writer_printf(&w, " %.*s", SLICE_PRINTF(o.record.access_sha256));
    }
    guarded_free(copy);
    return said;
}

static const char *reading(enum kubernetes_sort sort, const char *text)
{
    return read_with(sort, &slices, slice_text(text));
}

#define META(space, more) \
    "\"metadata\":{\"name\":\"sb-1\",\"namespace\":\"" space "\",\"resourceVersion\":\"7\"" more "}"
#define SANDBOX(spec, status) \
    "{\"kind\":\"Sandbox\"," META("default", "") ",\"spec\":{" spec "},\"status\":{" status "}}"
#define READY                                                                                         \
    "\"conditions\":[{\"type\":\"PodScheduled\",\"status\":\"True\"},{\"type\":\"Ready\",\"status\":" \
    "\"True\",\"reason\":\"DependenciesReady\"}]"
#define UNREADY(why) "\"conditions\":[{\"type\":\"Ready\",\"status\":\"False\",\"reason\":\"" why "\"}]"

static void a_sandbox_has_the_uid_of_its_object(void **state)
{
    static const struct {
        const char *text, *uid; /* NULL: none */
    } rows[] = {{META("default", ",\"uid\":\"0b5c-1\""), "0b5c-1"},
                {META("default", ",\"uid\":\"\""), NULL},
                {META("default", ",\"uid\":7"), NULL},
                {META("default", ""), NULL}};
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char text[256];
        struct writer scratch = writer_of(scratch_memory, sizeof scratch_memory);
        struct kubernetes_object o;
        struct fail why = {""};
        snprintf(text, sizeof text, "{%s}", rows[i].text);
        assert_int_equal(
            kubernetes_object_read(KUBERNETES_AGENT_SANDBOX, &slices, slice_text(text), &scratch, &o, &why),
            KUBERNETES_FOUND);
        assert_true(slice_present(o.record.uid) == (rows[i].uid != NULL));
        assert_true(!rows[i].uid || slice_is(o.record.uid, rows[i].uid));
    }
}

static void a_sandbox_is_where_its_status_says(void **state)
{
    static const struct {
        const char *text, *record;
    } all[] = {
        {SANDBOX("\"operatingMode\":\"Running\"", READY ",\"podIPs\":[\"10.0.0.7\",\"fd00::7\"]"),
         "sb-1 running 10.0.0.7:0"},
        {SANDBOX("", READY ",\"podIPs\":[\"fd00::7\"],\"serviceFQDN\":\"sb-1.default.svc.cluster.local\""),
         "sb-1 running fd00::7:0"},
        {SANDBOX("", READY ",\"serviceFQDN\":\"sb-1.default.svc.cluster.local\""),
         "sb-1 running sb-1.default.svc.cluster.local:0"},
        {SANDBOX("", READY ",\"podIPs\":[],\"serviceFQDN\":\"sb-1.default.svc.\""),
         "sb-1 running sb-1.default.svc:0"},
        {SANDBOX("", READY ",\"podIPs\":null,\"serviceFQDN\":\"\""), "sb-1 waking"},
        {SANDBOX("", READY), "sb-1 waking"},
        {SANDBOX("\"operatingMode\":\"Running\"",
                 UNREADY("DependenciesNotReady") ",\"podIPs\":[\"10.0.0.7\"]"),
         "sb-1 waking"},
        {SANDBOX("\"operatingMode\":\"Running\"", ""), "sb-1 waking"},
        {"{" META("default", "") "}", "sb-1 waking"},
        /* what is wanted, whatever the conditions still say */
        {SANDBOX("\"operatingMode\":\"Suspended\"", READY ",\"podIPs\":[\"10.0.0.7\"]"), "sb-1 suspended"},
        {SANDBOX("\"operatingMode\":\"Suspended\"", UNREADY("SandboxSuspended")), "sb-1 suspended"},
        {SANDBOX("\"operatingMode\":\"Running\"", UNREADY("SandboxSuspended")), "sb-1 waking"},
        {SANDBOX("\"replicas\":0", READY), "sb-1 suspended"}, /* v1alpha1 */
        {SANDBOX("\"replicas\":1", READY ",\"podIPs\":[\"10.0.0.7\"]"), "sb-1 running 10.0.0.7:0"},
        /* over */
        {SANDBOX("", UNREADY("SandboxExpired")), "sb-1 stopped"},
        {SANDBOX("\"operatingMode\":\"Suspended\"", UNREADY("SandboxExpired")), "sb-1 stopped"},
        {SANDBOX("", UNREADY("PodFailed")), "sb-1 stopped"},
        {SANDBOX("", UNREADY("PodSucceeded")), "sb-1 stopped"},
        {SANDBOX("", "\"conditions\":[{\"type\":\"Finished\",\"status\":\"True\"}]"), "sb-1 stopped"},
        {SANDBOX("", "\"conditions\":[{\"type\":\"Finished\",\"status\":\"False\"}]"), "sb-1 waking"},
        /* being deleted: it serves while it is ready */
        {"{" META("default",
                  ",\"deletionTimestamp\":\"2026-01-01T00:00:00Z\"") ",\"status\":{" READY
                                                                     ",\"podIPs\":[\"10.0.0.7\"]}}",
         "sb-1 running 10.0.0.7:0"},
        {"{" META("default", ",\"deletionTimestamp\":\"2026-01-01T00:00:00Z\"") ",\"status\":{}}",
         "sb-1 stopped"},
        /* of a pool, nobody's yet */
        {"{" META("default",
                  ",\"labels\":{\"agents.x-k8s.io/warm-pool-sandbox\":\"x\"}") ",\"status\":{" READY
                                                                               ",\"podIPs\":[\"10.0.0.7\"]}}",
         "none"},
        {"{" META("other", "") ",\"status\":{" READY ",\"podIPs\":[\"10.0.0.7\"]}}",
         "other/sb-1 running 10.0.0.7:0"},
        /* what is no address leads nowhere */
        {SANDBOX("", READY ",\"podIPs\":[\"10.0.0.700\"],\"serviceFQDN\":\"a.b\""), "odd: sb-1 waking"},
        {SANDBOX("", READY ",\"podIPs\":[\"evil.example.com\"]"), "odd: sb-1 waking"},
        {SANDBOX("", READY ",\"podIPs\":[7]"), "odd: sb-1 waking"},
        {SANDBOX("", READY ",\"podIPs\":[\"\"]"), "odd: sb-1 waking"},
        {SANDBOX("", READY ",\"podIPs\":[\"10.0.0.7\\u0000\"]"), "odd: sb-1 waking"},
        {SANDBOX("", READY ",\"serviceFQDN\":\"a b\""), "odd: sb-1 waking"},
        {SANDBOX("", READY ",\"serviceFQDN\":\"10.0.0.7/x\""), "odd: sb-1 waking"},
        {SANDBOX("", READY ",\"serviceFQDN\":7"), "odd: sb-1 waking"},
        /* conditions of another form say nothing */
        {SANDBOX("", "\"conditions\":{\"type\":\"Ready\",\"status\":\"True\"}"), "sb-1 waking"},
        {SANDBOX("", "\"conditions\":[[],7,{\"type\":7}]"), "sb-1 waking"},
        {"{" META("default", "") ",\"status\":[]}", "sb-1 waking"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        assert_string_equal(reading(KUBERNETES_AGENT_SANDBOX, all[i].text), all[i].record);
}

static void an_object_without_a_good_name_is_unreadable(void **state)
{
    static const char *const all[] = {
        "",
        "{",
        "[]",
        "7",
        "{}",
        "{\"metadata\":{}}",
        "{\"metadata\":[]}",
        "{\"metadata\":{\"name\":\"a\"}}", /* of no namespace */
        "{\"metadata\":{\"name\":\"a\",\"namespace\":\"\"}}",
        "{\"metadata\":{\"name\":\"a/b\",\"namespace\":\"default\"}}",
        "{\"metadata\":{\"name\":\"../b\",\"namespace\":\"default\"}}",
        "{\"metadata\":{\"name\":\"a b\",\"namespace\":\"default\"}}",
        "{\"metadata\":{\"name\":\"A\",\"namespace\":\"default\"}}",
        "{\"metadata\":{\"name\":\"a\\u0000\",\"namespace\":\"default\"}}",
        "{\"metadata\":{\"name\":\"a\\n\",\"namespace\":\"default\"}}",
        "{\"metadata\":{\"name\":\"a\xff\",\"namespace\":\"default\"}}",
        "{\"metadata\":{\"name\":\"-a\",\"namespace\":\"default\"}}",
        "{\"metadata\":{\"name\":\"a\",\"namespace\":\"x.y\"}}",
        "{\"metadata\":{\"name\":\"a\",\"namespace\":"
        "\"0123456789012345678901234567890123456789012345678901234567890123\"}}",
        "{\"metadata\":{\"name\":\"a\",\"namespace\":\"default\"}", /* cut */
        "{\"metadata\":{\"name\":\"a\",\"namespace\":\"default\"},\"spec\"}",
    };
    (void)state;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        assert_string_equal(reading(KUBERNETES_AGENT_SANDBOX, all[i]), "unreadable");
    char name[300], text[400];
    for (size_t len = 252; len <= 254; len++) {
        memset(name, 'a', len);
        name[len] = '\0';
        snprintf(text, sizeof text, "{\"metadata\":{\"name\":\"%s\",\"namespace\":\"default\"}}", name);
        assert_int_equal(strcmp(reading(KUBERNETES_AGENT_SANDBOX, text), "unreadable") == 0, len == 254);
    }
    /* a key has 255 bytes at most */
    snprintf(text, sizeof text, "{\"metadata\":{\"name\":\"%.253s\",\"namespace\":\"ns\"}}", name);
    assert_string_equal(reading(KUBERNETES_AGENT_SANDBOX, text), "none");
}

static void what_others_put_into_it_does_not_make_it_unreadable(void **state)
{
    (void)state;
    /* what a tenant may write into parts that no record needs: NUL, a lone surrogate, brackets, depth */
    assert_string_equal(
        reading(
            KUBERNETES_AGENT_SANDBOX,
            "{" META("default",
                     ",\"annotations\":{\"x\":\"\\u0000 \\ud800 ]}\\\"\"}") ",\"spec\":{\"podTemplate\":"
                                                                            "[[[[[[[[[[{\"status\":{}}]]]]]]]"
                                                                            "]]]},\"status\":{" READY
                                                                            ",\"podIPs\":[\"10.0.0.7\"]}}"),
        "sb-1 running 10.0.0.7:0");
    /* members of the same names elsewhere */
    assert_string_equal(
        reading(KUBERNETES_AGENT_SANDBOX,
                "{\"spec\":{\"status\":{" READY "},\"metadata\":{\"name\":\"other\"}}," META(
                    "default", "") ",\"x\":\"\\\"status\\\":{\",\"status\":{\"podIPs\":[\"10.0.0.9\"]}}"),
        "sb-1 waking");
    char *large = malloc(400 * 1024), *at;
    assert_non_null(large);
    at = stpcpy(large, "{"
                       "\"metadata\":{\"annotations\":{\"x\":\"");
    memset(at, 'y', 256 * 1024);
    at += 256 * 1024;
    strcpy(at, "\"},\"name\":\"sb-1\",\"namespace\":\"default\"},\"status\":{" READY
               ",\"podIPs\":[\"10.0.0.7\"]}}");
    assert_string_equal(reading(KUBERNETES_AGENT_SANDBOX, large), "sb-1 running 10.0.0.7:0");
    free(large);
}

/* printf %s secret | sha256sum */
#define SECRET_DIGEST "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b"
#define BATCH(notes, status)                                                                 \
    "{\"metadata\":{\"name\":\"sb-1\",\"namespace\":\"opensandbox\",\"annotations\":{" notes \
    "}},\"status\":{" status "}}"
#define AT(list) "\"sandbox.opensandbox.io/endpoints\":\"" list "\""

static void a_batch_sandbox_is_where_its_annotation_says(void **state)
{
    static const struct {
        const char *text, *record;
    } all[] = {
        {BATCH(AT("[\\\"10.0.0.7\\\",\\\"10.0.0.8\\\"]"), "\"ready\":1,\"phase\":\"Succeed\""),
         "sb-1 running 10.0.0.7:0"},
        {BATCH(AT(" [ \\\"fd00::7\\\" ] "), "\"ready\":2"), "sb-1 running fd00::7:0"},
        {BATCH(AT("[\\\"10.0.0.7\\\"]"), "\"ready\":0"), "sb-1 waking"},
        {BATCH(AT("[\\\"10.0.0.7\\\"]"), ""), "sb-1 waking"},
        {BATCH("", "\"ready\":1"), "sb-1 waking"},
        {BATCH(AT(""), "\"ready\":1"), "sb-1 waking"},
        {BATCH(AT("[\\\"10.0.0.7\\\"]"), "\"ready\":1,\"phase\":\"Pausing\""), "sb-1 waking"},
        {BATCH(AT("[\\\"10.0.0.7\\\"]"), "\"ready\":1,\"phase\":\"Paused\""), "sb-1 suspended"},
        {BATCH(AT("[\\\"10.0.0.7\\\"]"), "\"ready\":1,\"phase\":\"Resuming\""), "sb-1 waking"},
        {BATCH(AT("[\\\"10.0.0.7\\\"]"), "\"ready\":1,\"phase\":\"Failed\""), "sb-1 stopped"},
        {BATCH(AT("[\\\"10.0.0.7\\\"]"), "\"ready\":1,\"phase\":\"Pending\""), "sb-1 running 10.0.0.7:0"},
        {BATCH(AT("[]"), "\"ready\":1"), "odd: sb-1 waking"},
        {BATCH(AT("10.0.0.7"), "\"ready\":1"), "odd: sb-1 waking"},
        {BATCH(AT("[\\\"10.0.0.7\\\""), "\"ready\":1"), "odd: sb-1 waking"},
        {BATCH(AT("[\\\"a.example.com\\\"]"), "\"ready\":1"), "odd: sb-1 waking"},
        {BATCH(AT("{\\\"0\\\":\\\"10.0.0.7\\\"}"), "\"ready\":1"), "odd: sb-1 waking"},
        {BATCH("\"sandbox.opensandbox.io/endpoints\":[\"10.0.0.7\"]", "\"ready\":1"), "odd: sb-1 waking"},
        {BATCH(AT("[\\\"10.0.0.7\\\"]") ",\"opensandbox.io/secure-access-token\":\" secret\\n\"",
               "\"ready\":1"),
         "sb-1 running 10.0.0.7:0 " SECRET_DIGEST},
        {BATCH("\"opensandbox.io/secure-access-token\":\"s\\u0065cret\"", "\"phase\":\"Paused\""),
         "sb-1 suspended " SECRET_DIGEST},
        {BATCH("\"opensandbox.io/secure-access-token\":\" \"", "\"ready\":0"), "sb-1 waking"},
        /* one that cannot be read does not open the sandbox */
        {BATCH(AT("[\\\"10.0.0.7\\\"]") ",\"opensandbox.io/secure-access-token\":7", "\"ready\":1"),
         "odd: sb-1 running 10.0.0.7:0 bare"},
        {BATCH("\"opensandbox.io/secure-access-token\":\"\\u0000\"", ""), "odd: sb-1 waking bare"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        assert_string_equal(reading(KUBERNETES_OPENSANDBOX, all[i].text), all[i].record);
}

#define SLICE(labels, endpoints, ports)                                                       \
    "{\"addressType\":\"IPv4\",\"endpoints\":" endpoints ",\"metadata\":{\"labels\":{" labels \
    "},\"name\":\"sb-x\","                                                                    \
    "\"namespace\":\"default\"},\"ports\":" ports "}"
#define OURS                       "\"example.com/sandbox\":\"sb-1\""
#define PORTS                      "[{\"name\":\"metrics\",\"port\":9000},{\"name\":\"http\",\"port\":8888,\"protocol\":\"TCP\"}]"
#define POINT(address, conditions) "{\"addresses\":[\"" address "\"],\"conditions\":{" conditions "}}"

static void an_endpoint_slice_gives_an_address_to_whom_its_label_names(void **state)
{
    static const struct kubernetes_slices any_port = {"example.com/sandbox", NULL},
                                          unnamed = {"example.com/sandbox", ""};
    static const struct {
        const char *text, *record;
    } all[] = {
        {SLICE(OURS, "[" POINT("10.0.0.7", "\"ready\":true") "]", PORTS), "sb-1 running 10.0.0.7:8888"},
        {SLICE(OURS, "[" POINT("10.0.0.7", "") "]", PORTS), "sb-1 running 10.0.0.7:8888"},
        {SLICE(OURS, "[{\"addresses\":[\"10.0.0.7\"]}]", PORTS), "sb-1 running 10.0.0.7:8888"},
        {SLICE(OURS, "[" POINT("10.0.0.7", "\"ready\":false") "]", PORTS), "sb-1 waking"},
        {SLICE(OURS, "[" POINT("10.0.0.7", "\"ready\":false,\"serving\":true,\"terminating\":true") "]",
               PORTS),
         "sb-1 running 10.0.0.7:8888"},
        {SLICE(OURS,
               "[" POINT("10.0.0.1", "\"ready\":false,\"serving\":true") "," POINT("10.0.0.9",
                                                                                   "\"ready\":true") "]",
               PORTS),
         "sb-1 running 10.0.0.9:8888"},
        {SLICE(OURS, "[" POINT("10.0.0.9", "\"ready\":true") "," POINT("10.0.0.8", "\"ready\":true") "]",
               PORTS),
         "sb-1 running 10.0.0.8:8888"},
        {SLICE(OURS, "null", PORTS), "sb-1 waking"},
        {SLICE(OURS, "[]", PORTS), "sb-1 waking"},
        {SLICE(OURS, "[" POINT("nowhere", "") "]", PORTS), "odd: sb-1 waking"},
        {SLICE(OURS, "[" POINT("nowhere", "") "," POINT("10.0.0.7", "") "]", PORTS),
         "odd: sb-1 running 10.0.0.7:8888"},
        {SLICE(OURS, "[" POINT("10.0.0.7", "") "]", "[]"), "odd: sb-1 waking"},
        {SLICE(OURS, "[" POINT("10.0.0.7", "") "]", "[{\"name\":\"http\",\"port\":0}]"), "odd: sb-1 waking"},
        {SLICE(OURS, "[" POINT("10.0.0.7", "") "]", "[{\"name\":\"http\",\"port\":65536}]"),
         "odd: sb-1 waking"},
        {SLICE(OURS, "[" POINT("10.0.0.7", "") "]", "[{\"name\":\"http\"}]"), "odd: sb-1 waking"},
        {SLICE("", "[" POINT("10.0.0.7", "") "]", PORTS), "none"},
        {SLICE("\"example.com/sandbox\":\"a/b\"", "[" POINT("10.0.0.7", "") "]", PORTS), "none"},
        {SLICE("\"example.com/sandbox\":\"\"", "[" POINT("10.0.0.7", "") "]", PORTS), "none"},
        {SLICE("\"example.com/sandbox\":7", "[" POINT("10.0.0.7", "") "]", PORTS), "none"},
        {SLICE("\"example.com/sandbox\":\"A_b.c\"", "[" POINT("10.0.0.7", "") "]", PORTS),
         "A_b.c running 10.0.0.7:8888"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        assert_string_equal(reading(KUBERNETES_ENDPOINT_SLICES, all[i].text), all[i].record);
    struct slice text = SLICE_LITERAL(SLICE(OURS, "[" POINT("10.0.0.7", "") "]", "[{\"port\":80}]"));
    assert_string_equal(read_with(KUBERNETES_ENDPOINT_SLICES, &any_port, text), "sb-1 running 10.0.0.7:0");
    assert_string_equal(read_with(KUBERNETES_ENDPOINT_SLICES, &unnamed, text), "sb-1 running 10.0.0.7:80");
}

static void an_event_is_taken_apart(void **state)
{
    static const struct {
        const char *text;
        int event;
        const char *object;
    } all[] = {
        {"{\"type\":\"ADDED\",\"object\":{\"a\":1}}", KUBERNETES_PUT, "{\"a\":1}"},
        {"{\"object\":{},\"type\":\"MODIFIED\"}\n", KUBERNETES_PUT, "{}"},
        {"{\"type\":\"DELETED\",\"object\":{}}", KUBERNETES_GONE, "{}"},
        {"{\"type\":\"BOOKMARK\",\"object\":{}}", KUBERNETES_BOOKMARK, "{}"},
        {"{\"type\":\"ERROR\",\"object\":{\"code\":410}}", KUBERNETES_ERROR, "{\"code\":410}"},
        {"{\"type\":\"added\",\"object\":{}}", -1, NULL},
        {"{\"type\":\"ADDED\"}", -1, NULL},
        {"{\"type\":\"ADDED\",\"object\":null}", -1, NULL},
        {"{\"object\":{}}", -1, NULL},
        {"{\"type\":\"ADDED\",\"object\":{}", -1, NULL},
        {"[]", -1, NULL},
    };
    (void)state;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        enum kubernetes_event event;
        struct slice object;
        struct fail why;
        bool good = kubernetes_event_read(slice_text(all[i].text), &event, &object, &why);
        assert_int_equal(good, all[i].event >= 0);
        if (good) {
            assert_int_equal(event, all[i].event);
            assert_true(slice_is(object, all[i].object));
        }
    }
}

static void a_status_says_its_code_and_its_message_on_one_line(void **state)
{
    char message[16];
    unsigned code;
    (void)state;
    kubernetes_status_read(
        SLICE_LITERAL(
            "{\"kind\":\"Status\",\"code\":410,\"message\":\"too\\nold: \xc3\xa9 12345678901234\"}"),
        &code, message, sizeof message);
    assert_int_equal(code, 410);
    assert_string_equal(message, "toonold:  12345");
    kubernetes_status_read(SLICE_LITERAL("{\"code\":\"410\",\"message\":7}"), &code, message, sizeof message);
    assert_int_equal(code, 0);
    assert_string_equal(message, "");
    kubernetes_status_read(SLICE_LITERAL("nonsense"), &code, message, sizeof message);
    assert_string_equal(message, "");
}

static void json_is_gone_through_leniently_but_never_beyond_its_end(void **state)
{
    static const char *const all[] = {
        "{",         "[",           "\"",       "{\"",      "{\"a",      "{\"a\"", "{\"a\":",
        "{\"a\":\"", "{\"a\":\"\\", "{\"a\":{", "{\"a\":1", "{\"a\":1,", "[1",     "[1,",
        "[\"\\",     "[}",          "{]",       "{\"a\":}", "[,]",       "[1 2]",  "{\"a\":1 \"b\":2}"};
    (void)state;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        struct slice text = guarded(slice_text(all[i])), key, value;
        size_t cursor = 0, count = 0;
        while (kubernetes_json_next(text, &cursor, &key, &value))
            assert_true(++count < 3);
        assert_false(kubernetes_json_sound(text));
        guarded_free(text);
    }
    assert_true(kubernetes_json_sound(SLICE_LITERAL("{}")));
    assert_true(kubernetes_json_sound(SLICE_LITERAL("[1,\"]\",{\"a\":[ ]} ] ")));
    assert_false(kubernetes_json_sound(SLICE_LITERAL("[] x")));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_sandbox_has_the_uid_of_its_object),
        cmocka_unit_test(a_sandbox_is_where_its_status_says),
        cmocka_unit_test(an_object_without_a_good_name_is_unreadable),
        cmocka_unit_test(what_others_put_into_it_does_not_make_it_unreadable),
        cmocka_unit_test(a_batch_sandbox_is_where_its_annotation_says),
        cmocka_unit_test(an_endpoint_slice_gives_an_address_to_whom_its_label_names),
        cmocka_unit_test(an_event_is_taken_apart),
        cmocka_unit_test(a_status_says_its_code_and_its_message_on_one_line),
        cmocka_unit_test(json_is_gone_through_leniently_but_never_beyond_its_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
