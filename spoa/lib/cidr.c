/* SPDX-License-Identifier: MIT */
#include "spoa/lib/cidr.h"

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

/* Whether the first `bits` bits of both are the same. */
static bool same_prefix(const uint8_t *a, const uint8_t *b, uint8_t bits)
{
    size_t whole = bits / 8;
    uint8_t mask = (uint8_t)(0xff00 >> bits % 8);
    return memcmp(a, b, whole) == 0 && (bits % 8 == 0 || ((a[whole] ^ b[whole]) & mask) == 0);
}

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
    if (plain.family != cidr->network.family && bits >= 96) { /* its addresses will come as IPv4 */
        cidr->network = plain;
        bits -= 96;
    }
    cidr->bits = (uint8_t)bits;
    return is_network(cidr);
}

bool cidr_contains(const struct cidr *cidr, const struct address *address)
{
    struct address plain = cidr_unmapped(address);
    return plain.family == cidr->network.family && same_prefix(plain.bytes, cidr->network.bytes, cidr->bits);
}

bool cidr_any_contains(const struct cidr *cidrs, size_t count, const struct address *address)
{
    for (size_t i = 0; i < count; i++)
        if (cidr_contains(&cidrs[i], address))
            return true;
    return false;
}
