/* SPDX-License-Identifier: MIT */
#include "tests/unit/support.h"

#include "spoa/agent/answer.h"

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
    put(&m, "host", spop_null());
    put(&m, "hosts", spop_int(2));
    put(&m, "upgrades", spop_null());
    put(&m, "unknown", spop_int(7));
    put(&m, "", spop_bool(true));
    put(&m, "source", spop_address(slice_of(four, 4)));
    assert_true(decode(&m, &r));
    assert_true(r.tls);
    assert_true(slice_is(r.method, "GET"));
    assert_true(slice_present(r.query) && r.query.len == 0);
    assert_false(slice_present(r.host) || slice_present(r.path));
    assert_int_equal(r.hosts, 2);
    assert_int_equal(r.upgrades, 0);
    assert_int_equal(r.source.family, 4);
    assert_memory_equal(r.source.bytes, four, 4);
    message_begin(&m);
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
#define VALUE_TEXT                   spop_text(SLICE_LITERAL("text"))
#define VALUE_COUNT                  spop_int(3)
#define VALUE_BOOL                   spop_bool(true)
#define VALUE_ADDRESS                spop_address(SLICE_LITERAL("\x0a\x00\x00\x01"))
#define X(kind, field, name, sample) put(&m, name, VALUE_##kind);
    REQUEST_ARGUMENTS(X)
#undef X
    assert_true(decode(&m, &r));
#define READ_TEXT(field)    slice_is(r.field, "text")
#define READ_COUNT(field)   (r.field == 3)
#define READ_BOOL(field)    r.field
#define READ_ADDRESS(field) (r.field.family == 4)
#define X(kind, field, name, sample) \
    assert_true(READ_##kind(field)); \
    n++;
    REQUEST_ARGUMENTS(X)
#undef X
    assert_true(n > 30);
}

static void wrong_types_are_refused(void **state)
{
    static const struct {
        const char *name;
        struct spop_value value;
    } bad[] = {
        {"method", {.kind = SPOP_INT64, .number = 1}},
        {"method", {.kind = SPOP_BOOL, .truth = true}},
        {"hosts", {.kind = SPOP_TEXT, .bytes = {(const uint8_t *)"1", 1}}},
        {"hosts", {.kind = SPOP_INT64, .number = -1}},
        {"hosts", {.kind = SPOP_UINT64, .number = -1}},
        {"tls", {.kind = SPOP_INT64, .number = 1}},
        {"source", {.kind = SPOP_TEXT, .bytes = {(const uint8_t *)"a", 1}}},
    };
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct message m;
        struct request r;
        message_begin(&m);
        put(&m, bad[i].name, bad[i].value);
        assert_false(decode(&m, &r));
    }
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
        cmocka_unit_test(wrong_types_are_refused),
        cmocka_unit_test(a_verdict_becomes_variables_and_the_verdict_is_last),
        cmocka_unit_test(what_is_not_understood_is_denied),
        cmocka_unit_test(an_answer_that_does_not_fit_is_full),
        cmocka_unit_test(an_answer_that_does_not_fit_its_frame_is_a_request_that_is_too_large),
        cmocka_unit_test(every_refusal_has_a_text_that_needs_no_escaping),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
