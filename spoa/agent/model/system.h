/* SPDX-License-Identifier: MIT */
/* system: the words of the systems whose forms of address can be on (`systems` of the configuration); profile.h has the rest. */
#ifndef CELLGATE_AGENT_MODEL_SYSTEM_H
#define CELLGATE_AGENT_MODEL_SYSTEM_H

#include "spoa/agent/systems/profile.h"
#include "spoa/base/json/json.h"

/* Sets of systems are masks of these. */
#define SYSTEM_BIT(system) (1u << (system))
#define SYSTEMS_ALL        (((1u << SYSTEM_COUNT) - 1) & ~SYSTEM_BIT(SYSTEM_NONE))

/* SYSTEM_NONE: no such word. */
enum system system_of(struct slice word);
const char *system_text(enum system system);
/* All of them, for messages: "a, b, c". */
const char *system_words(void);

/* A list of their words. node NULL: none. False: *why has the position. */
bool systems_read(const struct json *doc, const json_node *node, unsigned *systems, struct fail *why);

#endif
