/* SPDX-License-Identifier: MIT */
/* ctl: the subcommands of `cellgate`. Each parses its own arguments (argv[0] is its name), writes to standard output and error, and
 * returns the exit code. */
#ifndef CELLGATE_CTL_CTL_H
#define CELLGATE_CTL_CTL_H

int ctl_attach(int argc, char **argv);
int ctl_certificates(int argc, char **argv);
int ctl_explain(int argc, char **argv);
int ctl_drain(int argc, char **argv);
int ctl_headers(int argc, char **argv);
int ctl_kick(int argc, char **argv);
int ctl_networks(int argc, char **argv);
int ctl_options(int argc, char **argv);
int ctl_routes(int argc, char **argv);
int ctl_status(int argc, char **argv);
int ctl_token(int argc, char **argv);
int ctl_top(int argc, char **argv);
int ctl_tunnels(int argc, char **argv);
int ctl_upgrade(int argc, char **argv);
int ctl_wait(int argc, char **argv);

#endif
