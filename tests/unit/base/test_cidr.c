/* SPDX-License-Identifier: MIT */
#include "tests/unit/support.h"

#include <arpa/inet.h>

#include "spoa/base/text/cidr.h"

static struct address address_of(const char *text)
{
    struct address a = {.family = strchr(text, ':') ? 6 : 4};
    assert_int_equal(inet_pton(a.family == 6 ? AF_INET6 : AF_INET, text, a.bytes), 1);
    return a;
}

static void networks_contain_their_addresses_only(void **state)
{
    (void)state;
    static const struct {
        const char *network, *address;
        bool inside;
    } cases[] = {
        {"10.0.0.0/8", "10.255.255.255", true},
        {"10.0.0.0/8", "11.0.0.0", false},
        {"10.0.0.0/8", "9.255.255.255", false},
        {"172.16.0.0/12", "172.31.255.255", true},
        {"172.16.0.0/12", "172.32.0.0", false},
        {"192.168.1.128/25", "192.168.1.128", true},
        {"192.168.1.128/25", "192.168.1.127", false},
        {"127.0.0.1", "127.0.0.1", true},
        {"127.0.0.1/32", "127.0.0.2", false},
        {"0.0.0.0/0", "255.1.2.3", true},
        {"0.0.0.0/0", "::1", false},
        {"::/0", "::1", true},
        {"::/0", "1.2.3.4", false},
        {"::1/128", "::1", true},
        {"::1", "::2", false},
        {"fc00::/7", "fdff::1", true},
        {"fc00::/7", "fe80::1", false},
        {"2001:db8:8000::/33", "2001:db8:ffff::1", true},
        {"2001:db8:8000::/33", "2001:db8:7fff::1", false},
        {"10.0.0.0/8", "::ffff:10.1.2.3", true},
        {"::/0", "::ffff:10.1.2.3", false},
        {"0.0.0.0/0", "::ffff:10.1.2.3", true},
        {"::ffff:10.1.2.3", "10.1.2.3", true},
        {"::ffff:10.0.0.0/104", "::ffff:10.1.2.3", true},
        {"::ffff:10.0.0.0/104", "11.1.2.3", false},
        {"::ffff:0:0/96", "1.2.3.4", true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct cidr cidr;
        struct slice text = guarded(slice_text(cases[i].network));
        struct address address = address_of(cases[i].address);
        assert_true(cidr_parse(text, &cidr));
        if (cidr_contains(&cidr, &address) != cases[i].inside)
            fail_msg("%s %s", cases[i].network, cases[i].address);
        guarded_free(text);
    }
}

static void metadata_services_are_known_in_every_form(void **state)
{
    (void)state;
    static const char *const theirs[] = {"169.254.0.0",
                                         "169.254.169.254",
                                         "169.254.255.255",
                                         "100.100.100.200",
                                         "192.0.0.192",
                                         "168.63.129.16",
                                         "fe80::1",
                                         "febf:ffff::1",
                                         "fd00:ec2::254",
                                         "fd20:ce::254",
                                         "::ffff:169.254.169.254",
                                         "::169.254.169.254",
                                         "64:ff9b::169.254.169.254",
                                         "64:ff9b:1::169.254.169.254",
                                         "64:ff9b:1:a9fe:a9:fe00::",
                                         "64:ff9b:1:ffff:a9:fea9:fe00:0",
                                         "2002:a9fe:a9fe::1",
                                         "2002:6464:64c8::",
                                         "::ffff:192.0.0.192",
                                         "64:ff9b::168.63.129.16"};
    static const char *const others[] = {
        "169.253.255.255", "169.255.0.0", "100.100.100.201", "192.0.0.193",
        "168.63.129.17",   "fec0::1",     "fd00:ec2::253",   "::ffff:10.0.0.1",
        "2002:a00:1::1",   "::1",         "127.0.0.1",       "64:ff9b::10.0.0.1"};
    for (size_t i = 0; i < sizeof theirs / sizeof *theirs; i++) {
        struct address address = address_of(theirs[i]);
        if (!cidr_is_metadata(&address))
            fail_msg("%s is none", theirs[i]);
    }
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        struct address address = address_of(others[i]);
        if (cidr_is_metadata(&address))
            fail_msg("%s is one", others[i]);
    }
}

static void no_address_is_in_no_network(void **state)
{
    (void)state;
    struct cidr all;
    assert_true(cidr_parse(SLICE_LITERAL("0.0.0.0/0"), &all));
    assert_false(cidr_contains(&all, &(struct address){0}));
}

static void anything_else_is_no_network(void **state)
{
    (void)state;
    static const char *const bad[] = {"",
                                      "/",
                                      "/8",
                                      "10.0.0.0/",
                                      "10.0.0.0/33",
                                      "10.0.0.0/-1",
                                      "10.0.0.0/8/8",
                                      "10.0.0.0/ 8",
                                      "10.0.0/8",
                                      "10.0.0.1/8",
                                      "010.0.0.0/8x",
                                      "::/129",
                                      "::1/127",
                                      "fe80::1%lo/64",
                                      "localhost",
                                      "10.0.0.0/0x8",
                                      " 10.0.0.0/8",
                                      "10.0.0.0/8 ",
                                      "1111:2222:3333:4444:5555:6666:7777:8888:9999:aaaa:bbbb:cccc/1"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct cidr cidr;
        struct slice text = guarded(slice_text(bad[i]));
        if (cidr_parse(text, &cidr))
            fail_msg("%s", bad[i]);
        guarded_free(text);
    }
    assert_false(cidr_parse(slice_of("1.2.3.4\0/8", 10), &(struct cidr){.bits = 0}));
}

static void one_of_several_is_enough(void **state)
{
    (void)state;
    struct cidr two[2];
    struct address in = address_of("::1"), out = address_of("::2");
    assert_true(cidr_parse(SLICE_LITERAL("10.0.0.0/8"), &two[0]) &&
                cidr_parse(SLICE_LITERAL("::1"), &two[1]));
    assert_true(cidr_any_contains(two, 2, &in));
    assert_false(cidr_any_contains(two, 2, &out));
    assert_false(cidr_any_contains(two, 0, &in));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(networks_contain_their_addresses_only),
        cmocka_unit_test(metadata_services_are_known_in_every_form),
        cmocka_unit_test(no_address_is_in_no_network),
        cmocka_unit_test(anything_else_is_no_network),
        cmocka_unit_test(one_of_several_is_enough),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
