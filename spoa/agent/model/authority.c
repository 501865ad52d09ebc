/* SPDX-License-Identifier: MIT */
#include "spoa/agent/model/authority.h"

#include "spoa/base/bytes/ascii.h"

static bool name_valid(struct slice name)
{
    return name.len > 0 && name.len <= 255 && slice_unreserved(name);
}

static bool literal_valid(struct slice literal)
{
    for (size_t i = 0; i < literal.len; i++)
        if (!ascii_is_alphanumeric(literal.at[i]) && literal.at[i] != ':' && literal.at[i] != '.')
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

static struct slice without_dot(struct slice host)
{
    return host.len > 1 && host.at[host.len - 1] == '.' ? slice_sub(host, 0, host.len - 1) : host;
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
    return slice_equal_nocase(without_dot(of.host), without_dot(host->host)) &&
           (of.port ? of.port : usual) == (host->port ? host->port : usual);
}

/* ---- origins in lists ---- */

static bool scheme_valid(struct slice scheme)
{
    for (size_t i = 0; i < scheme.len; i++)
        if (!ascii_is_alphanumeric(scheme.at[i]) && !(i && strchr("+-.", scheme.at[i]) && scheme.at[i]))
            return false;
    return scheme.len > 0;
}

static bool origin_parse(struct slice origin, struct slice *scheme, struct authority *of)
{
    *scheme = slice_sub(origin, 0, slice_find(origin, ':'));
    struct slice rest = slice_from(origin, scheme->len);
    if (!scheme_valid(*scheme) || !slice_starts(rest, "://") || !authority_parse(slice_from(rest, 3), of))
        return false;
    of->host = without_dot(of->host);
    if (!of->port)
        of->port = slice_equal_nocase(*scheme, SLICE_LITERAL("https"))  ? 443
                   : slice_equal_nocase(*scheme, SLICE_LITERAL("http")) ? 80
                                                                        : 0;
    return true;
}

/* No page has an origin with a WebSocket's scheme: a list that names one meant http or https. */
bool origin_valid(struct slice origin)
{
    struct slice scheme;
    struct authority of;
    return slice_is(origin, "null") ||
           (origin_parse(origin, &scheme, &of) && !slice_equal_nocase(scheme, SLICE_LITERAL("ws")) &&
            !slice_equal_nocase(scheme, SLICE_LITERAL("wss")));
}

bool origin_same(struct slice a, struct slice b)
{
    struct slice schemes[2];
    struct authority of[2];
    if (!origin_parse(a, &schemes[0], &of[0]) || !origin_parse(b, &schemes[1], &of[1]))
        return slice_is(a, "null") && slice_is(b, "null");
    return slice_equal_nocase(schemes[0], schemes[1]) && slice_equal_nocase(of[0].host, of[1].host) &&
           of[0].port == of[1].port;
}
