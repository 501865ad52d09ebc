/* SPDX-License-Identifier: MIT */
/* tables: the rows of this system in the tables of spoa/agent/systems/tables.h. */
#ifndef CELLGATE_AGENT_SYSTEMS_E2B_TABLES_H
#define CELLGATE_AGENT_SYSTEMS_E2B_TABLES_H

#define E2B_CREDENTIAL_HEADERS(X) \
    X(e2b_access, e2b_accesses, "e2b-traffic-access-token", "e2b-traffic-access-token", E2B_ACCESS)

#define E2B_TARGET_HEADERS(X)                                         \
    X(e2b_sandbox, e2b_sandboxes, "e2b-sandbox-id", "E2b-Sandbox-Id") \
    X(e2b_port, e2b_ports, "e2b-sandbox-port", "E2b-Sandbox-Port")

/* envd's own token */
#define E2B_WORKER_HEADERS(X) X(TEXT, access, "access", "X-Access-Token", "access_token")

#define E2B_SIGNED_URLS(X) X(ENVD_URL, "envd-url", e2b)

#define E2B_TOKEN_KINDS(X) X(e2b_file_url, "e2b-file-url")

/* The id of e2b's former proxy, which stood after the sandbox's id. */
#define E2B_CAPTURES(X) X(E2B_CLIENT, "e2b_client", 8, 8, 8, false, PATTERN_LOWER)

#endif
