/* SPDX-License-Identifier: MIT */
/*
 * tables: the foreign systems whose clients and workers work unchanged, and each system's own names. A system is a folder beside this
 * file; its tables.h has its rows. Code outside these folders names no system (tests/lint/systems): it gets its enums, fields and names
 * from these tables.
 */
#ifndef CELLGATE_AGENT_SYSTEMS_TABLES_H
#define CELLGATE_AGENT_SYSTEMS_TABLES_H

#include "spoa/agent/systems/agent_sandbox/tables.h"
#include "spoa/agent/systems/daytona/tables.h"
#include "spoa/agent/systems/e2b/tables.h"
#include "spoa/agent/systems/opencomputer/tables.h"
#include "spoa/agent/systems/opensandbox/tables.h"
#include "spoa/agent/systems/sandbox_sdk/tables.h"

/* X(NAME, variable, word in `systems`); the order in which routes of one stage are tried. */
#define SYSTEMS(X)                                \
    X(OPENCOMPUTER, opencomputer, "opencomputer") \
    X(OPENSANDBOX, opensandbox, "opensandbox")    \
    X(SANDBOX_SDK, sandbox_sdk, "sandbox-sdk")    \
    X(DAYTONA, daytona, "daytona")                \
    X(E2B, e2b, "e2b")                            \
    X(AGENT_SANDBOX, agent_sandbox, "agent-sandbox")

/* Headers that a system's clients send to the gateway in front of their sandboxes. No worker gets any of them. A row makes cellgate read
 * and remove the header; a header with a credential is also a source of credentials.
 *
 *     X(field of struct request, field of its count, name in lower case, name as docs write it, ...) */

/* ..., SOURCE: headers with a credential, in their order of precedence. */
#define CREDENTIAL_HEADERS(X)         \
    OPENSANDBOX_CREDENTIAL_HEADERS(X) \
    OPENCOMPUTER_CREDENTIAL_HEADERS(X) DAYTONA_CREDENTIAL_HEADERS(X) E2B_CREDENTIAL_HEADERS(X)

/* Headers that name the sandbox. */
#define TARGET_HEADERS(X) AGENT_SANDBOX_TARGET_HEADERS(X) OPENSANDBOX_TARGET_HEADERS(X) E2B_TARGET_HEADERS(X)

/* X(name): headers that carry a credential for a system's own API, which no worker gets. */
#define API_HEADERS(X) OPENSANDBOX_API_HEADERS(X)

/* X(SOURCE, name): parameters of the query with a credential. */
#define CREDENTIAL_PARAMETERS(X) DAYTONA_CREDENTIAL_PARAMETERS(X)

/* X(SOURCE, name in docs/tokens.md, variable): forms of signed URLs (token/signed_url.h). */
#define SIGNED_URLS(X) OPENCOMPUTER_SIGNED_URLS(X) E2B_SIGNED_URLS(X) DAYTONA_SIGNED_URLS(X)

/* X(TEXT, field of struct verdict, SPOE variable, header, name in `explain`): headers that a worker accepts as a credential, and that
 * HAProxy can set. */
#define WORKER_HEADERS(X) OPENSANDBOX_WORKER_HEADERS(X) E2B_WORKER_HEADERS(X)

/* X(variable, `kind` of an entry of `tokens`): kinds of tokens (token/kind.h). A kind with a narrower form must precede one with a wider
 * form. */
#define SYSTEM_TOKEN_KINDS(X)    \
    AGENT_SANDBOX_TOKEN_KINDS(X) \
    OPENCOMPUTER_TOKEN_KINDS(X) E2B_TOKEN_KINDS(X) DAYTONA_TOKEN_KINDS(X) OPENSANDBOX_TOKEN_KINDS(X)

/* X(SORT, variable, word in `resources`): resources of a Kubernetes cluster that are sandboxes (directory/kubernetes/object.h). */
#define SYSTEM_KUBERNETES_SORTS(X) AGENT_SANDBOX_KUBERNETES_SORTS(X) OPENSANDBOX_KUBERNETES_SORTS(X)

/* Captures of patterns with a form of their own: the columns of CAPTURES (route/pattern.h). */
#define SYSTEM_CAPTURES(X) OPENSANDBOX_CAPTURES(X) E2B_CAPTURES(X) OPENSANDBOX_FLEET_CAPTURES(X)

/* X(FORM, word in `mux` of a route): forms of a WebSocket that carries many requests. */
#define SYSTEM_MUX_FORMS(X) SANDBOX_SDK_MUX_FORMS(X)

#endif
