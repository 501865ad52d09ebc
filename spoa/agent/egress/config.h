/* SPDX-License-Identifier: MIT */
/* config: `egress` of the configuration, as decisions use it. Immutable once read. */
#ifndef CELLGATE_AGENT_EGRESS_CONFIG_H
#define CELLGATE_AGENT_EGRESS_CONFIG_H

#include <sys/stat.h>

#include "spoa/agent/egress/rules.h"
#include "spoa/service/settings.h"

struct egress_config;

/* NULL and *why, with the position, when something is not in order. */
struct egress_config *egress_config_read(const struct settings *settings, struct fail *why);
void egress_config_free(struct egress_config *config); /* NULL is fine */

/* Whether `egress` of a record, or of the configuration (NULL: there is none), can do what it says with this one: its secrets are
 * there, and so is what signs where it inspects. False: *why has the position. */
bool egress_config_check(const struct egress_config *config, const struct json *doc, const json_node *egress,
                         struct fail *why);

/* The rules of sandboxes whose record has none, packed; absent: such sandboxes reach nothing. */
struct slice egress_config_default(const struct egress_config *config);
/* Whether requests can be inspected: `egress.sign_file` is there. */
bool egress_config_inspects(const struct egress_config *config);
/* Seconds from a CONNECT that is inspected to its connection's first request, at most. */
int64_t egress_config_patience(const struct egress_config *config);
/* The value of a header, of `egress.secrets`; absent: there is none of that name. */
struct slice egress_config_secret(const struct egress_config *config, struct slice name);
/* The file of a secret, and what it looked like before it was read; NULL: there are no more. */
const char *egress_config_secret_file(const struct egress_config *config, size_t i, const struct stat **seen);
/* `egress.hosts`, which comes before DNS. */
bool egress_config_host(const struct egress_config *config, struct slice host, struct address *address);
/* Whether an address of REACH_PRIVATE or REACH_LOOPBACK is in `egress.private_networks`. */
bool egress_config_lists(const struct egress_config *config, const struct address *address);

#endif
