/* SPDX-License-Identifier: MIT */
#include "spoa/ctl/arguments.h"

#include <string.h>

static bool take(char ***argv, const char *name, const char **value)
{
    const char *word = **argv;
    size_t len = strlen(name);
    if (strncmp(word, name, len) != 0)
        return false;
    if (word[len] == '=') {
        *value = word + len + 1;
        *argv += 1;
        return true;
    }
    if (word[len] != '\0' || !(*argv)[1])
        return false;
    *value = (*argv)[1];
    *argv += 2;
    return true;
}

bool argument_take(char ***argv, const char *name, const char **value)
{
    return !*value && take(argv, name, value);
}

bool argument_add(char ***argv, const char *name, struct argument_texts *texts)
{
    bool room = texts->count < sizeof(texts->at) / sizeof(*texts->at);
    return room && take(argv, name, &texts->at[texts->count]) && ++texts->count;
}

bool argument_flag(char ***argv, const char *name, bool *set)
{
    if (strcmp(**argv, name) != 0)
        return false;
    *set = true;
    *argv += 1;
    return true;
}
