/* SPDX-License-Identifier: MIT */
/*
 * Project Wycheproof's vectors, which are not part of this tree: WYCHEPROOF names a folder with its files
 * (testvectors_v1). Without it these tests say that they were skipped.
 */
#include "tests/unit/support.h"

#include <stdio.h>
#include <stdlib.h>

#include "spoa/agent/token/jws.h"
#include "spoa/base/text/base64url.h"

#define BYTES_MOST 65536

struct counts {
    unsigned run, other;
};

static struct json *open_vectors(const char *name)
{
    const char *folder = getenv("WYCHEPROOF");
    char path[1024];
    struct fail why;
    struct json *doc;
    if (!folder) {
        print_message("WYCHEPROOF is not set: %s is skipped\n", name);
        skip();
    }
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    doc = json_parse_file(path, 0, (struct json_limits){.bytes = 16 << 20, .depth = 16}, &why);
    if (!doc)
        fail_msg("%s", why.text);
    return doc;
}

static struct slice text_at(const json_node *object, const char *key)
{
    struct slice s = {NULL, 0};
    json_text(json_member(object, key), &s);
    return s;
}

static unsigned digit(uint8_t c)
{
    return (unsigned)(c <= '9' ? c - '0' : c - 'a' + 10);
}

/* A member that is hexadecimal, in memory of the caller's. */
static struct slice bytes_at(const json_node *object, const char *key, uint8_t *memory)
{
    struct slice hex = text_at(object, key);
    assert_true(hex.len / 2 <= BYTES_MOST);
    for (size_t i = 0; i + 1 < hex.len; i += 2)
        memory[i / 2] = (uint8_t)(digit(hex.at[i]) << 4 | digit(hex.at[i + 1]));
    return slice_of(memory, hex.len / 2);
}

static int64_t number_at(const struct json *doc, const json_node *object, const char *key)
{
    int64_t value = -1;
    json_int(doc, json_member(object, key), 0, INT64_MAX, &value);
    return value;
}

static void expect(const struct json *doc, const json_node *one, bool verified, struct counts *counts)
{
    bool wanted = !slice_is(text_at(one, "result"), "invalid");
    if (verified != wanted)
        fail_msg("tcId %lld (%s) is %s", (long long)number_at(doc, one, "tcId"),
                 (const char *)text_at(one, "comment").at, verified ? "accepted" : "refused");
    counts->run++;
}

static void tell(const char *name, const struct counts *counts)
{
    print_message("%s: %u vectors run, %u are for other algorithms\n", name, counts->run, counts->other);
    assert_true(counts->run > 0);
}

/* Calls `group` with each group of a file. */
static void each_group(const char *name,
                       void (*group)(const struct json *, const json_node *, struct counts *))
{
    struct counts counts = {0, 0};
    struct json *doc = open_vectors(name);
    for (const json_node *n = json_first(json_member(json_root(doc), "testGroups")); n; n = json_next(n))
        group(doc, n, &counts);
    json_free(doc);
    tell(name, &counts);
}

/* ---- JSON Web Signature ---- */

static void copy_member(struct writer *w, const json_node *jwk, const char *name)
{
    const json_node *member = json_member(jwk, name),
                    *only = json_is_array(member) ? json_first(member) : NULL;
    struct slice value;
    if (only && json_text(only, &value))
        writer_printf(w, ",\"%s\":[\"%.*s\"]", name, SLICE_PRINTF(value));
    else if (json_text(member, &value))
        writer_printf(w, ",\"%s\":\"%.*s\"", name, SLICE_PRINTF(value));
}

static struct key *key_of(const json_node *group)
{
    static const char *const members[] = {"kty", "crv", "x", "y", "alg", "use", "key_ops"};
    const json_node *public = json_member(group, "public"), *private = json_member(group, "private");
    uint8_t memory[2048];
    struct writer w = writer_of(memory, sizeof(memory));
    struct fail why;
    if (!public) {
        if (!base64url_decode(text_at(private, "k"), &w))
            return NULL;
        return key_secret(writer_slice(&w), KEY_SECRET, "jwk", &why);
    }
    writer_text(&w, "{\"kid\":\"any\"");
    for (size_t i = 0; i < sizeof(members) / sizeof(*members); i++)
        copy_member(&w, public, members[i]);
    writer_text(&w, "}");
    return key_pair(writer_slice(&w), KEY_ES256, KEY_PUBLIC, "jwk", &why);
}

/* Whether it is good; that it could not be told is not what a bad signature leads to. */
static bool told(enum key_result result)
{
    assert_int_not_equal(result, KEY_MEMORY);
    return result == KEY_GOOD;
}

static bool token_verifies(const struct key *key, struct slice token)
{
    struct jws jws;
    const char *reason;
    struct slice g = guarded(token);
    bool good = key && jws_open(g, &jws, &reason) == JWS_GOOD;
    if (good) {
        uint8_t memory[JWS_PART];
        struct writer payload = writer_of(memory, sizeof(memory));
        good = told(jws_verify(&jws, key)) && jws_payload(&jws, &payload);
        jws_close(&jws);
    }
    guarded_free(g);
    return good;
}

/* Labels that are wrong: 367 and 370 are byte for byte a valid token, 372 and 373 hold a '?'. */
static bool mislabelled(int64_t id, bool *verifies)
{
    *verifies = id == 367 || id == 370;
    return *verifies || id == 372 || id == 373;
}

static void signature_group(const struct json *doc, const json_node *group, struct counts *counts)
{
    const json_node *jwk =
        json_member(group, "public") ? json_member(group, "public") : json_member(group, "private");
    struct slice alg = text_at(jwk, "alg"), curve = text_at(jwk, "crv");
    bool ours =
        slice_is(alg, "HS256") || slice_is(alg, "ES256") || (!slice_present(alg) && slice_is(curve, "P-256"));
    struct key *key = ours ? key_of(group) : NULL;
    for (const json_node *one = json_first(json_member(group, "tests")); one; one = json_next(one)) {
        bool verifies;
        if (!ours)
            counts->other++;
        else if (!mislabelled(number_at(doc, one, "tcId"), &verifies))
            expect(doc, one, token_verifies(key, text_at(one, "jws")), counts);
        else
            assert_int_equal(token_verifies(key, text_at(one, "jws")), verifies);
    }
    key_free(key);
}

static void json_web_signature(void **state)
{
    each_group("json_web_signature_test.json", signature_group);
    (void)state;
}

/* ---- what is below it ---- */

static void run_group(const struct json *doc, const json_node *group, const struct key *key,
                      struct counts *counts)
{
    uint8_t *message = malloc(BYTES_MOST), *signature = malloc(BYTES_MOST);
    for (const json_node *one = json_first(json_member(group, "tests")); one; one = json_next(one))
        expect(doc, one,
               key && told(key_verify(key, bytes_at(one, "msg", message), bytes_at(one, "sig", signature))),
               counts);
    free(message);
    free(signature);
}

static struct key *public_key(const char *start, struct slice first, struct slice second,
                              enum key_algorithm algorithm)
{
    char memory[512];
    struct writer w = writer_of(memory, sizeof(memory));
    struct fail why;
    writer_text(&w, start);
    base64url_encode(first, &w);
    if (slice_present(second)) {
        writer_text(&w, "\",\"y\":\"");
        base64url_encode(second, &w);
    }
    writer_text(&w, "\"}");
    return key_pair(writer_slice(&w), algorithm, KEY_PUBLIC, "jwk", &why);
}

static void edwards_group(const struct json *doc, const json_node *group, struct counts *counts)
{
    uint8_t memory[256];
    struct slice x = bytes_at(json_member(group, "publicKey"), "pk", memory);
    struct key *key =
        public_key("{\"kty\":\"OKP\",\"crv\":\"Ed25519\",\"x\":\"", x, (struct slice){NULL, 0}, KEY_EDDSA);
    assert_non_null(key);
    run_group(doc, group, key, counts);
    key_free(key);
}

static void ed25519(void **state)
{
    each_group("ed25519_test.json", edwards_group);
    (void)state;
}

static void curve_group(const struct json *doc, const json_node *group, struct counts *counts)
{
    uint8_t memory[256];
    struct slice point = bytes_at(json_member(group, "publicKey"), "uncompressed", memory);
    struct key *key = public_key("{\"kty\":\"EC\",\"crv\":\"P-256\",\"x\":\"", slice_sub(point, 1, 32),
                                 slice_from(point, 33), KEY_ES256);
    assert_non_null(key);
    run_group(doc, group, key, counts);
    key_free(key);
}

static void ecdsa_p256_sha256_of_64_bytes(void **state)
{
    each_group("ecdsa_secp256r1_sha256_p1363_test.json", curve_group);
    (void)state;
}

static void mac_group(const struct json *doc, const json_node *group, struct counts *counts)
{
    uint8_t memory[256], message[2048], tag[256];
    for (const json_node *one = json_first(json_member(group, "tests")); one; one = json_next(one)) {
        struct fail why;
        struct key *key = key_secret(bytes_at(one, "key", memory), 1, "hex", &why);
        bool verifies = told(key_verify(key, bytes_at(one, "msg", message), bytes_at(one, "tag", tag)));
        if (number_at(doc, group, "tagSize") == 256) {
            expect(doc, one, verifies, counts);
        } else {
            assert_false(verifies); /* HS256 has no truncated tags */
            counts->other++;
        }
        key_free(key);
    }
}

static void hmac_sha256(void **state)
{
    each_group("hmac_sha256_test.json", mac_group);
    (void)state;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(json_web_signature),
        cmocka_unit_test(ed25519),
        cmocka_unit_test(ecdsa_p256_sha256_of_64_bytes),
        cmocka_unit_test(hmac_sha256),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
