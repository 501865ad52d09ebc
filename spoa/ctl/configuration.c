/* SPDX-License-Identifier: MIT */
#include "spoa/ctl/configuration.h"

#include <stdio.h>
#include <string.h>

#include "spoa/ctl/arguments.h"

enum { EXIT_GOOD, EXIT_BAD, EXIT_USAGE };

static int print_of(const char *path, configuration_print *print)
{
    struct fail why;
    struct settings *settings = settings_load(path, NULL, 0, &why);
    bool good = settings && print(settings, &why) && (fflush(stdout) == 0 || fail(&why, "cannot write"));
    if (!good)
        fprintf(stderr, "%s\n", why.text);
    settings_free(settings);
    return good ? EXIT_GOOD : EXIT_BAD;
}

int configuration_command(int argc, char **argv, const char *usage, configuration_print *print)
{
    const char *path = NULL;
    char **word = argv + 1;
    if (argc == 2 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)) {
        fputs(usage, stdout);
        return EXIT_GOOD;
    }
    while (*word && argument_take(&word, "--config", &path))
        ;
    if (!*word)
        return print_of(path ? path : SETTINGS_PATH, print);
    fputs(usage, stderr);
    return EXIT_USAGE;
}
