/* SPDX-License-Identifier: MIT */
#include "spoa/agent/state/renew_keys.h"

#define AT(member) offsetof(struct settings_renew, member)

static const struct option rows[] = {
    {"renew.redis", OPTION_TEXT, AT(redis), OPTION_NONE,
     "the Redis of a control plane, told which sandboxes are in use: `HOST:PORT`, `[IPv6]:PORT` or "
     "`unix@/PATH`",
     RANGE(1, 300), .restart = true},
    {"renew.user", OPTION_TEXT, AT(user), OPTION_NONE, "user name; not set: Redis's default user",
     RANGE(1, 255), .restart = true},
    {"renew.password_file", OPTION_PATH, AT(password_file), OPTION_NONE,
     "its first line is the password; read for each connection", ANY, .secret = true, .restart = true},
    {"renew.database", OPTION_INT, AT(database), "0", "number of the database", RANGE(0, 65535),
     .restart = true},
    {"renew.key", OPTION_TEXT, AT(key), "opensandbox:renew:intent", "the list's key", RANGE(1, 255),
     .restart = true},
    {"renew.every", OPTION_DURATION, AT(every), "60s", "at most one intent per sandbox in this time",
     RANGE(SECONDS(1), HOURS(1)), .restart = true},
    {"renew.max_length", OPTION_INT, AT(max_length), "0", "length to which the list is cut; 0: not cut",
     RANGE(0, 10000000), .restart = true},
};

const struct option_part renew_keys = OPTION_PART(rows);
