/* SPDX-License-Identifier: MIT */
/*
 * profile_headers: headers that foreign systems' clients send to whatever stands in front of their sandboxes. No worker gets
 * any of them. A row here is all that a further one needs: it is read of each request, and stripped; where it carries a
 * credential, it is one of the sources.
 *
 *     X(field of struct request, field of its count, name in lower case, ...)
 */
#ifndef CELLGATE_AGENT_PROFILE_HEADERS_H
#define CELLGATE_AGENT_PROFILE_HEADERS_H

/* ..., SOURCE, name in docs/tokens.md: those that carry a credential, in the order in which they decide. */
#define CREDENTIAL_HEADERS(X)                                                          \
    X(secure_access, secure_accesses, "opensandbox-secure-access", SECURE_ACCESS,      \
      "OpenSandbox-Secure-Access")                                                     \
    X(oc_preview, oc_previews, "x-oc-preview-token", OC_PREVIEW, "X-OC-Preview-Token") \
    X(daytona_preview, daytona_previews, "x-daytona-preview-token", DAYTONA_PREVIEW,   \
      "X-Daytona-Preview-Token")                                                       \
    X(e2b_access, e2b_accesses, "e2b-traffic-access-token", E2B_ACCESS, "e2b-traffic-access-token")

/* Those that say which sandbox is meant. */
#define TARGET_HEADERS(X)                                           \
    X(sandbox_id, sandbox_ids, "x-sandbox-id")                      \
    X(sandbox_namespace, sandbox_namespaces, "x-sandbox-namespace") \
    X(sandbox_port, sandbox_ports, "x-sandbox-port")                \
    X(sandbox_uid, sandbox_uids, "x-sandbox-uid")                   \
    X(sandbox_pod_ip, sandbox_pod_ips, "x-sandbox-pod-ip")          \
    X(ingress_to, ingress_tos, "opensandbox-ingress-to")            \
    X(ingress, ingresses, "open-sandbox-ingress")                   \
    X(e2b_sandbox, e2b_sandboxes, "e2b-sandbox-id")                 \
    X(e2b_port, e2b_ports, "e2b-sandbox-port")

#endif
