/* SPDX-License-Identifier: MIT */
#include "tests/unit/support.h"

#include <arpa/inet.h>
#include <stdio.h>

#include "spoa/agent/egress/reach.h"

static struct address address_of(const char *text)
{
    struct address a = {.family = strchr(text, ':') ? 6 : 4};
    assert_int_equal(inet_pton(a.family == 6 ? AF_INET6 : AF_INET, text, a.bytes), 1);
    return a;
}

static void every_kind_of_address_is_told(void **state)
{
    (void)state;
    static const struct {
        const char *address;
        enum reach reach;
    } cases[] = {
        {"1.1.1.1", REACH_PUBLIC},
        {"93.184.216.34", REACH_PUBLIC},
        {"9.255.255.255", REACH_PUBLIC},
        {"11.0.0.0", REACH_PUBLIC},
        {"100.63.255.255", REACH_PUBLIC},
        {"100.128.0.0", REACH_PUBLIC},
        {"172.15.255.255", REACH_PUBLIC},
        {"172.32.0.0", REACH_PUBLIC},
        {"192.0.1.0", REACH_PUBLIC},
        {"198.17.255.255", REACH_PUBLIC},
        {"198.20.0.0", REACH_PUBLIC},
        {"223.255.255.255", REACH_PUBLIC},
        {"2606:2800:220:1::1", REACH_PUBLIC},
        {"10.0.0.1", REACH_PRIVATE},
        {"172.16.0.1", REACH_PRIVATE},
        {"172.31.255.255", REACH_PRIVATE},
        {"192.168.255.255", REACH_PRIVATE},
        {"100.64.0.1", REACH_PRIVATE},
        {"192.0.0.8", REACH_PRIVATE},
        {"192.0.2.1", REACH_PRIVATE},
        {"198.18.0.1", REACH_PRIVATE},
        {"198.19.255.255", REACH_PRIVATE},
        {"198.51.100.7", REACH_PRIVATE},
        {"203.0.113.7", REACH_PRIVATE},
        {"fc00::1", REACH_PRIVATE},
        {"fdff:ffff::1", REACH_PRIVATE},
        {"2001:db8::1", REACH_PRIVATE},
        {"3fff::1", REACH_PRIVATE},
        {"2001:2::1", REACH_PRIVATE},
        {"127.0.0.1", REACH_LOOPBACK},
        {"127.255.255.254", REACH_LOOPBACK},
        {"::1", REACH_LOOPBACK},
        {"0.0.0.0", REACH_NEVER},
        {"0.1.2.3", REACH_NEVER},
        {"169.254.169.254", REACH_NEVER},
        {"169.254.0.1", REACH_NEVER},
        {"100.100.100.200", REACH_NEVER},
        {"192.0.0.192", REACH_NEVER},
        {"168.63.129.16", REACH_NEVER},
        {"192.88.99.1", REACH_NEVER},
        {"224.0.0.1", REACH_NEVER},
        {"239.255.255.255", REACH_NEVER},
        {"240.0.0.1", REACH_NEVER},
        {"255.255.255.255", REACH_NEVER},
        {"::", REACH_NEVER},
        {"100::1", REACH_NEVER},
        {"2001:10::1", REACH_NEVER},
        {"2001:20::1", REACH_NEVER},
        {"5f00::1", REACH_NEVER},
        {"fe80::1", REACH_NEVER},
        {"febf::1", REACH_NEVER},
        {"fec0::1", REACH_NEVER},
        {"ff02::1", REACH_NEVER},
        {"fd00:ec2::254", REACH_NEVER},
        {"64:ff9b:1::1", REACH_NEVER},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct address address = address_of(cases[i].address);
        if (reach_of(&address) != cases[i].reach)
            fail_msg("%s: %d", cases[i].address, reach_of(&address));
    }
}

/* Each of the forms in which IPv6 carries an IPv4 address: what is in front of it, and behind. */
static void an_address_within_an_address_counts(void **state)
{
    (void)state;
    static const char *const forms[][2] = {{"::ffff:", ""},
                                           {"::ffff:0:", ""},
                                           {"::", ""},
                                           {"64:ff9b::", ""},
                                           {"2002:", "::1"},
                                           {"2001:0:", "::fefe:fefe"},
                                           {"2606:2800::5efe:", ""},
                                           {"2606:2800::200:5efe:", ""}};
    static const struct {
        const char *address;
        enum reach reach;
    } inner[] = {{"1.1.1.1", REACH_PUBLIC},        {"10.1.2.3", REACH_PRIVATE},
                 {"192.168.0.1", REACH_PRIVATE},   {"127.0.0.1", REACH_LOOPBACK},
                 {"169.254.169.254", REACH_NEVER}, {"224.0.0.1", REACH_NEVER},
                 {"255.255.255.255", REACH_NEVER}};
    for (size_t f = 0; f < sizeof forms / sizeof *forms; f++)
        for (size_t i = 0; i < sizeof inner / sizeof *inner; i++) {
            char text[INET6_ADDRSTRLEN];
            struct address v4 = address_of(inner[i].address);
            snprintf(text, sizeof text, "%s%x:%x%s", forms[f][0], v4.bytes[0] << 8 | v4.bytes[1],
                     v4.bytes[2] << 8 | v4.bytes[3], forms[f][1]);
            struct address address = address_of(text);
            if (reach_of(&address) != inner[i].reach)
                fail_msg("%s of %s: %d", text, inner[i].address, reach_of(&address));
        }
}

static void of_teredo_the_client_counts_too(void **state)
{
    (void)state;
    struct address address =
        address_of("2001:0:101:101::f5fe:fdfc"); /* a client at 10.1.2.3, its bits turned around */
    assert_int_equal(reach_of(&address), REACH_PRIVATE);
    address = address_of("2001:0:101:101::5601:5601"); /* 169.254.169.254 */
    assert_int_equal(reach_of(&address), REACH_NEVER);
}

static void what_is_no_address_is_never_reached(void **state)
{
    (void)state;
    assert_int_equal(reach_of(&(struct address){0}), REACH_NEVER);
    assert_int_equal(reach_of(&(struct address){.family = 5}), REACH_NEVER);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kind_of_address_is_told),
        cmocka_unit_test(an_address_within_an_address_counts),
        cmocka_unit_test(of_teredo_the_client_counts_too),
        cmocka_unit_test(what_is_no_address_is_never_reached),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
