/* SPDX-License-Identifier: MIT */
/* system: the words of the systems whose forms of address can be enabled (`systems` of the configuration). profile.h describes the
 * systems. */
#ifndef CELLGATE_AGENT_MODEL_SYSTEM_H
#define CELLGATE_AGENT_MODEL_SYSTEM_H

#include "spoa/agent/systems/profile.h"
#include "spoa/base/json/json.h"

/* A set of systems is a mask of these bits. */
#define SYSTEM_BIT(system) (1u << (system))
#define SYSTEMS_ALL        (((1u << SYSTEM_COUNT) - 1) & ~SYSTEM_BIT(SYSTEM_NONE))

/* Returns the system that a word names, or SYSTEM_NONE if there is no such word. */
enum system system_of(struct slice word);
const char *system_text(enum system system);
/* Returns all words for a message: "a, b, c". */
const char *system_words(void);

/* Reads a list of the words; a NULL node is an empty list. Returns false and *why, with the position, if the list is invalid. */
bool systems_read(const struct json *doc, const json_node *node, unsigned *systems, struct fail *why);

#endif
