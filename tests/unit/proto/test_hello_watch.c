/* SPDX-License-Identifier: MIT */
/* OpenSSL's client and server shake hands through the watch. */
#include "tests/unit/support.h"

#include <openssl/ssl.h>

#include "spoa/proto/hello_watch.h"

#define FIRST  "api.example.com"
#define SECOND "other.example.com"

enum { WIRE = 16384, HELLOS = 4 };

struct link {
    struct hello_watch watch;
    struct slice names[HELLOS];
    uint8_t texts[HELLOS][64];
    unsigned hellos; /* that were read */
    bool bad;
    uint8_t wire[WIRE]; /* the client's bytes that were not cleared yet */
    size_t len;
};

static void note(struct link *l, struct slice name)
{
    assert_true(l->hellos < HELLOS && name.len <= sizeof l->texts[0]);
    if (name.len)
        memcpy(l->texts[l->hellos], name.at, name.len);
    l->names[l->hellos] = slice_of(l->texts[l->hellos], name.len);
    l->hellos++;
}

/* Forwards both sides as the relay does. */
static void look(struct link *l)
{
    static uint8_t memory[CLIENT_HELLO_MAX];
    enum client_hello said;
    do {
        struct writer w = writer_of(memory, sizeof memory);
        struct slice name, copy = guarded(slice_of(l->wire, l->len));
        size_t clear;
        said = hello_watch_client(&l->watch, copy, &w, &name, &clear);
        guarded_free(copy);
        assert_true(clear <= l->len);
        memmove(l->wire, l->wire + clear, l->len - clear);
        l->len -= clear;
        if (said == CLIENT_HELLO_NAMED || said == CLIENT_HELLO_UNNAMED)
            note(l, name);
        l->bad = l->bad || said == CLIENT_HELLO_BAD;
    } while (said == CLIENT_HELLO_NAMED || said == CLIENT_HELLO_UNNAMED);
}

static void client_says(struct link *l, struct slice bytes, size_t piece)
{
    for (size_t at = 0; at < bytes.len; at += piece) {
        struct slice part = slice_sub(bytes, at, piece);
        assert_true(part.len <= sizeof l->wire - l->len);
        memcpy(l->wire + l->len, part.at, part.len);
        l->len += part.len;
        look(l);
    }
}

static void server_says(struct link *l, struct slice bytes, size_t piece)
{
    for (size_t at = 0; at < bytes.len; at += piece) {
        struct slice copy = guarded(slice_sub(bytes, at, piece));
        hello_watch_server(&l->watch, copy);
        guarded_free(copy);
    }
    look(l);
}

/* ---- OpenSSL ---- */

static EVP_PKEY *key;
static X509 *certificate;

static int make_certificate(void **state)
{
    (void)state;
    key = EVP_EC_gen("P-384");
    certificate = X509_new();
    X509_gmtime_adj(X509_getm_notBefore(certificate), 0);
    X509_gmtime_adj(X509_getm_notAfter(certificate), 3600);
    return X509_set_pubkey(certificate, key) && X509_sign(certificate, key, EVP_sha256()) ? 0 : -1;
}

static int free_certificate(void **state)
{
    (void)state;
    X509_free(certificate);
    EVP_PKEY_free(key);
    return 0;
}

struct ends {
    SSL_CTX *contexts[2];
    SSL *client, *server;
};

static SSL *end_of(SSL_CTX *context, int version, const char *groups)
{
    assert_true(SSL_CTX_set_min_proto_version(context, version) &&
                SSL_CTX_set_max_proto_version(context, version) && SSL_CTX_set1_groups_list(context, groups));
    SSL *ssl = SSL_new(context);
    SSL_set_bio(ssl, BIO_new(BIO_s_mem()), BIO_new(BIO_s_mem()));
    return ssl;
}

static struct ends ends_of(int version, const char *server_groups)
{
    struct ends e = {.contexts = {SSL_CTX_new(TLS_client_method()), SSL_CTX_new(TLS_server_method())}};
    assert_true(SSL_CTX_use_certificate(e.contexts[1], certificate) &&
                SSL_CTX_use_PrivateKey(e.contexts[1], key));
    e.client = end_of(e.contexts[0], version, "X25519:P-384");
    e.server = end_of(e.contexts[1], version, server_groups);
    SSL_set_connect_state(e.client);
    SSL_set_accept_state(e.server);
    assert_true(SSL_set_tlsext_host_name(e.client, FIRST));
    return e;
}

static void free_ends(struct ends *e)
{
    SSL_free(e->client);
    SSL_free(e->server);
    SSL_CTX_free(e->contexts[0]);
    SSL_CTX_free(e->contexts[1]);
}

static struct slice said_by(SSL *ssl, uint8_t memory[static WIRE])
{
    int len = BIO_read(SSL_get_wbio(ssl), memory, WIRE);
    return slice_of(memory, len > 0 ? (size_t)len : 0);
}

/* `second` is the name in the client's second ClientHello, after the server's HelloRetryRequest. */
static void shake_hands(struct ends *e, struct link *l, const char *second, size_t piece)
{
    uint8_t memory[WIRE];
    for (int turn = 0; !SSL_is_init_finished(e->client) || !SSL_is_init_finished(e->server); turn++) {
        assert_true(turn < 10);
        (void)SSL_do_handshake(e->client);
        struct slice said = said_by(e->client, memory);
        client_says(l, said, piece);
        BIO_write(SSL_get_rbio(e->server), said.at, (int)said.len);
        (void)SSL_do_handshake(e->server);
        said = said_by(e->server, memory);
        server_says(l, said, piece);
        BIO_write(SSL_get_rbio(e->client), said.at, (int)said.len);
        assert_true(SSL_set_tlsext_host_name(e->client, second));
    }
}

static const size_t pieces[] = {1, 2, 7, 43, WIRE};

static void a_handshake_has_one_hello(void **state)
{
    (void)state;
    static const int versions[] = {TLS1_2_VERSION, TLS1_3_VERSION};
    for (size_t v = 0; v < sizeof versions / sizeof *versions; v++)
        for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) {
            struct link l = {.len = 0};
            struct ends e = ends_of(versions[v], "X25519:P-384");
            shake_hands(&e, &l, FIRST, pieces[i]);
            assert_true(l.watch.done && !l.bad && l.len == 0);
            assert_int_equal(l.hellos, 1);
            free_ends(&e);
        }
}

/* In TLS 1.2 the client's encrypted Finished looks like a handshake message, which the watch must let pass by then. */
static void a_session_that_is_resumed_has_one_hello(void **state)
{
    (void)state;
    struct ends first = ends_of(TLS1_2_VERSION, "X25519:P-384");
    struct link l = {.len = 0};
    shake_hands(&first, &l, FIRST, WIRE);
    for (int i = 0; i < 600; i++) {
        struct ends e = first;
        l = (struct link){.len = 0};
        e.client = end_of(e.contexts[0], TLS1_2_VERSION, "X25519:P-384");
        e.server = end_of(e.contexts[1], TLS1_2_VERSION, "X25519:P-384");
        SSL_set_connect_state(e.client);
        SSL_set_accept_state(e.server);
        assert_true(SSL_set_tlsext_host_name(e.client, FIRST) &&
                    SSL_set_session(e.client, SSL_get_session(first.client)));
        shake_hands(&e, &l, FIRST, WIRE);
        assert_true(SSL_session_reused(e.client));
        assert_true(l.watch.done && !l.bad && l.len == 0);
        assert_int_equal(l.hellos, 1);
        /* without this the session could not be resumed */
        SSL_set_shutdown(e.client, SSL_SENT_SHUTDOWN | SSL_RECEIVED_SHUTDOWN);
        SSL_free(e.client);
        SSL_free(e.server);
    }
    free_ends(&first);
}

static void behind_a_retry_there_is_another_hello(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) {
        struct link l = {.len = 0};
        struct ends e = ends_of(TLS1_3_VERSION, "P-384");
        shake_hands(&e, &l, SECOND, pieces[i]);
        assert_true(l.watch.done && !l.bad && l.len == 0);
        assert_int_equal(l.hellos, 2);
        assert_true(slice_is(l.names[0], FIRST) && slice_is(l.names[1], SECOND));
        free_ends(&e);
    }
}

/* ---- clients that try to hide a second name ---- */

static size_t hello_of(const char *name, uint8_t out[static 4096])
{
    struct ends e = ends_of(TLS1_3_VERSION, "P-384");
    assert_true(SSL_set_tlsext_host_name(e.client, name));
    (void)SSL_do_handshake(e.client);
    int len = BIO_read(SSL_get_wbio(e.client), out, 4096);
    assert_true(len > 0);
    free_ends(&e);
    return (size_t)len;
}

/* Writes both messages, given without record heads, in records of `size` bytes. */
static void put_records(struct writer *w, struct slice messages, size_t size)
{
    for (size_t at = 0; at < messages.len; at += size) {
        struct slice part = slice_sub(messages, at, size);
        writer_put(w, slice_of("\x16\x03\x03", 3));
        writer_be(w, part.len, 2);
        writer_put(w, part);
    }
}

/* Both names are found before the server has answered, with any records between the two messages, and however they are cut. */
static void a_second_hello_is_read_wherever_it_stands(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        size_t len;
    } between[] = {{"", 0},
                   {"\x14\x03\x03\0\1\1", 6},     /* a client of TLS 1.3 sends it for old middleboxes */
                   {"\x17\x03\x03\0\5early", 10}, /* early data, which the server skips */
                   {"\x15\x03\x03\0\2\1\x5a\x18\x03\x03\0\0\x17\x03\x03\0\1e", 18}};
    static const size_t sizes[] = {1, 3, 64, 255, 1024, WIRE};
    uint8_t first[4096], second[4096], memory[WIRE];
    size_t first_len = hello_of(FIRST, first), second_len = hello_of(SECOND, second);
    for (size_t b = 0; b < sizeof between / sizeof *between; b++)
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
            for (size_t p = 0; p < sizeof pieces / sizeof *pieces; p++) {
                struct link l = {.len = 0};
                struct writer w = writer_of(memory, sizeof memory);
                put_records(&w, slice_of(first + 5, first_len - 5), sizes[s]);
                writer_put(&w, slice_of(between[b].bytes, between[b].len));
                put_records(&w, slice_of(second + 5, second_len - 5), sizes[s]);
                assert_false(w.full);
                client_says(&l, writer_slice(&w), pieces[p]);
                assert_true(!l.bad && l.len == 0);
                assert_int_equal(l.hellos, 2);
                assert_true(slice_is(l.names[0], FIRST) && slice_is(l.names[1], SECOND));
            }
}

static void two_hellos_in_one_record_are_both_read(void **state)
{
    (void)state;
    uint8_t first[4096], second[4096], both[8192], memory[WIRE];
    size_t first_len = hello_of(FIRST, first) - 5, second_len = hello_of(SECOND, second) - 5;
    memcpy(both, first + 5, first_len);
    memcpy(both + first_len, second + 5, second_len);
    static const size_t sizes[] = {5, 100, 333, 1024, WIRE};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        for (size_t p = 0; p < sizeof pieces / sizeof *pieces; p++) {
            struct link l = {.len = 0};
            struct writer w = writer_of(memory, sizeof memory);
            put_records(&w, slice_of(both, first_len + second_len), sizes[s]);
            client_says(&l, writer_slice(&w), pieces[p]);
            assert_true(!l.bad && l.len == 0 && !l.watch.done);
            assert_int_equal(l.hellos, 2);
            assert_true(slice_is(l.names[1], SECOND));
        }
}

/* No byte of the second ClientHello is cleared before its name was read. */
static void half_a_hello_waits(void **state)
{
    (void)state;
    struct link l = {.len = 0};
    uint8_t first[4096], second[4096];
    size_t first_len = hello_of(FIRST, first), second_len = hello_of(SECOND, second);
    client_says(&l, slice_of(first, first_len), WIRE);
    client_says(&l, slice_of(second, second_len - 1), 1);
    assert_int_equal(l.hellos, 1);
    assert_int_equal(l.len, second_len - 1);
    client_says(&l, slice_of(second + second_len - 1, 1), 1);
    assert_int_equal(l.hellos, 2);
    assert_int_equal(l.len, 0);
}

static void other_handshake_records_before_the_answer_are_bad(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        size_t len;
    } cases[] = {
        {"\x16\x03\x03\0\4\x10\0\0\0", 9},         /* another message */
        {"\x16\x03\x03\0\0", 5},                   /* an empty record */
        {"\x16\x03\x03\0\4\1\1\0\0", 9},           /* a message of 64 KiB */
        {"\x16\x03\x03\0\1\1\x14\x03\x03\0\1", 11} /* another record within a message */
    };
    uint8_t first[4096];
    size_t len = hello_of(FIRST, first);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct link l = {.len = 0};
        client_says(&l, slice_of(first, len), WIRE);
        assert_false(l.bad);
        client_says(&l, slice_of(cases[i].bytes, cases[i].len), 1);
        assert_true(l.bad);
    }
}

/* ---- answers ---- */

static bool is_done_behind(struct slice answer, size_t piece)
{
    struct link l = {.len = 0};
    uint8_t first[4096];
    size_t len = hello_of(FIRST, first);
    server_says(&l, SLICE_LITERAL("220 ready\r\n"), piece); /* bytes before a ClientHello do not answer it */
    assert_false(l.watch.done);
    client_says(&l, slice_of(first, len), WIRE);
    server_says(&l, answer, piece);
    return l.watch.done;
}

static void only_a_retry_lets_it_look_on(void **state)
{
    (void)state;
    static const char random[] = "\xcf\x21\xad\x74\xe5\x9a\x61\x11\xbe\x1d\x8c\x02\x1e\x65\xb8\x91"
                                 "\xc2\xa2\x11\x16\x7a\xbb\x8c\x5e\x07\x9e\x09\xe2\xc8\xa8\x33\x9c";
    uint8_t retry[38] = {2, 0, 0, 34, 3, 3}, memory[512];
    memcpy(retry + 6, random, 32);
    for (size_t p = 0; p < sizeof pieces / sizeof *pieces; p++)
        for (size_t size = 1; size <= sizeof retry; size++) {
            struct writer w = writer_of(memory, sizeof memory);
            writer_put(&w, slice_of("\x15\x03\x03\0\2\1\x70", 7)); /* a warning before the answer */
            put_records(&w, slice_of(retry, sizeof retry), size);
            assert_false(is_done_behind(writer_slice(&w), pieces[p]));
            assert_false(is_done_behind(slice_sub(writer_slice(&w), 0, w.len - 1), pieces[p]));
            w.at[w.len - 1] ^= 1;
            assert_true(is_done_behind(writer_slice(&w), pieces[p]));
        }
    assert_true(is_done_behind(SLICE_LITERAL("HTTP/1.1 400 Bad Request\r\n"), 1));
}

static void bytes_that_are_not_tls_are_not_watched(void **state)
{
    (void)state;
    static const char *const others[] = {"GET / HTTP/1.1\r\n", "\x80\x1c\x01\x03\x03"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        struct link l = {.len = 0};
        client_says(&l, slice_text(others[i]), 1);
        assert_true(l.watch.done && l.len == 0);
        assert_int_equal(l.hellos, i);
    }
    struct link off = {.watch = {.done = true}};
    client_says(&off, slice_of("\x16\x03\x03\0\0", 5), 1);
    assert_true(!off.bad && off.len == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_handshake_has_one_hello),
        cmocka_unit_test(a_session_that_is_resumed_has_one_hello),
        cmocka_unit_test(behind_a_retry_there_is_another_hello),
        cmocka_unit_test(a_second_hello_is_read_wherever_it_stands),
        cmocka_unit_test(two_hellos_in_one_record_are_both_read),
        cmocka_unit_test(half_a_hello_waits),
        cmocka_unit_test(other_handshake_records_before_the_answer_are_bad),
        cmocka_unit_test(only_a_retry_lets_it_look_on),
        cmocka_unit_test(bytes_that_are_not_tls_are_not_watched),
    };
    return cmocka_run_group_tests(tests, make_certificate, free_certificate);
}
