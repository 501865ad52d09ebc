/* SPDX-License-Identifier: MIT */
/*
 * rules: a sandbox's permissions to reach hosts outside, from `egress` of its record or `egress.default` of the configuration. The rules
 * are packed into bytes that a record can hold. rules_json.h reads them, match.h evaluates them.
 *
 *   policy: u8 flags, u32 most connections, { u16 length, rule }*
 *   rule:   u8 flags, u8 family, u8 bits, 0, 4 or 16 bytes of address, and texts: host, ports, methods, paths, set
 *   text:   u16 length, bytes
 *
 * Integers are big-endian.
 */
#ifndef CELLGATE_AGENT_EGRESS_RULES_H
#define CELLGATE_AGENT_EGRESS_RULES_H

#include "spoa/base/bytes/reader.h"
#include "spoa/base/bytes/writer.h"
#include "spoa/base/text/cidr.h"

enum {
    EGRESS_RULES_MOST = 256,
    EGRESS_PACKED_MOST = 16384 /* bytes of all packed rules of a sandbox */
};

/* The headers that a rule may set. Each has a rule of its own in haproxy/egress.cfg, because HAProxy cannot set a header with a computed
 * name.
 * X(field, SPOE variable, name in lower case) */
#define EGRESS_CREDENTIALS(X)                                     \
    X(set_authorization, "set_authorization", "authorization")    \
    X(set_x_api_key, "set_x_api_key", "x-api-key")                \
    X(set_api_key, "set_api_key", "api-key")                      \
    X(set_x_goog_api_key, "set_x_goog_api_key", "x-goog-api-key") \
    X(set_x_auth_token, "set_x_auth_token", "x-auth-token")       \
    X(set_x_access_token, "set_x_access_token", "x-access-token") \
    X(set_private_token, "set_private_token", "private-token")    \
    X(set_cookie, "set_cookie", "cookie")

struct egress_rule {
    unsigned number; /* place of the rule in the file, from 0 */
    bool deny;
    bool inspect;         /* HAProxy reads the requests in the connection */
    bool is_private;      /* the rule also allows private addresses */
    bool websocket;       /* with inspect: WebSocket upgrades are allowed */
    bool by_relay;        /* with inspect: upgrades pass through the relay */
    bool any_sni;         /* without inspect: the ClientHello need not have the name */
    struct cidr cidr;     /* family 0 if the rule is by host */
    struct slice host;    /* a pattern in lower case */
    struct slice ports;   /* packed u16; empty if a rule that denies covers all ports */
    struct slice methods; /* "GET,HEAD"; empty if all are allowed */
    struct slice paths;   /* packed; empty if all are allowed */
    struct slice set;     /* packed headers to set; read with egress_rule_set */
    struct slice packed;  /* the whole packed rule */
};

/* The settings of a sandbox that apply to all rules. */
struct egress_policy {
    bool audit;                /* audit mode: a request that no rule allows is let through and logged */
    uint32_t most_connections; /* limit of connections; 0 for the relay's limit */
    struct slice rules;        /* packed rules; read with egress_rules_next */
};

/* ---- writing: at most 65535 bytes of a text or a rule, else w->full ---- */
void egress_pack_text(struct writer *w, struct slice text);
void egress_pack_policy(struct writer *w,
                        const struct egress_policy *policy); /* the caller packs its rules next */
void egress_pack_rule(struct writer *w, const struct egress_rule *rule);

/* ---- reading; slices point into the packed bytes ---- */
struct slice egress_unpack_text(struct reader *r);
/* Returns false if the bytes are not a packed policy. */
bool egress_policy_unpack(struct slice packed, struct egress_policy *policy);
/* Returns the next rule, or false at the end. Start with *cursor = 0, and pass the same *rule to all calls. */
bool egress_rules_next(const struct egress_policy *policy, size_t *cursor, struct egress_rule *rule);
/* Returns the next header that a rule sets, and the name of the secret that is its value. Start with *cursor = 0. */
bool egress_rule_set(const struct egress_rule *rule, size_t *cursor, struct slice *header,
                     struct slice *secret);
/* Returns a digest that identifies this rule and its enforcement, from 0 to 2^48 - 1, or -1 if memory is short. An inspected connection
 * must end if the digest changes, because requests in it are not judged again by the rule for the connection. */
int64_t egress_rule_digest(const struct egress_policy *policy, const struct egress_rule *rule);

#endif
