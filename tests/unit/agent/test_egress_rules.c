/* SPDX-License-Identifier: MIT */
#include "tests/unit/support.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>

#include "spoa/agent/egress/match.h"
#include "spoa/agent/egress/rules_json.h"

static uint8_t memory[2 * EGRESS_PACKED_MOST];
static const struct json_limits limits = {4 << 20, 16};

static bool is_known(const void *secrets, struct slice name)
{
    return slice_is(name, secrets);
}

static bool read_as(const char *text, bool (*known)(const void *, struct slice), struct egress_policy *policy,
                    struct fail *why)
{
    struct writer w = writer_of(memory, sizeof memory);
    struct json *doc = json_parse(slice_text(text), "file", 0, limits, why);
    if (!doc)
        return false;
    bool good = egress_policy_read(doc, json_root(doc), known, "openai", &w, why);
    json_free(doc);
    return good && egress_policy_unpack(writer_slice(&w), policy);
}

static struct egress_policy policy_of(const char *text)
{
    struct egress_policy policy;
    struct fail why;
    if (!read_as(text, is_known, &policy, &why))
        fail_msg("%s", why.text);
    return policy;
}

/* The number of the rule that decides; -1: none. */
static int rule_for(const struct egress_policy *policy, const char *text, struct egress_rule *rule)
{
    struct target target;
    const char *why = target_parse(slice_text(text), 0, &target);
    if (why)
        fail_msg("%s: %s", text, why);
    return egress_rules_match(policy, &target, rule) ? (int)rule->number : -1;
}

static void hosts_match_by_whole_labels(void **state)
{
    (void)state;
    static const struct {
        const char *pattern, *name;
        bool matches;
    } cases[] = {
        {"a.example", "a.example", true},          {"a.example", "b.example", false},
        {"a.example", "x.a.example", false},       {"a.example", "aa.example", false},
        {"a.example", "a.examples", false},        {"x.a.example", "a.example", false},
        {"*.a.example", "x.a.example", true},      {"*.a.example", "a.example", false},
        {"*.a.example", "x.y.a.example", false},   {"*.a.example", "xa.example", false},
        {"**.a.example", "x.a.example", true},     {"**.a.example", "x.y.a.example", true},
        {"**.a.example", "a.example", false},      {"**.a.example", "xa.example", false},
        {"x.*.a.example", "x.y.a.example", true},  {"x.*.a.example", "y.y.a.example", false},
        {"**.*.a.example", "x.y.a.example", true}, {"**.*.a.example", "y.a.example", false},
        {"localhost", "localhost", true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct slice pattern = guarded(slice_text(cases[i].pattern)),
                     name = guarded(slice_text(cases[i].name));
        if (egress_host_matches(pattern, name) != cases[i].matches)
            fail_msg("%s %s", cases[i].pattern, cases[i].name);
        guarded_free(pattern);
        guarded_free(name);
    }
}

static void the_first_rule_that_matches_decides(void **state)
{
    (void)state;
    struct egress_rule rule;
    struct egress_policy policy = policy_of(
        "{\"rules\": ["
        "{\"host\": \"Secret.Example.com.\", \"deny\": true},"
        "{\"host\": \"*.example.com\", \"ports\": [443, 8443]},"
        "{\"cidr\": \"10.9.0.0/16\", \"deny\": true, \"ports\": [5432]},"
        "{\"cidr\": \"10.0.0.0/8\", \"ports\": [5432], \"private\": true},"
        "{\"cidr\": \"2001:db8::/32\", \"ports\": [443], \"sni\": \"any\"},"
        "{\"host\": \"**.example.com\", \"ports\": [80], \"inspect\": true, \"websocket\": false}]}");
    assert_false(policy.audit);
    assert_int_equal(policy.most_connections, 0);
    assert_int_equal(rule_for(&policy, "secret.example.com:443", &rule), 0);
    assert_true(rule.deny);
    assert_int_equal(rule_for(&policy, "secret.example.com:1", &rule), 0);
    assert_int_equal(rule_for(&policy, "api.example.com:443", &rule), 1);
    assert_false(rule.deny || rule.inspect || rule.any_sni || rule.is_private);
    assert_int_equal(rule_for(&policy, "api.example.com:8443", &rule), 1);
    assert_int_equal(rule_for(&policy, "api.example.com:444", &rule), -1);
    assert_int_equal(rule_for(&policy, "a.b.example.com:443", &rule), -1);
    assert_int_equal(rule_for(&policy, "a.b.example.com:80", &rule), 5);
    assert_true(rule.inspect && !rule.websocket);
    assert_int_equal(rule_for(&policy, "example.com:443", &rule), -1);
    assert_int_equal(rule_for(&policy, "10.9.1.1:5432", &rule), 2);
    assert_int_equal(rule_for(&policy, "10.8.1.1:5432", &rule), 3);
    assert_true(rule.is_private);
    assert_int_equal(rule_for(&policy, "10.9.1.1:5433", &rule), -1);
    assert_int_equal(rule_for(&policy, "[::ffff:10.8.1.1]:5432", &rule), 3);
    assert_int_equal(rule_for(&policy, "[2001:db8::7]:443", &rule), 4);
    assert_true(rule.any_sni);
}

static void what_a_name_leads_to_is_denied_by_networks_in_front(void **state)
{
    (void)state;
    struct target target;
    struct egress_policy policy =
        policy_of("{\"rules\": ["
                  "{\"cidr\": \"10.9.0.0/16\", \"deny\": true, \"ports\": [5432]},"
                  "{\"host\": \"db.example.com\", \"ports\": [5432, 5433], \"private\": true},"
                  "{\"cidr\": \"10.8.0.0/16\", \"deny\": true}]}");
    static const struct address bad = {4, {10, 9, 1, 1}}, good = {4, {10, 8, 1, 1}};
    assert_null(target_parse(slice_text("db.example.com:5432"), 0, &target));
    assert_int_equal(egress_rules_deny(&policy, &target, 1, &bad), 0);
    assert_int_equal(egress_rules_deny(&policy, &target, 1, &good), -1);
    assert_int_equal(egress_rules_deny(&policy, &target, 0, &bad), -1);
    assert_null(target_parse(slice_text("db.example.com:5433"), 0, &target));
    assert_int_equal(egress_rules_deny(&policy, &target, 1, &bad), -1);
}

/* A translator or a tunnel may take an IPv6 address to the IPv4 address in it. Nothing is allowed that way. */
static void what_an_address_carries_is_denied_with_it(void **state)
{
    (void)state;
    static const char *const forms[] = {
        "::ffff:8.8.8.8",    "::ffff:0:8.8.8.8",   "::8.8.8.8",
        "64:ff9b::8.8.8.8",  "2002:808:808::1",    "2001:0:101:101::f7f7:f7f7",
        "2001:0:808:808::1", "2a00::5efe:8.8.8.8", "2a00::200:5efe:8.8.8.8"};
    static const char *const others[] = {"::ffff:8.8.9.8", "64:ff9b::8.8.9.8", "2a00::8.8.8.8",
                                         "2003:808:808::1"};
    struct target target, name;
    struct egress_rule rule;
    struct egress_policy policy = policy_of("{\"rules\": ["
                                            "{\"cidr\": \"8.8.8.0/24\", \"deny\": true},"
                                            "{\"cidr\": \"::/0\", \"ports\": [443]},"
                                            "{\"host\": \"db.example.com\", \"ports\": [443]}]}");
    assert_null(target_parse(slice_text("db.example.com:443"), 0, &name));
    for (size_t i = 0; i < sizeof forms / sizeof *forms + sizeof others / sizeof *others; i++) {
        bool denied = i < sizeof forms / sizeof *forms;
        const char *address = denied ? forms[i] : others[i - sizeof forms / sizeof *forms];
        char text[64];
        snprintf(text, sizeof text, "[%s]:443", address);
        assert_null(target_parse(slice_text(text), 0, &target));
        if (rule_for(&policy, text, &rule) != 0 && denied)
            fail_msg("%s", text);
        if (egress_rules_deny(&policy, &name, 2, &target.address) != (denied ? 0 : -1))
            fail_msg("%s behind a name", text);
    }
    policy = policy_of("{\"rules\": [{\"cidr\": \"8.8.8.0/24\", \"ports\": [443]}]}");
    assert_int_equal(rule_for(&policy, "[64:ff9b::8.8.8.8]:443", &rule), -1);
    assert_int_equal(rule_for(&policy, "[::ffff:8.8.8.8]:443", &rule), 0);
}

static void methods_and_paths_are_listed(void **state)
{
    (void)state;
    struct egress_rule rule;
    struct egress_policy policy = policy_of(
        "{\"enforcement\": \"audit\", \"max_connections\": 7, \"rules\": ["
        "{\"host\": \"ro.example.com\", \"ports\": [443], \"inspect\": true, \"access\": \"read-only\", "
        "\"paths\": [\"/repos/**\", \"/users/*/keys\", \"/\", \"/end/\"]},"
        "{\"host\": \"rw.example.com\", \"ports\": [443], \"inspect\": true, \"access\": \"read-write\"},"
        "{\"host\": \"own.example.com\", \"ports\": [443], \"inspect\": true, \"methods\": [\"GET\", "
        "\"PURGE\"]},"
        "{\"host\": \"full.example.com\", \"ports\": [443], \"inspect\": true}]}");
    assert_true(policy.audit);
    assert_int_equal(policy.most_connections, 7);
    static const struct {
        const char *host, *method;
        bool passes;
    } methods[] = {{"ro", "GET", true},     {"ro", "HEAD", true},   {"ro", "OPTIONS", true},
                   {"ro", "POST", false},   {"ro", "get", false},   {"ro", "GET,HEAD", false},
                   {"ro", "", false},       {"rw", "POST", true},   {"rw", "PATCH", true},
                   {"rw", "DELETE", false}, {"own", "PURGE", true}, {"own", "HEAD", false},
                   {"full", "BREW", true}};
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++) {
        char target[64];
        snprintf(target, sizeof target, "%s.example.com:443", methods[i].host);
        assert_true(rule_for(&policy, target, &rule) >= 0);
        if (egress_rule_method(&rule, slice_text(methods[i].method)) != methods[i].passes)
            fail_msg("%s %s", methods[i].host, methods[i].method);
    }
    static const struct {
        const char *path;
        bool passes;
    } paths[] = {
        {"/repos/a", true},
        {"/repos/a/b/c", true},
        {"/repos/", true},
        {"/repos", false},
        {"/reposx/a", false},
        {"/users/7/keys", true},
        {"/users/7/keys/", false},
        {"/users//keys", false},
        {"/users/a/b/keys", false},
        {"/users/7/key", false},
        {"/", true},
        {"/end/", true},
        {"/end", false},
        {"", false},
        {"*", false},
        {"repos/a", false},
        {"/%72epos/a", true},
        {"/repos/..", false},
        {"/repos/../x", false},
        {"/repos/./x", false},
        {"/repos/%2e%2e/x", false},
        {"/repos/.%2E/x", false},
        {"/repos/...", true},
        {"/repos/..a", true},
        /* an encoded slash: what both readings allow (npm's scoped packages, "/@scope%2fname") */
        {"/repos/a%2fb", true},
        {"/repos/@a%2Fb/c", true},
        {"/repos/a%2f", true},
        {"/repos%2fa", false},
        {"/repos%2fa/b", false},
        {"/users/a%2fb/keys", false},
        {"/users%2f7/keys", false},
        {"/users/7%2fkeys", false},
        {"/users/7/keys%2f", false},
        {"/repos/%2fa", false},
        {"/repos/a%2f%2fb", false},
        {"/repos/a%2f/b", false},
        {"/repos/..%2fa", false},
        {"/repos/a%2f..", false},
        {"/repos/a%2f..%2f..%2fb", false},
        {"/repos/a%2f%2e%2e/b", false},
        {"/repos/.%2fa", false},
        {"/repos/a%252fb", false},
        {"/repos/a%2", false},
        {"/%2frepos/a", false},
        {"/repos/a%5Cb", false},
        {"/repos/a\\b", false},
        {"/repos/a;b", false},
        {"/repos/a%3bb", false},
        {"/repos//a", false},
        {"/repos/%252e", false},
        {"/repos/a%00", false},
        {"/repos/a%0a", false},
        {"/repos/%", false},
        {"/repos/%2", false},
        {"/repos/%zz", false},
        {"/repos/a b", false},
        {"/repos/a%20b", false},
        {"/repos/a%3fb", false},
        {"/repos/\303\274", true},
        {"/repos/%c3%bc", true},
        {"/repos/.", false},
        {"/repos/%2E", false},
        {"/users/%2e/keys", false},
    };
    assert_int_equal(rule_for(&policy, "ro.example.com:443", &rule), 0);
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        struct slice path = guarded(slice_text(paths[i].path));
        if (egress_rule_path(&rule, path) != paths[i].passes)
            fail_msg("%s", paths[i].path);
        guarded_free(path);
    }
    assert_int_equal(rule_for(&policy, "full.example.com:443", &rule), 3);
    assert_true(egress_rule_path(&rule, slice_text("/repos/../x"))); /* no list: whatever HAProxy lets pass */
}

static void headers_are_set_from_secrets(void **state)
{
    (void)state;
    struct egress_rule rule;
    struct slice header, secret;
    size_t cursor = 0;
    struct egress_policy policy = policy_of(
        "{\"rules\": [{\"host\": \"api.openai.com\", \"ports\": [443], \"inspect\": true, \"set\": {"
        "\"Authorization\": {\"secret\": \"openai\"}, \"X-Api-Key\": {\"secret\": \"openai\"}}}]}");
    assert_int_equal(rule_for(&policy, "api.openai.com:443", &rule), 0);
    assert_true(egress_rule_set(&rule, &cursor, &header, &secret));
    assert_true(slice_is(header, "Authorization") && slice_is(secret, "openai"));
    assert_true(egress_rule_set(&rule, &cursor, &header, &secret));
    assert_true(slice_is(header, "X-Api-Key") && slice_is(secret, "openai"));
    assert_false(egress_rule_set(&rule, &cursor, &header, &secret));
}

static void mistakes_are_told_with_their_place(void **state)
{
    (void)state;
    static const struct {
        const char *rule, *why; /* behind "file:1:" and a column */
    } cases[] = {
        {"{\"host\": \"*\", \"ports\": [1]}", "narrower"},
        {"{\"host\": \"**\", \"ports\": [1]}", "narrower"},
        {"{\"host\": \"*.com\", \"ports\": [1]}", "narrower"},
        {"{\"host\": \"**.com\", \"ports\": [1]}", "narrower"},
        {"{\"host\": \"*.*\", \"deny\": true}", "narrower"},
        {"{\"host\": \"a.*.com\", \"ports\": [1]}", "narrower"},
        {"{\"host\": \"x.a.*\", \"ports\": [1]}", "narrower"},
        {"{\"host\": \"a.**.example.com\", \"ports\": [1]}", "whole label"},
        {"{\"host\": \"a*.example.com\", \"ports\": [1]}", "whole label"},
        {"{\"host\": \"*a.example.com\", \"ports\": [1]}", "whole label"},
        {"{\"host\": \"***.example.com\", \"ports\": [1]}", "whole label"},
        {"{\"host\": \"10.0.0.1\", \"ports\": [1]}", "`cidr`"},
        {"{\"host\": \"[::1]\", \"ports\": [1]}", "`cidr`"},
        {"{\"host\": \"a.example:443\", \"ports\": [1]}", "a DNS name"},
        {"{\"host\": \"a..example\", \"ports\": [1]}", "a DNS name"},
        {"{\"host\": \"http://a.example\", \"ports\": [1]}", "a DNS name"},
        {"{\"host\": \"127.1\", \"ports\": [1]}", "a DNS name"},
        {"{\"cidr\": \"10.0.0.1/8\", \"ports\": [1]}", "a network"},
        {"{\"cidr\": \"example.com\", \"ports\": [1]}", "a network"},
        {"{\"ports\": [1]}", "either a host or a cidr"},
        {"{\"host\": \"a.example\", \"cidr\": \"10.0.0.0/8\", \"ports\": [1]}", "either a host or a cidr"},
        {"{\"host\": \"a.example\"}", "names its ports"},
        {"{\"host\": \"a.example\", \"ports\": []}", "1 to 64 ports"},
        {"{\"host\": \"a.example\", \"ports\": 443}", "1 to 64 ports"},
        {"{\"host\": \"a.example\", \"ports\": [0]}", "1 to 65535"},
        {"{\"host\": \"a.example\", \"ports\": [65536]}", "1 to 65535"},
        {"{\"host\": \"a.example\", \"ports\": [\"443\"]}", "1 to 65535"},
        {"{\"host\": \"a.example\", \"ports\": [1], \"access\": \"read-only\"}", "\"inspect\": true"},
        {"{\"host\": \"a.example\", \"ports\": [1], \"paths\": [\"/\"]}", "\"inspect\": true"},
        {"{\"host\": \"a.example\", \"ports\": [1], \"websocket\": false}", "\"inspect\": true"},
        {"{\"host\": \"a.example\", \"ports\": [1], \"set\": {\"Cookie\": {\"secret\": \"openai\"}}}",
         "\"inspect\": true"},
        {"{\"host\": \"a.example\", \"ports\": [1], \"via\": \"relay\"}", "\"inspect\": true"},
        {"{\"host\": \"a.example\", \"ports\": [1], \"inspect\": true, \"sni\": \"any\"}", "not inspected"},
        {"{\"host\": \"a.example\", \"ports\": [1], \"inspect\": true, \"websocket\": false, \"via\": "
         "\"relay\"}",
         "none may pass"},
        {"{\"cidr\": \"10.0.0.0/8\", \"ports\": [1], \"inspect\": true}", "by host"},
        {"{\"host\": \"a.example\", \"deny\": true, \"private\": true}", "denies"},
        {"{\"host\": \"a.example\", \"deny\": true, \"inspect\": true}", "denies"},
        {"{\"host\": \"a.example\", \"ports\": [1], \"inspect\": true, \"access\": \"read-only\", "
         "\"methods\": [\"GET\"]}",
         "either access or methods"},
        {"{\"host\": \"a.example\", \"ports\": [1], \"inspect\": true, \"methods\": [\"get\"]}", "capitals"},
        {"{\"host\": \"a.example\", \"ports\": [1], \"inspect\": true, \"methods\": [\"CONNECT\"]}",
         "nowhere"},
        {"{\"host\": \"a.example\", \"ports\": [1], \"inspect\": true, \"methods\": [\"TRACE\"]}", "nowhere"},
        {"{\"host\": \"a.example\", \"ports\": [1], \"inspect\": true, \"paths\": [\"repos\"]}", "from / on"},
        {"{\"host\": \"a.example\", \"ports\": [1], \"inspect\": true, \"paths\": [\"/a/../b\"]}",
         "without empty"},
        {"{\"host\": \"a.example\", \"ports\": [1], \"inspect\": true, \"paths\": [\"/a//b\"]}",
         "without empty"},
        {"{\"host\": \"a.example\", \"ports\": [1], \"inspect\": true, \"paths\": [\"/**/b\"]}", "printable"},
        {"{\"host\": \"a.example\", \"ports\": [1], \"inspect\": true, \"paths\": [\"/a%2fb\"]}",
         "printable"},
        {"{\"host\": \"a.example\", \"ports\": [1], \"inspect\": true, \"paths\": [\"/a?b\"]}", "printable"},
        {"{\"host\": \"a.example\", \"ports\": [1], \"inspect\": true, \"set\": {\"Host\": {\"secret\": "
         "\"openai\"}}}",
         "may set"},
        {"{\"host\": \"a.example\", \"ports\": [1], \"inspect\": true, \"set\": {\"Cook ie\": {\"secret\": "
         "\"openai\"}}}",
         "may set"},
        {"{\"host\": \"a.example\", \"ports\": [1], \"inspect\": true, \"set\": {\"Cookie\": \"value\"}}",
         "is set to"},
        {"{\"host\": \"a.example\", \"ports\": [1], \"inspect\": true, \"set\": {\"Cookie\": {\"secret\": "
         "\"other\"}}}",
         "no secret"},
        {"{\"host\": \"a.example\", \"ports\": [1], \"inspect\": true, \"set\": {}}", "1 to 16"},
        {"{\"host\": \"a.example\", \"ports\": [1], \"hots\": true}", "hots"},
        {"{\"host\": \"a.example\", \"ports\": [1], \"deny\": \"yes\"}", "deny"},
        {"7", "a rule is an object"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[512];
        struct egress_policy policy;
        struct fail why = {""};
        snprintf(text, sizeof text, "{\"rules\": [%s]}", cases[i].rule);
        if (read_as(text, is_known, &policy, &why))
            fail_msg("%s is read", cases[i].rule);
        if (strncmp(why.text, "file:1:", 7) != 0 || !strstr(why.text, cases[i].why))
            fail_msg("%s: %s", cases[i].rule, why.text);
    }
    static const char *const wholes[] = {"[]",
                                         "{}",
                                         "{\"rules\": {}}",
                                         "{\"rules\": [], \"enforcement\": \"log\"}",
                                         "{\"rules\": [], \"max_connections\": -1}",
                                         "{\"rule\": []}",
                                         "null"};
    for (size_t i = 0; i < sizeof wholes / sizeof *wholes; i++) {
        struct egress_policy policy;
        struct fail why = {""};
        if (read_as(wholes[i], is_known, &policy, &why) || strncmp(why.text, "file:1:", 7) != 0)
            fail_msg("%s: %s", wholes[i], why.text);
    }
    struct egress_policy policy;
    struct fail why;
    assert_true(read_as("{\"rules\": [{\"host\": \"a.example\", \"ports\": [1], \"inspect\": true,"
                        "\"set\": {\"Cookie\": {\"secret\": \"other\"}}}]}",
                        NULL, &policy, &why)); /* a record's */
}

static void there_are_bounds(void **state)
{
    (void)state;
    static const unsigned counts[] = {EGRESS_RULES_MOST, EGRESS_RULES_MOST + 1};
    for (size_t i = 0; i < 2; i++) {
        char *text = malloc(64 * counts[i] + 64);
        size_t len = (size_t)sprintf(text, "{\"rules\": [");
        for (unsigned n = 0; n < counts[i]; n++)
            len += (size_t)sprintf(text + len, "%s{\"host\": \"h%u.example\", \"ports\": [%u]}", n ? "," : "",
                                   n, n + 1);
        strcpy(text + len, "]}");
        struct egress_policy policy;
        struct egress_rule rule;
        struct fail why;
        assert_int_equal(read_as(text, NULL, &policy, &why), i == 0);
        if (i == 0)
            assert_int_equal(rule_for(&policy, "h255.example:256", &rule), 255);
        else
            assert_non_null(strstr(why.text, "at most 256 rules"));
        free(text);
    }
    char *text = malloc(200000);
    size_t len = (size_t)sprintf(text, "{\"rules\": [");
    for (unsigned n = 0; n < 100; n++) {
        len += (size_t)sprintf(
            text + len, "%s{\"host\": \"h%u.example\", \"ports\": [1], \"inspect\": true, \"paths\": [\"/",
            n ? "," : "", n);
        memset(text + len, 'x', 600);
        len += 600;
        len += (size_t)sprintf(text + len, "\"]}");
    }
    strcpy(text + len, "]}");
    struct egress_policy policy;
    struct fail why;
    assert_false(read_as(text, NULL, &policy, &why));
    assert_non_null(strstr(why.text, "16384 bytes"));
    free(text);
}

/* Of bytes that are cut or changed anywhere nothing is read past the end. */
static void what_is_not_packed_here_is_read_safely(void **state)
{
    (void)state;
    struct egress_policy policy = policy_of("{\"rules\": [{\"cidr\": \"2001:db8::/32\", \"ports\": [443]},"
                                            "{\"host\": \"*.example.com\", \"ports\": [443], \"inspect\": "
                                            "true, \"paths\": [\"/a/**\"], \"methods\": [\"GET\"],"
                                            "\"set\": {\"Cookie\": {\"secret\": \"openai\"}}}]}");
    struct slice packed = slice_of(memory, (size_t)(policy.rules.at - memory) + policy.rules.len);
    uint8_t original[512];
    assert_true(packed.len < sizeof original);
    memcpy(original, packed.at, packed.len);
    for (size_t i = 0; i <= packed.len; i++)
        for (unsigned change = 0; change < 4; change++) {
            uint8_t copy[512];
            memcpy(copy, original, packed.len);
            if (change && i < packed.len)
                copy[i] = (uint8_t)(change == 1 ? 0 : change == 2 ? 0xff : copy[i] ^ 1);
            struct slice bytes = guarded(slice_of(copy, change ? packed.len : i));
            struct egress_policy other;
            struct egress_rule rule;
            struct slice header, secret;
            size_t cursor = 0, inner = 0;
            if (egress_policy_unpack(bytes, &other))
                while (egress_rules_next(&other, &cursor, &rule)) {
                    egress_rule_path(&rule, slice_text("/a/b"));
                    egress_rule_method(&rule, slice_text("GET"));
                    while (egress_rule_set(&rule, &inner, &header, &secret))
                        ;
                    inner = 0;
                    struct target target;
                    target_parse(slice_text("x.example.com:443"), 0, &target);
                    struct egress_rule match;
                    egress_rules_match(&other, &target, &match);
                }
            guarded_free(bytes);
        }
}

static void without_memory_nothing_is_read(void **state)
{
    (void)state;
    struct egress_policy policy;
    struct fail why;
    const char *text = "{\"rules\": [{\"host\": \"a.example\", \"ports\": [1], \"inspect\": true, \"paths\": "
                       "[\"/a\", \"/b\"]}]}";
    alloc_fail_at(0);
    assert_true(read_as(text, NULL, &policy, &why));
    unsigned all = alloc_count();
    for (unsigned n = 1; n <= all; n++) {
        alloc_fail_at(n);
        bool good = read_as(text, NULL, &policy, &why);
        alloc_fail_at(0);
        assert_false(good);
        assert_true(fail_of_memory(&why));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hosts_match_by_whole_labels),
        cmocka_unit_test(the_first_rule_that_matches_decides),
        cmocka_unit_test(what_a_name_leads_to_is_denied_by_networks_in_front),
        cmocka_unit_test(what_an_address_carries_is_denied_with_it),
        cmocka_unit_test(methods_and_paths_are_listed),
        cmocka_unit_test(headers_are_set_from_secrets),
        cmocka_unit_test(mistakes_are_told_with_their_place),
        cmocka_unit_test(there_are_bounds),
        cmocka_unit_test(what_is_not_packed_here_is_read_safely),
        cmocka_unit_test(without_memory_nothing_is_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
