/* SPDX-License-Identifier: MIT */
/* arguments: long options of the subcommands. (getopt_long's struct option is taken by spoa/service/options.h.)
 */
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

/* "--name value" or "--name=value" at *argv: takes it off and sets *value. False also if there is one already: of two the
 * last would count without a word. */
bool argument_take(char ***argv, const char *name, const char **value);
/* The same, for all of them; false also when there are too many. */
bool argument_add(char ***argv, const char *name, struct argument_texts *texts);
/* "--name" alone. */
bool argument_flag(char ***argv, const char *name, bool *set);

#endif
