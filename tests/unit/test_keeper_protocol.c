/* SPDX-License-Identifier: MIT */
#include "examples/worker/keeper_protocol.h"
#include "tests/unit/support.h"

#include <stdlib.h>

static const struct keeper_message samples[] = {
    {.type = KEEPER_HELLO, .version = KEEPER_VERSION},
    {.type = KEEPER_CREATE,
     .scope = SLICE_LITERAL("sb-1/exec"),
     .id = SLICE_LITERAL("0badcafe"),
     .kind = KEEPER_PIPES,
     .flags = KEEPER_START_LATER,
     .cols = 80,
     .rows = 65535,
     .ring = 1 << 20,
     .stall_ms = 1,
     .linger_ms = KEEPER_FOREVER,
     .timeout_ms = 3,
     .cwd = SLICE_LITERAL("/tmp"),
     .argv = SLICE_LITERAL("sh\0-c\0\0"),
     .env = SLICE_LITERAL("A=b\0")},
    {.type = KEEPER_ATTACH,
     .scope = SLICE_LITERAL("a"),
     .id = SLICE_LITERAL("b"),
     .since = UINT64_MAX,
     .flags = 6,
     .kind = 1},
    {.type = KEEPER_INPUT, .bytes = SLICE_LITERAL("ls\n\0\xff")},
    {.type = KEEPER_RESIZE, .scope = SLICE_LITERAL("a"), .id = SLICE_LITERAL("b"), .cols = 1, .rows = 2},
    {.type = KEEPER_SIGNAL, .scope = SLICE_LITERAL("a"), .id = SLICE_LITERAL("b"), .signal = 9},
    {.type = KEEPER_QUERY, .scope = SLICE_LITERAL("a"), .id = SLICE_LITERAL("b")},
    {.type = KEEPER_LIST, .scope = SLICE_LITERAL("")},
    {.type = KEEPER_DELETE, .scope = SLICE_LITERAL("a"), .id = SLICE_LITERAL("b")},
    {.type = KEEPER_DONE},
    {.type = KEEPER_ERROR, .code = KEEPER_TOO_MANY, .text = SLICE_LITERAL("why")},
    {.type = KEEPER_SESSION,
     .scope = SLICE_LITERAL("execd"),
     .id = SLICE_LITERAL("b"),
     .kind = KEEPER_TERMINAL,
     .state = KEEPER_ENDED,
     .pid = 0xdeadbeef,
     .cols = 3,
     .rows = 4,
     .readers = 5,
     .first = 6,
     .end = UINT64_C(1) << 40,
     .input = 7,
     .exit_code = 137},
    {.type = KEEPER_OUTPUT,
     .stream = KEEPER_STDERR,
     .since = 0x1122334455667788,
     .bytes = SLICE_LITERAL("x")},
    {.type = KEEPER_EXIT, .exit_code = 255},
    {.type = KEEPER_DETACHED, .code = KEEPER_TAKEN_OVER},
    {.type = KEEPER_RESUME,
     .scope = SLICE_LITERAL("terminal"),
     .id = SLICE_LITERAL("7b0e51d2a94f4f3c8c1d0a6f5e2b77c4"),
     .kind = KEEPER_TERMINAL,
     .flags = KEEPER_RECEIVED,
     .stall_ms = KEEPER_FOREVER,
     .argv = SLICE_LITERAL("sh\0"),
     .number = 0x1122334455667788,
     .since = 9,
     .buffer = 4096},
    {.type = KEEPER_RESUMED, .since = 1, .number = UINT64_C(1) << 52, .buffer = 262144},
    {.type = KEEPER_MESSAGE,
     .flags = KEEPER_LAST,
     .size = 70000,
     .cols = 80,
     .rows = 24,
     .bytes = SLICE_LITERAL("x")},
    {.type = KEEPER_ITEM, .flags = KEEPER_LAST, .stream = KEEPER_STDOUT, .bytes = SLICE_LITERAL("\0")},
    {.type = KEEPER_ACKNOWLEDGE, .number = 7},
    {.type = KEEPER_END, .number = UINT64_MAX},
};

#define SAMPLES (sizeof samples / sizeof *samples)

static void assert_same(const struct keeper_message *a, const struct keeper_message *b)
{
    uint8_t memory[2][8192];
    struct writer w[2] = {writer_of(memory[0], sizeof memory[0]), writer_of(memory[1], sizeof memory[1])};
    keeper_put(&w[0], a);
    keeper_put(&w[1], b);
    assert_false(w[0].full);
    assert_true(slice_equal(writer_slice(&w[0]), writer_slice(&w[1])));
}

static void every_message_is_read_as_it_was_put(void **state)
{
    uint8_t memory[65536];
    struct writer w = writer_of(memory, sizeof memory);
    (void)state;
    for (size_t i = 0; i < SAMPLES; i++)
        keeper_put(&w, &samples[i]);
    assert_false(w.full);
    struct slice in = writer_slice(&w);
    for (size_t i = 0; i < SAMPLES; i++) {
        struct keeper_message m;
        assert_int_equal(keeper_read(&in, &m), KEEPER_READ);
        assert_int_equal(m.type, samples[i].type);
        assert_same(&m, &samples[i]);
    }
    assert_int_equal(in.len, 0);
    struct keeper_message session;
    in = writer_slice(&w);
    for (size_t i = 0; i < 12; i++)
        assert_int_equal(keeper_read(&in, &session), KEEPER_READ);
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
    keeper_put(&w, &samples[0]);
    keeper_put(&w, &samples[5]);
    keeper_put(&w, &samples[12]);
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
        keeper_put(&w, &samples[i]);
        for (size_t len = 0; len <= w.len; len++) {
            struct slice part = guarded(slice_of(memory, len)), in = part;
            struct keeper_message m;
            assert_int_equal(keeper_read(&in, &m), len == w.len ? KEEPER_READ : KEEPER_MORE);
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
        keeper_put(&w, &samples[i]);
        size_t body = w.len - KEEPER_LENGTH_SIZE;
        for (size_t len = 1; len <= body + 1; len++) {
            memory[w.len] = 0;
            memory[2] = (uint8_t)(len >> 8);
            memory[3] = (uint8_t)len;
            struct slice part = guarded(slice_of(memory, KEEPER_LENGTH_SIZE + len)), in = part;
            struct keeper_message m;
            enum keeper_result result = keeper_read(&in, &m);
            if (len == body || (has_tail && len >= body - samples[i].bytes.len))
                assert_int_equal(result, KEEPER_READ);
            else
                assert_int_equal(result, KEEPER_BAD);
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
        struct keeper_message m;
        assert_int_equal(keeper_read(&in, &m), KEEPER_BAD);
        guarded_free(part);
    }
}

static void a_list_ends_with_a_nul(void **state)
{
    uint8_t memory[512];
    (void)state;
    struct keeper_message m = samples[1];
    m.argv = SLICE_LITERAL("sh");
    struct writer w = writer_of(memory, sizeof memory);
    keeper_put(&w, &m);
    struct slice in = writer_slice(&w);
    assert_int_equal(keeper_read(&in, &m), KEEPER_BAD);
}

static void what_passes_a_bound_is_not_put(void **state)
{
    static uint8_t memory[2 * KEEPER_MESSAGE_MAX], bytes[KEEPER_MESSAGE_MAX];
    (void)state;
    memset(bytes, 'a', sizeof bytes);
    struct keeper_message name = {.type = KEEPER_LIST, .scope = slice_of(bytes, KEEPER_NAME_MAX)};
    struct keeper_message data = {.type = KEEPER_INPUT, .bytes = slice_of(bytes, KEEPER_DATA_MAX)};
    struct keeper_message unknown = {.type = (enum keeper_type)99};
    struct writer w = writer_of(memory, sizeof memory);
    keeper_put(&w, &name);
    keeper_put(&w, &data);
    assert_false(w.full);
    size_t len = w.len;
    struct keeper_message *bad[] = {&name, &data, &unknown};
    name.scope.len++;
    data.bytes.len++;
    for (size_t i = 0; i < 3; i++) {
        w = writer_of(memory, sizeof memory);
        keeper_put(&w, bad[i]);
        assert_true(w.full);
    }
    data.bytes.len--;
    for (size_t size = 0; size < len; size += 777) { /* and never behind the caller's memory */
        struct slice tight = guarded(slice_of(memory, size));
        w = writer_of((uint8_t *)(uintptr_t)tight.at, size);
        keeper_put(&w, &data);
        assert_int_equal(w.full, size < KEEPER_DATA_MAX + 5);
        guarded_free(tight);
    }
}

static void lists_become_arrays(void **state)
{
    uint8_t memory[64];
    struct writer w = writer_of(memory, sizeof memory);
    (void)state;
    keeper_put_string(&w, SLICE_LITERAL("sh"));
    keeper_put_string(&w, SLICE_LITERAL(""));
    keeper_put_string(&w, SLICE_LITERAL("a b"));
    char **strings = keeper_strings(writer_slice(&w));
    assert_string_equal(strings[0], "sh");
    assert_string_equal(strings[1], "");
    assert_string_equal(strings[2], "a b");
    assert_null(strings[3]);
    free(strings);
    strings = keeper_strings(SLICE_LITERAL(""));
    assert_null(strings[0]);
    free(strings);
    alloc_fail_at(1);
    assert_null(keeper_strings(writer_slice(&w)));
    alloc_fail_at(0);
    keeper_put_string(&w, SLICE_LITERAL("a\0b"));
    assert_true(w.full);
}

static void names_are_plain(void **state)
{
    uint8_t longest[KEEPER_NAME_MAX + 1];
    (void)state;
    memset(longest, 'x', sizeof longest);
    assert_true(keeper_is_name(slice_of(longest, KEEPER_NAME_MAX)));
    assert_false(keeper_is_name(slice_of(longest, KEEPER_NAME_MAX + 1)));
    assert_true(keeper_is_name(SLICE_LITERAL("sb-0123abcd/pty")));
    assert_false(keeper_is_name(SLICE_LITERAL("")));
    assert_false(keeper_is_name(SLICE_LITERAL("a b")));
    assert_false(keeper_is_name(SLICE_LITERAL("a\0b")));
    assert_false(keeper_is_name(SLICE_LITERAL("a%2f")));
    assert_false(keeper_is_name(SLICE_LITERAL("\xc3\xa4")));
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
