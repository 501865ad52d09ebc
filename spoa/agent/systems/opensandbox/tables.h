/* SPDX-License-Identifier: MIT */
/* tables: the rows of this system in the tables of spoa/agent/systems/tables.h. */
#ifndef CELLGATE_AGENT_SYSTEMS_OPENSANDBOX_TABLES_H
#define CELLGATE_AGENT_SYSTEMS_OPENSANDBOX_TABLES_H

#define OPENSANDBOX_CREDENTIAL_HEADERS(X) \
    X(secure_access, secure_accesses, "opensandbox-secure-access", "OpenSandbox-Secure-Access", SECURE_ACCESS)

#define OPENSANDBOX_TARGET_HEADERS(X)                                              \
    X(ingress_to, ingress_tos, "opensandbox-ingress-to", "OpenSandbox-Ingress-To") \
    X(ingress, ingresses, "open-sandbox-ingress", "OPEN-SANDBOX-INGRESS")

/* the key of its lifecycle API */
#define OPENSANDBOX_API_HEADERS(X) X("OPEN-SANDBOX-API-KEY")

/* execd's own token, and that of the sandbox's egress sidecar */
#define OPENSANDBOX_WORKER_HEADERS(X)                              \
    X(TEXT, execd, "execd", "X-EXECD-ACCESS-TOKEN", "execd_token") \
    X(TEXT, egress, "egress", "OPENSANDBOX-EGRESS-AUTH", "egress_auth")

#define OPENSANDBOX_TOKEN_KINDS(X) X(opensandbox_route, "opensandbox-route")

#define OPENSANDBOX_KUBERNETES_SORTS(X) X(OPENSANDBOX, opensandbox, "opensandbox")

/* An expiry in base 36, and eight hexadecimal digits with the id of their key. */
#define OPENSANDBOX_CAPTURES(X)                          \
    X(EXPIRES, "expires", 1, 13, 0, true, PATTERN_LOWER) \
    X(SIGNATURE, "signature", 9, 9, 8, true, PATTERN_LOWER)

/* The id of a key, and a MAC of 16 bytes. */
#define OPENSANDBOX_FLEET_CAPTURES(X)                 \
    X(KEY_ID, "key_id", 1, 1, 0, true, PATTERN_LOWER) \
    X(MAC, "mac", 22, 22, 0, true, PATTERN_BASE64URL)

#endif
