/* SPDX-License-Identifier: MIT */
/* config: `egress` of the configuration, in the form that decisions use. Immutable once read. */
#ifndef CELLGATE_AGENT_EGRESS_CONFIG_H
#define CELLGATE_AGENT_EGRESS_CONFIG_H

#include <sys/stat.h>

#include "spoa/agent/egress/rules.h"
#include "spoa/service/settings.h"

struct egress_config;

/* Reads `egress`. Returns NULL and *why, with the position, if it is invalid. */
struct egress_config *egress_config_read(const struct settings *settings, struct fail *why);
void egress_config_free(struct egress_config *config); /* config may be NULL */

/* Returns whether this configuration can enforce `egress`, which is a record's or the configuration's default (NULL if there is none):
 * it has the named secrets, and the key for signing if a rule inspects. Otherwise returns false and *why, with the position. */
bool egress_config_check(const struct egress_config *config, const struct json *doc, const json_node *egress,
                         struct fail *why);

/* Returns the packed rules of sandboxes whose record has none. Absent if there are no rules; such sandboxes then reach nothing. */
struct slice egress_config_default(const struct egress_config *config);
/* Returns whether requests can be inspected, which needs `egress.sign_file`. */
bool egress_config_inspects(const struct egress_config *config);
/* Returns the longest time from an inspected CONNECT to the first request of its connection, in seconds. */
int64_t egress_config_patience(const struct egress_config *config);
/* Returns the value of a secret in `egress.secrets`; absent if none has this name. */
struct slice egress_config_secret(const struct egress_config *config, struct slice name);
/* Returns the path of the i-th secret's file and the state of the file before it was read; NULL after the last. */
const char *egress_config_secret_file(const struct egress_config *config, size_t i, const struct stat **seen);
/* Finds the address of a host in `egress.hosts`, which takes precedence over DNS. */
bool egress_config_host(const struct egress_config *config, struct slice host, struct address *address);
/* Returns whether `egress.private_networks` lists an address of REACH_PRIVATE or REACH_LOOPBACK. */
bool egress_config_lists(const struct egress_config *config, const struct address *address);

#endif
