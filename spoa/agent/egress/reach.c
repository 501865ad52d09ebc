/* SPDX-License-Identifier: MIT */
#include "spoa/agent/egress/reach.h"

static const struct {
    struct cidr network;
    enum reach reach;
} special[] = {
    {{{4, {0}}, 8}, REACH_NEVER},               /* "this network"; 0.0.0.0 reaches loopback on Linux */
    {{{4, {10}}, 8}, REACH_PRIVATE},            /* RFC 1918 */
    {{{4, {100, 64}}, 10}, REACH_PRIVATE},      /* carriers' NAT, RFC 6598 */
    {{{4, {127}}, 8}, REACH_LOOPBACK},          /* RFC 1122 */
    {{{4, {172, 16}}, 12}, REACH_PRIVATE},      /* RFC 1918 */
    {{{4, {192, 0, 0}}, 24}, REACH_PRIVATE},    /* IETF protocols, RFC 6890 */
    {{{4, {192, 0, 2}}, 24}, REACH_PRIVATE},    /* documentation, RFC 5737 */
    {{{4, {192, 88, 99}}, 24}, REACH_NEVER},    /* 6to4 relays, RFC 7526 */
    {{{4, {192, 168}}, 16}, REACH_PRIVATE},     /* RFC 1918 */
    {{{4, {198, 18}}, 15}, REACH_PRIVATE},      /* benchmarks, RFC 2544 */
    {{{4, {198, 51, 100}}, 24}, REACH_PRIVATE}, /* documentation */
    {{{4, {203, 0, 113}}, 24}, REACH_PRIVATE},  /* documentation */
    {{{4, {224}}, 4}, REACH_NEVER},             /* multicast */
    {{{4, {240}}, 4}, REACH_NEVER},             /* reserved, and broadcast */
    {{{6, {[15] = 1}}, 128}, REACH_LOOPBACK},   /* RFC 4291 */
    {{{6, {0}}, 128}, REACH_NEVER},             /* unspecified */
    {{{6, {0x01}}, 64}, REACH_NEVER},           /* discard, RFC 6666 */
    {{{6, {0x20, 0x01, 0x0d, 0xb8}}, 32}, REACH_PRIVATE}, /* documentation, RFC 3849 */
    {{{6, {0x3f, 0xff}}, 20}, REACH_PRIVATE},             /* documentation, RFC 9637 */
    {{{6, {0x20, 0x01, 0x00, 0x02}}, 48}, REACH_PRIVATE}, /* benchmarks, RFC 5180 */
    {{{6, {0x20, 0x01, 0x00, 0x10}}, 28}, REACH_NEVER},   /* ORCHID, RFC 4843: names, not addresses */
    {{{6, {0x20, 0x01, 0x00, 0x20}}, 28}, REACH_NEVER},   /* ORCHIDv2, RFC 7343 */
    {{{6, {0x5f, 0x00}}, 16}, REACH_NEVER},               /* segment identifiers, RFC 9602 */
    {{{6, {0xfc}}, 7}, REACH_PRIVATE},                    /* unique local, RFC 4193 */
    {{{6, {0xfe, 0xc0}}, 10}, REACH_NEVER},               /* site-local, RFC 3879 */
    {{{6, {0xff}}, 8}, REACH_NEVER},                      /* multicast */
};

static enum reach worse(enum reach a, enum reach b)
{
    return a > b ? a : b;
}

static enum reach of_plain(const struct address *address)
{
    enum reach reach = cidr_is_metadata(address) ? REACH_NEVER : REACH_PUBLIC;
    for (size_t i = 0; i < sizeof special / sizeof *special; i++)
        if (cidr_contains(&special[i].network, address))
            reach = worse(reach, special[i].reach);
    return reach;
}

/* The last eight bytes of an ISATAP address are 0000:5efe or 0200:5efe and an IPv4 address, after any prefix. */
static bool is_isatap(const struct address *address)
{
    const uint8_t *b = address->bytes;
    return (b[8] & 0xfd) == 0 && b[9] == 0 && b[10] == 0x5e && b[11] == 0xfe;
}

static struct address take_v4(const struct address *address, size_t at, uint8_t flip)
{
    struct address inner = {.family = 4};
    for (size_t b = 0; b < 4; b++)
        inner.bytes[b] = address->bytes[at + b] ^ flip;
    return inner;
}

/* A Teredo address has two IPv4 addresses: its server's, and its client's with inverted bits. */
size_t reach_carried(const struct address *address, struct address out[static REACH_CARRIED])
{
    static const struct {
        struct cidr prefix;
        uint8_t at, flip;
    } forms[] = {
        {{{6, {[10] = 0xff, 0xff}}, 96}, 12, 0},      /* mapped */
        {{{6, {0}}, 96}, 12, 0},                      /* compatible */
        {{{6, {[8] = 0xff, 0xff}}, 96}, 12, 0},       /* translated, RFC 2765 */
        {{{6, {0x00, 0x64, 0xff, 0x9b}}, 96}, 12, 0}, /* NAT64 */
        {{{6, {0x20, 0x02}}, 16}, 2, 0},              /* 6to4 */
        {{{6, {0x20, 0x01, 0, 0}}, 32}, 4, 0},        /* Teredo's server */
        {{{6, {0x20, 0x01, 0, 0}}, 32}, 12, 0xff},    /* Teredo's client */
    };
    size_t count = 0;
    if (address->family != 6)
        return 0;
    for (size_t i = 0; i < sizeof forms / sizeof *forms && count < REACH_CARRIED - 1; i++)
        if (cidr_contains(&forms[i].prefix, address))
            out[count++] = take_v4(address, forms[i].at, forms[i].flip);
    if (is_isatap(address))
        out[count++] = take_v4(address, 12, 0);
    return count;
}

enum reach reach_of(const struct address *address)
{
    struct address inner[REACH_CARRIED];
    struct address plain = cidr_unmapped(address);
    if (plain.family != 4 && plain.family != 6)
        return REACH_NEVER;
    enum reach reach = of_plain(&plain);
    size_t count = reach != REACH_LOOPBACK ? reach_carried(&plain, inner) : 0;
    for (size_t i = 0; i < count; i++)
        reach = worse(reach, of_plain(&inner[i]));
    return reach;
}
