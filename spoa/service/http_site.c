/* SPDX-License-Identifier: MIT */
#include "spoa/service/http_site.h"

#include "spoa/base/text/cidr.h"

struct slice http_site_name(struct slice host)
{
    size_t bracket = slice_find(host, ']');
    bool in_brackets = slice_starts(host, "[") && bracket < host.len;
    struct slice rest = slice_from(host, in_brackets ? bracket + 1 : 0);
    struct slice name = slice_sub(rest, 0, slice_find(rest, ':'));
    if (!in_brackets)
        return name;
    /* text after the bracket that is not a port makes this a name, which no address is equal to */
    return name.len ? host : slice_sub(host, 1, bracket - 1);
}

static bool is_address(struct slice name, struct cidr *address)
{
    return slice_find(name, '/') == name.len && cidr_parse(name, address);
}

bool http_site_is_unnamed(struct slice name)
{
    struct cidr address;
    return slice_equal_nocase(name, SLICE_LITERAL("localhost")) || is_address(name, &address);
}

bool http_site_is_loopback(struct slice name)
{
    struct cidr address, ip4, ip6;
    if (slice_equal_nocase(name, SLICE_LITERAL("localhost")))
        return true;
    return is_address(name, &address) && cidr_parse(SLICE_LITERAL("127.0.0.0/8"), &ip4) &&
           cidr_parse(SLICE_LITERAL("::1"), &ip6) &&
           (cidr_contains(&ip4, &address.network) || cidr_contains(&ip6, &address.network));
}

/* A browser writes the same host and port into Origin and Host, and omits the same default port. */
bool http_site_is_own(const struct http_head *head)
{
    struct slice origin = http_get(head, "Origin"), host = http_get(head, "Host");
    if (!slice_present(origin))
        return true;
    size_t scheme = slice_starts(origin, "http://") ? 7 : slice_starts(origin, "https://") ? 8 : 0;
    return scheme && http_count(head, "Origin") == 1 && host.len > 0 &&
           slice_equal_nocase(slice_from(origin, scheme), host);
}
