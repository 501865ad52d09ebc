/* SPDX-License-Identifier: MIT */
/*
 * policy: the configuration as decisions use it: settings, routes, keys. Immutable once loaded and counted by
 * reference, so that threads may go on deciding by the old one while a new one is made.
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
    atomic_uint references; /* of policy_retain and policy_release alone */
    /* owns all but tokens, revoked and egress, where only these were loaded again; else NULL */
    struct policy *base;
    struct settings *settings;
    struct routes *routes;
    struct tokens *tokens;
    struct management management;
    struct egress_config *egress;
    struct revoked *revoked;  /* of tokens_revoked_file; NULL: there is none, or nothing in it */
    size_t revoked_over;      /* entries of it that were left out: their tokens are over for long */
    struct stat revoked_seen; /* what the file looked like before it was read */
    struct directory_options *directory;
};

/* Reads the configuration and every file it names. overrides: "key=value" texts, as of `-o`. NULL and *why at
 * the first thing that is not in order; nothing of it is used then. */
struct policy *policy_load(const char *path, const char *const *overrides, size_t override_count,
                           struct fail *why);
/* The same configuration with its key files, egress.secrets and the list of revoked tokens read again. */
struct policy *policy_reload_tokens(struct policy *policy, struct fail *why);
/* The routes of a configuration alone; NULL and *why. */
struct routes *policy_routes(const struct settings *settings, struct fail *why);
struct policy *policy_retain(struct policy *policy);
void policy_release(struct policy *policy); /* NULL is fine */

#endif
