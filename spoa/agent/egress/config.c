/* SPDX-License-Identifier: MIT */
#include "spoa/agent/egress/config.h"

#include <openssl/crypto.h>
#include <stdio.h>
#include <stdlib.h>

#include "spoa/agent/egress/rules_json.h"
#include "spoa/agent/egress/target.h"
#include "spoa/base/os/file.h"

enum {
    HOSTS_MOST = 256,
    SECRETS_MOST = 256,
    SECRET_MOST = 4096,
    FILE_MOST = 65536,
    PATIENCE_MORE = 30 /* seconds */
};

struct named {
    struct target target; /* parsed for its unique spelling */
    struct address address;
};

struct secret {
    struct slice name; /* name in the configuration */
    struct slice value;
    char *path;
    struct stat seen;
};

struct egress_config {
    bool has_default, inspects;
    int64_t patience;
    size_t default_len, hosts_count, networks_count, secrets_count;
    struct secret *secrets;
    struct named *hosts;
    struct cidr *networks;
    uint8_t packed[EGRESS_PACKED_MOST + 64];
};

/* ---- secrets ---- */

struct slice egress_config_secret(const struct egress_config *c, struct slice name)
{
    for (size_t i = 0; c && i < c->secrets_count; i++)
        if (slice_equal(c->secrets[i].name, name))
            return c->secrets[i].value;
    return (struct slice){NULL, 0};
}

static bool has_secret(const void *config, struct slice name)
{
    return slice_present(egress_config_secret(config, name));
}

/* Returns the fault of a secret that is not a header's value in ASCII (RFC 9110 section 5.5). */
static const char *secret_fault(struct slice value)
{
    if (value.len == 0)
        return "its first line is empty";
    if (value.len > SECRET_MOST)
        return "its first line is over 4096 bytes";
    for (size_t i = 0; i < value.len; i++)
        if (value.at[i] < ' ' || value.at[i] > '~')
            return "its first line has bytes that no header's value has";
    return value.at[0] == ' ' || value.at[value.len - 1] == ' ' ? "its first line has blanks around it"
                                                                : NULL;
}

static bool read_file(const struct settings *s, const json_node *node, struct secret *secret,
                      struct fail *why)
{
    struct slice content, rest, line;
    const char *path = secret->path;
    struct fail inner;
    file_look(path, &secret->seen);
    if (!file_read_secret(path, FILE_MOST, FILE_PRIVATE, &content, &inner))
        return json_fail(s->doc, node, why, "egress.secrets: %s", inner.text);
    rest = content;
    if (!slice_split(&rest, '\n', &line))
        line = content;
    if (line.len && line.at[line.len - 1] == '\r')
        line.len--;
    const char *fault = secret_fault(line);
    uint8_t *copy = fault ? NULL : (uint8_t *)slice_dup(line);
    if (copy)
        secret->value = slice_of(copy, line.len);
    file_free(content);
    return fault ? json_fail(s->doc, node, why, "egress.secrets: %s: %s", path, fault)
                 : copy || fail(why, "out of memory");
}

static bool read_secret(const struct settings *s, const json_node *node, struct secret *secret,
                        struct fail *why)
{
    struct slice file;
    secret->name = slice_text(json_key(node));
    if (secret->name.len == 0 || secret->name.len > 64)
        return json_fail(s->doc, node, why, "egress.secrets: a name has 1 to 64 bytes");
    if (!json_text(node, &file) || file.len == 0)
        return json_fail(s->doc, node, why, "egress.secrets: the value is no path of a file");
    bool absolute = file.at[0] == '/';
    if (asprintf(&secret->path, "%s%s%.*s", absolute ? "" : s->base_dir, absolute ? "" : "/", (int)file.len,
                 (const char *)file.at) < 0) {
        secret->path = NULL;
        return fail(why, "out of memory");
    }
    return read_file(s, node, secret, why);
}

static bool read_secrets(struct egress_config *c, const struct settings *s, struct fail *why)
{
    size_t count = s->egress.secrets ? json_count(s->egress.secrets) : 0;
    if (count > SECRETS_MOST)
        return json_fail(s->doc, s->egress.secrets, why, "egress.secrets has at most %d secrets",
                         SECRETS_MOST);
    c->secrets = calloc(count + 1, sizeof *c->secrets);
    if (!c->secrets)
        return fail(why, "out of memory");
    for (const json_node *n = count ? json_first(s->egress.secrets) : NULL; n; n = json_next(n))
        if (!read_secret(s, n, &c->secrets[c->secrets_count++], why))
            return false;
    return true;
}

const char *egress_config_secret_file(const struct egress_config *c, size_t i, const struct stat **seen)
{
    if (i >= c->secrets_count)
        return NULL;
    *seen = &c->secrets[i].seen;
    return c->secrets[i].path;
}

bool egress_config_inspects(const struct egress_config *c)
{
    return c && c->inspects;
}

/* Allows twice the relay's head time: the relay waits for the client's first bytes, and then for its handshake. */
static int64_t patience_of(const struct settings *s)
{
    return 2 * s->relay.head_time / OPTION_SECOND + PATIENCE_MORE;
}

int64_t egress_config_patience(const struct egress_config *c)
{
    return c ? c->patience : PATIENCE_MORE;
}

/* ---- the rest ---- */

static bool read_default(struct egress_config *c, const struct settings *s, struct fail *why)
{
    struct writer w = writer_of(c->packed, sizeof c->packed);
    if (!s->egress.fallback)
        return true;
    if (!egress_policy_read(s->doc, s->egress.fallback, has_secret, c, &w, why))
        return false;
    c->default_len = w.len;
    return c->has_default = true;
}

bool egress_config_check(const struct egress_config *c, const struct json *doc, const json_node *egress,
                         struct fail *why)
{
    uint8_t memory[2 * EGRESS_PACKED_MOST];
    struct writer w = writer_of(memory, sizeof memory);
    bool inspects = false;
    if (!egress)
        return true;
    if (!egress_policy_read(doc, egress, has_secret, c, &w, why))
        return false;
    if (c->inspects)
        return true;
    for (const json_node *rule = json_first(json_member(egress, "rules")); rule; rule = json_next(rule))
        if (json_bool(json_member(rule, "inspect"), &inspects) && inspects)
            return json_fail(doc, rule, why,
                             "the rule wants requests inspected, and there is no egress.sign_file");
    return true;
}

static bool read_host(const struct settings *s, const json_node *node, struct named *named, struct fail *why)
{
    struct slice text;
    struct cidr address;
    if (target_parse(slice_text(json_key(node)), 1, &named->target) || named->target.address.family ||
        named->target.port != 1)
        return json_fail(s->doc, node, why, "egress.hosts: the key is no name of a host");
    if (!json_text(node, &text) || slice_find(text, '/') < text.len || !cidr_parse(text, &address))
        return json_fail(s->doc, node, why, "egress.hosts: the value is no IPv4 or IPv6 address");
    named->address = address.network;
    return true;
}

static bool read_hosts(struct egress_config *c, const struct settings *s, struct fail *why)
{
    size_t count = s->egress.hosts ? json_count(s->egress.hosts) : 0;
    if (count > HOSTS_MOST)
        return json_fail(s->doc, s->egress.hosts, why, "egress.hosts has at most %d hosts", HOSTS_MOST);
    c->hosts = calloc(count + 1, sizeof *c->hosts);
    if (!c->hosts)
        return fail(why, "out of memory");
    for (const json_node *n = count ? json_first(s->egress.hosts) : NULL; n; n = json_next(n))
        if (!read_host(s, n, &c->hosts[c->hosts_count++], why))
            return false;
    return true;
}

static bool read_networks(struct egress_config *c, const struct settings *s, struct fail *why)
{
    c->networks = calloc(s->egress.private_networks.count + 1, sizeof *c->networks);
    if (!c->networks)
        return fail(why, "out of memory");
    for (size_t i = 0; i < s->egress.private_networks.count; i++)
        if (!cidr_parse(slice_text(s->egress.private_networks.at[i]), &c->networks[c->networks_count++]))
            return fail(why, "egress.private_networks: not a network"); /* settings checked the text */
    return true;
}

static bool check_http2(const struct settings *s, struct fail *why)
{
    return s->egress.http2.count == 0 || (s->egress.sign_file && s->egress.http2_folder) ||
           fail(why, "%s: egress.http2 needs egress.sign_file and egress.http2_folder", s->path);
}

struct egress_config *egress_config_read(const struct settings *settings, struct fail *why)
{
    struct egress_config *c = calloc(1, sizeof *c);
    if (c) {
        c->inspects = settings->egress.sign_file != NULL;
        c->patience = patience_of(settings);
    }
    if (c && check_http2(settings, why) && read_secrets(c, settings, why) && read_default(c, settings, why) &&
        read_hosts(c, settings, why) && read_networks(c, settings, why))
        return c;
    if (!c)
        fail(why, "out of memory");
    egress_config_free(c);
    return NULL;
}

void egress_config_free(struct egress_config *c)
{
    if (!c)
        return;
    for (size_t i = 0; i < c->secrets_count; i++) {
        free(c->secrets[i].path);
        OPENSSL_cleanse((void *)(uintptr_t)c->secrets[i].value.at, c->secrets[i].value.len);
        free((void *)(uintptr_t)c->secrets[i].value.at);
    }
    free(c->secrets);
    free(c->hosts);
    free(c->networks);
    free(c);
}

struct slice egress_config_default(const struct egress_config *c)
{
    return c && c->has_default ? slice_of(c->packed, c->default_len) : (struct slice){NULL, 0};
}

bool egress_config_host(const struct egress_config *c, struct slice host, struct address *address)
{
    for (size_t i = 0; c && i < c->hosts_count; i++)
        if (slice_equal(target_host(&c->hosts[i].target), host)) {
            *address = c->hosts[i].address;
            return true;
        }
    return false;
}

bool egress_config_lists(const struct egress_config *c, const struct address *address)
{
    return c && cidr_any_contains(c->networks, c->networks_count, address);
}
