/* SPDX-License-Identifier: MIT */
/*
 * policy: the configuration in the form that decisions use: settings, routes, keys. Immutable once loaded and counted by reference, so
 * that threads can decide by the old one while a new one is loaded.
 */
#ifndef CELLGATE_AGENT_STATE_POLICY_H
#define CELLGATE_AGENT_STATE_POLICY_H

#include "spoa/agent/directory/options.h"
#include "spoa/agent/egress/config.h"
#include "spoa/agent/model/management.h"
#include "spoa/agent/route/route.h"
#include "spoa/agent/token/revoked.h"
#include "spoa/agent/token/tokens.h"
#include "spoa/base/table/references.h"
#include "spoa/service/settings.h"

struct policy {
    atomic_uint references; /* used by policy_retain and policy_release only */
    /* owner of all parts but tokens, revoked and egress, if only these were loaded again; otherwise NULL */
    struct policy *base;
    struct settings *settings;
    struct routes *routes;
    struct tokens *tokens;
    struct management management;
    struct egress_config *egress;
    struct revoked *revoked;  /* entries of tokens_revoked_file; NULL if there is no file, or it is empty */
    size_t revoked_over;      /* number of entries that were skipped, because their tokens expired long ago */
    struct stat revoked_seen; /* state of the file before it was read */
    struct directory_options *directory;
};

/* Reads the configuration and every file that it names. `overrides` are "key=value" texts, from `-o`. Returns NULL and *why at the first
 * error; nothing of the configuration is then used. */
struct policy *policy_load(const char *path, const char *const *overrides, size_t override_count,
                           struct fail *why);
/* Returns a policy with the same configuration, and with its key files, egress.secrets and the list of revoked tokens read again.
 * Returns NULL and *why if one is invalid. */
struct policy *policy_reload_tokens(struct policy *policy, struct fail *why);
/* Reads the routes of a configuration alone. Returns NULL and *why if they are invalid. */
struct routes *policy_routes(const struct settings *settings, struct fail *why);
struct policy *policy_retain(struct policy *policy);
void policy_release(struct policy *policy); /* policy may be NULL */

#endif
