/* SPDX-License-Identifier: MIT */
#include "examples/worker/session/session.h"
#include "tests/unit/support.h"

static struct fail why;

static struct manager_message plan(uint8_t kind)
{
    return (struct manager_message){.type = MANAGER_CREATE,
                                    .scope = SLICE_LITERAL("sb-1/pty"),
                                    .kind = kind,
                                    .ring = SESSION_RING_MIN,
                                    .argv = SLICE_LITERAL("sh\0-i\0"),
                                    .env = SLICE_LITERAL("A=b\0"),
                                    .cwd = SLICE_LITERAL("/tmp")};
}

static void put(struct session *s, enum manager_stream stream, size_t len)
{
    static uint8_t bytes[SESSION_RING_MIN];
    session_output(s, stream, slice_of(bytes, len));
}

static void keeps_a_copy_of_what_it_was_made_of(void **state)
{
    struct session s;
    struct manager_message m = plan(MANAGER_TERMINAL);
    char id[] = "0badcafe";
    (void)state;
    assert_true(session_init(&s, &m, slice_text(id), &why));
    memset(id, 'x', sizeof id - 1);
    assert_true(session_is(&s, SLICE_LITERAL("sb-1/pty"), SLICE_LITERAL("0badcafe")));
    assert_false(session_is(&s, SLICE_LITERAL("sb-2/pty"), SLICE_LITERAL("0badcafe")));
    assert_false(session_is(&s, SLICE_LITERAL("sb-1/pty"), SLICE_LITERAL("0badcaff")));
    assert_true(slice_equal(s.plan.argv, m.argv));
    assert_true(slice_equal(s.plan.env, m.env));
    assert_true(slice_is(s.plan.cwd, "/tmp"));
    assert_int_equal(s.plan.cols, 80);
    assert_int_equal(s.plan.rows, 24);
    session_clear(&s);
}

static void refuses_nonsense(void **state)
{
    struct session s;
    struct manager_message bad[6];
    (void)state;
    for (size_t i = 0; i < 6; i++)
        bad[i] = plan(MANAGER_TERMINAL);
    bad[0].kind = 3;
    bad[1].argv = SLICE_LITERAL("");
    bad[2].ring = SESSION_RING_MAX + 1;
    bad[3].ring = SESSION_RING_MIN - 1;
    bad[4].scope = SLICE_LITERAL("a b");
    bad[5].type = MANAGER_ATTACH;
    for (size_t i = 0; i < 6; i++)
        assert_false(session_init(&s, &bad[i], SLICE_LITERAL("a"), &why));
    struct manager_message good = plan(MANAGER_TERMINAL);
    assert_false(session_init(&s, &good, SLICE_LITERAL(""), &why));
    assert_false(session_init(&s, &good, SLICE_LITERAL("../a b"), &why));
}

static void says_when_memory_is_short(void **state)
{
    struct session s;
    struct manager_message m = plan(MANAGER_TERMINAL);
    (void)state;
    for (unsigned n = 1; n < 3; n++) {
        alloc_fail_at(n);
        assert_false(session_init(&s, &m, SLICE_LITERAL("a"), &why));
        alloc_fail_at(0);
    }
}

static void goes_from_new_to_ended(void **state)
{
    struct session s;
    struct manager_message m = plan(MANAGER_TERMINAL);
    (void)state;
    assert_true(session_init(&s, &m, SLICE_LITERAL("a"), &why));
    assert_int_equal(session_describe(&s).state, MANAGER_NEW);
    session_started(&s, 4711);
    assert_int_equal(session_describe(&s).state, MANAGER_RUNNING);
    assert_int_equal(session_describe(&s).pid, 4711);
    session_exited(&s, 3);
    assert_int_equal(session_describe(&s).state, MANAGER_RUNNING); /* its last output is not there yet */
    session_drained(&s);
    assert_int_equal(session_describe(&s).state, MANAGER_ENDED);
    assert_int_equal(session_describe(&s).exit_code, 3);
    session_clear(&s);
}

static void clamps_an_offset_to_what_is_held(void **state)
{
    struct session s;
    struct manager_message m = plan(MANAGER_TERMINAL);
    (void)state;
    assert_true(session_init(&s, &m, SLICE_LITERAL("a"), &why));
    assert_int_equal(session_clamp(&s, 17), 0);
    put(&s, MANAGER_STDOUT, 3000);
    put(&s, MANAGER_STDOUT, 3000);
    assert_int_equal(session_first(&s), 6000 - SESSION_RING_MIN);
    assert_int_equal(session_end(&s), 6000);
    assert_int_equal(session_clamp(&s, 0), 6000 - SESSION_RING_MIN);
    assert_int_equal(session_clamp(&s, 5000), 5000);
    assert_int_equal(session_clamp(&s, UINT64_MAX), 6000);
    session_clear(&s);
}

static void room_of_a_terminal_is_counted_in_bytes_and_of_pipes_in_chunks(void **state)
{
    static const size_t room[] = {[MANAGER_TERMINAL] = 1096, [MANAGER_PIPES] = 96};
    enum manager_stream stream;
    (void)state;
    for (uint8_t kind = MANAGER_TERMINAL; kind <= MANAGER_PIPES; kind++) {
        struct session s;
        struct manager_message m = plan(kind);
        assert_true(session_init(&s, &m, SLICE_LITERAL("a"), &why));
        put(&s, MANAGER_STDOUT, 2000);
        put(&s, MANAGER_STDERR, 2000);
        assert_int_equal(session_room(&s, 1000), room[kind]);
        assert_int_equal(session_room(&s, 4000), SESSION_RING_MIN);
        assert_int_equal(session_at(&s, 1999, &stream).len, kind == MANAGER_TERMINAL ? 2001 : 1);
        assert_int_equal(session_at(&s, 2000, &stream).len, 2000);
        assert_int_equal(stream, kind == MANAGER_TERMINAL ? MANAGER_STDOUT : MANAGER_STDERR);
        put(&s, MANAGER_STDOUT, room[kind]);
        assert_true(session_first(&s) <= 1000);
        put(&s, MANAGER_STDOUT, 1000);
        assert_true(session_room(&s, 0) <= SESSION_RING_MIN); /* asked about what is gone */
        session_clear(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keeps_a_copy_of_what_it_was_made_of),
        cmocka_unit_test(refuses_nonsense),
        cmocka_unit_test(says_when_memory_is_short),
        cmocka_unit_test(goes_from_new_to_ended),
        cmocka_unit_test(clamps_an_offset_to_what_is_held),
        cmocka_unit_test(room_of_a_terminal_is_counted_in_bytes_and_of_pipes_in_chunks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
