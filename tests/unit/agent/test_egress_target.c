/* SPDX-License-Identifier: MIT */
#include "tests/unit/support.h"

#include <stdlib.h>

#include "spoa/agent/egress/target.h"

static void a_target_has_one_spelling(void **state)
{
    (void)state;
    static const struct {
        const char *text, *host;
        uint16_t usual, port;
        uint8_t family;
    } cases[] = {
        {"api.example.com:443", "api.example.com", 0, 443, 0},
        {"API.Example.COM:443", "api.example.com", 0, 443, 0},
        {"api.example.com.:443", "api.example.com", 0, 443, 0},
        {"api.example.com", "api.example.com", 80, 80, 0},
        {"api.example.com:8080", "api.example.com", 80, 8080, 0},
        {"localhost:1", "localhost", 0, 1, 0},
        {"_srv.a-b.example:65535", "_srv.a-b.example", 0, 65535, 0},
        {"xn--bcher-kva.example:443", "xn--bcher-kva.example", 0, 443, 0},
        {"1.1.1.1:53", "1.1.1.1", 0, 53, 4},
        {"0x1.example:443", "0x1.example", 0, 443, 0},
        {"1.2.3.4.example:443", "1.2.3.4.example", 0, 443, 0},
        {"[2001:DB8::1]:443", "2001:db8::1", 0, 443, 6},
        {"[2001:db8:0:0:0:0:0:1]:443", "2001:db8::1", 0, 443, 6},
        {"[::ffff:10.1.2.3]:443", "::ffff:10.1.2.3", 0, 443, 6},
        {"[::1]", "::1", 443, 443, 6},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct slice text = guarded(slice_text(cases[i].text));
        struct target target;
        const char *why = target_parse(text, cases[i].usual, &target);
        if (why)
            fail_msg("%s: %s", cases[i].text, why);
        assert_true(slice_is(target_host(&target), cases[i].host));
        assert_int_equal(target.port, cases[i].port);
        assert_int_equal(target.address.family, cases[i].family);
        guarded_free(text);
    }
}

static void odd_spellings_are_refused(void **state)
{
    (void)state;
    static const char *const cases[] = {
        "",
        ":",
        ":443",
        "example.com",
        "example.com:",
        "example.com:0",
        "example.com:00443",
        "example.com:0443",
        "example.com:65536",
        "example.com:+443",
        "example.com:-1",
        "example.com: 443",
        "example.com:443 ",
        " example.com:443",
        "example.com:443/",
        "example.com/:443",
        "example.com:443:443",
        "user@example.com:443",
        "user:pass@example.com:443",
        "example.com:443@other.example:443",
        "exa%6dple.com:443",
        "example%2ecom:443",
        "example..com:443",
        ".example.com:443",
        "example.com..:443",
        ".:443",
        "..:443",
        "-a.example:443",
        "a-.example:443",
        "exam ple.com:443",
        "example.com\t:443",
        "b\303\274cher.example:443",
        "example\342\200\244com:443",
        "*.example.com:443",
        "example.com;x:443",
        "example.com\\:443",
        "example.com?:443",
        "example.com#:443",
        "http://example.com:443",
        "//example.com:443",
        /* IPv4 as other programs read it */
        "127.1:443",
        "127.0.1:443",
        "2130706433:443",
        "0x7f000001:443",
        "0x7f.1:443",
        "0x7f.0.0.1:443",
        "017700000001:443",
        "0177.0.0.1:443",
        "127.0.0.01:443",
        "127.0.0.1.:443",
        "127.0.0.0x1:443",
        "1.2.3.4.5:443",
        "256.1.1.1:443",
        "1.2.3.256:443",
        "foo.0x7f:443",
        "foo.1:443",
        "0x:443",
        "foo.0x:443",
        "1:443",
        "\357\274\221.1.1.1:443",
        "\342\221\240.1.1.1:443",
        /* IPv6 */
        "::1:443",
        "[::1:443",
        "::1]:443",
        "[::1]443",
        "[::1]x:443",
        "[]:443",
        "[1.2.3.4]:443",
        "[fe80::1%eth0]:443",
        "[fe80::1%25eth0]:443",
        "[example.com]:443",
        "[v1.a]:443",
        "[::1]]:443",
        "[[::1]]:443",
        "[:::1]:443",
        "[::g]:443",
        "[0:0:0:0:0:0:0:0:1]:443",
        "2001:db8::1:443",
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct slice text = guarded(slice_text(cases[i]));
        struct target target;
        if (!target_parse(text, 0, &target))
            fail_msg("%s is taken for %.*s", cases[i], SLICE_PRINTF(target_host(&target)));
        guarded_free(text);
    }
    static const uint8_t nul[] = "example.com\0.other:443", in_address[] = "1.2.3.4\0:443",
                         in_literal[] = "[::1\0]:443";
    struct target target;
    assert_non_null(target_parse(slice_of(nul, sizeof nul - 1), 0, &target));
    assert_non_null(target_parse(slice_of(in_address, sizeof in_address - 1), 0, &target));
    assert_non_null(target_parse(slice_of(in_literal, sizeof in_literal - 1), 0, &target));
}

static void names_are_as_long_as_in_dns(void **state)
{
    (void)state;
    char text[400];
    struct target target;
    for (int len = 60; len <= 66; len++) { /* of a label */
        memset(text, 'a', (size_t)len);
        strcpy(text + len, ".example:1");
        assert_int_equal(target_parse(slice_text(text), 0, &target) == NULL, len <= 63);
    }
    for (int len = 250; len <= 257; len++) { /* of all */
        for (int i = 0; i < len; i++)
            text[i] = i % 50 == 49 ? '.' : 'a';
        strcpy(text + len, ":1");
        if (text[len - 1] != '.')
            assert_int_equal(target_parse(slice_text(text), 0, &target) == NULL, len <= 253);
        strcpy(text + len, ".:1"); /* a last dot does not count */
        if (text[len - 1] != '.')
            assert_int_equal(target_parse(slice_text(text), 0, &target) == NULL, len <= 253);
    }
    static const size_t sizes[] = {16384, 65535, 65536, 1 << 20};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        char *large = malloc(sizes[i] + 1);
        memset(large, i % 2 ? '[' : 'a', sizes[i]);
        large[sizes[i]] = '\0';
        assert_non_null(target_parse(slice_text(large), 443, &target));
        free(large);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_target_has_one_spelling),
        cmocka_unit_test(odd_spellings_are_refused),
        cmocka_unit_test(names_are_as_long_as_in_dns),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
