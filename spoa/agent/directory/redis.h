/* SPDX-License-Identifier: MIT */
/*
 * directory_redis: the directory kind `redis`. The record of a sandbox is a JSON text at key {prefix}{id};
 * whoever changes it publishes the id on channel {prefix}events. A thread of its own keeps two connections,
 * one for commands and one for the channel (redis_link.h).
 *
 * A value is read by GETRANGE, so that one that is too large is not transferred, and one of another type is
 * an error instead of nothing.
 */
#ifndef CELLGATE_AGENT_DIRECTORY_REDIS_H
#define CELLGATE_AGENT_DIRECTORY_REDIS_H

#include "spoa/agent/directory/kind.h"

extern const struct directory_kind directory_kind_redis;

#endif
