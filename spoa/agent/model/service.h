/* SPDX-License-Identifier: MIT */
/*
 * service: an upstream that the configuration names in `services`, for example a control plane. Routes with `to_service` send it the
 * paths that belong to no sandbox.
 */
#ifndef CELLGATE_AGENT_MODEL_SERVICE_H
#define CELLGATE_AGENT_MODEL_SERVICE_H

#include "spoa/agent/model/record.h"
#include "spoa/base/json/json.h"
#include "spoa/service/options.h"

struct service {
    char *name, *url;
    struct worker worker;       /* has an address and a port; points into url */
    struct texts names, values; /* headers that the service gets */
    char *
        headers_file; /* file from which services_read_secrets reads further headers; NULL if there is none */
};

/* Reads `services` of the configuration. Returns NULL if there are none, with *why empty, or if they are invalid. */
struct services *services_read(const struct json *doc, const json_node *node, struct fail *why);
/* Reads each `headers_file`; relative paths start at base_dir. Only the agent calls this: other programs must not need the secrets.
 * Returns false and *why, with the place in the configuration, if a file cannot be read or does not hold a valid secret. */
bool services_read_secrets(struct services *services, const struct json *doc, const json_node *node,
                           const char *base_dir, struct fail *why) __attribute__((warn_unused_result));
void services_free(struct services *services); /* services may be NULL */
const struct service *services_find(const struct services *services,
                                    struct slice name); /* Returns NULL if there is none. */

/* Returns the keys of a service, for documentation. */
const struct option *service_options(size_t *count);

#endif
