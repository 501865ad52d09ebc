/* SPDX-License-Identifier: MIT */
#include "tests/unit/support.h"

#include "spoa/agent/token/inside_proof.h"
#include "spoa/proto/proxy_header.h"

static struct key *key_of(const char *secret)
{
    struct fail why;
    struct key *key = key_secret(slice_text(secret), 32, "test", &why);
    assert_non_null(key);
    return key;
}

static struct inside_connection connection(void)
{
    return (struct inside_connection){.id = SLICE_LITERAL("id-1"),
                                      .name = SLICE_LITERAL("team/sb-1"),
                                      .host = SLICE_LITERAL("api.example.org"),
                                      .port = 443,
                                      .addr = {.family = 4, .bytes = {192, 0, 2, 7}},
                                      .owner = "owner",
                                      .issued = 1000,
                                      .until = 2000};
}

/* What HAProxy tells of the connection beside its unique id. */
static struct inside_connection place_of(const struct inside_connection *c)
{
    return (struct inside_connection){.host = c->host, .port = c->port, .addr = c->addr};
}

static void what_was_written_is_read(void **state)
{
    struct key *key = key_of("0123456789abcdef0123456789abcdef");
    const int64_t ends[] = {2000, 0, -1};
    const char *const ids[] = {"id-1", ""};
    (void)state;
    for (size_t i = 0; i < 6; i++) {
        uint8_t memory[PROXY_UNIQUE_ID_MAX];
        struct writer w = writer_of(memory, sizeof memory);
        struct inside_connection c = connection(), found = place_of(&c);
        c.until = ends[i % 3];
        c.id = slice_text(ids[i / 3]);
        struct slice text = inside_proof_write(key, &c, &w);
        assert_int_equal(text.len, INSIDE_PROOF_TEXT + INSIDE_PROOF_SPACES + c.id.len + c.name.len);
        assert_true(inside_proof_read(key, text, &found));
        assert_true(slice_equal(found.id, c.id) && slice_equal(found.name, c.name));
        assert_int_equal(found.issued, c.issued);
        assert_int_equal(found.until, c.until);
        assert_memory_equal(found.owner, c.owner, sizeof c.owner);
    }
    key_free(key);
}

static void another_place_is_not(void **state)
{
    uint8_t memory[PROXY_UNIQUE_ID_MAX];
    struct writer w = writer_of(memory, sizeof memory);
    struct key *key = key_of("0123456789abcdef0123456789abcdef"),
               *other = key_of("0123456789abcdef0123456789abcdeF");
    struct inside_connection c = connection(), found = place_of(&c);
    struct slice text = inside_proof_write(key, &c, &w);
    (void)state;
    assert_false(inside_proof_read(other, text, &found));
    assert_false(inside_proof_read(NULL, text, &found));
    found = place_of(&c);
    found.host = SLICE_LITERAL("api.example.or");
    assert_false(inside_proof_read(key, text, &found));
    found = place_of(&c);
    found.port++;
    assert_false(inside_proof_read(key, text, &found));
    found = place_of(&c);
    found.addr.bytes[3]++;
    assert_false(inside_proof_read(key, text, &found));
    found = place_of(&c);
    found.addr.family = 6;
    assert_false(inside_proof_read(key, text, &found));
    found = place_of(&c);
    found.addr.family = 0;
    assert_false(inside_proof_read(key, text, &found));
    found = place_of(&c);
    assert_true(inside_proof_read(key, text, &found));
    key_free(key);
    key_free(other);
}

static void no_byte_of_it_may_change_or_be_missing(void **state)
{
    uint8_t memory[PROXY_UNIQUE_ID_MAX];
    struct writer w = writer_of(memory, sizeof memory);
    struct key *key = key_of("0123456789abcdef0123456789abcdef");
    struct inside_connection c = connection(), found = place_of(&c);
    struct slice text = inside_proof_write(key, &c, &w);
    (void)state;
    for (size_t i = 0; i < text.len; i++) {
        assert_false(inside_proof_read(key, slice_sub(text, 0, i), &found));
        for (unsigned bit = 0; bit < 8; bit++) {
            memory[i] ^= (uint8_t)(1u << bit);
            assert_false(inside_proof_read(key, text, &found));
            memory[i] ^= (uint8_t)(1u << bit);
        }
    }
    assert_true(inside_proof_read(key, text, &found));
    key_free(key);
}

static void what_does_not_fit_is_not_written(void **state)
{
    uint8_t memory[PROXY_UNIQUE_ID_MAX];
    struct key *key = key_of("0123456789abcdef0123456789abcdef");
    struct inside_connection c = connection();
    (void)state;
    for (size_t size = 0; size < INSIDE_PROOF_TEXT + INSIDE_PROOF_SPACES + c.id.len + c.name.len; size++) {
        struct writer w = writer_of(memory, size);
        assert_false(slice_present(inside_proof_write(key, &c, &w)));
    }
    struct writer w = writer_of(memory, sizeof memory);
    assert_false(slice_present(inside_proof_write(NULL, &c, &w)));
    c.id = SLICE_LITERAL("id 1"); /* its rest would be read as the name */
    assert_false(slice_present(inside_proof_write(key, &c, &w)));
    key_free(key);
}

static void each_owner_has_a_mark_of_its_own(void **state)
{
    const struct slice orgs[] = {{NULL, 0}, SLICE_LITERAL("a"), SLICE_LITERAL("b"), SLICE_LITERAL("ab")};
    struct key *keys[] = {key_of("0123456789abcdef0123456789abcdef"),
                          key_of("0123456789abcdef0123456789abcdeF")};
    uint8_t marks[8][INSIDE_PROOF_OWNER], again[INSIDE_PROOF_OWNER];
    (void)state;
    for (size_t i = 0; i < 8; i++) {
        assert_true(inside_proof_owner(keys[i / 4], orgs[i % 4], marks[i]));
        assert_true(inside_proof_owner(keys[i / 4], orgs[i % 4], again));
        assert_memory_equal(marks[i], again, sizeof again);
        for (size_t j = 0; j < i; j++)
            assert_memory_not_equal(marks[i], marks[j], sizeof again);
    }
    assert_true(inside_proof_owner(keys[0], SLICE_LITERAL(""), again));
    assert_memory_equal(again, marks[0], sizeof again);
    assert_false(inside_proof_owner(NULL, orgs[1], again));
    key_free(keys[0]);
    key_free(keys[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_written_is_read),
        cmocka_unit_test(another_place_is_not),
        cmocka_unit_test(no_byte_of_it_may_change_or_be_missing),
        cmocka_unit_test(what_does_not_fit_is_not_written),
        cmocka_unit_test(each_owner_has_a_mark_of_its_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
