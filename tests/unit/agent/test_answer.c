/* SPDX-License-Identifier: MIT */
#include "tests/unit/support.h"

#include "spoa/agent/decision_thread/answer.h"

/* A NOTIFY payload of one message with the given arguments, read back. */
struct message {
    uint8_t memory[4096];
    struct writer w;
    size_t begin;
};

static void message_begin(struct message *m)
{
    m->w = writer_of(m->memory, sizeof m->memory);
    m->begin = spop_message_begin(&m->w, SLICE_LITERAL("cell-route"));
}

static void put(struct message *m, const char *name, struct spop_value value)
{
    spop_arg_write(&m->w, m->begin, slice_text(name), value);
}

static bool decode(struct message *m, struct request *request)
{
    struct reader payload = reader_of(writer_slice(&m->w));
    struct spop_message message;
    assert_false(m->w.full);
    assert_true(spop_message_next(&payload, &message));
    return request_from_args(message.args, request);
}

static void arguments_become_a_request(void **state)
{
    static const uint8_t four[] = {192, 0, 2, 1}, six[16] = {0x20, 1};
    struct message m;
    struct request r;
    (void)state;
    message_begin(&m);
    put(&m, "tls", spop_bool(true));
    put(&m, "method", spop_text(SLICE_LITERAL("GET")));
    put(&m, "query", spop_text(SLICE_LITERAL("")));
    put(&m, "headers", spop_text(SLICE_LITERAL("host: a\r\nHost: b\r\nhost:  c\r\nx-a: d\r\n\r\n")));
    put(&m, "path", spop_null());
    put(&m, "cookies", spop_int(1)); /* of an older spoe.conf */
    put(&m, "unknown", spop_int(7));
    put(&m, "", spop_bool(true));
    put(&m, "source", spop_address(slice_of(four, 4)));
    assert_true(decode(&m, &r));
    assert_true(r.tls);
    assert_true(slice_is(r.method, "GET"));
    assert_true(slice_present(r.query) && r.query.len == 0);
    assert_false(slice_present(r.origin) || slice_present(r.path));
    assert_true(slice_is(r.host, "a"));
    assert_int_equal(r.hosts, 2); /* HAProxy writes names in lower case */
    assert_int_equal(r.upgrades, 0);
    assert_int_equal(r.cookies, 0);
    assert_int_equal(r.source.family, 4);
    assert_memory_equal(r.source.bytes, four, 4);
    message_begin(&m);
    put(&m, "headers", spop_text(SLICE_LITERAL("\r\n")));
    put(&m, "source", spop_address(slice_of(six, 16)));
    assert_true(decode(&m, &r));
    assert_int_equal(r.source.family, 6);
    assert_memory_equal(r.source.bytes, six, 16);
}

static void every_argument_of_the_table_is_read(void **state)
{
    struct message m;
    struct request r;
    unsigned n = 0;
    (void)state;
    message_begin(&m);
/* what may stand for headers, too */
#define TEXT                         "x-a: b\r\n\r\n"
#define VALUE_TEXT                   spop_text(SLICE_LITERAL(TEXT))
#define VALUE_BOOL                   spop_bool(true)
#define VALUE_ADDRESS                spop_address(SLICE_LITERAL("\x0a\x00\x00\x01"))
#define X(kind, field, name, sample) put(&m, name, VALUE_##kind);
    REQUEST_ARGUMENTS(X)
#undef X
    assert_true(decode(&m, &r));
#define READ_TEXT(field)    slice_is(r.field, TEXT)
#define READ_BOOL(field)    r.field
#define READ_ADDRESS(field) (r.field.family == 4)
#define X(kind, field, name, sample) \
    assert_true(READ_##kind(field)); \
    n++;
    REQUEST_ARGUMENTS(X)
#undef X
    assert_true(n > 8);
}

static void the_first_cookie_of_ours_is_found_and_all_are_counted(void **state)
{
    static const struct {
        const char *headers, *cookie;
        int64_t cookies;
    } cases[] = {
        {"host: a\r\n\r\n", NULL, 0},
        {"cookie: \r\n\r\n", NULL, 0},
        {"cookie: a=1; __Host-cellgate2=x; x__Host-cellgate=y; __host-cellgate=z; __Host-cellgate\r\n\r\n",
         NULL, 0},
        {"cookie: a=1;__Host-cellgate=x=y; b\r\n\r\n", "x=y", 1},
        {"cookie:  __Host-cellgate = \tx ;\r\n\r\n", "x", 1},
        {"cookie: __Host-cellgate=\r\n\r\n", "", 1},
        {"cookie: a=1\r\ncookie: b=\"; __Host-cellgate=\"x\"; __Host-cellgate=y\r\ncookie: "
         "__Host-cellgate=z\r\n\r\n",
         "\"x\"", 3},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct message m;
        struct request r;
        message_begin(&m);
        put(&m, "headers", spop_text(slice_text(cases[i].headers)));
        assert_true(decode(&m, &r));
        assert_int_equal(r.cookies, cases[i].cookies);
        assert_int_equal(slice_present(r.cookie), cases[i].cookie != NULL);
        assert_true(!cases[i].cookie || slice_is(r.cookie, cases[i].cookie));
    }
}

static void wrong_types_are_refused(void **state)
{
    static const struct {
        const char *name;
        struct spop_value value;
    } bad[] = {
        {"method", {.kind = SPOP_INT64, .number = 1}},
        {"method", {.kind = SPOP_BOOL, .truth = true}},
        {"tls", {.kind = SPOP_INT64, .number = 1}},
        {"source", {.kind = SPOP_TEXT, .bytes = {(const uint8_t *)"a", 1}}},
    };
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct message m;
        struct request r;
        message_begin(&m);
        put(&m, "headers", spop_text(SLICE_LITERAL("\r\n")));
        put(&m, bad[i].name, bad[i].value);
        assert_false(decode(&m, &r));
    }
}

/* Of each header the first line's value and the number of lines; of Connection the second, too. */
static void headers_are_read_once_for_all(void **state)
{
    struct request r;
    size_t lines;
    struct slice value;
    unsigned n = 0;
    char text[4096];
    struct writer w = writer_of(text, sizeof text);
    (void)state;
#define X(field, count, name, ...) writer_text(&w, name ": one " #field "\r\n" name ": two\r\n");
    REQUEST_HEADERS(X)
#undef X
    writer_text(&w, "x-own:\r\nX-OWN: b: c \r\n\r\n");
    r = (struct request){.headers = guarded(writer_slice(&w))};
    assert_true(request_read_headers(&r));
#define X(field, count, name, ...)                 \
    assert_true(slice_is(r.field, "one " #field)); \
    assert_int_equal(r.count, 2);                  \
    n++;
    REQUEST_HEADERS(X)
#undef X
    assert_true(n > 20);
    struct writer list = writer_of(text + sizeof text / 2, sizeof text / 2);
    assert_true(slice_is(request_list(&r, SLICE_LITERAL("connection"), &list), "one connection,two"));
    assert_false(slice_present(request_list(&r, SLICE_LITERAL("x-none"), &list)));
    value = request_header(&r, SLICE_LITERAL("X-Own"), &lines);
    assert_true(lines == 2 && slice_present(value) && value.len == 0);
    value = request_header(&r, SLICE_LITERAL("x-ow"), &lines);
    assert_true(lines == 0 && !slice_present(value));
    guarded_free(r.headers);
}

/* Whatever two readers could read in two ways, and what was cut, is no request. */
static void headers_that_are_not_in_order_are_refused(void **state)
{
    static const char *const bad[] = {"",
                                      "a: b",
                                      "a: b\r",
                                      "a: b\r\n",
                                      "\r\n\r\n",
                                      "\r\na: b\r\n\r\n",
                                      "a\r\n\r\n",
                                      ": b\r\n\r\n",
                                      "a: b\nc: d\r\n\r\n",
                                      "a: b\rc: d\r\n\r\n",
                                      "a: b\r\n\r\nc: d\r\n\r\n",
                                      "a: b\n\n"};
    struct request r = {.hosts = 0};
    (void)state;
    assert_false(request_read_headers(&r)); /* absent: of an older spoe.conf */
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        r = (struct request){.headers = guarded(slice_text(bad[i]))};
        if (request_read_headers(&r))
            fail_msg("%zu", i);
        guarded_free(r.headers);
    }
    r = (struct request){.headers = slice_of("a: \0\r\n\r\n", 8)};
    assert_false(request_read_headers(&r));
}

static void a_verdict_becomes_variables_and_the_verdict_is_last(void **state)
{
    struct verdict v;
    uint8_t memory[1024];
    struct writer w = writer_of(memory, sizeof memory);
    struct spop_actions actions = {.out = &w, .prefix_len = 4};
    struct spop_action action;
    unsigned n = 0;
    (void)state;
    verdict_clear(&v);
    v.kind = VERDICT_DIRECT;
    v.path = SLICE_LITERAL("/a");
    v.query = slice_of("", 0);
    v.addr = (struct address){.family = 4, .bytes = {10, 0, 0, 1}};
    v.addr_port = 0;
    v.cookies = true;
    answer_write(&v, &actions);
    assert_false(w.full);
    static const char *const names[] = {"addr", "addr_port", "path", "query", "cookies", "verdict"};
    static const enum spop_kind kinds[] = {SPOP_IPV4, SPOP_INT64, SPOP_TEXT, SPOP_TEXT, SPOP_BOOL, SPOP_TEXT};
    struct reader r = reader_of(writer_slice(&w));
    for (; spop_action_next(&r, &action); n++) {
        assert_true(n < 6);
        assert_true(slice_is(action.name, names[n]));
        assert_int_equal(action.value.kind, kinds[n]);
        assert_int_equal(action.scope, SPOP_TRANSACTION);
    }
    assert_false(r.failed);
    assert_int_equal(n, 6);
    assert_true(slice_is(action.value.bytes, "direct"));
}

static void what_is_not_understood_is_denied(void **state)
{
    uint8_t memory[1024];
    struct writer w = writer_of(memory, sizeof memory);
    struct spop_actions actions = {.out = &w, .prefix_len = 4};
    struct spop_action action;
    bool status = false, error = false;
    (void)state;
    answer_unavailable(&actions);
    struct reader r = reader_of(writer_slice(&w));
    while (spop_action_next(&r, &action)) {
        status = status || (slice_is(action.name, "status") && action.value.number == 503);
        error = error || slice_is(action.value.bytes, "agent_unavailable");
    }
    assert_true(status && error);
    assert_true(slice_is(action.name, "verdict") && slice_is(action.value.bytes, "deny"));
}

static void an_answer_that_does_not_fit_is_full(void **state)
{
    struct verdict v;
    (void)state;
    verdict_clear(&v);
    verdict_deny(&v, REFUSAL_bad_request);
    size_t need = 0;
    for (size_t size = 0; need == 0; size++) {
        uint8_t memory[512];
        struct writer w = writer_of(memory, size);
        struct spop_actions actions = {.out = &w, .prefix_len = 4};
        assert_true(size < sizeof memory);
        answer_write(&v, &actions);
        if (!w.full)
            need = size;
    }
    assert_true(need > 60);
}

/* The frame may take less than there is memory; then that is told, in room that refusals have. */
static void an_answer_that_does_not_fit_its_frame_is_a_request_that_is_too_large(void **state)
{
    static uint8_t memory[8192], path[4000];
    struct verdict v;
    (void)state;
    memset(path, 'x', sizeof path);
    verdict_clear(&v);
    v.kind = VERDICT_DIRECT;
    v.path = slice_of(path, sizeof path);
    size_t need = 0; /* of the answer as it is, which most = 0 lets pass */
    for (size_t most = 0; most < sizeof memory; most += most ? 1 : 300) {
        struct writer w = writer_of(memory, sizeof memory);
        struct spop_actions actions = {.out = &w, .prefix_len = 4, .most = most};
        answer_write(&v, &actions);
        need = most ? need : w.len;
        bool refused = memmem(memory, w.len, "request_too_large", 17) != NULL;
        assert_true(!w.full && (!most || w.len <= most) && actions.count > 0);
        assert_int_equal(refused, most && most < need);
        assert_int_equal(refused, memmem(memory, w.len, "direct", 6) == NULL);
    }
    assert_true(need > sizeof path);
}

static void every_refusal_has_a_text_that_needs_no_escaping(void **state)
{
    (void)state;
#define X(name, number, again, after, text)                                                                 \
    {                                                                                                       \
        const struct refusal_info *info = refusal_info(REFUSAL_##name);                                     \
        assert_string_equal(info->code, #name);                                                             \
        assert_int_equal(info->status, number);                                                             \
        assert_int_equal(info->retryable, again);                                                           \
        assert_true(info->retryable == (info->retry_after > 0));                                            \
        assert_true(                                                                                        \
            strspn(info->sentence, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789 ,.'") == \
            strlen(info->sentence));                                                                        \
    }
    REFUSALS(X)
#undef X
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(arguments_become_a_request),
        cmocka_unit_test(every_argument_of_the_table_is_read),
        cmocka_unit_test(the_first_cookie_of_ours_is_found_and_all_are_counted),
        cmocka_unit_test(wrong_types_are_refused),
        cmocka_unit_test(headers_are_read_once_for_all),
        cmocka_unit_test(headers_that_are_not_in_order_are_refused),
        cmocka_unit_test(a_verdict_becomes_variables_and_the_verdict_is_last),
        cmocka_unit_test(what_is_not_understood_is_denied),
        cmocka_unit_test(an_answer_that_does_not_fit_is_full),
        cmocka_unit_test(an_answer_that_does_not_fit_its_frame_is_a_request_that_is_too_large),
        cmocka_unit_test(every_refusal_has_a_text_that_needs_no_escaping),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
