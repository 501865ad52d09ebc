/* SPDX-License-Identifier: MIT */
/* egress_keys: the keys egress.* of the configuration; egress_keys.c has their meaning. */
#ifndef CELLGATE_AGENT_EGRESS_EGRESS_KEYS_H
#define CELLGATE_AGENT_EGRESS_EGRESS_KEYS_H

#include "spoa/base/json/json.h"
#include "spoa/service/option_rows.h"

struct settings_egress {
    const json_node *fallback, *hosts, *secrets; /* objects; may be NULL; `fallback` is egress.default */
    char *sign_file, *ca_file;                   /* files of HAProxy; may be NULL */
    struct texts http2;                          /* names in lower case; the first label may be `*` */
    char *http2_folder;                          /* NULL if there is none */
    struct texts private_networks;
    int64_t lookup;
};

extern const struct option_part egress_keys;

#endif
