/* SPDX-License-Identifier: MIT */
/* The configuration's table: the keys without a room of their own, then those of the rooms. `cellgate options` and cellgate.json(5) are made
 * from it. */
#include <pthread.h>
#include <stdlib.h>

#include "spoa/service/seccomp.h"
#include "spoa/service/settings.h"

#define AT(member) offsetof(struct settings, member)

static const char *const serves_names[] = {"management", "application", NULL};
static const char *const log_levels[] = {"debug", "info", "warn", "error", NULL};

/* Checks one of a list of folders. */
static const char *check_folder(struct slice text)
{
    bool good = text.len > 2 && text.len <= NET_PATH_MAX && text.at[0] == '/' &&
                text.at[text.len - 1] == '/' && net_path_plain(slice_sub(text, 0, text.len - 1));
    return good ? NULL : "a list of folders such as \"/run/cell/\", from the root, with a slash at the end";
}

/* Checks the cell's name, which stands in tokens, labels of metrics and headers without quoting. */
static const char *check_cell(struct slice text)
{
    for (size_t i = 0; i < text.len; i++) {
        uint8_t c = text.at[i];
        bool good = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
                    c == '_' || c == '.';
        if (!good)
            return "a name of letters, digits, '-', '_' and '.'";
    }
    return NULL;
}

static const struct option rows[] = {
    {"cell", OPTION_TEXT, AT(cell), "cell", "this cell's name, which tokens must have", RANGE(1, 128),
     .check = check_cell},
    {"directory", OPTION_NODE, AT(directory), NULL, "where sandboxes are looked up", ANY,
     .form = "an object, see below", .example = "{ \"kind\": \"file\", \"path\": \"sandboxes.json\" }"},
    {"tokens", OPTION_NODE, AT(tokens), OPTION_NONE, "accepted kinds of credentials; none only with `open`",
     ANY, .form = "a list of objects, see below",
     .example =
         "[{ \"kind\": \"jwt\", \"alg\": \"HS256\", \"kid\": \"k1\", \"secret_file\": \"k1.secret\" }]"},
    {"tokens_revoked_file", OPTION_PATH, AT(tokens_revoked_file), OPTION_NONE,
     "single revoked tokens, `{\"revoked\": {\"JTI\": EXP}}`; read again when it changes", ANY},
    {"open", OPTION_BOOL, AT(open), "false", "without `tokens`: let everybody in", ANY},
    {"systems", OPTION_NODE, AT(systems), OPTION_NONE,
     "systems whose clients come here; only their built-in routes are on", ANY, .form = "a list of systems",
     .example = "[\"opencomputer\", \"opensandbox\"]"},
    {"routes", OPTION_NODE, AT(routes), OPTION_NONE,
     "your routes; `\"defaults\"` places those of `systems` among them", ANY,
     .form = "a list of objects, see below, and `\"defaults\"` once"},
    {"domains", OPTION_NODE, AT(domains), OPTION_NONE,
     "domains by host form of `systems`; a form without one is off", ANY,
     .form = "an object of lists of DNS names"},
    {"services", OPTION_NODE, AT(services), OPTION_NONE,
     "upstreams by name, for routes with `to_service`: a control plane", ANY,
     .form = "an object of objects, see below"},
    {"management_ports", OPTION_TEXT, AT(management_ports), OPTION_NONE,
     "management ports of a sandbox with an address of its own, `\"44772,8888\"` or `\"none\"`; not set: "
     "those of `systems`, or of all systems if none is named",
     RANGE(1, 128)},
    {"serves", OPTION_ENUM, AT(serves), "management",
     "what a worker with a port serves, if its record does not say", ANY, .names = serves_names},
    {"worker_networks", OPTION_TEXTS, AT(worker_networks), "[\"127.0.0.0/8\", \"::1/128\"]",
     "where workers may be; never metadata services of clouds and link-local networks", RANGE(1, 64),
     .check = option_check_network},
    {"worker_sockets", OPTION_TEXTS, AT(worker_sockets), OPTION_NONE,
     "folders for sockets of `http+unix:` workers", RANGE(0, NET_FOLDERS_MAX), .check = check_folder,
     .example = "[\"/run/cell/\"]"},
    {"log_level", OPTION_ENUM, AT(log_level), "info", "lowest level that is logged", ANY, .names = log_levels,
     .restart = true},
    {"seccomp", OPTION_ENUM, AT(seccomp), "on",
     "an unneeded system call fails (`on`) or ends the process (`kill`)", ANY, .names = seccomp_modes,
     .restart = true},
};
static const struct option_part own_keys = OPTION_PART(rows);

static const struct {
    const struct option_part *part;
    size_t offset; /* of the part's struct */
} parts[] = {{&own_keys, 0},
             {&agent_keys, AT(agent)},
             {&relay_keys, AT(relay)},
             {&renew_keys, AT(renew)},
             {&egress_keys, AT(egress)}};

static struct option table[SETTINGS_KEYS_MAX];
static size_t table_count;

static void assemble(void)
{
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        for (size_t j = 0; j < parts[i].part->count; j++) {
            if (table_count == SETTINGS_KEYS_MAX)
                abort(); /* no program starts, so no build has too many keys */
            table[table_count] = parts[i].part->rows[j];
            table[table_count++].offset += parts[i].offset;
        }
    }
}

const struct option *settings_options(size_t *count)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, assemble);
    *count = table_count;
    return table;
}
