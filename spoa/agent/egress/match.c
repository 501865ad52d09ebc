/* SPDX-License-Identifier: MIT */
#include "spoa/agent/egress/match.h"

#include "spoa/agent/egress/reach.h"
#include "spoa/base/bytes/ascii.h"
#include "spoa/base/json/json_string.h"

/* ---- hosts ---- */

/* Takes the last label off *rest; returns false at the end. */
static bool last_label(struct slice *rest, struct slice *label)
{
    if (!slice_present(*rest))
        return false;
    size_t start = rest->len;
    while (start > 0 && rest->at[start - 1] != '.')
        start--;
    *label = slice_from(*rest, start);
    *rest = start ? slice_sub(*rest, 0, start - 1) : (struct slice){NULL, 0};
    return true;
}

static size_t labels_of(struct slice name)
{
    size_t count = 0;
    struct slice label;
    while (last_label(&name, &label))
        count++;
    return count;
}

/* Compares from the end, where names are fixed. `**` can only be the first label (rules_json.c). */
bool egress_host_matches(struct slice pattern, struct slice name)
{
    struct slice want, have;
    while (last_label(&pattern, &want)) {
        if (slice_is(want, "**"))
            return labels_of(name) > 0;
        if (!last_label(&name, &have) || (!slice_is(want, "*") && !slice_equal(want, have)))
            return false;
    }
    return !slice_present(name);
}

static bool has_port(const struct egress_rule *rule, uint16_t port)
{
    struct reader r = reader_of(rule->ports);
    while (r.rest.len)
        if (reader_be(&r, 2) == port)
            return true;
    return rule->ports.len == 0;
}

/* A rule that denies an address denies every form in which it can be reached. */
static bool denies(const struct egress_rule *rule, const struct address *address)
{
    struct address carried[REACH_CARRIED];
    size_t count = reach_carried(address, carried);
    bool denied = cidr_contains(&rule->cidr, address);
    for (size_t i = 0; i < count; i++)
        denied = denied || cidr_contains(&rule->cidr, &carried[i]);
    return denied;
}

const char *egress_rule_miss(const struct egress_rule *rule, const struct target *target)
{
    bool address = target->address.family != 0, cidr = rule->cidr.network.family != 0;
    if (cidr && !address)
        return "it is about addresses, and this is a name";
    if (!cidr && address)
        return "it is about names, and this is an address";
    if (cidr && !(rule->deny ? denies(rule, &target->address) : cidr_contains(&rule->cidr, &target->address)))
        return "it is about other addresses";
    if (!cidr && !egress_host_matches(rule->host, target_host(target)))
        return "it is about another host";
    return has_port(rule, target->port) ? NULL : "it is about this destination, and not this port";
}

bool egress_rules_match(const struct egress_policy *policy, const struct target *target,
                        struct egress_rule *rule)
{
    size_t cursor = 0;
    while (egress_rules_next(policy, &cursor, rule))
        if (!egress_rule_miss(rule, target))
            return true;
    return false;
}

int egress_rules_deny(const struct egress_policy *policy, const struct target *target, unsigned before,
                      const struct address *address)
{
    struct egress_rule rule;
    size_t cursor = 0;
    while (egress_rules_next(policy, &cursor, &rule) && rule.number < before)
        if (rule.deny && rule.cidr.network.family && has_port(&rule, target->port) && denies(&rule, address))
            return (int)rule.number;
    return -1;
}

/* ---- requests ---- */

bool egress_rule_method(const struct egress_rule *rule, struct slice method)
{
    struct slice rest = rule->methods, word;
    if (rest.len == 0)
        return true;
    while (slice_split(&rest, ',', &word))
        if (slice_equal(word, method))
            return true;
    return false;
}

/* Returns the byte at *i without its percent-encoding, or -1 if the encoding is invalid; moves *i past it. */
static int next_byte(struct slice path, size_t *i)
{
    if (path.at[*i] != '%')
        return path.at[(*i)++];
    int high = *i + 2 < path.len ? ascii_hex_value(path.at[*i + 1]) : -1;
    int low = *i + 2 < path.len ? ascii_hex_value(path.at[*i + 2]) : -1;
    *i += 3;
    return high < 0 || low < 0 ? -1 : high << 4 | low;
}

/* Returns whether servers read the byte in different ways, encoded or not: it ends a segment for one and is a part of it for another. */
static bool is_ambiguous_byte(int c)
{
    return c <= ' ' || c == 0x7f || c == '\\' || c == ';' || c == '%' || c == '?' || c == '#';
}

/* Returns whether the character is a dot or a slash of another script, which some servers take for '.', '/' or '\'. */
static bool is_lookalike(struct slice character)
{
    static const char *const all[] = {"\xe2\x80\xa4", "\xe2\x81\x84", "\xe2\x88\x95", "\xe2\x88\x96",
                                      "\xef\xbc\x8e", "\xef\xbc\x8f", "\xef\xbc\xbc", NULL};
    for (size_t i = 0; all[i]; i++)
        if (slice_is(character, all[i]))
            return true;
    return false;
}

/* Returns whether all servers read the non-ASCII character that begins with `first` (already read, before *i) alike: some take overlong
 * forms for the dot or slash that they encode. Moves *i past the character. */
static bool is_plain_character(struct slice path, int first, size_t *i)
{
    uint8_t bytes[8] = {(uint8_t)first, 0, 0, 0, 0, 0, 0, 0};
    size_t ends[4] = {*i}, count = 1;
    for (size_t at = *i; count < 4 && at < path.len; count++) {
        int next = next_byte(path, &at);
        if (next < 0x80)
            break;
        bytes[count] = (uint8_t)next;
        ends[count] = at;
    }
    size_t len = json_string_utf8(slice_of(bytes, count));
    if (len)
        *i = ends[len - 1];
    return len && !is_lookalike(slice_of(bytes, len));
}

/* Returns whether all servers see the same segments: none but the last is empty, and none is "." or "..". Only an encoded slash may
 * differ, which ends a segment for some servers; the caller tries both readings. */
static bool is_plain_path(struct slice path)
{
    size_t dots = 0, length = 0;
    if (path.len == 0 || path.at[0] != '/')
        return false;
    for (size_t i = 1; i < path.len;) {
        int c = next_byte(path, &i);
        if (is_ambiguous_byte(c) || (c >= 0x80 && !is_plain_character(path, c, &i)))
            return false;
        if (c != '/') {
            length++;
            dots += c == '.';
            continue;
        }
        if (length == 0 || (length <= 2 && dots == length))
            return false;
        length = dots = 0;
    }
    return length == 0 || length > 2 || dots < length;
}

static bool segment_matches(struct slice pattern, struct slice segment)
{
    size_t n = 0;
    if (slice_is(pattern, "*"))
        return segment.len > 0;
    for (size_t i = 0; i < segment.len; n++)
        if (n >= pattern.len || next_byte(segment, &i) != pattern.at[n])
            return false;
    return n == pattern.len;
}

/* Takes the first segment off *path; returns false at the end. */
static bool first_segment(struct slice *path, bool decoded, struct slice *segment)
{
    size_t end = 0, next = 0;
    if (!slice_present(*path))
        return false;
    while (next < path->len) {
        end = next;
        if (next_byte(*path, &next) == '/' && (decoded || next == end + 1)) {
            *segment = slice_sub(*path, 0, end);
            *path = slice_from(*path, next);
            return true;
        }
    }
    *segment = *path;
    *path = (struct slice){NULL, 0};
    return true;
}

/* With `decoded`, an encoded slash also ends a segment. */
static bool path_matches(struct slice pattern, struct slice path, bool decoded)
{
    struct slice want, have;
    pattern = slice_from(pattern, 1);
    path = slice_from(path, 1);
    while (slice_split(&pattern, '/', &want)) {
        if (slice_is(want, "**"))
            return slice_present(path);
        if (!first_segment(&path, decoded, &have) || !segment_matches(want, have))
            return false;
    }
    return !slice_present(path);
}

static bool any_matches(struct slice paths, struct slice path, bool decoded)
{
    struct reader r = reader_of(paths);
    while (r.rest.len && !r.failed)
        if (path_matches(egress_unpack_text(&r), path, decoded))
            return true;
    return false;
}

bool egress_rule_path(const struct egress_rule *rule, struct slice path)
{
    if (rule->paths.len == 0)
        return true;
    return is_plain_path(path) && any_matches(rule->paths, path, false) &&
           any_matches(rule->paths, path, true);
}
