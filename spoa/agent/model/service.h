/* SPDX-License-Identifier: MIT */
/*
 * service: an upstream that the configuration names in `services`, for paths that are no sandbox's: a control plane's. Routes
 * say `to_service`.
 */
#ifndef CELLGATE_AGENT_MODEL_SERVICE_H
#define CELLGATE_AGENT_MODEL_SERVICE_H

#include "spoa/agent/model/record.h"
#include "spoa/base/json/json.h"
#include "spoa/service/options.h"

struct service {
    char *name, *url;
    struct worker worker;       /* at an address, with a port; points into url */
    struct texts names, values; /* headers that it gets */
    char *headers_file;         /* of which services_read_secrets takes them; NULL: none */
};

/* `services` of the configuration. NULL where there is none, and then *why is empty, or it is not in order. */
struct services *services_read(const struct json *doc, const json_node *node, struct fail *why);
/* Reads each `headers_file`; relative paths start at base_dir. For the agent alone: nobody else needs what is in it. Returns
 * false and *why, with the place in the configuration, if a file cannot be read or is no secret. */
bool services_read_secrets(struct services *services, const struct json *doc, const json_node *node,
                           const char *base_dir, struct fail *why) __attribute__((warn_unused_result));
void services_free(struct services *services);                                           /* NULL is fine */
const struct service *services_find(const struct services *services, struct slice name); /* NULL: none */

/* The keys of a service, for documentation. */
const struct option *service_options(size_t *count);

#endif
