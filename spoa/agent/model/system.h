/* SPDX-License-Identifier: MIT */
/*
 * system: the systems whose forms of address can be on (`systems` of the configuration), and what is special
 * about each that more than one module has to know.
 */
#ifndef CELLGATE_AGENT_MODEL_SYSTEM_H
#define CELLGATE_AGENT_MODEL_SYSTEM_H

#include "spoa/base/json.h"

/* X(NAME, word, ports on which its software in a sandbox is managed) */
#define SYSTEMS(X)                               \
    X(OPENCOMPUTER, "opencomputer", "")          \
    X(OPENSANDBOX, "opensandbox", "44772,18080") \
    X(SANDBOX_SDK, "sandbox-sdk", "3000")        \
    X(AGENT_SANDBOX, "agent-sandbox", "8888")    \
    X(DAYTONA, "daytona", "2280")                \
    X(E2B, "e2b", "49983")

enum system {
    SYSTEM_NONE, /* a route of the operator's own */
#define X(name, word, ports) SYSTEM_##name,
    SYSTEMS(X)
#undef X
        SYSTEM_COUNT
};

/* Sets of systems are masks of these. */
#define SYSTEM_BIT(system) (1u << (system))
#define SYSTEMS_ALL        (((1u << SYSTEM_COUNT) - 1) & ~SYSTEM_BIT(SYSTEM_NONE))
/* The words, for messages. */
#define SYSTEM_WORDS "opencomputer, opensandbox, sandbox-sdk, agent-sandbox, daytona, e2b"

/* SYSTEM_NONE: no such word. */
enum system system_of(struct slice word);
const char *system_text(enum system system);
/* Texts as of the key `ports` of a route; "" where it has none of its own. */
const char *system_ports(enum system system);

/* A list of their words. node NULL: none. False: *why has the position. */
bool systems_read(const struct json *doc, const json_node *node, unsigned *systems, struct fail *why);

#endif
