/* SPDX-License-Identifier: MIT */
/* configuration: the subcommands that print a part of the configuration and take nothing but its file. */
#ifndef CELLGATE_CTL_CONFIGURATION_H
#define CELLGATE_CTL_CONFIGURATION_H

#include "spoa/service/settings.h"

/* Prints to standard output. Returns false and sets *why on failure. */
typedef bool configuration_print(const struct settings *settings, struct fail *why);

/* Runs a whole subcommand with the arguments [--config FILE] or --help, which prints `usage`. Returns the exit code. */
int configuration_command(int argc, char **argv, const char *usage, configuration_print *print);

#endif
