/* SPDX-License-Identifier: MIT */
/*
 * record_json: a sandbox record as every directory kind writes it in JSON (directory.md "Record").
 * Unknown keys are refused, because a mistyped "state" would let people into a stopped sandbox; keys that
 * start with "x-" are for the control plane's own use and ignored.
 */
#ifndef CELLGATE_AGENT_MODEL_RECORD_JSON_H
#define CELLGATE_AGENT_MODEL_RECORD_JSON_H

#include "spoa/agent/model/record.h"
#include "spoa/base/bytes/writer.h"
#include "spoa/base/json/json.h"

/* Slices of *record point into the document and into `scratch`, where ports and headers are packed; its size
 * bounds them, and RECORD_HEADERS_MOST headers. False: *why has the position. */
bool record_from_json(const struct json *doc, const json_node *node, struct writer *scratch,
                      struct record *record, struct fail *why);

/* "running", "migrating", ... */
const char *record_state_text(enum record_state state);

#endif
