/* SPDX-License-Identifier: MIT */
#include "spoa/agent/model/authority.h"

static bool is_alphanumeric(uint8_t c)
{
    return (c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z');
}

static bool name_valid(struct slice name)
{
    return name.len > 0 && name.len <= 255 && slice_unreserved(name);
}

static bool literal_valid(struct slice literal)
{
    for (size_t i = 0; i < literal.len; i++)
        if (!is_alphanumeric(literal.at[i]) && literal.at[i] != ':' && literal.at[i] != '.')
            return false;
    return literal.len > 0 && slice_find(literal, ':') < literal.len;
}

bool authority_parse(struct slice text, struct authority *authority)
{
    size_t end = slice_find(text, ':');
    bool literal = text.len > 0 && text.at[0] == '[';
    if (literal) {
        end = slice_find(text, ']') + 1;
        if (end > text.len || !literal_valid(slice_sub(text, 1, end - 2)))
            return false;
    }
    authority->host = slice_sub(text, 0, end);
    authority->port = 0;
    if (!literal && !name_valid(authority->host))
        return false;
    if (end == text.len)
        return true;
    uint64_t port;
    if (text.at[end] != ':' || !slice_u64(slice_from(text, end + 1), 65535, &port) || port == 0)
        return false;
    authority->port = (uint16_t)port;
    return true;
}

bool authority_of_origin(struct slice origin, const struct authority *host)
{
    size_t scheme = 0;
    uint16_t usual = 0;
    if (slice_starts(origin, "https://")) {
        scheme = 8;
        usual = 443;
    } else if (slice_starts(origin, "http://")) {
        scheme = 7;
        usual = 80;
    }
    struct authority of;
    if (!scheme || !authority_parse(slice_from(origin, scheme), &of))
        return false;
    return slice_equal_nocase(of.host, host->host) &&
           (of.port ? of.port : usual) == (host->port ? host->port : usual);
}
