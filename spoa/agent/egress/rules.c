/* SPDX-License-Identifier: MIT */
#include "spoa/agent/egress/rules.h"

#include <openssl/evp.h>

enum {
    FLAG_DENY = 1,
    FLAG_INSPECT = 2,
    FLAG_PRIVATE = 4,
    FLAG_WEBSOCKET = 8,
    FLAG_BY_RELAY = 16,
    FLAG_ANY_SNI = 32
};
enum { FLAG_AUDIT = 1 }; /* of the policy */

void egress_pack_text(struct writer *w, struct slice text)
{
    if (text.len > UINT16_MAX)
        w->full = true;
    writer_be(w, text.len, 2);
    writer_put(w, text);
}

struct slice egress_unpack_text(struct reader *r)
{
    return reader_take(r, reader_be(r, 2));
}

void egress_pack_policy(struct writer *w, const struct egress_policy *policy)
{
    writer_u8(w, policy->audit ? FLAG_AUDIT : 0);
    writer_be(w, policy->most_connections, 4);
}

bool egress_policy_unpack(struct slice packed, struct egress_policy *policy)
{
    struct reader r = reader_of(packed);
    policy->audit = reader_u8(&r) & FLAG_AUDIT;
    policy->most_connections = reader_u32(&r);
    policy->rules = r.rest;
    return !r.failed;
}

static size_t address_size(uint8_t family)
{
    return family == 4 ? 4 : family == 6 ? 16 : 0;
}

static unsigned flags_of(const struct egress_rule *rule)
{
    return (rule->deny ? FLAG_DENY : 0) | (rule->inspect ? FLAG_INSPECT : 0) |
           (rule->is_private ? FLAG_PRIVATE : 0) | (rule->websocket ? FLAG_WEBSOCKET : 0) |
           (rule->by_relay ? FLAG_BY_RELAY : 0) | (rule->any_sni ? FLAG_ANY_SNI : 0);
}

static size_t packed_size(const struct egress_rule *rule)
{
    return 3 + address_size(rule->cidr.network.family) + 10 + rule->host.len + rule->ports.len +
           rule->methods.len + rule->paths.len + rule->set.len;
}

void egress_pack_rule(struct writer *w, const struct egress_rule *rule)
{
    size_t size = packed_size(rule);
    if (size > UINT16_MAX)
        w->full = true;
    writer_be(w, size, 2);
    writer_u8(w, (uint8_t)flags_of(rule));
    writer_u8(w, rule->cidr.network.family);
    writer_u8(w, rule->cidr.bits);
    writer_put(w, slice_of(rule->cidr.network.bytes, address_size(rule->cidr.network.family)));
    egress_pack_text(w, rule->host);
    egress_pack_text(w, rule->ports);
    egress_pack_text(w, rule->methods);
    egress_pack_text(w, rule->paths);
    egress_pack_text(w, rule->set);
}

static bool unpack_rule(struct reader *r, struct egress_rule *rule)
{
    unsigned flags = reader_u8(r);
    rule->deny = flags & FLAG_DENY;
    rule->inspect = flags & FLAG_INSPECT;
    rule->is_private = flags & FLAG_PRIVATE;
    rule->websocket = flags & FLAG_WEBSOCKET;
    rule->by_relay = flags & FLAG_BY_RELAY;
    rule->any_sni = flags & FLAG_ANY_SNI;
    rule->cidr = (struct cidr){.network.family = reader_u8(r)};
    rule->cidr.bits = reader_u8(r);
    struct slice address = reader_take(r, address_size(rule->cidr.network.family));
    if (address.len)
        memcpy(rule->cidr.network.bytes, address.at, address.len);
    rule->host = egress_unpack_text(r);
    rule->ports = egress_unpack_text(r);
    rule->methods = egress_unpack_text(r);
    rule->paths = egress_unpack_text(r);
    rule->set = egress_unpack_text(r);
    return reader_done(r);
}

bool egress_rules_next(const struct egress_policy *policy, size_t *cursor, struct egress_rule *rule)
{
    unsigned number = *cursor ? rule->number + 1 : 0;
    struct reader r = reader_of(slice_from(policy->rules, *cursor));
    if (r.rest.len == 0)
        return false;
    rule->packed = egress_unpack_text(&r);
    struct reader body = reader_of(rule->packed);
    *cursor = policy->rules.len - r.rest.len;
    rule->number = number;
    return !r.failed && unpack_rule(&body, rule);
}

bool egress_rule_set(const struct egress_rule *rule, size_t *cursor, struct slice *header,
                     struct slice *secret)
{
    struct reader r = reader_of(slice_from(rule->set, *cursor));
    if (r.rest.len == 0)
        return false;
    *header = egress_unpack_text(&r);
    *secret = egress_unpack_text(&r);
    *cursor = rule->set.len - r.rest.len;
    return !r.failed;
}

int64_t egress_rule_digest(const struct egress_policy *policy, const struct egress_rule *rule)
{
    uint8_t whole[1 + EGRESS_PACKED_MOST], digest[EVP_MAX_MD_SIZE];
    struct writer w = writer_of(whole, sizeof whole);
    writer_u8(&w, policy->audit);
    writer_put(&w, rule->packed);
    if (w.full || !EVP_Digest(w.at, w.len, digest, NULL, EVP_sha256(), NULL))
        return -1;
    struct reader r = reader_of(slice_of(digest, 6));
    return (int64_t)reader_be(&r, 6);
}
