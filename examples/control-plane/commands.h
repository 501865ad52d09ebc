/* SPDX-License-Identifier: MIT */
/*
 * commands: what an operator may do: both ends of the control socket (spoa/service/control.h). Nobody but who may open
 * the socket can move, suspend or remove a sandbox; agents cannot.
 */
#ifndef CELLGATE_PLANE_COMMANDS_H
#define CELLGATE_PLANE_COMMANDS_H

#include "examples/control-plane/serve.h"
#include "spoa/service/control.h"

/* For control_new; `commands` has room for COMMANDS_MAX. Gives how many there are. */
enum { COMMANDS_MAX = 9 };
size_t commands_fill(struct serve *serve, struct control_command commands[static COMMANDS_MAX]);

/* The operator's side: argv is the command and what follows it. Prints, and gives the exit code. */
int commands_ask(const char *control, int argc, char **argv);

#endif
