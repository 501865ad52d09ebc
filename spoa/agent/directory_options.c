/* SPDX-License-Identifier: MIT */
#include "spoa/agent/directory_options.h"

static const char *const kinds[] = {"file", NULL};

static const struct option table[] = {
    {.key = "kind",
     .type = OPTION_ENUM,
     .offset = offsetof(struct directory_options, kind),
     .names = kinds,
     .help = "what kind of directory this is"},
    {.key = "path",
     .type = OPTION_PATH,
     .offset = offsetof(struct directory_options, path),
     .help = "the file with the records; it is read again when it changes"},
};

const struct option *directory_options_table(size_t *count)
{
    *count = sizeof table / sizeof *table;
    return table;
}

bool directory_options_read(const struct settings *s, struct directory_options *options, struct fail *why)
{
    *options = (struct directory_options){0};
    return options_read(s->doc, s->directory, table, sizeof table / sizeof *table, s->base_dir, options, why);
}

void directory_options_free(struct directory_options *options)
{
    options_free(table, sizeof table / sizeof *table, options);
}
