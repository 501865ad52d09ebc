/* SPDX-License-Identifier: MIT */
/*
 * record_json: reads a sandbox record in JSON, the form in which every kind of directory writes it (directory.md "Record"). Unknown keys
 * are refused, because a mistyped "state" would let clients into a stopped sandbox. Keys that start with "x-" are for the control
 * plane's own use and are ignored.
 */
#ifndef CELLGATE_AGENT_MODEL_RECORD_JSON_H
#define CELLGATE_AGENT_MODEL_RECORD_JSON_H

#include "spoa/agent/model/record.h"
#include "spoa/base/bytes/writer.h"
#include "spoa/base/json/json.h"

/* Reads a record. Slices of *record point into the document and into `scratch`, which holds the packed ports and headers; its size
 * limits them, and RECORD_HEADERS_MOST limits the headers. Returns false and *why, with the position, if the record is invalid. */
bool record_from_json(const struct json *doc, const json_node *node, struct writer *scratch,
                      struct record *record, struct fail *why);

/* Returns "running", "migrating", ... */
const char *record_state_text(enum record_state state);

#endif
