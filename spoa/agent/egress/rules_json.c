/* SPDX-License-Identifier: MIT */
#include "spoa/agent/egress/rules_json.h"

#include "spoa/agent/egress/target.h"
#include "spoa/base/bytes/ascii.h"
#include "spoa/proto/http.h"

enum access { ACCESS_FULL, ACCESS_READ_ONLY, ACCESS_READ_WRITE };

static const char *const access_names[] = {"full", "read-only", "read-write", NULL};
static const char *const access_methods[] = {[ACCESS_FULL] = "",
                                             [ACCESS_READ_ONLY] = "GET,HEAD,OPTIONS",
                                             [ACCESS_READ_WRITE] = "GET,HEAD,OPTIONS,POST,PUT,PATCH"};
static const char *const enforcement_names[] = {"enforce", "audit", NULL};
static const char *const via_names[] = {"direct", "relay", NULL};
static const char *const sni_names[] = {"host", "any", NULL};

struct rule_text {
    char *host, *cidr;
    const json_node *ports, *set;
    bool deny, inspect, is_private, websocket;
    int access, via, sni;
    struct texts methods, paths;
};

/* ---- forms of single values ---- */

static bool is_label(struct slice label)
{
    for (size_t i = 0; i < label.len; i++)
        if (!ascii_is_alphanumeric(label.at[i]) && label.at[i] != '-' && label.at[i] != '_')
            return false;
    return label.len > 0 && label.len <= 63;
}

/* Allows `*` for a whole label and `**` for the first ones. The last two labels must be text: they name the owner of the domain. */
static const char *check_host(struct slice value)
{
    struct slice rest = value, label;
    size_t labels = 0, plain = 0;
    struct target target;
    if (slice_find(value, '*') == value.len)
        return target_parse(value, 1, &target) == NULL && !target.address.family && target.port == 1 &&
                       slice_find(value, ':') == value.len
                   ? NULL
                   : "a DNS name, or one with * or ** for labels in front; an address goes into `cidr`";
    while (slice_split(&rest, '.', &label)) {
        bool wild = slice_is(label, "*") || (slice_is(label, "**") && labels == 0);
        if (!wild && !is_label(label))
            return "a DNS name in which * stands for a whole label, and ** for one or more in front";
        plain = wild ? 0 : plain + 1;
        labels++;
    }
    return plain >= 2 ? NULL : "narrower: behind * or ** at least two labels say whose names these are";
}

static const char *check_cidr(struct slice value)
{
    struct cidr cidr;
    return cidr_parse(value, &cidr) ? NULL : "a network like 10.20.0.0/16, or an address";
}

static const char *check_method(struct slice value)
{
    for (size_t i = 0; i < value.len; i++)
        if (value.at[i] < 'A' || value.at[i] > 'Z')
            return "a method in capitals";
    return slice_is(value, "CONNECT") || slice_is(value, "TRACE")
               ? "another method: this one is served nowhere"
               : NULL;
}

/* Allows `**` at the end only. */
static const char *check_path(struct slice value)
{
    struct slice rest = slice_from(value, 1), segment;
    if (value.len == 0 || value.at[0] != '/')
        return "a path from / on";
    while (slice_split(&rest, '/', &segment)) {
        bool last = !slice_present(rest);
        if (slice_is(segment, "*") || (slice_is(segment, "**") && last))
            continue;
        if ((segment.len == 0 && !last) || slice_is(segment, ".") || slice_is(segment, ".."))
            return "a path without empty segments, . and ..";
        for (size_t i = 0; i < segment.len; i++)
            if (segment.at[i] <= ' ' || segment.at[i] >= 0x7f || strchr("%\\;?#*", segment.at[i]))
                return "a path of printable characters, in which * stands for a segment and ** for all at "
                       "the end";
    }
    return NULL;
}

#define FIELD(name) offsetof(struct rule_text, name)
static const struct option rule_keys[] = {
    {"host", OPTION_TEXT, FIELD(host), OPTION_NONE,
     .help = "name, or pattern: `*` is a label, `**` one or more", .min = 1, .max = TARGET_HOST_MOST,
     .check = check_host},
    {"cidr", OPTION_TEXT, FIELD(cidr), OPTION_NONE,
     .help = "instead of `host`: targets that are addresses; with `deny` also what names lead to", .min = 1,
     .max = 64, .check = check_cidr},
    {"ports", OPTION_NODE, FIELD(ports), OPTION_NONE, .help = "ports; with `deny` they may be left out: all",
     .form = "a list of numbers from 1 to 65535"},
    {"deny", OPTION_BOOL, FIELD(deny), "false", .help = "refuses what it matches"},
    {"private", OPTION_BOOL, FIELD(is_private), "false", .help = "private addresses may be reached, too"},
    {"inspect", OPTION_BOOL, FIELD(inspect), "false", .help = "HAProxy reads the requests inside"},
    {"access", OPTION_ENUM, FIELD(access), "full", .help = "methods of requests that are inspected",
     .names = access_names},
    {"methods", OPTION_TEXTS, FIELD(methods), OPTION_NONE, .help = "these methods, instead of `access`",
     .min = 1, .max = 32, .check = check_method},
    {"paths", OPTION_TEXTS, FIELD(paths), OPTION_NONE,
     .help = "these paths: `*` is a segment, `**` all at the end", .min = 1, .max = 64, .check = check_path},
    {"websocket", OPTION_BOOL, FIELD(websocket), "true", .help = "upgrades may pass"},
    {"via", OPTION_ENUM, FIELD(via), "direct", .help = "upgrades go straight, or through the relay",
     .names = via_names},
    {"set", OPTION_NODE, FIELD(set), OPTION_NONE, .help = "headers that the sandbox never sees",
     .form = "an object of header: {\"secret\": name}"},
    {"sni", OPTION_ENUM, FIELD(sni), "host",
     .help = "without `inspect`: `any` permits a ClientHello without a name", .names = sni_names},
};
#undef FIELD
enum { RULE_KEYS = sizeof rule_keys / sizeof *rule_keys };

struct policy_text {
    int enforcement;
    int64_t most_connections;
    const json_node *rules;
};
#define FIELD(name) offsetof(struct policy_text, name)
static const struct option policy_keys[] = {
    {"enforcement", OPTION_ENUM, FIELD(enforcement), "enforce",
     .help = "`audit`: what would be refused passes, and is told", .names = enforcement_names},
    {"max_connections", OPTION_INT, FIELD(most_connections), "0",
     .help = "at once, of a sandbox; 0: any number", .min = 0, .max = 1000000},
    {"rules", OPTION_NODE, FIELD(rules), NULL, .help = "the first that matches decides",
     .form = "a list of rules"},
};
#undef FIELD
enum { POLICY_KEYS = sizeof policy_keys / sizeof *policy_keys };

const struct option *egress_rule_options(size_t *count)
{
    *count = RULE_KEYS;
    return rule_keys;
}

const struct option *egress_policy_options(size_t *count)
{
    *count = POLICY_KEYS;
    return policy_keys;
}

/* ---- a rule ---- */

struct reading {
    const struct json *doc;
    bool (*known)(const void *secrets, struct slice name);
    const void *secrets;
    struct fail *why;
    struct writer scratch; /* packed lists of the current rule */
};

static bool wrong(const struct reading *r, const json_node *node, const char *what)
{
    return json_fail(r->doc, node, r->why, "%s", what);
}

static struct slice written_from(const struct reading *r, size_t start)
{
    return slice_from(writer_slice(&r->scratch), start);
}

static bool read_ports(struct reading *r, const json_node *node, struct slice *ports)
{
    size_t start = r->scratch.len;
    if (!json_is_array(node) || json_count(node) == 0 || json_count(node) > 64)
        return wrong(r, node, "ports is a list of 1 to 64 ports");
    for (const json_node *n = json_first(node); n; n = json_next(n)) {
        int64_t port;
        if (!json_int(r->doc, n, 1, 65535, &port))
            return wrong(r, n, "a port is a number from 1 to 65535");
        writer_be(&r->scratch, (uint64_t)port, 2);
    }
    *ports = written_from(r, start);
    return true;
}

static void read_methods(struct reading *r, const struct rule_text *text, struct slice *methods)
{
    size_t start = r->scratch.len;
    if (text->methods.count == 0)
        writer_text(&r->scratch, access_methods[text->access]);
    for (size_t i = 0; i < text->methods.count; i++) {
        if (i)
            writer_u8(&r->scratch, ',');
        writer_text(&r->scratch, text->methods.at[i]);
    }
    *methods = written_from(r, start);
}

static void read_paths(struct reading *r, const struct rule_text *text, struct slice *paths)
{
    size_t start = r->scratch.len;
    for (size_t i = 0; i < text->paths.count; i++)
        egress_pack_text(&r->scratch, slice_text(text->paths.at[i]));
    *paths = written_from(r, start);
}

static bool may_be_set(struct slice name)
{
#define X(field, variable, header)                       \
    if (slice_equal_nocase(name, SLICE_LITERAL(header))) \
        return true;
    EGRESS_CREDENTIALS(X)
#undef X
    return false;
}

#define X(field, variable, header) " " header
static const char cannot_be_set[] = "a rule may set these headers alone:" EGRESS_CREDENTIALS(X);
#undef X

static bool read_set(struct reading *r, const json_node *node, struct slice *set)
{
    size_t start = r->scratch.len;
    if (!json_is_object(node) || json_count(node) == 0 || json_count(node) > 16)
        return wrong(r, node, "set is an object of 1 to 16 headers");
    for (const json_node *n = json_first(node); n; n = json_next(n)) {
        struct slice header = slice_text(json_key(n)), name;
        const json_node *secret = json_member(n, "secret");
        if (!may_be_set(header))
            return wrong(r, n, cannot_be_set);
        if (json_count(n) != 1 || !json_text(secret, &name) || name.len == 0 || name.len > 64)
            return wrong(r, n, "a header is set to {\"secret\": \"a name of egress.secrets\"}");
        if (r->known && !r->known(r->secrets, name))
            return wrong(r, secret, "egress.secrets has no secret of this name");
        egress_pack_text(&r->scratch, header);
        egress_pack_text(&r->scratch, name);
    }
    *set = written_from(r, start);
    return true;
}

static void read_host(struct reading *r, const char *host, struct slice *pattern)
{
    size_t start = r->scratch.len, len = strlen(host);
    if (len && host[len - 1] == '.')
        len--;
    for (size_t i = 0; i < len; i++)
        writer_u8(&r->scratch, (uint8_t)(host[i] >= 'A' && host[i] <= 'Z' ? host[i] | 0x20 : host[i]));
    *pattern = written_from(r, start);
}

/* Refuses keys that have no effect beside others, because the author expects another effect of the rule. */
static const char *contradiction(const struct rule_text *t)
{
    bool inside =
        t->access != ACCESS_FULL || t->methods.count || t->paths.count || t->set || !t->websocket || t->via;
    if (!t->host == !t->cidr)
        return "a rule has either a host or a cidr";
    if (t->deny && (inside || t->inspect || t->is_private || t->sni))
        return "a rule that denies has host or cidr, and ports";
    if (!t->deny && !t->ports)
        return "a rule that allows names its ports";
    if (inside && !t->inspect)
        return "access, methods, paths, websocket, via and set need \"inspect\": true";
    if (t->inspect && t->cidr)
        return "only a rule by host can be inspected: a certificate is for a name";
    if (t->inspect && t->sni)
        return "sni is for rules that are not inspected";
    if (t->methods.count && t->access != ACCESS_FULL)
        return "a rule has either access or methods";
    if (t->via && !t->websocket)
        return "via is for upgrades, and websocket says that none may pass";
    return NULL;
}

static bool pack_rule(struct reading *r, const json_node *node, const struct rule_text *text,
                      struct writer *w)
{
    struct egress_rule rule = {.deny = text->deny,
                               .inspect = text->inspect,
                               .is_private = text->is_private,
                               .websocket = text->websocket,
                               .by_relay = text->via == 1,
                               .any_sni = text->sni == 1};
    const char *why = contradiction(text);
    if (why)
        return wrong(r, node, why);
    if (text->cidr && !cidr_parse(slice_text(text->cidr), &rule.cidr))
        return wrong(r, node, "cidr is not a network"); /* check_cidr has accepted the text */
    if (!text->cidr)
        read_host(r, text->host, &rule.host);
    if ((text->ports && !read_ports(r, text->ports, &rule.ports)) ||
        (text->set && !read_set(r, text->set, &rule.set)))
        return false;
    read_methods(r, text, &rule.methods);
    read_paths(r, text, &rule.paths);
    egress_pack_rule(w, &rule);
    return !r->scratch.full || wrong(r, node, "the rule is too large");
}

static bool read_rule(struct reading *r, const json_node *node, struct writer *w)
{
    struct rule_text text = {.host = NULL};
    if (!json_is_object(node))
        return wrong(r, node, "a rule is an object");
    r->scratch.len = 0;
    bool good =
        options_read(r->doc, node, rule_keys, RULE_KEYS, NULL, &text, r->why) && pack_rule(r, node, &text, w);
    options_free(rule_keys, RULE_KEYS, &text);
    return good;
}

static bool read_rules(struct reading *r, const json_node *rules, struct writer *w)
{
    size_t start = w->len;
    if (!json_is_array(rules) || json_count(rules) > EGRESS_RULES_MOST)
        return json_fail(r->doc, rules, r->why, "rules is a list of at most %d rules", EGRESS_RULES_MOST);
    for (const json_node *n = json_first(rules); n; n = json_next(n)) {
        if (!read_rule(r, n, w))
            return false;
        if (w->full || w->len - start > EGRESS_PACKED_MOST)
            return json_fail(r->doc, n, r->why, "the rules are over %d bytes", EGRESS_PACKED_MOST);
    }
    return true;
}

bool egress_policy_read(const struct json *doc, const json_node *node,
                        bool (*known)(const void *secrets, struct slice name), const void *secrets,
                        struct writer *w, struct fail *why)
{
    uint8_t memory[EGRESS_PACKED_MOST];
    struct policy_text text = {.enforcement = 0};
    struct reading r = {doc, known, secrets, why, writer_of(memory, sizeof memory)};
    if (!json_is_object(node))
        return wrong(&r, node, "egress is an object with rules");
    if (!options_read(doc, node, policy_keys, POLICY_KEYS, NULL, &text, why))
        return false;
    struct egress_policy policy = {.audit = text.enforcement == 1,
                                   .most_connections = (uint32_t)text.most_connections};
    egress_pack_policy(w, &policy);
    return read_rules(&r, text.rules, w); /* nothing must be freed: policy_keys owns no text */
}
