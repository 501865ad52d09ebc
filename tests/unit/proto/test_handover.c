/* SPDX-License-Identifier: MIT */
#include "tests/unit/support.h"

#include "spoa/proto/handover.h"

static struct handover full(void)
{
    struct handover h = handover_none();
    h.route = SLICE_LITERAL("pty");
    h.sandbox = SLICE_LITERAL("sb;1=%\r\n \"\x80");
    h.session = SLICE_LITERAL("");
    h.port = 8080;
    h.epoch = INT64_MAX;
    h.exp = 0;
    h.addr = (struct address){4, {127, 0, 0, 1}};
    h.addr_port = 65535;
    h.tls = true;
    h.resume = HANDOVER_RESUME_CELL;
    h.end = HANDOVER_END_EXIT_JSON;
    h.keepalive = HANDOVER_KEEPALIVE_EMPTY_FRAME;
    h.strip = SLICE_LITERAL("X-A,Origin");
    h.close = true;
    h.refuse = 404;
    h.error = SLICE_LITERAL("sandbox_not_found");
    return h;
}

static bool decode(struct handover *h, struct slice text, uint8_t *memory, size_t size)
{
    struct writer w = writer_of(memory, size);
    struct fail why;
    return handover_decode(h, text, &w, &why);
}

static void an_encoded_handover_is_decoded_to_the_same(void **state)
{
    struct handover h = full(), back;
    uint8_t line[1024], memory[1024];
    struct writer w = writer_of(line, sizeof line);

    (void)state;
    handover_encode(&h, &w);
    assert_false(w.full);
    for (size_t i = 0; i < w.len; i++)
        assert_true(line[i] > ' ' && line[i] < 0x7f && line[i] != '"');
    struct slice text = guarded(writer_slice(&w));
    assert_true(decode(&back, text, memory, text.len));
#define SAME_TEXT(field)    assert_true(slice_equal(h.field, back.field) && !h.field.at == !back.field.at);
#define SAME_INT(field)     assert_true(h.field == back.field);
#define SAME_BOOL(field)    assert_true(h.field == back.field);
#define SAME_NAME(field)    assert_true(h.field == back.field);
#define SAME_ADDRESS(field) assert_memory_equal(&h.field, &back.field, sizeof h.field);
#define X(kind, field, key) SAME_##kind(field)
    HANDOVER_FIELDS(X)
#undef X
    guarded_free(text);
}

static void a_packed_handover_is_unpacked_to_the_same(void **state)
{
    static uint8_t longest[70000], memory[sizeof longest + HANDOVER_PACKED_MAX];
    const size_t lengths[] = {0, 1, 254, 255, 256, 65535, 65536, sizeof longest};

    (void)state;
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        struct handover h = full(), back;
        struct writer w = writer_of(memory, sizeof memory);
        h.host = slice_of(longest, lengths[i]);
        h.addr.family = i % 2 ? 6 : 4;
        handover_pack(&h, &w);
        assert_false(w.full);
        struct slice packed = guarded(writer_slice(&w));
        back = handover_unpack(packed);
#define X(kind, field, key) SAME_##kind(field)
        HANDOVER_FIELDS(X)
#undef X
        guarded_free(packed);
    }
    struct handover h = handover_none(), back;
    struct writer w = writer_of(memory, sizeof memory);
    handover_pack(&h, &w);
    assert_int_equal(w.len, 8);
    back = handover_unpack(writer_slice(&w));
#define X(kind, field, key) SAME_##kind(field)
    HANDOVER_FIELDS(X)
#undef X
}

/* With every field at its longest, HANDOVER_PACKED_MAX bytes in addition to the texts are enough. */
static void all_that_is_not_text_fits(void **state)
{
    static uint8_t text[300], memory[sizeof text * 64 + HANDOVER_PACKED_MAX];
    struct handover h = handover_none();
    size_t texts = 0;
#define FILL_TEXT(field)    h.field = slice_of(text, sizeof text), texts += sizeof text;
#define FILL_INT(field)     h.field = INT64_MAX;
#define FILL_BOOL(field)    h.field = true;
#define FILL_NAME(field)    h.field = 1;
#define FILL_ADDRESS(field) h.field.family = 6;
#define X(kind, field, key) FILL_##kind(field)
    HANDOVER_FIELDS(X)
#undef X
    struct writer w = writer_of(memory, texts + HANDOVER_PACKED_MAX);
    (void)state;
    handover_pack(&h, &w);
    assert_false(w.full);
}

static void an_ipv6_address_survives(void **state)
{
    struct handover h = handover_none(), back;
    uint8_t line[256], memory[256];
    struct writer w = writer_of(line, sizeof line);

    (void)state;
    h.addr = (struct address){6, {0xfd, [15] = 7}};
    handover_encode(&h, &w);
    assert_true(decode(&back, writer_slice(&w), memory, sizeof memory));
    assert_memory_equal(&h.addr, &back.addr, sizeof h.addr);
}

static void a_line_that_does_not_fit_is_told(void **state)
{
    struct handover h = full();
    uint8_t line[1024];
    struct writer whole = writer_of(line, sizeof line);

    (void)state;
    handover_encode(&h, &whole);
    for (size_t size = 0; size < whole.len; size++) {
        struct writer w = writer_of(line, size);
        handover_encode(&h, &w);
        assert_true(w.full);
    }
}

static void keys_of_a_newer_agent_are_skipped(void **state)
{
    struct handover h;
    uint8_t memory[64];

    (void)state;
    assert_true(decode(&h, SLICE_LITERAL("route=a;shiny=%zz;port=7"), memory, sizeof memory));
    assert_int_equal(h.port, 7);
    assert_int_equal(h.iat, -1);
    assert_false(slice_present(h.sandbox));
}

static void bad_lines_are_refused(void **state)
{
    static const char *const bad[] = {
        "route",
        "route=a;;port=1",
        "route=%4",
        "route=%zz",
        "route=%aF",
        "route=a b",
        "port=",
        "port=-1",
        "port=1x",
        "tls=0",
        "tls=true",
        "addr=1.2.3",
        "addr=%3A",
        "resume=maybe",
        "epoch=1;epoch=1",
        "route=a;route=a",
        "addr=1.2.3.4.5.6.7.8.9.10.11.12.13.14.15.16.17.18.19.20",
        "port=9223372036854775808",
        ";",
    };
    struct handover h;
    uint8_t memory[64];

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        if (decode(&h, slice_text(bad[i]), memory, sizeof memory))
            fail_msg("accepted: %s", bad[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_encoded_handover_is_decoded_to_the_same),
        cmocka_unit_test(a_packed_handover_is_unpacked_to_the_same),
        cmocka_unit_test(all_that_is_not_text_fits),
        cmocka_unit_test(an_ipv6_address_survives),
        cmocka_unit_test(a_line_that_does_not_fit_is_told),
        cmocka_unit_test(keys_of_a_newer_agent_are_skipped),
        cmocka_unit_test(bad_lines_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
