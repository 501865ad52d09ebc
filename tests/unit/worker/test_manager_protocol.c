/* SPDX-License-Identifier: MIT */
#include "examples/worker/protocol/manager_protocol.h"
#include "tests/unit/support.h"

#include <stdlib.h>

static const struct manager_message samples[] = {
    {.type = MANAGER_HELLO, .version = MANAGER_VERSION},
    {.type = MANAGER_CREATE,
     .scope = SLICE_LITERAL("sb-1/exec"),
     .id = SLICE_LITERAL("0badcafe"),
     .kind = MANAGER_PIPES,
     .flags = MANAGER_START_LATER,
     .cols = 80,
     .rows = 65535,
     .ring = 1 << 20,
     .stall_ms = 1,
     .linger_ms = MANAGER_FOREVER,
     .timeout_ms = 3,
     .cwd = SLICE_LITERAL("/tmp"),
     .argv = SLICE_LITERAL("sh\0-c\0\0"),
     .env = SLICE_LITERAL("A=b\0")},
    {.type = MANAGER_ATTACH,
     .scope = SLICE_LITERAL("a"),
     .id = SLICE_LITERAL("b"),
     .since = UINT64_MAX,
     .flags = 6,
     .kind = 1},
    {.type = MANAGER_INPUT, .bytes = SLICE_LITERAL("ls\n\0\xff")},
    {.type = MANAGER_RESIZE, .scope = SLICE_LITERAL("a"), .id = SLICE_LITERAL("b"), .cols = 1, .rows = 2},
    {.type = MANAGER_SIGNAL, .scope = SLICE_LITERAL("a"), .id = SLICE_LITERAL("b"), .signal = 9},
    {.type = MANAGER_QUERY, .scope = SLICE_LITERAL("a"), .id = SLICE_LITERAL("b")},
    {.type = MANAGER_LIST, .scope = SLICE_LITERAL("")},
    {.type = MANAGER_DELETE, .scope = SLICE_LITERAL("a"), .id = SLICE_LITERAL("b")},
    {.type = MANAGER_DONE},
    {.type = MANAGER_ERROR, .code = MANAGER_TOO_MANY, .text = SLICE_LITERAL("why")},
    {.type = MANAGER_SESSION,
     .scope = SLICE_LITERAL("execd"),
     .id = SLICE_LITERAL("b"),
     .kind = MANAGER_TERMINAL,
     .state = MANAGER_ENDED,
     .pid = 0xdeadbeef,
     .cols = 3,
     .rows = 4,
     .readers = 5,
     .first = 6,
     .end = UINT64_C(1) << 40,
     .input = 7,
     .exit_code = 137},
    {.type = MANAGER_OUTPUT,
     .stream = MANAGER_STDERR,
     .since = 0x1122334455667788,
     .bytes = SLICE_LITERAL("x")},
    {.type = MANAGER_EXIT, .exit_code = 255},
    {.type = MANAGER_DETACHED, .code = MANAGER_TAKEN_OVER},
    {.type = MANAGER_RESUME,
     .scope = SLICE_LITERAL("terminal"),
     .id = SLICE_LITERAL("7b0e51d2a94f4f3c8c1d0a6f5e2b77c4"),
     .kind = MANAGER_TERMINAL,
     .flags = MANAGER_RECEIVED,
     .stall_ms = MANAGER_FOREVER,
     .argv = SLICE_LITERAL("sh\0"),
     .number = 0x1122334455667788,
     .since = 9,
     .buffer = 4096},
    {.type = MANAGER_RESUMED, .since = 1, .number = UINT64_C(1) << 52, .buffer = 262144},
    {.type = MANAGER_MESSAGE,
     .flags = MANAGER_LAST,
     .size = 70000,
     .cols = 80,
     .rows = 24,
     .bytes = SLICE_LITERAL("x")},
    {.type = MANAGER_ITEM, .flags = MANAGER_LAST, .stream = MANAGER_STDOUT, .bytes = SLICE_LITERAL("\0")},
    {.type = MANAGER_ACKNOWLEDGE, .number = 7},
    {.type = MANAGER_END, .number = UINT64_MAX},
};

#define SAMPLES (sizeof samples / sizeof *samples)

static void assert_same(const struct manager_message *a, const struct manager_message *b)
{
    uint8_t memory[2][8192];
    struct writer w[2] = {writer_of(memory[0], sizeof memory[0]), writer_of(memory[1], sizeof memory[1])};
    manager_put(&w[0], a);
    manager_put(&w[1], b);
    assert_false(w[0].full);
    assert_true(slice_equal(writer_slice(&w[0]), writer_slice(&w[1])));
}

static void every_message_is_read_as_it_was_put(void **state)
{
    uint8_t memory[65536];
    struct writer w = writer_of(memory, sizeof memory);
    (void)state;
    for (size_t i = 0; i < SAMPLES; i++)
        manager_put(&w, &samples[i]);
    assert_false(w.full);
    struct slice in = writer_slice(&w);
    for (size_t i = 0; i < SAMPLES; i++) {
        struct manager_message m;
        assert_int_equal(manager_read(&in, &m), MANAGER_READ);
        assert_int_equal(m.type, samples[i].type);
        assert_same(&m, &samples[i]);
    }
    assert_int_equal(in.len, 0);
    struct manager_message session;
    in = writer_slice(&w);
    for (size_t i = 0; i < 12; i++)
        assert_int_equal(manager_read(&in, &session), MANAGER_READ);
    assert_int_equal(session.pid, 0xdeadbeef);
    assert_int_equal(session.end, UINT64_C(1) << 40);
    assert_int_equal(session.exit_code, 137);
    assert_int_equal(session.readers, 5);
}

static void the_wire_form_is_fixed(void **state)
{
    uint8_t memory[256];
    struct writer w = writer_of(memory, sizeof memory);
    (void)state;
    manager_put(&w, &samples[0]);
    manager_put(&w, &samples[5]);
    manager_put(&w, &samples[12]);
    assert_true(
        slice_equal(writer_slice(&w), SLICE_LITERAL("\0\0\0\2\1\1"
                                                    "\0\0\0\10\6\0\1a\0\1b\11"
                                                    "\0\0\0\13\103\1\x11\x22\x33\x44\x55\x66\x77\x88x")));
}

/* Everything before the last byte is "more", nothing is read behind it, and nothing is taken. */
static void a_message_in_parts_waits_for_the_last(void **state)
{
    uint8_t memory[8192];
    (void)state;
    for (size_t i = 0; i < SAMPLES; i++) {
        struct writer w = writer_of(memory, sizeof memory);
        manager_put(&w, &samples[i]);
        for (size_t len = 0; len <= w.len; len++) {
            struct slice part = guarded(slice_of(memory, len)), in = part;
            struct manager_message m;
            assert_int_equal(manager_read(&in, &m), len == w.len ? MANAGER_READ : MANAGER_MORE);
            assert_int_equal(in.len, len == w.len ? 0 : len);
            guarded_free(part);
        }
    }
}

/* A body that ends early or late is refused, wherever it is cut. */
static void a_body_of_the_wrong_length_is_refused(void **state)
{
    uint8_t memory[8192];
    (void)state;
    for (size_t i = 0; i < SAMPLES; i++) {
        bool has_tail = slice_present(samples[i].bytes);
        struct writer w = writer_of(memory, sizeof memory);
        manager_put(&w, &samples[i]);
        size_t body = w.len - MANAGER_LENGTH_SIZE;
        for (size_t len = 1; len <= body + 1; len++) {
            memory[w.len] = 0;
            memory[2] = (uint8_t)(len >> 8);
            memory[3] = (uint8_t)len;
            struct slice part = guarded(slice_of(memory, MANAGER_LENGTH_SIZE + len)), in = part;
            struct manager_message m;
            enum manager_result result = manager_read(&in, &m);
            if (len == body || (has_tail && len >= body - samples[i].bytes.len))
                assert_int_equal(result, MANAGER_READ);
            else
                assert_int_equal(result, MANAGER_BAD);
            guarded_free(part);
        }
    }
}

static void nonsense_is_refused(void **state)
{
    static const struct slice bad[] = {
        SLICE_LITERAL("\0\0\0\0"),            /* no type */
        SLICE_LITERAL("\0\1\0\1"),            /* longer than any message, known before it is there */
        SLICE_LITERAL("\xff\xff\xff\xff"),    /* */
        SLICE_LITERAL("\0\0\0\1\0"),          /* unknown types */
        SLICE_LITERAL("\0\0\0\1\x63"),        /* */
        SLICE_LITERAL("\0\0\0\4\10\0\1\0"),   /* NUL in a name */
        SLICE_LITERAL("\0\0\0\3\10\xff\xff"), /* a text longer than its message */
    };
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct slice part = guarded(bad[i]), in = part;
        struct manager_message m;
        assert_int_equal(manager_read(&in, &m), MANAGER_BAD);
        guarded_free(part);
    }
}

static void a_list_ends_with_a_nul(void **state)
{
    uint8_t memory[512];
    (void)state;
    struct manager_message m = samples[1];
    m.argv = SLICE_LITERAL("sh");
    struct writer w = writer_of(memory, sizeof memory);
    manager_put(&w, &m);
    struct slice in = writer_slice(&w);
    assert_int_equal(manager_read(&in, &m), MANAGER_BAD);
}

static void what_passes_a_bound_is_not_put(void **state)
{
    static uint8_t memory[2 * MANAGER_MESSAGE_MAX], bytes[MANAGER_MESSAGE_MAX];
    (void)state;
    memset(bytes, 'a', sizeof bytes);
    struct manager_message name = {.type = MANAGER_LIST, .scope = slice_of(bytes, MANAGER_NAME_MAX)};
    struct manager_message data = {.type = MANAGER_INPUT, .bytes = slice_of(bytes, MANAGER_DATA_MAX)};
    struct manager_message unknown = {.type = (enum manager_type)99};
    struct writer w = writer_of(memory, sizeof memory);
    manager_put(&w, &name);
    manager_put(&w, &data);
    assert_false(w.full);
    size_t len = w.len;
    struct manager_message *bad[] = {&name, &data, &unknown};
    name.scope.len++;
    data.bytes.len++;
    for (size_t i = 0; i < 3; i++) {
        w = writer_of(memory, sizeof memory);
        manager_put(&w, bad[i]);
        assert_true(w.full);
    }
    data.bytes.len--;
    for (size_t size = 0; size < len; size += 777) { /* and never behind the caller's memory */
        struct slice tight = guarded(slice_of(memory, size));
        w = writer_of((uint8_t *)(uintptr_t)tight.at, size);
        manager_put(&w, &data);
        assert_int_equal(w.full, size < MANAGER_DATA_MAX + 5);
        guarded_free(tight);
    }
}

static void lists_become_arrays(void **state)
{
    uint8_t memory[64];
    struct writer w = writer_of(memory, sizeof memory);
    (void)state;
    manager_put_string(&w, SLICE_LITERAL("sh"));
    manager_put_string(&w, SLICE_LITERAL(""));
    manager_put_string(&w, SLICE_LITERAL("a b"));
    char **strings = manager_strings(writer_slice(&w));
    assert_string_equal(strings[0], "sh");
    assert_string_equal(strings[1], "");
    assert_string_equal(strings[2], "a b");
    assert_null(strings[3]);
    free(strings);
    strings = manager_strings(SLICE_LITERAL(""));
    assert_null(strings[0]);
    free(strings);
    alloc_fail_at(1);
    assert_null(manager_strings(writer_slice(&w)));
    alloc_fail_at(0);
    manager_put_string(&w, SLICE_LITERAL("a\0b"));
    assert_true(w.full);
}

static void names_are_plain(void **state)
{
    uint8_t longest[MANAGER_NAME_MAX + 1];
    (void)state;
    memset(longest, 'x', sizeof longest);
    assert_true(manager_is_name(slice_of(longest, MANAGER_NAME_MAX)));
    assert_false(manager_is_name(slice_of(longest, MANAGER_NAME_MAX + 1)));
    assert_true(manager_is_name(SLICE_LITERAL("sb-0123abcd/pty")));
    assert_false(manager_is_name(SLICE_LITERAL("")));
    assert_false(manager_is_name(SLICE_LITERAL("a b")));
    assert_false(manager_is_name(SLICE_LITERAL("a\0b")));
    assert_false(manager_is_name(SLICE_LITERAL("a%2f")));
    assert_false(manager_is_name(SLICE_LITERAL("\xc3\xa4")));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_message_is_read_as_it_was_put),
        cmocka_unit_test(the_wire_form_is_fixed),
        cmocka_unit_test(a_message_in_parts_waits_for_the_last),
        cmocka_unit_test(a_body_of_the_wrong_length_is_refused),
        cmocka_unit_test(nonsense_is_refused),
        cmocka_unit_test(a_list_ends_with_a_nul),
        cmocka_unit_test(what_passes_a_bound_is_not_put),
        cmocka_unit_test(lists_become_arrays),
        cmocka_unit_test(names_are_plain),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
