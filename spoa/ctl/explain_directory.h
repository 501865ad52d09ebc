/* SPDX-License-Identifier: MIT */
/*
 * explain_directory: the directory of a configuration, for one decision: it runs as in the agent, but who asks
 * waits for it. Nothing is woken, and what it pushes is not heeded.
 */
#ifndef CELLGATE_CTL_EXPLAIN_DIRECTORY_H
#define CELLGATE_CTL_EXPLAIN_DIRECTORY_H

#include "spoa/agent/directory/directory.h"

struct explain_directory;

/* NULL and *why. */
struct explain_directory *explain_directory_start(struct directory_options *options, struct fail *why);
void explain_directory_stop(struct explain_directory *d); /* NULL is fine */
struct directory *explain_directory_running(const struct explain_directory *d);
/* Tokens issued before are revoked, as far as it has said; 0: none. */
int64_t explain_directory_not_before(struct explain_directory *d);
/* Tokens that it revokes one by one, to be released; NULL: none. */
struct revoked *explain_directory_revoked(struct explain_directory *d);
/* Waits until a look-up that is on its way was answered, and a little for a directory that pushes its changes to do so. False and *why: the directory does not answer.
 * An answer that makes no sense is said on standard error. */
bool explain_directory_await(struct explain_directory *d, struct fail *why);

#endif
