/* SPDX-License-Identifier: MIT */
/* renew_keys: the keys renew.* of the configuration: where the agent reports sandboxes that are in use. */
#ifndef CELLGATE_AGENT_STATE_RENEW_KEYS_H
#define CELLGATE_AGENT_STATE_RENEW_KEYS_H

#include "spoa/service/option_rows.h"

struct settings_renew {
    char *redis; /* address of the Redis; NULL if nothing is reported */
    char *user, *password_file, *key;
    int64_t database, every, max_length; /* max_length is 0 for no limit */
};

extern const struct option_part renew_keys;

#endif
