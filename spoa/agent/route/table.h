/* SPDX-License-Identifier: MIT */
/* route_table: the layout of struct routes. route.c matches with it; route/build.c, route/keys.c and route/check.c build it. */
#ifndef CELLGATE_AGENT_ROUTE_TABLE_H
#define CELLGATE_AGENT_ROUTE_TABLE_H

#include "spoa/agent/model/port_list.h"
#include "spoa/agent/route/route.h"

/* A list of alternatives, of which the first match counts. */
struct patterns {
    struct pattern **at;
    size_t count;
};

struct route_header_rule {
    struct slice name; /* points into own_headers of the table, if haproxy.cfg does not know the header */
    size_t
        offset; /* offset of the header's value in struct request; 0 if haproxy.cfg does not know the header */
    struct patterns patterns;
};

enum { ROUTE_HEADERS_MAX = 8, ROUTE_DEFAULTS_MAX = 64 };

struct route_entry {
    struct route route;
    struct patterns path, host; /* empty if any value matches */
    struct route_header_rule headers[ROUTE_HEADERS_MAX];
    size_t header_count;
    struct port_list served; /* empty if any port matches */
    bool off;                /* the host's form has no domain */
    /* The table of keys fills these members, and the rest is made from them. The nodes are valid only while the table is built. */
    char *to, *need, *ports, *system, *to_service;
    int host_header, cookies, auth; /* enum route_keep */
    const json_node *path_node, *host_node, *headers_node, *set_node, *upgrade_node, *redial_node;
};

struct routes {
    struct route_entry *at;
    size_t count;
    struct texts own_headers;
    struct services *services;
};

bool header_name_valid(struct slice name);
/* Returns whether `name` equals one of a NULL-terminated list, ignoring case. */
bool text_among(struct slice name, const char *const *list);
/* Returns whether every pattern of the host identifies the sandbox. */
bool route_host_names_sandbox(const struct patterns *host);
/* Returns whether tunnels of the route redial another worker if the route does not set `redial`: the route resumes, or its address names
 * a session that a new connection can attach to. */
bool route_redials(const struct route_entry *entry);
/* Check one route, and the order of all. *why has no position. */
bool route_check(const struct route_entry *entry, struct fail *why);
bool routes_check(const struct routes *routes, struct fail *why);

#endif
