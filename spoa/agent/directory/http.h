/* SPDX-License-Identifier: MIT */
/*
 * directory_http: the directory kind `http`: a cell's control plane, asked for one sandbox at a time by
 * GET {url}/v1/sandboxes/{id}, whose changes come as server-sent events from GET {url}/v1/events, and which
 * wakes a sandbox upon POST {url}/v1/sandboxes/{id}/wake. docs/directory.md has the contract.
 *
 * One thread runs all transfers with libcurl's multi interface; nobody else waits for it.
 */
#ifndef CELLGATE_AGENT_DIRECTORY_HTTP_H
#define CELLGATE_AGENT_DIRECTORY_HTTP_H

#include "spoa/agent/directory/kind.h"

extern const struct directory_kind directory_kind_http;

#endif
