/* SPDX-License-Identifier: MIT */
#include "tests/unit/support.h"

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "spoa/agent/token/jws.h"
#include "spoa/base/text/base64url.h"

/* The keys and tokens of RFC 7515 appendices A.1 and A.3, and of RFC 8037 appendix A. */
#define HMAC_KEY "AyM1SysPpbyDfgZld3umj1qzKObwVMkoqQ-EstJQLr_T-1qS0gZH75aKtMN3Yj0iPS4hcgUuTwjAzZr1Z9CAow"
#define EC_XY                                                                       \
    "\"x\":\"f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU\",\"y\":\"x_FEzRu9m36HLN_" \
    "tue659LNpXW6pCyStikYjKIWI5a0\""
#define EC_D       "\"d\":\"jpsQnnGQmL-YBIffH1136cspYG6-0iY7X1fCE9-E9LI\""
#define EC_PUBLIC  "{\"kty\":\"EC\",\"crv\":\"P-256\"," EC_XY "}"
#define EC_PRIVATE "{\"kty\":\"EC\",\"crv\":\"P-256\"," EC_XY "," EC_D "}"
#define ED_X       "\"x\":\"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo\""
#define ED_D       "\"d\":\"nWGxne_9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2A\""
#define ED_PUBLIC  "{\"kty\":\"OKP\",\"crv\":\"Ed25519\"," ED_X "}"
#define ED_PRIVATE "{\"kty\":\"OKP\",\"crv\":\"Ed25519\"," ED_X "," ED_D "}"
#define JOE        "eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ"
#define HMAC_TOKEN \
    "eyJ0eXAiOiJKV1QiLA0KICJhbGciOiJIUzI1NiJ9." JOE ".dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"
#define EC_TOKEN                \
    "eyJhbGciOiJFUzI1NiJ9." JOE \
    ".DtEhU3ljbEg8L38VWAfUAqOyKAM6-Xx-F4GawxaepmXFCgfTjDxw5djxLa8ISlSApmWQxfKTUJqPP3-Kg6NU1Q"
#define ED_TOKEN                                                \
    "eyJhbGciOiJFZERTQSJ9.RXhhbXBsZSBvZiBFZDI1NTE5IHNpZ25pbmc." \
    "hgyY0il_MGCjP0JzlnLWG1PPOt7-09PGcvMg3AIbQR6dWbhijcNR4ki4iylGjg5BhVsPt9g7sVvpAr_MuM0KAg"

static struct key *pair(const char *text, enum key_algorithm algorithm, enum key_part part)
{
    struct fail why;
    return key_pair(slice_text(text), algorithm, part, "file", &why);
}

static struct key *hmac_key(void)
{
    uint8_t bytes[64];
    struct writer w = writer_of(bytes, sizeof(bytes));
    struct fail why;
    assert_true(base64url_decode(slice_text(HMAC_KEY), &w));
    return key_secret(writer_slice(&w), KEY_SECRET, "file", &why);
}

static bool token_verifies(const struct key *key, struct slice token)
{
    struct jws jws;
    const char *reason;
    struct slice g = guarded(token);
    bool good = jws_open(g, &jws, &reason) == JWS_GOOD;
    if (good) {
        enum key_result result = jws_verify(&jws, key);
        assert_int_not_equal(result, KEY_MEMORY);
        good = result == KEY_GOOD;
        jws_close(&jws);
    }
    guarded_free(g);
    return good;
}

static void rfc_vectors_verify_with_their_key_and_no_other(void **state)
{
    struct key *keys[] = {hmac_key(), pair(EC_PUBLIC, KEY_ES256, KEY_PUBLIC),
                          pair(ED_PUBLIC, KEY_EDDSA, KEY_PUBLIC)};
    static const char *const tokens[] = {HMAC_TOKEN, EC_TOKEN, ED_TOKEN};
    for (size_t i = 0; i < 3; i++)
        for (size_t j = 0; j < 3; j++)
            assert_int_equal(token_verifies(keys[i], slice_text(tokens[j])), i == j);
    for (size_t i = 0; i < 3; i++)
        key_free(keys[i]);
    (void)state;
}

static void every_changed_character_of_a_vector_is_refused(void **state)
{
    struct key *keys[] = {hmac_key(), pair(EC_PUBLIC, KEY_ES256, KEY_PUBLIC),
                          pair(ED_PUBLIC, KEY_EDDSA, KEY_PUBLIC)};
    static const char *const tokens[] = {HMAC_TOKEN, EC_TOKEN, ED_TOKEN};
    for (size_t i = 0; i < 3; i++) {
        struct slice token = slice_text(tokens[i]);
        char *changed = slice_dup(token);
        for (size_t at = 0; at < token.len; at++) {
            changed[at] ^= 1;
            assert_false(token_verifies(keys[i], slice_of(changed, token.len)));
            changed[at] ^= 1;
        }
        for (size_t len = 0; len < token.len; len++)
            assert_false(token_verifies(keys[i], slice_of(changed, len)));
        free(changed);
        key_free(keys[i]);
    }
    (void)state;
}

static void what_is_signed_verifies_with_the_public_part_only_of_its_pair(void **state)
{
    static const struct {
        const char *private, *public;
        enum key_algorithm algorithm;
    } pairs[] = {{EC_PRIVATE, EC_PUBLIC, KEY_ES256}, {ED_PRIVATE, ED_PUBLIC, KEY_EDDSA}};
    for (size_t i = 0; i < 2; i++) {
        struct key *private = pair(pairs[i].private, pairs[i].algorithm, KEY_PRIVATE);
        struct key *public = pair(pairs[i].public, pairs[i].algorithm, KEY_PUBLIC);
        uint8_t memory[512];
        struct writer w = writer_of(memory, sizeof(memory));
        assert_non_null(private);
        assert_true(key_matches(public, private));
        for (int n = 0; n < 50; n++) { /* ES256 draws a number each time; short ones must be padded */
            w.len = 0;
            assert_true(jws_sign(private, SLICE_LITERAL("k"), SLICE_LITERAL("{}"), &w));
            assert_true(token_verifies(public, writer_slice(&w)));
        }
        assert_false(jws_sign(public, SLICE_LITERAL("k"), SLICE_LITERAL("{}"), &w));
        key_free(private);
        key_free(public);
    }
    (void)state;
}

static void rfc8037_signature_is_made_again(void **state)
{
    struct key *key = pair(ED_PRIVATE, KEY_EDDSA, KEY_PRIVATE);
    uint8_t signature[64], text[90];
    struct writer s = writer_of(signature, sizeof(signature)), t = writer_of(text, sizeof(text));
    struct slice token = SLICE_LITERAL(ED_TOKEN);
    assert_true(key_sign(key, slice_sub(token, 0, token.len - 87), &s));
    base64url_encode(writer_slice(&s), &t);
    assert_true(slice_equal(writer_slice(&t), slice_from(token, token.len - 86)));
    key_free(key);
    (void)state;
}

static void a_signature_has_its_length_and_no_other(void **state)
{
    struct key *keys[] = {hmac_key(), pair(EC_PRIVATE, KEY_ES256, KEY_PRIVATE),
                          pair(ED_PRIVATE, KEY_EDDSA, KEY_PRIVATE)};
    for (size_t i = 0; i < 3; i++) {
        uint8_t memory[KEY_SIGNATURE + 1] = {0};
        struct writer w = writer_of(memory, sizeof(memory));
        assert_true(key_sign(keys[i], SLICE_LITERAL("data"), &w));
        for (size_t len = 0; len <= sizeof(memory); len++) {
            struct slice g = guarded(slice_of(memory, len));
            assert_int_equal(key_verify(keys[i], SLICE_LITERAL("data"), g),
                             len == w.len ? KEY_GOOD : KEY_BAD);
            guarded_free(g);
        }
        key_free(keys[i]);
    }
    (void)state;
}

static void a_writer_that_is_too_small_gets_no_token(void **state)
{
    struct key *key = hmac_key();
    uint8_t memory[256];
    struct writer whole = writer_of(memory, sizeof(memory));
    assert_true(jws_sign(key, SLICE_LITERAL("k"), SLICE_LITERAL("{}"), &whole));
    for (size_t size = 0; size < whole.len; size++) {
        struct writer w = writer_of(memory, size);
        assert_false(jws_sign(key, SLICE_LITERAL("k"), SLICE_LITERAL("{}"), &w));
    }
    assert_false(jws_sign(key, SLICE_LITERAL("k\"x"), SLICE_LITERAL("{}"), &whole));
    key_free(key);
    (void)state;
}

/* ---- loading ---- */

static void secrets_are_bytes_with_a_length(void **state)
{
    uint8_t nul[32] = {0};
    struct fail why;
    assert_null(key_secret(slice_of(nul, 31), KEY_SECRET, "short.secret", &why));
    assert_non_null(strstr(why.text, "short.secret"));
    assert_null(key_secret(slice_of(nul, 0), 0, "empty", &why));
    struct key *thirty_two = key_secret(slice_of(nul, 32), KEY_SECRET, "nul", &why);
    struct key *one = key_secret(slice_of("x", 1), 1, "one", &why);
    assert_non_null(thirty_two);
    assert_int_equal(key_secret_length(thirty_two), 32);
    assert_false(key_secret_ends_line(thirty_two));
    assert_non_null(one);
    key_free(thirty_two);
    key_free(one);
    struct key *line =
        key_secret(SLICE_LITERAL("0123456789abcdef0123456789abcdef\n"), KEY_SECRET, "line", &why);
    assert_true(key_secret_ends_line(line));
    key_free(line);
    (void)state;
}

static void unsuitable_jwks_are_refused(void **state)
{
    static const struct {
        const char *text;
        enum key_algorithm algorithm;
        enum key_part part;
    } bad[] = {
        {ED_PUBLIC, KEY_ES256, KEY_PUBLIC},
        {EC_PUBLIC, KEY_EDDSA, KEY_PUBLIC},
        {EC_PRIVATE, KEY_ES256, KEY_PUBLIC},
        {ED_PRIVATE, KEY_EDDSA, KEY_PUBLIC},
        {EC_PUBLIC, KEY_ES256, KEY_PRIVATE},
        {ED_PUBLIC, KEY_EDDSA, KEY_PRIVATE},
        {"{}", KEY_ES256, KEY_PUBLIC},
        {"{\"keys\":[" EC_PUBLIC "]}", KEY_ES256, KEY_PUBLIC},
        {EC_PUBLIC "x", KEY_ES256, KEY_PUBLIC},
        {"{\"kty\":\"EC\",\"crv\":\"P-384\"," EC_XY "}", KEY_ES256, KEY_PUBLIC},
        {"{\"kty\":\"EC\",\"crv\":\"P-256\",\"use\":\"enc\"," EC_XY "}", KEY_ES256, KEY_PUBLIC},
        {"{\"kty\":\"EC\",\"crv\":\"P-256\",\"key_ops\":[\"encrypt\"]," EC_XY "}", KEY_ES256, KEY_PUBLIC},
        {"{\"kty\":\"EC\",\"crv\":\"P-256\",\"alg\":\"ES384\"," EC_XY "}", KEY_ES256, KEY_PUBLIC},
        {"{\"kty\":\"EC\",\"crv\":\"P-256\",\"alg\":1," EC_XY "}", KEY_ES256, KEY_PUBLIC},
        /* not on the curve; too short; padded */
        {"{\"kty\":\"EC\",\"crv\":\"P-256\",\"x\":\"f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU\",\"y\":"
         "\"f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU\"}",
         KEY_ES256, KEY_PUBLIC},
        {"{\"kty\":\"OKP\",\"crv\":\"Ed25519\",\"x\":\"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcH\"}",
         KEY_EDDSA, KEY_PUBLIC},
        {"{\"kty\":\"OKP\",\"crv\":\"Ed25519\",\"x\":\"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo=\"}",
         KEY_EDDSA, KEY_PUBLIC},
        /* x and d of different pairs */
        {"{\"kty\":\"EC\",\"crv\":\"P-256\"," EC_XY ",\"d\":\"nWGxne_9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2A\"}",
         KEY_ES256, KEY_PRIVATE},
        {"{\"kty\":\"OKP\",\"crv\":\"Ed25519\"," ED_X
         ",\"d\":\"jpsQnnGQmL-YBIffH1136cspYG6-0iY7X1fCE9-E9LI\"}",
         KEY_EDDSA, KEY_PRIVATE},
        {"", KEY_ES256, KEY_PUBLIC},
        {"-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n", KEY_ES256, KEY_PUBLIC},
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        struct fail why = {""};
        struct slice g = guarded(slice_text(bad[i].text));
        struct key *key = key_pair(g, bad[i].algorithm, bad[i].part, "key.file", &why);
        guarded_free(g);
        if (key)
            fail_msg("number %zu was accepted: %s", i, bad[i].text);
        assert_non_null(strstr(why.text, "key.file"));
        assert_null(strstr(why.text, "nWGxne"));
    }
    (void)state;
}

static void purposes_that_fit_are_accepted(void **state)
{
    static const char *const good[] = {
        "{\"kty\":\"EC\",\"crv\":\"P-256\",\"alg\":\"ES256\",\"use\":\"sig\",\"kid\":\"any\"," EC_XY "}",
        " \r\n\t{\"kty\":\"EC\",\"crv\":\"P-256\",\"key_ops\":[\"sign\",\"verify\"],\"x5c\":[\"AAAA\"]," EC_XY
        "}",
    };
    for (size_t i = 0; i < sizeof(good) / sizeof(*good); i++) {
        struct key *key = pair(good[i], KEY_ES256, KEY_PUBLIC);
        assert_non_null(key);
        key_free(key);
    }
    (void)state;
}

static void write_pem(EVP_PKEY *pkey, bool private, const EVP_CIPHER *cipher, char *text, size_t size)
{
    BIO *bio = BIO_new(BIO_s_mem());
    if (private)
        PEM_write_bio_PKCS8PrivateKey(bio, pkey, cipher, "password", cipher ? 8 : 0, NULL, NULL);
    else
        PEM_write_bio_PUBKEY(bio, pkey);
    int len = BIO_read(bio, text, (int)size - 1);
    text[len] = '\0';
    BIO_free(bio);
}

static void pem_files_are_read_and_unsuitable_ones_refused(void **state)
{
    static const struct {
        const char *type, *group;
        bool fits[2]; /* ES256, EdDSA */
    } kinds[] = {{"EC", "P-256", {true, false}},      {"EC", "P-384", {false, false}},
                 {"EC", "secp256k1", {false, false}}, {"ED25519", NULL, {false, true}},
                 {"ED448", NULL, {false, false}},     {"X25519", NULL, {false, false}}};
    for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++) {
        char public[2000], private[2000], locked[2000], both[4000];
        EVP_PKEY *pkey =
            kinds[i].group ? EVP_EC_gen(kinds[i].group) : EVP_PKEY_Q_keygen(NULL, NULL, kinds[i].type);
        assert_non_null(pkey);
        write_pem(pkey, false, NULL, public, sizeof(public));
        write_pem(pkey, true, NULL, private, sizeof(private));
        write_pem(pkey, true, EVP_aes_128_cbc(), locked, sizeof(locked));
        EVP_PKEY_free(pkey);
        snprintf(both, sizeof(both), "%s%s", public, private);
        for (enum key_algorithm a = KEY_ES256; a <= KEY_EDDSA; a++) {
            struct key *verifies = pair(public, a, KEY_PUBLIC), *signs = pair(private, a, KEY_PRIVATE);
            assert_int_equal(verifies != NULL, kinds[i].fits[a - KEY_ES256]);
            assert_int_equal(signs != NULL, kinds[i].fits[a - KEY_ES256]);
            assert_null(pair(private, a, KEY_PUBLIC));
            assert_null(pair(both, a, KEY_PUBLIC));
            assert_null(pair(public, a, KEY_PRIVATE));
            assert_null(pair(locked, a, KEY_PRIVATE));
            assert_true(!verifies || key_matches(verifies, signs));
            key_free(verifies);
            key_free(signs);
        }
    }
    (void)state;
}

static void files_that_cannot_be_read_are_named(void **state)
{
    struct fail why;
    char path[] = "/tmp/test_key.XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_null(key_secret_file("/nonexistent/k1.secret", KEY_SECRET, &why));
    assert_non_null(strstr(why.text, "/nonexistent/k1.secret"));
    assert_null(key_pair_file(path, KEY_ES256, KEY_PUBLIC, &why));
    assert_non_null(strstr(why.text, path));
    assert_int_equal(write(fd, EC_PUBLIC, sizeof(EC_PUBLIC) - 1), sizeof(EC_PUBLIC) - 1);
    struct key *key = key_pair_file(path, KEY_ES256, KEY_PUBLIC, &why);
    assert_non_null(key);
    key_free(key);
    assert_int_equal(ftruncate(fd, KEY_FILE + 1), 0);
    assert_null(key_secret_file(path, KEY_SECRET, &why));
    close(fd);
    unlink(path);
    (void)state;
}

static void loading_survives_every_failing_allocation(void **state)
{
    bool loaded = false;
    for (unsigned n = 1; !loaded && n < 1000; n++) {
        struct fail why;
        alloc_fail_at(n);
        struct key *key = key_pair(SLICE_LITERAL(EC_PUBLIC), KEY_ES256, KEY_PUBLIC, "file", &why);
        alloc_fail_at(0);
        loaded = key != NULL;
        key_free(key);
    }
    assert_true(loaded);
    (void)state;
}

static void without_memory_no_signature_is_good_and_none_is_bad(void **state)
{
    struct key *keys[] = {hmac_key(), pair(EC_PRIVATE, KEY_ES256, KEY_PRIVATE),
                          pair(ED_PRIVATE, KEY_EDDSA, KEY_PRIVATE)};
    for (size_t i = 0; i < 3; i++) {
        uint8_t memory[KEY_SIGNATURE];
        struct writer w = writer_of(memory, sizeof(memory));
        assert_true(key_sign(keys[i], SLICE_LITERAL("data"), &w));
        for (unsigned bad = 0; bad < 2; bad++) {
            enum key_result result = KEY_MEMORY, right = bad ? KEY_BAD : KEY_GOOD;
            unsigned asked = 0;
            memory[10] ^= (uint8_t)bad;
            for (unsigned n = 1; n <= asked + 1 && n < 1000; n++) {
                alloc_fail_at(n);
                result = key_verify(keys[i], SLICE_LITERAL("data"), writer_slice(&w));
                asked = alloc_count();
                alloc_fail_at(0);
                assert_true(result == KEY_MEMORY || result == right);
            }
            assert_int_equal(result, right);
        }
        key_free(keys[i]);
    }
    (void)state;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rfc_vectors_verify_with_their_key_and_no_other),
        cmocka_unit_test(every_changed_character_of_a_vector_is_refused),
        cmocka_unit_test(without_memory_no_signature_is_good_and_none_is_bad),
        cmocka_unit_test(what_is_signed_verifies_with_the_public_part_only_of_its_pair),
        cmocka_unit_test(rfc8037_signature_is_made_again),
        cmocka_unit_test(a_signature_has_its_length_and_no_other),
        cmocka_unit_test(a_writer_that_is_too_small_gets_no_token),
        cmocka_unit_test(secrets_are_bytes_with_a_length),
        cmocka_unit_test(unsuitable_jwks_are_refused),
        cmocka_unit_test(purposes_that_fit_are_accepted),
        cmocka_unit_test(pem_files_are_read_and_unsuitable_ones_refused),
        cmocka_unit_test(files_that_cannot_be_read_are_named),
        cmocka_unit_test(loading_survives_every_failing_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
