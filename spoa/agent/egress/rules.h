/* SPDX-License-Identifier: MIT */
/*
 * rules: `egress` of a record or `egress.default` of the configuration: what a sandbox may reach outside, packed into bytes
 * that a record can keep. rules_json.h reads it, match.h asks it.
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
    EGRESS_PACKED_MOST = 16384 /* bytes of all rules of a sandbox */
};

/*  The headers that a rule may set, each with a rule of its own in haproxy/egress.cfg, which cannot set one by a computed name.
 *  X(field, SPOE variable, name in lower case) */
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
    unsigned number; /* from 0, in the order of the file */
    bool deny;
    bool inspect;         /* HAProxy reads what is inside */
    bool is_private;      /* private addresses may be reached, too */
    bool websocket;       /* inspected: upgrades may pass */
    bool by_relay;        /* inspected: they pass through the relay */
    bool any_sni;         /* raw: a ClientHello may do without the name */
    struct cidr cidr;     /* family 0: the rule is by host */
    struct slice host;    /* a pattern in lower case */
    struct slice ports;   /* packed u16; empty: all (of a rule that denies) */
    struct slice methods; /* "GET,HEAD"; empty: all */
    struct slice paths;   /* packed; empty: all */
    struct slice set;     /* packed; read with egress_rule_set */
    struct slice packed;  /* all of it */
};

/* What the rules say beside each rule. */
struct egress_policy {
    bool audit;                /* what would be refused is let through, and told */
    uint32_t most_connections; /* 0: as many as the relay takes */
    struct slice rules;        /* for egress_rules_next */
};

/* ---- writing: at most 65535 bytes of a text or a rule, else w->full ---- */
void egress_pack_text(struct writer *w, struct slice text);
void egress_pack_policy(struct writer *w, const struct egress_policy *policy); /* its rules follow */
void egress_pack_rule(struct writer *w, const struct egress_rule *rule);

/* ---- reading; slices point into the packed bytes ---- */
struct slice egress_unpack_text(struct reader *r);
/* False: these are not bytes that were packed here. */
bool egress_policy_unpack(struct slice packed, struct egress_policy *policy);
/* The next rule: start with *cursor = 0; *rule is to be the same one in all calls. False at the end. */
bool egress_rules_next(const struct egress_policy *policy, size_t *cursor, struct egress_rule *rule);
/* The next header that a rule sets, and the name of the secret: start with *cursor = 0. */
bool egress_rule_set(const struct egress_rule *rule, size_t *cursor, struct slice *header,
                     struct slice *secret);
/* What tells this rule, enforced so, from others: 0 to 2^48 - 1; -1: there is no memory. A connection that is inspected under
 * it ends when that changes, because what was judged by the rule inside of it is not judged again. */
int64_t egress_rule_digest(const struct egress_policy *policy, const struct egress_rule *rule);

#endif
