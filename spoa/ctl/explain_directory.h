/* SPDX-License-Identifier: MIT */
/* explain_directory: runs a configuration's directory for one decision, as the agent does, but the caller waits for it. The directory
 * wakes no sandbox, and its pushed changes have no effect. */
#ifndef CELLGATE_CTL_EXPLAIN_DIRECTORY_H
#define CELLGATE_CTL_EXPLAIN_DIRECTORY_H

#include "spoa/agent/directory/directory.h"

struct explain_directory;

/* Starts the directory. Returns NULL and sets *why on failure. */
struct explain_directory *explain_directory_start(struct directory_options *options, struct fail *why);
void explain_directory_stop(struct explain_directory *d); /* stops the directory; accepts NULL */
struct directory *explain_directory_running(const struct explain_directory *d);
/* Returns the time before which issued tokens are revoked, as far as the directory has reported; 0 if there is none. */
int64_t explain_directory_not_before(struct explain_directory *d);
/* Returns the tokens that the directory revokes individually, which the caller releases; NULL if there are none. */
struct revoked *explain_directory_revoked(struct explain_directory *d);
/* Waits until a pending look-up is answered, and briefly for a directory that pushes its changes. Returns false and sets *why if the
 * directory does not answer. Invalid answers are reported on standard error. */
bool explain_directory_await(struct explain_directory *d, struct fail *why);

#endif
