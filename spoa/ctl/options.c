/* SPDX-License-Identifier: MIT */
/* cellgate options: prints the tables of configuration options as text, manual page or sample. */
#include <stdio.h>
#include <string.h>

#include "spoa/agent/directory/options.h"
#include "spoa/agent/egress/rules_json.h"
#include "spoa/agent/route/route.h"
#include "spoa/agent/token/kind.h"
#include "spoa/agent/token/tokens.h"
#include "spoa/ctl/ctl.h"
#include "spoa/service/settings.h"

enum form { TEXT, MANUAL };

static void table(enum form form, const char *title, const struct option *options, size_t count)
{
    if (form == MANUAL) {
        printf(".SS %s\n", title);
        options_manual(stdout, options, count);
        return;
    }
    printf("%s\n\n", title);
    options_help(stdout, options, count);
    putchar('\n');
}

/* The title of the table says its kind. */
static void table_of_kind(enum form form, const char *what, const char *kind, const struct option *options,
                          size_t count)
{
    char title[64];
    bool named = count > 0 && strcmp(options->key, "kind") == 0;
    snprintf(title, sizeof title, "%s of kind %s", what, kind);
    table(form, title, options + named, count - named);
}

static void all_tables(enum form form)
{
    size_t count;
    const struct option *options = settings_options(&count);
    table(form, "The configuration", options, count);
    for (size_t i = 0; directory_kind_at(i); i++) {
        const struct directory_kind *kind = directory_kind_at(i);
        table_of_kind(form, "A directory", kind->name, kind->options, kind->options_count);
    }
    options = route_options(&count);
    table(form, "A route", options, count);
    options = service_options(&count);
    table(form, "A service", options, count);
    options = egress_policy_options(&count);
    table(form, "Egress of a record, and `egress.default`", options, count);
    options = egress_rule_options(&count);
    table(form, "A rule of egress", options, count);
    for (size_t i = 0; token_kind_at(i); i++) {
        const struct token_kind *kind = token_kind_at(i);
        table_of_kind(form, "A token entry", kind->name, kind->options, kind->options_count);
    }
}

static void sample(void)
{
    size_t count;
    const struct option *options = settings_options(&count);
    options_sample(stdout, options, count);
}

int ctl_options(int argc, char **argv)
{
    const char *how = argc == 2 ? argv[1] : "";
    if (argc == 1)
        all_tables(TEXT);
    else if (strcmp(how, "--manual") == 0)
        all_tables(MANUAL);
    else if (strcmp(how, "--sample") == 0)
        sample();
    else {
        bool help = strcmp(how, "--help") == 0 || strcmp(how, "-h") == 0;
        fprintf(help ? stdout : stderr,
                "usage: cellgate options [--sample|--manual]\n"
                "Prints every key of the configuration: its type, its default, what it does.\n"
                "With --sample: a configuration that says what is so without it, to begin from.\n");
        return help ? 0 : 2;
    }
    return 0;
}
