/* SPDX-License-Identifier: MIT */
#include "spoa/agent/egress/target.h"

#include <arpa/inet.h>

static bool is_digit(uint8_t c)
{
    return c >= '0' && c <= '9';
}

static bool label_valid(struct slice label)
{
    if (label.len == 0 || label.len > 63 || label.at[0] == '-' || label.at[label.len - 1] == '-')
        return false;
    for (size_t i = 0; i < label.len; i++) {
        uint8_t c = label.at[i];
        if (!is_digit(c) && !(c >= 'a' && c <= 'z') && c != '-' && c != '_')
            return false;
    }
    return true;
}

/* If the last label is a number, programs read the whole name as an IPv4 address (WHATWG URL, section 3.5): inet_aton accepts four bases
 * and one to four parts. */
static bool ends_in_number(struct slice label)
{
    bool digits = true, hex = label.len >= 2 && label.at[0] == '0' && label.at[1] == 'x';
    for (size_t i = 0; i < label.len; i++) {
        uint8_t c = label.at[i];
        digits = digits && is_digit(c);
        hex = hex && (i < 2 || is_digit(c) || (c >= 'a' && c <= 'f'));
    }
    return digits || hex;
}

static const char *check_name(struct slice name)
{
    struct slice rest = name, label;
    while (slice_split(&rest, '.', &label))
        if (!label_valid(label))
            return "the host is no name that DNS knows";
    return ends_in_number(label) ? "the host is neither a name nor an address as people write it" : NULL;
}

static void write_address(struct target *target)
{
    char text[INET6_ADDRSTRLEN];
    inet_ntop(target->address.family == 4 ? AF_INET : AF_INET6, target->address.bytes, text, sizeof text);
    target->host_len = (uint8_t)strlen(text);
    memcpy(target->host, text, target->host_len);
}

static bool read_address(struct slice text, int family, struct target *target)
{
    char copy[INET6_ADDRSTRLEN];
    if (text.len == 0 || text.len >= sizeof copy || slice_find(text, '\0') != text.len)
        return false;
    memcpy(copy, text.at, text.len);
    copy[text.len] = '\0';
    target->address = (struct address){0};
    if (inet_pton(family, copy, target->address.bytes) != 1)
        return false;
    target->address.family = family == AF_INET ? 4 : 6;
    write_address(target);
    return true;
}

static const char *read_name(struct slice text, struct target *target)
{
    if (text.len && text.at[text.len - 1] == '.')
        text.len--;
    if (text.len == 0 || text.len > TARGET_HOST_MOST)
        return "the host is empty, or over 253 bytes";
    for (size_t i = 0; i < text.len; i++) {
        uint8_t c = text.at[i];
        target->host[i] = (char)(c >= 'A' && c <= 'Z' ? c | 0x20 : c);
    }
    target->host_len = (uint8_t)text.len;
    return check_name(target_host(target));
}

static const char *read_port(struct slice text, uint16_t *port)
{
    uint64_t number;
    if (text.len == 0 || text.at[0] == '0' || !slice_u64(text, 65535, &number))
        return "the port is no number from 1 to 65535";
    *port = (uint16_t)number;
    return NULL;
}

const char *target_parse(struct slice text, uint16_t default_port, struct target *target)
{
    bool literal = slice_starts(text, "[");
    size_t end = literal ? slice_find(text, ']') + 1 : slice_find(text, ':');
    *target = (struct target){.port = default_port};
    if (end > text.len)
        return "a bracket is not closed";
    if (literal && !read_address(slice_sub(text, 1, end - 2), AF_INET6, target))
        return "the part in brackets is no IPv6 address";
    struct slice host = slice_sub(text, 0, end), rest = slice_from(text, end);
    if (!literal && !read_address(host, AF_INET, target)) {
        const char *why = read_name(host, target);
        if (why)
            return why;
    }
    if (rest.len == 0)
        return default_port ? NULL : "a port is missing";
    return rest.at[0] == ':' ? read_port(slice_from(rest, 1), &target->port)
                             : "behind the brackets only a port may stand";
}

struct slice target_host(const struct target *target)
{
    return slice_of(target->host, target->host_len);
}
