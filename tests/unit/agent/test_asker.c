/* SPDX-License-Identifier: MIT */
#include "tests/unit/support.h"

#include "spoa/agent/model/asker.h"

static struct hash_secret secret;

static uint64_t of_source(struct address source)
{
    const struct asker asker = asker_of_source(&source);
    const struct fair_owner owner = asker_owner(&asker, &secret);
    assert_int_equal(owner.rank, FAIR_UNVERIFIED);
    return owner.hash;
}

static uint64_t of_grant(const char *sandbox, const char *org, const char *sub)
{
    const struct grant grant = {
        .sandbox = slice_text(sandbox), .org = slice_text(org), .sub = slice_text(sub)};
    const struct asker asker = asker_of_grant(&grant);
    const struct fair_owner owner = asker_owner(&asker, &secret);
    assert_int_equal(owner.rank, FAIR_VERIFIED);
    return owner.hash;
}

/* The address number `n` of its site, each in a /64 of its own. */
static struct address in_site(uint8_t site, unsigned n)
{
    return (struct address){6, {0x20, 1, 0xd, 0xb8, 0, site, (uint8_t)(n >> 8), (uint8_t)n, 1}};
}

static void a_site_of_ipv6_is_sixteen_owners_at_most(void **state)
{
    uint64_t owners[17];
    size_t count = 0;
    (void)state;
    for (unsigned n = 0; n < 4096; n++) {
        size_t i = 0;
        owners[count] = of_source(in_site(1, n));
        while (owners[i] != owners[count])
            i++;
        count += i == count;
        assert_in_range(count, 1, 16);
    }
    assert_int_equal(count, 16);
    for (size_t i = 0; i < count; i++)
        assert_int_not_equal(owners[i], of_source(in_site(2, 7)));
}

static void an_address_is_its_network_s(void **state)
{
    struct address neighbour = in_site(1, 7), v4 = {4, {192, 0, 2, 7}}, other = {4, {192, 0, 2, 8}};
    struct address mapped = {6, {[10] = 0xff, [11] = 0xff, 192, 0, 2, 7}};
    (void)state;
    neighbour.bytes[15] = 9;
    assert_int_equal(of_source(neighbour), of_source(in_site(1, 7)));
    assert_int_equal(of_source(mapped), of_source(v4));
    assert_int_not_equal(of_source(other), of_source(v4));
}

static void a_token_is_its_organisation_s_or_its_sandbox_s(void **state)
{
    (void)state;
    assert_int_equal(of_grant("a", "o", NULL), of_grant("*", "o", "s"));
    assert_int_equal(of_grant("a", NULL, "s"), of_grant("a", NULL, "t"));
    assert_int_equal(of_grant("default/a", NULL, NULL), of_grant("a", NULL, NULL));
    const uint64_t others[] = {of_grant("o", NULL, NULL), of_grant("x/o", NULL, NULL),
                               of_grant("y/o", NULL, NULL), of_grant("*", "o", NULL),
                               of_grant("*", NULL, "o")};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        for (size_t j = 0; j < i; j++)
            assert_int_not_equal(others[i], others[j]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_site_of_ipv6_is_sixteen_owners_at_most),
        cmocka_unit_test(an_address_is_its_network_s),
        cmocka_unit_test(a_token_is_its_organisation_s_or_its_sandbox_s),
    };
    return hash_secret_init(&secret) ? cmocka_run_group_tests(tests, NULL, NULL) : 1;
}
