/* SPDX-License-Identifier: MIT */
#include "spoa/agent/model/worker_url.h"

#include <arpa/inet.h>

bool address_parse(struct slice text, struct address *addr)
{
    char copy[INET6_ADDRSTRLEN];
    if (text.len == 0 || text.len >= sizeof copy || memchr(text.at, '\0', text.len))
        return false;
    memcpy(copy, text.at, text.len);
    copy[text.len] = '\0';
    *addr = (struct address){0};
    if (inet_pton(AF_INET, copy, addr->bytes) == 1)
        addr->family = 4;
    else if (inet_pton(AF_INET6, copy, addr->bytes) == 1)
        addr->family = 6;
    return addr->family != 0;
}

static bool label_valid(struct slice label)
{
    if (label.len == 0 || label.len > 63 || label.at[0] == '-' || label.at[label.len - 1] == '-')
        return false;
    for (size_t i = 0; i < label.len; i++) {
        uint8_t c = label.at[i];
        bool fine =
            (c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z') || c == '-' || c == '_';
        if (!fine)
            return false;
    }
    return true;
}

bool hostname_valid(struct slice text)
{
    struct slice label, rest = text;
    if (text.len == 0 || text.len > 253)
        return false;
    while (slice_split(&rest, '.', &label))
        if (!label_valid(label))
            return false;
    /* "1.2.3.400" must not count as a name: a last label of digits is a mistyped IPv4 literal (RFC 3696 section 2) */
    uint64_t number;
    return !slice_u64(label, UINT64_MAX, &number);
}

/* Takes "HOST" or "[HOST]" off the beginning of *rest. */
static bool take_host(struct slice *rest, struct worker *worker, struct fail *why)
{
    if (slice_starts(*rest, "[")) {
        size_t close = slice_find(*rest, ']');
        worker->host = slice_sub(*rest, 1, close - 1);
        if (close == rest->len || !address_parse(worker->host, &worker->addr) || worker->addr.family != 6)
            return fail(why, "the part in brackets is no IPv6 address");
        *rest = slice_from(*rest, close + 1);
        return true;
    }
    worker->host = slice_sub(*rest, 0, slice_find(*rest, ':'));
    *rest = slice_from(*rest, worker->host.len);
    if (!address_parse(worker->host, &worker->addr) && !hostname_valid(worker->host))
        return fail(why, "the host is neither a name nor an address");
    return true;
}

/* A socket must have one spelling only: the code compares paths to find out whether a port is the management port. */
static bool is_plain_path(struct slice path)
{
    struct slice rest = slice_from(path, 1), part;
    while (slice_split(&rest, '/', &part))
        if (part.len == 0 || slice_is(part, ".") || slice_is(part, ".."))
            return false;
    return true;
}

bool worker_url_parse(struct slice text, struct worker *worker, struct fail *why)
{
    *worker = (struct worker){.kind = WORKER_HTTP};
    if (slice_starts(text, "http+unix:/")) {
        worker->kind = WORKER_UNIX;
        worker->host = slice_from(text, strlen("http+unix:"));
        if (worker->host.len > 107 || memchr(worker->host.at, '\0', worker->host.len))
            return fail(why, "a Unix socket's path has 107 bytes at most");
        if (!is_plain_path(worker->host))
            return fail(why, "a Unix socket's path has no empty part, . or ..");
        return true;
    }
    struct slice rest;
    if (slice_starts(text, "http://")) {
        rest = slice_from(text, strlen("http://"));
    } else if (slice_starts(text, "https://")) {
        worker->kind = WORKER_HTTPS;
        rest = slice_from(text, strlen("https://"));
    } else {
        return fail(why, "a worker is http://host[:port], https://host[:port] or http+unix:/path");
    }
    if (!take_host(&rest, worker, why))
        return false;
    if (rest.len == 0)
        return true;
    uint64_t port;
    if (rest.at[0] != ':' || !slice_u64(slice_from(rest, 1), 65535, &port) || port == 0 || rest.at[1] == '0')
        return fail(why, "behind the host only a port from 1 to 65535 may stand, no path");
    worker->port = (uint16_t)port;
    return true;
}
