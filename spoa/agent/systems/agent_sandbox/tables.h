/* SPDX-License-Identifier: MIT */
/* tables: the rows of this system in the tables of spoa/agent/systems/tables.h. */
#ifndef CELLGATE_AGENT_SYSTEMS_AGENT_SANDBOX_TABLES_H
#define CELLGATE_AGENT_SYSTEMS_AGENT_SANDBOX_TABLES_H

#define AGENT_SANDBOX_TARGET_HEADERS(X)                                                    \
    X(sandbox_id, sandbox_ids, "x-sandbox-id", "X-Sandbox-ID")                             \
    X(sandbox_namespace, sandbox_namespaces, "x-sandbox-namespace", "X-Sandbox-Namespace") \
    X(sandbox_port, sandbox_ports, "x-sandbox-port", "X-Sandbox-Port")                     \
    X(sandbox_uid, sandbox_uids, "x-sandbox-uid", "X-Sandbox-UID")                         \
    X(sandbox_pod_ip, sandbox_pod_ips, "x-sandbox-pod-ip", "X-Sandbox-Pod-IP")

#define AGENT_SANDBOX_TOKEN_KINDS(X)     \
    X(agent_sandbox_v1, "agent-sandbox") \
    X(agent_sandbox_v2, "agent-sandbox-v2")

#define AGENT_SANDBOX_KUBERNETES_SORTS(X) X(AGENT_SANDBOX, agent_sandbox, "agent-sandbox")

#endif
