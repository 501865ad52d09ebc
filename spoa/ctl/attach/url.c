/* SPDX-License-Identifier: MIT */
#include "spoa/ctl/attach/attach.h"

#include <stdio.h>

static bool take_scheme(struct attach_url *url, struct slice *rest, struct fail *why)
{
    static const struct {
        const char *prefix;
        bool tls;
    } schemes[] = {{"ws://", false}, {"wss://", true}, {"http://", false}, {"https://", true}};

    for (size_t i = 0; i < sizeof(schemes) / sizeof(*schemes); i++)
        if (slice_starts(*rest, schemes[i].prefix)) {
            url->tls = schemes[i].tls;
            *rest = slice_from(*rest, strlen(schemes[i].prefix));
            return true;
        }
    return fail(why, "the URL must begin with ws:// or wss://");
}

/* Parses host and port from "host", "host:port", "[v6]" or "[v6]:port". */
static bool take_authority(struct attach_url *url, struct slice authority, struct fail *why)
{
    bool bracket = slice_starts(authority, "[");
    size_t end = slice_find(authority, bracket ? ']' : ':');
    struct slice host = slice_sub(authority, bracket, end - bracket),
                 rest = slice_from(authority, end + bracket);
    uint64_t port = url->tls ? 443 : 80;

    if (slice_find(authority, '@') < authority.len)
        return fail(why, "the URL must not hold a user name or password");
    if (host.len == 0 || host.len >= sizeof(url->host) || (bracket && end == authority.len))
        return fail(why, "the URL's host is malformed");
    if (rest.len > 0 &&
        (!slice_starts(rest, ":") || !slice_u64(slice_from(rest, 1), 65535, &port) || port == 0))
        return fail(why, "the URL's port is not a number from 1 to 65535");
    snprintf(url->host, sizeof(url->host), "%.*s", SLICE_PRINTF(host));
    snprintf(url->port, sizeof(url->port), "%u", (unsigned)port);
    snprintf(url->authority, sizeof(url->authority), "%.*s", SLICE_PRINTF(authority));
    return true;
}

bool attach_url_parse(struct attach_url *url, const char *text, struct fail *why)
{
    struct slice rest = slice_text(text);

    for (size_t i = 0; i < rest.len; i++)
        if (rest.at[i] <= 0x20 || rest.at[i] >= 0x7f)
            return fail(why, "the URL holds a blank or a byte that is not ASCII");
    rest = slice_sub(rest, 0, slice_find(rest, '#'));
    if (!take_scheme(url, &rest, why))
        return false;
    size_t slash = slice_find(rest, '/');
    url->target = slash < rest.len ? slice_from(rest, slash) : SLICE_LITERAL("/");
    return take_authority(url, slice_sub(rest, 0, slash), why);
}
