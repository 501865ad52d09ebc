/* SPDX-License-Identifier: MIT */
#include "spoa/base/text/cidr.h"

#include <arpa/inet.h>

static bool parse_address(struct slice text, struct address *address)
{
    char copy[INET6_ADDRSTRLEN];
    if (text.len == 0 || text.len >= sizeof copy || slice_find(text, '\0') != text.len)
        return false;
    memcpy(copy, text.at, text.len);
    copy[text.len] = '\0';
    *address = (struct address){0};
    address->family = slice_find(text, ':') == text.len ? 4 : 6;
    return inet_pton(address->family == 4 ? AF_INET : AF_INET6, copy, address->bytes) == 1;
}

static uint8_t address_bits(const struct address *address)
{
    return address->family == 4 ? 32 : 128;
}

/* Returns true if the first `bits` bits of both addresses are equal. */
static bool same_prefix(const uint8_t *a, const uint8_t *b, uint8_t bits)
{
    size_t whole = bits / 8;
    uint8_t mask = (uint8_t)(0xff00 >> bits % 8);
    if (whole && a[0] != b[0]) /* decides nearly every comparison without a call */
        return false;
    return memcmp(a, b, whole) == 0 && (bits % 8 == 0 || ((a[whole] ^ b[whole]) & mask) == 0);
}

/* Returns true if all bits after the prefix are zero. */
static bool is_network(const struct cidr *cidr)
{
    for (unsigned bit = cidr->bits; bit < address_bits(&cidr->network); bit++)
        if (cidr->network.bytes[bit / 8] & 0x80 >> bit % 8)
            return false;
    return true;
}

struct address cidr_unmapped(const struct address *address)
{
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
    if (address->family != 6 || memcmp(address->bytes, mapped, sizeof mapped) != 0)
        return *address;
    struct address inner = {.family = 4};
    memcpy(inner.bytes, address->bytes + sizeof mapped, 4);
    return inner;
}

bool cidr_parse(struct slice text, struct cidr *cidr)
{
    size_t slash = slice_find(text, '/');
    if (!parse_address(slice_sub(text, 0, slash), &cidr->network))
        return false;
    uint64_t bits = address_bits(&cidr->network);
    if (slash < text.len && !slice_u64(slice_from(text, slash + 1), bits, &bits))
        return false;
    struct address plain = cidr_unmapped(&cidr->network);
    if (plain.family != cidr->network.family && bits >= 96) {
        /* cidr_contains unmaps addresses before it compares, so the network must be IPv4, too */
        cidr->network = plain;
        bits -= 96;
    }
    cidr->bits = (uint8_t)bits;
    return is_network(cidr);
}

/* Compares an address that cidr_unmapped has returned. */
static bool contains(const struct cidr *cidr, const struct address *plain)
{
    return plain->family == cidr->network.family &&
           same_prefix(plain->bytes, cidr->network.bytes, cidr->bits);
}

bool cidr_contains(const struct cidr *cidr, const struct address *address)
{
    struct address plain = cidr_unmapped(address);
    return contains(cidr, &plain);
}

/* Addresses at which clouds serve metadata. haproxy.cfg has the same list (`metadata`), and tests/e2e/gate/test_tables.py compares
 * them. */
static const struct cidr metadata[] = {
    {{4, {169, 254}}, 16},                                   /* link-local: 169.254.169.254 of most clouds */
    {{4, {100, 100, 100, 200}}, 32},                         /* Alibaba */
    {{4, {192, 0, 0, 192}}, 32},                             /* Oracle */
    {{4, {168, 63, 129, 16}}, 32},                           /* Azure's agent */
    {{6, {0xfe, 0x80}}, 10},                                 /* link-local */
    {{6, {0xfd, 0x00, 0x0e, 0xc2, [14] = 0x02, 0x54}}, 128}, /* AWS */
    {{6, {0xfd, 0x20, 0x00, 0xce, [14] = 0x02, 0x54}}, 128}, /* Google */
    {{6, {0x00, 0x64, 0xff, 0x9b, 0x00, 0x01}},
     48}, /* local-use NAT64 (RFC 8215): the position of the IPv4 address is not known, so all of it counts */
};
enum { METADATA = sizeof metadata / sizeof *metadata };

/* Returns the IPv4 address that an IPv6 address carries for a translator or a tunnel, and any other address unchanged. */
static struct address carried(const struct address *address)
{
    static const struct {
        struct cidr prefix;
        size_t at; /* offset of the IPv4 address */
    } forms[] = {
        {{{6, {[10] = 0xff, 0xff}}, 96}, 12},      /* mapped, RFC 4291 section 2.5.5.2 */
        {{{6, {0}}, 96}, 12},                      /* compatible, section 2.5.5.1 */
        {{{6, {0x00, 0x64, 0xff, 0x9b}}, 96}, 12}, /* NAT64, RFC 6052 */
        {{{6, {0x20, 0x02}}, 16}, 2},              /* 6to4, RFC 3056 */
    };
    for (size_t i = 0; address->family == 6 && i < sizeof forms / sizeof *forms; i++)
        if (same_prefix(address->bytes, forms[i].prefix.network.bytes, forms[i].prefix.bits)) {
            struct address inner = {.family = 4};
            memcpy(inner.bytes, address->bytes + forms[i].at, 4);
            return inner;
        }
    return *address;
}

bool cidr_is_metadata(const struct address *address)
{
    if (cidr_any_contains(metadata, METADATA, address))
        return true;
    if (address->family != 6)
        return false;
    struct address inner = carried(address);
    return cidr_any_contains(metadata, METADATA, &inner);
}

bool cidr_within_metadata(const struct cidr *cidr)
{
    for (size_t i = 0; i < METADATA; i++)
        if (cidr->bits >= metadata[i].bits && cidr_contains(&metadata[i], &cidr->network))
            return true;
    return false;
}

bool cidr_any_contains(const struct cidr *cidrs, size_t count, const struct address *address)
{
    struct address plain = cidr_unmapped(address);
    for (size_t i = 0; i < count; i++)
        if (contains(&cidrs[i], &plain))
            return true;
    return false;
}
