/* SPDX-License-Identifier: MIT */
#include "tests/unit/support.h"

#include <openssl/ssl.h>

#include "spoa/proto/client_hello.h"

static uint8_t memory[CLIENT_HELLO_MAX];

static enum client_hello look(struct slice bytes, struct slice *name)
{
    struct slice copy = guarded(bytes);
    struct writer w = writer_of(memory, sizeof memory);
    enum client_hello said = client_hello_read(copy, &w, name);
    guarded_free(copy);
    return said;
}

/* Writes the first message of OpenSSL's client into out. */
static size_t hello_of(const char *name, int version, uint8_t out[static 4096])
{
    SSL_CTX *context = SSL_CTX_new(TLS_client_method());
    SSL_CTX_set_security_level(context, 0);
    assert_true(SSL_CTX_set_min_proto_version(context, version) &&
                SSL_CTX_set_max_proto_version(context, version));
    SSL *ssl = SSL_new(context);
    BIO *in = BIO_new(BIO_s_mem()), *wire = BIO_new(BIO_s_mem());
    SSL_set_bio(ssl, in, wire);
    if (name)
        assert_true(SSL_set_tlsext_host_name(ssl, name));
    assert_true(SSL_connect(ssl) < 0);
    int len = BIO_read(wire, out, 4096);
    assert_true(len > 0);
    SSL_free(ssl);
    SSL_CTX_free(context);
    return (size_t)len;
}

static void real_clients_are_read_wherever_they_are_cut(void **state)
{
    (void)state;
    static const int versions[] = {TLS1_VERSION, TLS1_2_VERSION, TLS1_3_VERSION};
    for (size_t v = 0; v < sizeof versions / sizeof *versions; v++)
        for (int named = 0; named < 2; named++) {
            uint8_t hello[4096];
            struct slice name;
            size_t len = hello_of(named ? "api.example.com" : NULL, versions[v], hello);
            for (size_t n = 0; n < len; n++)
                assert_int_equal(look(slice_of(hello, n), &name), CLIENT_HELLO_MORE);
            assert_int_equal(look(slice_of(hello, len), &name),
                             named ? CLIENT_HELLO_NAMED : CLIENT_HELLO_UNNAMED);
            assert_true(!named || slice_is(name, "api.example.com"));
            hello[len] = 0x17; /* something behind it */
            assert_int_equal(look(slice_of(hello, len + 1), &name),
                             named ? CLIENT_HELLO_NAMED : CLIENT_HELLO_UNNAMED);
        }
}

/* Writes the same message in records of `size` bytes. */
static size_t cut_into(const uint8_t *hello, size_t len, size_t size, uint8_t *out)
{
    size_t written = 0;
    for (size_t at = 5; at < len; at += size) {
        size_t part = len - at < size ? len - at : size;
        memcpy(out + written, hello, 3);
        out[written + 3] = (uint8_t)(part >> 8);
        out[written + 4] = (uint8_t)part;
        memcpy(out + written + 5, hello + at, part);
        written += 5 + part;
    }
    return written;
}

static void a_message_in_many_records_is_put_together(void **state)
{
    (void)state;
    uint8_t hello[4096], cut[32768];
    struct slice name;
    size_t len = hello_of("api.example.com", TLS1_3_VERSION, hello);
    static const size_t sizes[] = {1, 2, 3, 4, 5, 7, 64, 125, 126, 255};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        size_t whole = cut_into(hello, len, sizes[i], cut);
        for (size_t n = 0; n < whole; n++)
            assert_int_equal(look(slice_of(cut, n), &name), CLIENT_HELLO_MORE);
        assert_int_equal(look(slice_of(cut, whole), &name), CLIENT_HELLO_NAMED);
        assert_true(slice_is(name, "api.example.com"));
    }
}

static void other_protocols_are_foreign(void **state)
{
    (void)state;
    static const char *const others[] = {"GET / HTTP/1.1\r\n", "SSH-2.0-x\r\n", "\x10\x03\x01",
                                         "\x19\x03\x01",       "\x80\x2e\x02",  "EHLO x\r\n"};
    struct slice name;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        assert_int_equal(look(slice_text(others[i]), &name), CLIENT_HELLO_FOREIGN);
    assert_int_equal(look(slice_of("", 0), &name), CLIENT_HELLO_MORE);
}

/* Servers accept any version of a record, or any of 3.x (RFC 8446 section 5.1), so no version may hide the name. */
static void the_version_of_a_record_is_ignored(void **state)
{
    (void)state;
    static const uint8_t versions[][2] = {{3, 5}, {3, 255}, {2, 0}, {0, 0}, {255, 255}};
    uint8_t hello[4096];
    struct slice name;
    size_t len = hello_of("api.example.com", TLS1_3_VERSION, hello);
    for (size_t i = 0; i < sizeof versions / sizeof *versions; i++) {
        memcpy(hello + 1, versions[i], 2);
        for (size_t n = 0; n < len; n++)
            assert_int_equal(look(slice_of(hello, n), &name), CLIENT_HELLO_MORE);
        assert_int_equal(look(slice_of(hello, len), &name), CLIENT_HELLO_NAMED);
        assert_true(slice_is(name, "api.example.com"));
    }
}

/* The ClientHello of SSL 2.0, which servers of TLS 1.2 and before still take (RFC 5246 appendix E.2): it has no room for a
 * name. */
static void the_oldest_form_has_no_name(void **state)
{
    (void)state;
    static const uint8_t hello[] = {0x80, 0x1c, 1, 3, 3, 0, 3, 0, 0, 0, 16, 0, 0xc0, 0x2b};
    struct slice name;
    for (size_t n = 1; n < 3; n++)
        assert_int_equal(look(slice_of(hello, n), &name), CLIENT_HELLO_MORE);
    for (size_t n = 3; n <= sizeof hello; n++)
        assert_int_equal(look(slice_of(hello, n), &name), CLIENT_HELLO_UNNAMED);
}

/* No TLS client begins in this way, but a server may skip such a record. */
static void other_records_in_front_are_bad(void **state)
{
    (void)state;
    static const char *const records[] = {"\x14\x03\x03\x01", "\x15\x03\x01", "\x15", "\x17\x03\x03",
                                          "\x18\x09"};
    struct slice name;
    for (size_t i = 0; i < sizeof records / sizeof *records; i++)
        assert_int_equal(look(slice_text(records[i]), &name), CLIENT_HELLO_BAD);
}

static void a_malformed_hello_is_bad(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        size_t len;
    } cases[] = {
        {"\x16\x03\x01\x00\x00", 5},                              /* an empty record */
        {"\x16\x03\x01\x40\x01", 5},                              /* a record over 16384 bytes */
        {"\x16\x03\x01\x00\x04\x02\x00\x00\x00", 9},              /* another message */
        {"\x16\x03\x01\x00\x04\x01\x01\x00\x00", 9},              /* a message of 64 KiB */
        {"\x16\x03\x01\x00\x04\x01\x00\x00\x00", 9},              /* an empty one */
        {"\x16\x03\x01\x00\x01\x01\x17\x03\x03\x00\x01\x00", 12}, /* another kind of record within it */
    };
    struct slice name;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_int_equal(look(slice_of(cases[i].bytes, cases[i].len), &name), CLIENT_HELLO_BAD);
}

/* A message with one wrong length or one changed byte is never read beyond its end. */
static void changed_bytes_are_read_safely(void **state)
{
    (void)state;
    uint8_t hello[4096];
    struct slice name;
    size_t len = hello_of("api.example.com", TLS1_2_VERSION, hello), bad = 0;
    for (size_t i = 0; i < len; i++)
        for (unsigned change = 1; change < 256; change += change < 4 ? 1 : 31) {
            hello[i] ^= (uint8_t)change;
            bad += look(slice_of(hello, len), &name) == CLIENT_HELLO_BAD;
            hello[i] ^= (uint8_t)change;
        }
    assert_true(bad > 0);
}

/* Writes a ClientHello whose only extension is a server_name with these bytes. */
static enum client_hello with_extension(struct slice extensions, struct slice *name)
{
    uint8_t bytes[1024];
    struct writer w = writer_of(bytes, sizeof bytes);
    size_t body = 2 + 32 + 1 + 2 + 2 + 1 + 1 + 2 + extensions.len;
    writer_put(&w, slice_of("\x16\x03\x01", 3));
    writer_be(&w, body + 4, 2);
    writer_u8(&w, 1);
    writer_be(&w, body, 3);
    for (int i = 0; i < 34; i++)
        writer_u8(&w, 3);
    writer_put(&w, slice_of("\0\0\2\x13\1\1\0", 7));
    writer_be(&w, extensions.len, 2);
    writer_put(&w, extensions);
    return look(writer_slice(&w), name);
}

static void there_is_one_name(void **state)
{
    (void)state;
    struct slice name;
#define LIST(text) slice_of(text, sizeof(text) - 1)
    assert_int_equal(with_extension(LIST("\0\0\0\6\0\4\0\0\1a"), &name), CLIENT_HELLO_NAMED);
    assert_true(slice_is(name, "a"));
    assert_int_equal(with_extension(LIST("\0\5\0\0\0\0\0\6\0\4\0\0\1a"), &name), CLIENT_HELLO_NAMED);
    assert_int_equal(with_extension(LIST("\0\0\0\6\0\4\0\0\1a\0\0\0\6\0\4\0\0\1b"), &name), CLIENT_HELLO_BAD);
    assert_int_equal(with_extension(LIST("\0\0\0\12\0\10\0\0\1a\0\0\1b"), &name), CLIENT_HELLO_BAD);
    assert_int_equal(with_extension(LIST("\0\0\0\6\0\4\1\0\1a"), &name),
                     CLIENT_HELLO_BAD); /* no host's name */
    assert_int_equal(with_extension(LIST("\0\0\0\5\0\3\0\0\0"), &name), CLIENT_HELLO_BAD); /* empty */
    assert_int_equal(with_extension(LIST("\0\0\0\7\0\5\0\0\2a\0"), &name),
                     CLIENT_HELLO_BAD); /* a name with a NUL */
    assert_int_equal(with_extension(LIST("\0\0\0\2\0\0"), &name), CLIENT_HELLO_BAD);
    assert_int_equal(with_extension(LIST("\0\0\0\0"), &name), CLIENT_HELLO_BAD);
    assert_int_equal(with_extension(LIST("\0\0\0\6\0\3\0\0\1a"), &name), CLIENT_HELLO_BAD);
    assert_int_equal(with_extension(LIST("\0\0\0\7\0\4\0\0\1a"), &name), CLIENT_HELLO_BAD);
    assert_int_equal(with_extension(LIST("\0\5\0\0"), &name), CLIENT_HELLO_UNNAMED);
#undef LIST
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(real_clients_are_read_wherever_they_are_cut),
        cmocka_unit_test(a_message_in_many_records_is_put_together),
        cmocka_unit_test(other_protocols_are_foreign),
        cmocka_unit_test(the_version_of_a_record_is_ignored),
        cmocka_unit_test(the_oldest_form_has_no_name),
        cmocka_unit_test(other_records_in_front_are_bad),
        cmocka_unit_test(a_malformed_hello_is_bad),
        cmocka_unit_test(changed_bytes_are_read_safely),
        cmocka_unit_test(there_is_one_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
