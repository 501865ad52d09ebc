/* SPDX-License-Identifier: MIT */
/* route_table: the inside of struct routes, for route.c, which matches, and for route/build.c, route/keys.c
 * and route/check.c, which build. */
#ifndef CELLGATE_AGENT_ROUTE_TABLE_H
#define CELLGATE_AGENT_ROUTE_TABLE_H

#include "spoa/agent/model/port_list.h"
#include "spoa/agent/route/route.h"

/* Alternatives: the first that matches counts. */
struct patterns {
    struct pattern **at;
    size_t count;
};

struct route_header_rule {
    struct slice name; /* of an own one points into own_headers of the table */
    size_t offset;     /* of the header's value in struct request; 0: it is an own one */
    struct patterns patterns;
};

enum { ROUTE_HEADERS_MAX = 8, ROUTE_DEFAULTS_MAX = 64 };

struct route_entry {
    struct route route;
    struct patterns path, host; /* without alternatives: anything goes */
    struct route_header_rule headers[ROUTE_HEADERS_MAX];
    size_t header_count;
    struct port_list served; /* none: any port */
    bool off;                /* the host's form has no domain */
    /* what the table of keys fills and the rest is made of; nodes are gone once the table is built */
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
/* Whether name equals one of a NULL-terminated list, in any case. */
bool text_among(struct slice name, const char *const *list);
/* Whether the host says which sandbox is meant, in every case. */
bool route_host_names_sandbox(const struct patterns *host);
/* Whether its tunnels go on with another worker where the route does not say: it resumes, or the address names a session
 * that can be attached to again. */
bool route_redials(const struct route_entry *entry);
/* One route, and the order of all; *why without a position. */
bool route_check(const struct route_entry *entry, struct fail *why);
bool routes_check(const struct routes *routes, struct fail *why);

#endif
