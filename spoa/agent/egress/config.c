/* SPDX-License-Identifier: MIT */
#include "spoa/agent/egress/config.h"

#include <stdlib.h>

#include "spoa/agent/egress/rules_json.h"
#include "spoa/agent/egress/target.h"

enum { HOSTS_MOST = 256 };

struct named {
    struct target target; /* of the name, for its spelling */
    struct address address;
};

struct egress_config {
    bool has_default;
    size_t default_len, hosts_count, networks_count;
    struct named *hosts;
    struct cidr *networks;
    uint8_t packed[EGRESS_PACKED_MOST + 64];
};

static bool read_default(struct egress_config *c, const struct settings *s, struct fail *why)
{
    struct writer w = writer_of(c->packed, sizeof c->packed);
    if (!s->egress_default)
        return true;
    if (!egress_policy_read(s->doc, s->egress_default, NULL, NULL, &w, why))
        return false;
    c->default_len = w.len;
    return c->has_default = true;
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
    size_t count = s->egress_hosts ? json_count(s->egress_hosts) : 0;
    if (count > HOSTS_MOST)
        return json_fail(s->doc, s->egress_hosts, why, "egress.hosts has at most %d hosts", HOSTS_MOST);
    c->hosts = calloc(count + 1, sizeof *c->hosts);
    if (!c->hosts)
        return fail(why, "out of memory");
    for (const json_node *n = count ? json_first(s->egress_hosts) : NULL; n; n = json_next(n))
        if (!read_host(s, n, &c->hosts[c->hosts_count++], why))
            return false;
    return true;
}

static bool read_networks(struct egress_config *c, const struct settings *s, struct fail *why)
{
    c->networks = calloc(s->egress_private_networks.count + 1, sizeof *c->networks);
    if (!c->networks)
        return fail(why, "out of memory");
    for (size_t i = 0; i < s->egress_private_networks.count; i++)
        cidr_parse(slice_text(s->egress_private_networks.at[i]),
                   &c->networks[c->networks_count++]); /* it was checked */
    return true;
}

struct egress_config *egress_config_read(const struct settings *settings, struct fail *why)
{
    struct egress_config *c = calloc(1, sizeof *c);
    if (c && read_default(c, settings, why) && read_hosts(c, settings, why) &&
        read_networks(c, settings, why))
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
