/* SPDX-License-Identifier: MIT */
#include "tests/unit/support.h"

#include <stdlib.h>

#include "spoa/spop/hello.h"
#include "spoa/spop/spop.h"

static uint8_t memory[128 * 1024];

static struct writer room(void)
{
    return writer_of(memory, sizeof memory);
}

static void assert_bytes(struct slice got, const char *want, size_t len)
{
    assert_int_equal(got.len, len);
    assert_memory_equal(got.at, want, len);
}
#define ASSERT_BYTES(got, want) assert_bytes((got), (want), sizeof(want) - 1)

/* ---- varints ---- */
static const struct {
    uint64_t value;
    const char *bytes;
    size_t len;
} varints[] = {
    /* computed by hand from SPOE.txt section 3.1 */
    {0, "\x00", 1},
    {239, "\xef", 1},
    {240, "\xf0\x00", 2},
    {255, "\xff\x00", 2},
    {256, "\xf0\x01", 2},
    {2287, "\xff\x7f", 2},
    {2288, "\xf0\x80\x00", 3},
    {264431, "\xff\xff\x7f", 3},
    {264432, "\xf0\x80\x80\x00", 4},
    {UINT64_MAX, "\xff\xf0\xfe\xfe\xfe\xfe\xfe\xfe\xfe\x0e", 10},
};

static void varints_are_written_as_haproxy_writes_them(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof varints / sizeof *varints; i++) {
        struct writer w = room();
        spop_varint_write(&w, varints[i].value);
        assert_bytes(writer_slice(&w), varints[i].bytes, varints[i].len);
    }
}

static void varints_are_read_at_every_length(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof varints / sizeof *varints; i++)
        for (size_t cut = 0; cut <= varints[i].len; cut++) {
            struct slice s = guarded(slice_of(varints[i].bytes, cut));
            struct reader r = reader_of(s);
            uint64_t value = spop_varint_read(&r);
            assert_int_equal(r.failed, cut < varints[i].len);
            assert_true(value == (r.failed ? 0 : varints[i].value));
            guarded_free(s);
        }
}

static void varints_of_all_sizes_come_back(void **state)
{
    (void)state;
    for (unsigned bit = 0; bit < 64; bit++)
        for (uint64_t d = 0; d < 5; d++) {
            uint64_t value = (UINT64_C(1) << bit) + d - 2;
            struct writer w = room();
            spop_varint_write(&w, value);
            struct reader r = reader_of(writer_slice(&w));
            assert_true(spop_varint_read(&r) == value);
            assert_true(reader_done(&r));
        }
}

static void varints_over_64_bits_or_10_bytes_are_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x0f",         /* one too many for 64 bits */
        "\xf0\xf1\xfe\xfe\xfe\xfe\xfe\xfe\xfe\x0f",         /* the sum overflows */
        "\xf0\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01",     /* an eleventh byte */
        "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", /* never ends */
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct reader r = reader_of(slice_text(bad[i]));
        assert_true(spop_varint_read(&r) == 0);
        assert_true(r.failed);
        assert_true(spop_varint_read(&r) == 0); /* and stays so */
    }
}

/* ---- typed values ---- */
static void values_come_back(void **state)
{
    (void)state;
    static const uint8_t ip[16] = {192, 0, 2, 1, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};
    struct spop_value values[] = {
        spop_null(),
        spop_bool(true),
        spop_bool(false),
        {.kind = SPOP_INT32, .number = 7},
        {.kind = SPOP_UINT32, .number = 16380},
        spop_int(-1),
        spop_int(INT64_MIN),
        {.kind = SPOP_UINT64, .number = -1},
        spop_address(slice_of(ip, 4)),
        spop_address(slice_of(ip, 16)),
        spop_text(SLICE_LITERAL("")),
        spop_text(SLICE_LITERAL("a\0b")),
        spop_binary(slice_of(memory, 300)),
    };
    static uint8_t own[1024];
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        struct writer w = writer_of(own, sizeof own);
        spop_value_write(&w, values[i]);
        assert_false(w.full);
        for (size_t cut = 0; cut <= w.len; cut++) {
            struct slice s = guarded(slice_of(own, cut));
            struct reader r = reader_of(s);
            struct spop_value got;
            assert_int_equal(spop_value_read(&r, &got), cut == w.len);
            if (cut == w.len) {
                assert_int_equal(got.kind, values[i].kind);
                assert_int_equal(got.truth, values[i].truth);
                assert_true(got.number == values[i].number);
                assert_true(slice_equal(got.bytes, values[i].bytes));
                assert_true(reader_done(&r));
            }
            guarded_free(s);
        }
    }
}

static void values_have_the_bytes_of_the_protocol(void **state)
{
    (void)state;
    struct writer w = room();
    spop_value_write(&w, spop_bool(true));
    spop_value_write(&w, spop_bool(false));
    spop_value_write(&w, spop_int(-1));
    spop_value_write(&w, spop_address(SLICE_LITERAL("\x7f\0\0\x01")));
    spop_value_write(&w, spop_text(SLICE_LITERAL("ab")));
    ASSERT_BYTES(writer_slice(&w),
                 "\x11\x01\x04\xff\xf0\xfe\xfe\xfe\xfe\xfe\xfe\xfe\x0e\x06\x7f\0\0\x01\x08\x02"
                 "ab");
}

static void values_of_unknown_types_are_refused(void **state)
{
    (void)state;
    for (uint8_t type = 10; type < 16; type++) {
        uint8_t bytes[32] = {type};
        struct reader r = reader_of(slice_of(bytes, sizeof bytes));
        struct spop_value value;
        assert_false(spop_value_read(&r, &value));
    }
}

static void only_integers_that_are_not_negative_are_unsigned(void **state)
{
    (void)state;
    uint64_t n;
    assert_true(spop_value_unsigned(spop_int(5), &n) && n == 5);
    assert_true(spop_value_unsigned((struct spop_value){.kind = SPOP_UINT64, .number = -1}, &n) &&
                n == UINT64_MAX);
    assert_false(spop_value_unsigned(spop_int(-5), &n));
    assert_false(spop_value_unsigned(spop_null(), &n));
    assert_false(spop_value_unsigned(spop_text(SLICE_LITERAL("5")), &n));
}

/* ---- frames ---- */
static void a_frame_is_found_at_every_split(void **state)
{
    (void)state;
    struct writer w = room();
    size_t begin = spop_frame_begin(&w, SPOP_TYPE_NOTIFY, UINT64_MAX, 241);
    writer_text(&w, "payload");
    assert_true(spop_frame_end(&w, begin, SPOP_FRAME_USUAL));
    size_t whole = w.len;
    writer_text(&w, "next");
    for (size_t cut = 0; cut <= w.len; cut++) {
        struct slice s = guarded(slice_of(memory, cut));
        struct spop_frame frame;
        size_t size;
        enum spop_step step = spop_frame_read(s, SPOP_FRAME_USUAL, &frame, &size);
        assert_int_equal(step, cut < whole ? SPOP_STEP_MORE : SPOP_STEP_FRAME);
        assert_int_equal(size, cut < SPOP_LENGTH_BYTES ? SPOP_LENGTH_BYTES : whole);
        if (step == SPOP_STEP_FRAME) {
            assert_int_equal(frame.type, SPOP_TYPE_NOTIFY);
            assert_int_equal(frame.flags, SPOP_FIN);
            assert_true(frame.stream_id == UINT64_MAX);
            assert_true(frame.frame_id == 241);
            assert_true(slice_is(frame.payload, "payload"));
        }
        guarded_free(s);
    }
}

static enum spop_step read_length(uint32_t length, size_t most)
{
    uint8_t bytes[64] = {(uint8_t)(length >> 24), (uint8_t)(length >> 16), (uint8_t)(length >> 8),
                         (uint8_t)length};
    struct spop_frame frame;
    size_t size;
    struct slice s = guarded(slice_of(bytes, 4));
    enum spop_step step = spop_frame_read(s, most, &frame, &size);
    guarded_free(s);
    return step;
}

static void a_length_is_judged_before_anything_else_is_there(void **state)
{
    (void)state;
    for (uint32_t length = 0; length < SPOP_FRAME_MIN; length++)
        assert_int_equal(read_length(length, SPOP_FRAME_USUAL), SPOP_STEP_INVALID);
    assert_int_equal(read_length(SPOP_FRAME_MIN, SPOP_FRAME_USUAL), SPOP_STEP_MORE);
    assert_int_equal(read_length(SPOP_FRAME_USUAL, SPOP_FRAME_USUAL), SPOP_STEP_MORE);
    assert_int_equal(read_length(SPOP_FRAME_USUAL + 1, SPOP_FRAME_USUAL), SPOP_STEP_TOO_BIG);
    assert_int_equal(read_length(UINT32_MAX, SPOP_FRAME_USUAL), SPOP_STEP_TOO_BIG);
    assert_int_equal(read_length(0x80000000, SPOP_FRAME_MAX), SPOP_STEP_TOO_BIG);
}

static void ids_that_reach_over_the_frame_are_invalid(void **state)
{
    (void)state;
    static const char bytes[] = "\0\0\0\x07\x03\0\0\0\x01\xf0\x80\x00\x00\x00";
    struct spop_frame frame;
    size_t size;
    assert_int_equal(spop_frame_read(slice_of(bytes, sizeof bytes), 100, &frame, &size), SPOP_STEP_INVALID);
}

static void a_frame_that_does_not_fit_leaves_no_trace(void **state)
{
    (void)state;
    struct writer w = writer_of(memory, 40);
    writer_text(&w, "before");
    size_t begin = spop_frame_begin(&w, SPOP_TYPE_ACK, 1, 1);
    for (int i = 0; i < 30; i++)
        writer_u8(&w, 1);
    assert_false(spop_frame_end(&w, begin, SPOP_FRAME_USUAL));
    assert_true(slice_is(writer_slice(&w), "before"));
    begin = spop_frame_begin(&w, SPOP_TYPE_ACK, 1, 1);
    writer_text(&w, "12345");
    assert_false(spop_frame_end(&w, begin, 11)); /* the frame has 12 bytes, and the peer accepts 11 */
    begin = spop_frame_begin(&w, SPOP_TYPE_ACK, 1, 1);
    writer_text(&w, "12345");
    assert_true(spop_frame_end(&w, begin, 12));
    assert_int_equal(w.len, 6 + 4 + 12);
}

/* ---- messages ---- */
static struct slice two_messages(void)
{
    struct writer w = room();
    size_t message = spop_message_begin(&w, SLICE_LITERAL("cell-route"));
    spop_arg_write(&w, message, SLICE_LITERAL("path"), spop_text(SLICE_LITERAL("/x")));
    spop_arg_write(&w, message, SLICE_LITERAL(""), spop_int(-3));
    spop_arg_write(&w, message, SLICE_LITERAL("query"), spop_null());
    message = spop_message_begin(&w, SLICE_LITERAL("other"));
    assert_false(w.full);
    return writer_slice(&w);
}

static void messages_and_arguments_are_iterated(void **state)
{
    (void)state;
    struct reader payload = reader_of(two_messages());
    struct spop_message message;
    struct slice name;
    struct spop_value value;
    assert_true(spop_message_next(&payload, &message));
    assert_true(slice_is(message.name, "cell-route"));
    assert_int_equal(message.args.left, 3);
    assert_true(spop_arg_next(&message.args, &name, &value));
    assert_true(slice_is(name, "path") && slice_is(value.bytes, "/x"));
    assert_true(spop_arg_next(&message.args, &name, &value));
    assert_true(name.len == 0 && value.number == -3);
    assert_true(spop_arg_next(&message.args, &name, &value));
    assert_true(slice_is(name, "query") && value.kind == SPOP_NULL);
    assert_false(spop_arg_next(&message.args, &name, &value));
    assert_true(spop_message_next(&payload, &message));
    assert_true(slice_is(message.name, "other"));
    assert_false(spop_arg_next(&message.args, &name, &value));
    assert_false(spop_message_next(&payload, &message));
    assert_false(payload.failed);
}

static void a_cut_message_is_never_handed_out(void **state)
{
    (void)state;
    struct slice whole = two_messages();
    size_t second = whole.len - 7; /* "other", its length and count */
    for (size_t cut = 0; cut < whole.len; cut++) {
        struct slice s = guarded(slice_sub(whole, 0, cut));
        struct reader payload = reader_of(s);
        struct spop_message message;
        assert_int_equal(spop_message_next(&payload, &message), cut >= second);
        if (cut >= second)
            assert_false(spop_message_next(&payload, &message));
        assert_int_equal(payload.failed, cut != 0 && cut != second);
        guarded_free(s);
    }
}

static void a_message_has_at_most_255_arguments(void **state)
{
    (void)state;
    struct writer w = room();
    size_t message = spop_message_begin(&w, SLICE_LITERAL("m"));
    for (int i = 0; i < 255; i++)
        spop_arg_write(&w, message, SLICE_LITERAL("a"), spop_null());
    assert_false(w.full);
    struct reader payload = reader_of(writer_slice(&w));
    struct spop_message got;
    assert_true(spop_message_next(&payload, &got));
    assert_int_equal(got.args.left, 255);
    spop_arg_write(&w, message, SLICE_LITERAL("a"), spop_null());
    assert_true(w.full);
}

/* ---- actions ---- */
static void actions_have_the_bytes_of_the_protocol(void **state)
{
    (void)state;
    struct writer w = room();
    struct spop_actions actions = {.out = &w, .prefix_len = 4};
    spop_set_var(&actions, SPOP_TRANSACTION, SLICE_LITERAL("port"), spop_int(80));
    spop_unset_var(&actions, SPOP_SESSION, SLICE_LITERAL("x"));
    assert_int_equal(actions.count, 2);
    ASSERT_BYTES(writer_slice(&w), "\x01\x03\x02\x04port\x04\x50\x02\x02\x01\x01x");
}

static void actions_come_back_and_a_cut_one_does_not(void **state)
{
    (void)state;
    struct writer w = room();
    struct spop_actions actions = {.out = &w};
    spop_set_var(&actions, SPOP_PROCESS, SLICE_LITERAL("a.b_9"), spop_text(SLICE_LITERAL("v")));
    size_t first = w.len;
    spop_unset_var(&actions, SPOP_RESPONSE, SLICE_LITERAL("gone"));
    for (size_t cut = 0; cut <= w.len; cut++) {
        struct slice s = guarded(slice_of(memory, cut));
        struct reader payload = reader_of(s);
        struct spop_action action;
        if (cut >= first) {
            assert_true(spop_action_next(&payload, &action));
            assert_true(action.type == SPOP_SET_VAR && action.scope == SPOP_PROCESS);
            assert_true(slice_is(action.name, "a.b_9") && slice_is(action.value.bytes, "v"));
        }
        if (cut == w.len) {
            assert_true(spop_action_next(&payload, &action));
            assert_true(action.type == SPOP_UNSET_VAR && action.scope == SPOP_RESPONSE);
            assert_true(slice_is(action.name, "gone") && action.value.kind == SPOP_NULL);
        }
        assert_false(spop_action_next(&payload, &action));
        assert_int_equal(payload.failed, cut != 0 && cut != first && cut != w.len);
        guarded_free(s);
    }
}

static void malformed_actions_are_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {"\x03\x03\x02\x01x\x11", "\x01\x02\x02\x01x\x11", "\x02\x03\x02\x01x",
                                      "\x01\x03\x05\x01x\x11", "\x01\x03\x02\x01x\x0a"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct reader payload = reader_of(slice_text(bad[i]));
        struct spop_action action;
        assert_false(spop_action_next(&payload, &action));
        assert_true(payload.failed);
    }
}

static bool name_taken(enum spop_scope scope, size_t prefix_len, struct slice name)
{
    struct writer w = room();
    struct spop_actions actions = {.out = &w, .prefix_len = prefix_len};
    spop_set_var(&actions, scope, name, spop_null());
    return !w.full;
}

static void names_that_haproxy_cannot_take_are_refused(void **state)
{
    (void)state;
    char name[80];
    memset(name, 'n', sizeof name);
    assert_true(name_taken(SPOP_TRANSACTION, 4, slice_of(name, 63 - sizeof "txn.cell." + 1)));
    assert_false(name_taken(SPOP_TRANSACTION, 4, slice_of(name, 63 - sizeof "txn.cell." + 2)));
    assert_true(name_taken(SPOP_SESSION, 4, slice_of(name, 63 - sizeof "sess.cell." + 1)));
    assert_false(name_taken(SPOP_SESSION, 4, slice_of(name, 63 - sizeof "sess.cell." + 2)));
    assert_false(name_taken(SPOP_TRANSACTION, 4, SLICE_LITERAL("")));
    assert_false(name_taken(SPOP_TRANSACTION, 4, SLICE_LITERAL("a-b")));
    assert_false(name_taken(SPOP_TRANSACTION, 4, SLICE_LITERAL("a b")));
    assert_false(name_taken(SPOP_TRANSACTION, 4, SLICE_LITERAL("a\0b")));
}

/* ---- hellos ---- */
struct item {
    const char *name;
    struct spop_value value;
};

static struct slice list_of(const struct item *items, size_t count)
{
    struct writer w = room();
    for (size_t i = 0; i < count; i++) {
        spop_text_write(&w, slice_text(items[i].name));
        spop_value_write(&w, items[i].value);
    }
    return writer_slice(&w);
}
#define LIST(...)                               \
    list_of((const struct item[]){__VA_ARGS__}, \
            sizeof((const struct item[]){__VA_ARGS__}) / sizeof(struct item))
#define TEXT(text) spop_text(SLICE_LITERAL(text))
#define SIZE(size) ((struct spop_value){.kind = SPOP_UINT32, .number = (size)})

static void hellos_of_every_haproxy_are_understood(void **state)
{
    (void)state;
    struct spop_offer offer;
    assert_int_equal(
        spop_offer_read(LIST({"supported-versions", TEXT("2.0")}, {"max-frame-size", SIZE(16380)},
                             {"capabilities", TEXT("pipelining,async")}, {"engine-id", TEXT("e1")}),
                        &offer),
        SPOP_STATUS_NORMAL); /* 2.6, 3.0 */
    assert_int_equal(offer.frame_size, 16380);
    assert_true(offer.pipelining && !offer.healthcheck && slice_is(offer.engine_id, "e1"));
    assert_int_equal(
        spop_offer_read(LIST({"supported-versions", TEXT("1.0, 2.0")}, {"max-frame-size", SIZE(131068)},
                             {"capabilities", TEXT("pipelining")}, {"engine-id", TEXT("e1")},
                             {"something-new", spop_bool(true)}),
                        &offer),
        SPOP_STATUS_NORMAL); /* HAProxy 3.1 and later: a larger buffer, and an unknown name */
    assert_int_equal(offer.frame_size, SPOP_FRAME_MAX);
    assert_int_equal(
        spop_offer_read(LIST({"supported-versions", TEXT("2.0")}, {"max-frame-size", SIZE(16380)},
                             {"capabilities", TEXT("")}, {"healthcheck", spop_bool(true)}),
                        &offer),
        SPOP_STATUS_NORMAL); /* a health check */
    assert_true(offer.healthcheck && !offer.pipelining && !slice_present(offer.engine_id));
}

static void bad_hellos_get_their_status(void **state)
{
    (void)state;
    struct spop_offer offer;
#define V {"supported-versions", TEXT("2.0")}
#define C                                  \
    {                                      \
        "capabilities", TEXT("pipelining") \
    }
    assert_int_equal(spop_offer_read(LIST({"max-frame-size", SIZE(16380)}, C), &offer),
                     SPOP_STATUS_NO_VERSION);
    assert_int_equal(spop_offer_read(LIST({"supported-versions", SIZE(2)}, C), &offer),
                     SPOP_STATUS_NO_VERSION);
    assert_int_equal(spop_offer_read(LIST({"supported-versions", TEXT("1.0,2.01")}, C), &offer),
                     SPOP_STATUS_BAD_VERSION);
    assert_int_equal(spop_offer_read(LIST(V, C), &offer), SPOP_STATUS_NO_FRAME_SIZE);
    assert_int_equal(spop_offer_read(LIST(V, {"max-frame-size", SIZE(255)}, C), &offer),
                     SPOP_STATUS_BAD_FRAME_SIZE);
    assert_int_equal(spop_offer_read(LIST(V, {"max-frame-size", spop_int(-1)}, C), &offer),
                     SPOP_STATUS_BAD_FRAME_SIZE);
    assert_int_equal(spop_offer_read(LIST(V, {"max-frame-size", TEXT("16380")}, C), &offer),
                     SPOP_STATUS_BAD_FRAME_SIZE);
    assert_int_equal(spop_offer_read(LIST(V, {"max-frame-size", SIZE(256)}), &offer),
                     SPOP_STATUS_NO_CAPABILITIES);
    struct slice good = LIST(V, {"max-frame-size", SIZE(256)}, C);
    assert_int_equal(spop_offer_read(good, &offer), SPOP_STATUS_NORMAL);
    assert_int_equal(spop_offer_read(slice_sub(good, 0, good.len - 1), &offer), SPOP_STATUS_INVALID);
    assert_int_equal(spop_offer_read(slice_of(NULL, 0), &offer), SPOP_STATUS_NO_VERSION);
}

static void agreements_are_judged(void **state)
{
    (void)state;
    struct spop_agreement agreement;
#define A {"version", TEXT("2.0")}
    assert_int_equal(spop_agreement_read(LIST(A, {"max-frame-size", SIZE(16380)}, C), 16380, &agreement),
                     SPOP_STATUS_NORMAL);
    assert_true(agreement.pipelining && agreement.frame_size == 16380);
    assert_int_equal(spop_agreement_read(LIST(A, {"max-frame-size", SIZE(16381)}, C), 16380, &agreement),
                     SPOP_STATUS_BAD_FRAME_SIZE);
    assert_int_equal(spop_agreement_read(LIST({"version", TEXT("1.0")}, C), 16380, &agreement),
                     SPOP_STATUS_BAD_VERSION);
    assert_int_equal(spop_agreement_read(LIST({"max-frame-size", SIZE(16380)}, C), 16380, &agreement),
                     SPOP_STATUS_NO_VERSION);
    assert_int_equal(spop_agreement_read(LIST(A, {"max-frame-size", SIZE(16380)}), 16380, &agreement),
                     SPOP_STATUS_NO_CAPABILITIES);
}

static void disconnects_come_back(void **state)
{
    (void)state;
#define X(name, code, text)                                                                       \
    {                                                                                             \
        struct writer w = room();                                                                 \
        struct spop_frame frame;                                                                  \
        size_t size;                                                                              \
        uint64_t status;                                                                          \
        struct slice message;                                                                     \
        spop_disconnect_write(&w, SPOP_TYPE_AGENT_DISCONNECT, SPOP_STATUS_##name);                \
        assert_int_equal(spop_frame_read(writer_slice(&w), 256, &frame, &size), SPOP_STEP_FRAME); \
        assert_true(spop_disconnect_read(frame.payload, &status, &message));                      \
        assert_true(status == code && slice_is(message, text) && message.len <= 255);             \
    }
    SPOP_STATUSES(X)
#undef X
    assert_string_equal(spop_status_text(57), "unknown error");
    uint64_t status;
    struct slice message;
    assert_false(spop_disconnect_read(SLICE_LITERAL("\x01"), &status, &message));
    assert_false(spop_disconnect_read(slice_of(NULL, 0), &status, &message));
}

/* Whatever room there is, spop_set_known writes the bytes that spop_set_var writes. */
static void a_known_name_is_written_like_any_other(void **state)
{
    static const struct spop_variable variables[] = {
        SPOP_VARIABLE(SPOP_TRANSACTION, "v"), SPOP_VARIABLE(SPOP_TRANSACTION, "of_twenty_eight_letters_____"),
        SPOP_VARIABLE(SPOP_TRANSACTION, "of_twenty_nine_letters_______"),
        SPOP_VARIABLE(SPOP_TRANSACTION, "one_that_is_longer_than_thirty_two_letters")};
    (void)state;
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++)
        for (size_t room = 0; room < 128; room++) {
            uint8_t known[128], any[128];
            struct writer a = writer_of(known, room), b = writer_of(any, room);
            struct spop_actions of_known = {.out = &a, .prefix_len = 4},
                                of_any = {.out = &b, .prefix_len = 4};
            for (int times = 0; times < 3; times++) {
                spop_set_known(&of_known, &variables[i], spop_text(SLICE_LITERAL("text")));
                spop_set_var(&of_any, SPOP_TRANSACTION, slice_text(variables[i].name),
                             spop_text(SLICE_LITERAL("text")));
                assert_int_equal(a.full, b.full);
                if (!a.full)
                    assert_true(slice_equal(writer_slice(&a), writer_slice(&b)));
            }
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(varints_are_written_as_haproxy_writes_them),
        cmocka_unit_test(varints_are_read_at_every_length),
        cmocka_unit_test(varints_of_all_sizes_come_back),
        cmocka_unit_test(varints_over_64_bits_or_10_bytes_are_refused),
        cmocka_unit_test(values_come_back),
        cmocka_unit_test(values_have_the_bytes_of_the_protocol),
        cmocka_unit_test(values_of_unknown_types_are_refused),
        cmocka_unit_test(only_integers_that_are_not_negative_are_unsigned),
        cmocka_unit_test(a_frame_is_found_at_every_split),
        cmocka_unit_test(a_length_is_judged_before_anything_else_is_there),
        cmocka_unit_test(ids_that_reach_over_the_frame_are_invalid),
        cmocka_unit_test(a_frame_that_does_not_fit_leaves_no_trace),
        cmocka_unit_test(messages_and_arguments_are_iterated),
        cmocka_unit_test(a_cut_message_is_never_handed_out),
        cmocka_unit_test(a_message_has_at_most_255_arguments),
        cmocka_unit_test(actions_have_the_bytes_of_the_protocol),
        cmocka_unit_test(actions_come_back_and_a_cut_one_does_not),
        cmocka_unit_test(malformed_actions_are_refused),
        cmocka_unit_test(names_that_haproxy_cannot_take_are_refused),
        cmocka_unit_test(hellos_of_every_haproxy_are_understood),
        cmocka_unit_test(bad_hellos_get_their_status),
        cmocka_unit_test(agreements_are_judged),
        cmocka_unit_test(disconnects_come_back),
        cmocka_unit_test(a_known_name_is_written_like_any_other),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
