/* SPDX-License-Identifier: MIT */
/*
 * commands: the operator's commands, with both ends of the control socket (spoa/service/control.h). Only an account that may open the
 * socket can move, suspend or remove a sandbox; agents cannot.
 */
#ifndef CELLGATE_PLANE_COMMANDS_H
#define CELLGATE_PLANE_COMMANDS_H

#include "examples/control-plane/serve.h"
#include "spoa/service/control.h"

/* Fills in the commands for control_new, and returns their number. */
enum { COMMANDS_MAX = 9 };
size_t commands_fill(struct serve *serve, struct control_command commands[static COMMANDS_MAX]);

/* Runs the operator's side: sends the command argv[0] with its arguments, and prints the answer. Returns the exit code. */
int commands_ask(const char *control, int argc, char **argv);

#endif
