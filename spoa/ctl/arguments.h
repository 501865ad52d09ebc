/* SPDX-License-Identifier: MIT */
/* arguments: parses long options of the subcommands. (The name of getopt_long's struct option is taken by spoa/service/options.h.) */
#ifndef CELLGATE_CTL_ARGUMENTS_H
#define CELLGATE_CTL_ARGUMENTS_H

#include <stdbool.h>
#include <stddef.h>

enum { ARGUMENT_TEXTS_MAX = 16 };

/* Values of an option that may be given several times. */
struct argument_texts {
    const char *at[ARGUMENT_TEXTS_MAX];
    size_t count;
};

/* Removes "--name value" or "--name=value" at *argv and sets *value. Returns false if there is no such option, or if *value is set
 * already, because silently taking the last of two would hide a mistake. */
bool argument_take(char ***argv, const char *name, const char **value);
/* Like argument_take, for options that may be repeated. Returns false also if there are too many. */
bool argument_add(char ***argv, const char *name, struct argument_texts *texts);
/* Removes "--name", which takes no value, and sets *set. */
bool argument_flag(char ***argv, const char *name, bool *set);

#endif
