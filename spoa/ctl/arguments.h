/* SPDX-License-Identifier: MIT */
/* arguments: long options of the subcommands. (getopt_long's struct option is taken by spoa/lib/options.h.)
 */
#ifndef CELLGATE_CTL_ARGUMENTS_H
#define CELLGATE_CTL_ARGUMENTS_H

#include <stdbool.h>

/* "--name value" or "--name=value" at *argv: takes it off and sets *value. */
bool argument_take(char ***argv, const char *name, const char **value);
/* "--name" alone. */
bool argument_flag(char ***argv, const char *name, bool *set);

#endif
