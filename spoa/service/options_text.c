/* SPDX-License-Identifier: MIT */
#include <inttypes.h>
#include <string.h>

#include "spoa/service/options.h"

/* ---- values ---- */

struct unit {
    int64_t factor;
    const char *name;
};

/* In the largest unit that divides it; nothing needs none. */
static void print_number(FILE *to, int64_t value, const struct unit *units)
{
    while (value % units->factor != 0)
        units++;
    fprintf(to, "%" PRId64 "%s", value / units->factor, value ? units->name : "");
}

static void print_range(FILE *to, const struct option *option, const char *what, const struct unit *units)
{
    bool bounded = option->max != INT64_MAX || option->min != INT64_MIN;
    fprintf(to, bounded ? "%s from " : "%s", what);
    if (!bounded)
        return;
    print_number(to, option->min, units);
    if (option->max == INT64_MAX) {
        fprintf(to, " on");
    } else {
        fprintf(to, " to ");
        print_number(to, option->max, units);
    }
}

static void print_names(FILE *to, const char *const *names)
{
    for (size_t i = 0; names[i]; i++)
        fprintf(to, "%s\"%s\"", i == 0 ? "" : names[i + 1] ? ", " : " or ", names[i]);
}

static void print_length(FILE *to, const struct option *option, const char *what, const char *of)
{
    fprintf(to, "%s", what);
    if (option->max)
        fprintf(to, " of %" PRId64 " to %" PRId64 " %s", option->min, option->max, of);
}

static const struct unit *units_of(enum option_type type)
{
    static const struct unit none[] = {{1, ""}};
    static const struct unit times[] = {
        {OPTION_DAY, "d"}, {OPTION_HOUR, "h"}, {OPTION_MINUTE, "m"}, {OPTION_SECOND, "s"}, {1, "ms"}};
    static const struct unit sizes[] = {{1 << 30, "GiB"}, {1 << 20, "MiB"}, {1 << 10, "KiB"}, {1, "B"}};
    return type == OPTION_DURATION ? times : type == OPTION_SIZE ? sizes : none;
}

static void print_value(FILE *to, const struct option *option)
{
    const struct unit *units = units_of(option->type);
    switch (option->type) {
    case OPTION_BOOL:
        fprintf(to, "true or false");
        break;
    case OPTION_INT:
        print_range(to, option, "an integer", units);
        break;
    case OPTION_DURATION:
        print_range(to, option, "a duration", units);
        break;
    case OPTION_SIZE:
        print_range(to, option, "a size", units);
        break;
    case OPTION_ENUM:
        print_names(to, option->names);
        break;
    case OPTION_TEXT:
        print_length(to, option, "a text", "bytes");
        break;
    case OPTION_PATH:
        fprintf(to, "a path");
        break;
    case OPTION_ADDRESS:
        fprintf(to, "an address");
        break;
    case OPTION_TEXTS:
        print_length(to, option, "a list", "texts");
        break;
    case OPTION_NODE:
        fprintf(to, "%s", option->form ? option->form : "a value of its own form");
        break;
    }
}

struct option_value options_value(const struct option *option)
{
    struct option_value value = {""};
    FILE *to = fmemopen(value.text, sizeof value.text, "w");
    if (to) {
        print_value(to, option);
        fclose(to);
        value.text[sizeof value.text - 1] = '\0';
    }
    return value;
}

static const char *default_text(const struct option *option)
{
    if (!option->fallback)
        return "required";
    return *option->fallback ? option->fallback : "none";
}

/* ---- tables ---- */

void options_help(FILE *to, const struct option *table, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        fprintf(to, "  %s\n      %s (", table[i].key, table[i].help);
        print_value(to, &table[i]);
        fprintf(to, "; default: %s", default_text(&table[i]));
        if (table[i].old)
            fprintf(to, "; was `%s`", table[i].old);
        if (table[i].restart)
            fprintf(to, "; a change needs a restart");
        fprintf(to, ")\n");
    }
}

/* A backslash is roff's escape, a dot or quote at the start of a line a request. */
static void print_roff(FILE *to, const char *text)
{
    if (*text == '.' || *text == '\'')
        fprintf(to, "\\&");
    for (; *text; text++)
        fprintf(to, *text == '\\' ? "\\e" : *text == '-' ? "\\-" : "%c", *text);
}

void options_manual(FILE *to, const struct option *table, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        struct option_value value = options_value(&table[i]);
        fprintf(to, ".TP\n.B ");
        print_roff(to, table[i].key);
        fprintf(to, "\n");
        print_roff(to, table[i].help);
        fprintf(to, ";\n");
        print_roff(to, value.text);
        fprintf(to, ", default: ");
        print_roff(to, default_text(&table[i]));
        if (table[i].old) {
            fprintf(to, "; was ");
            print_roff(to, table[i].old);
        }
        if (table[i].restart)
            fprintf(to, "; a change needs a restart");
        fprintf(to, ".\n");
    }
}

/* ---- the sample ---- */

static const char *sample_text(const struct option *option)
{
    return option->example ? option->example : option->fallback ? option->fallback : OPTION_NONE;
}

static bool is_bare(const struct option *option)
{
    return option->example || option->type == OPTION_BOOL || option->type == OPTION_INT ||
           option->type == OPTION_TEXTS || option->type == OPTION_NODE;
}

static size_t section_len(const char *key)
{
    const char *dot = strchr(key, '.');
    return dot ? (size_t)(dot - key) : 0;
}

static bool same_section(const char *a, const char *b)
{
    return slice_equal(slice_of(a, section_len(a)), slice_of(b, section_len(b)));
}

/* What stands between two keys: the end of a line, of a section, the start of one. */
static void print_seam(FILE *to, const char *before, const char *key)
{
    if (before && same_section(before, key)) {
        fprintf(to, ",\n");
        return;
    }
    if (before)
        fprintf(to, section_len(before) ? "\n  },\n" : ",\n");
    if (section_len(key))
        fprintf(to, "  \"%.*s\": {\n", (int)section_len(key), key);
}

void options_sample(FILE *to, const struct option *table, size_t count)
{
    const char *before = NULL;
    fprintf(to, "{\n");
    for (size_t i = 0; i < count; i++) {
        const char *key = table[i].key, *value = sample_text(&table[i]);
        size_t section = section_len(key);
        int indent = section ? 4 : 2;
        if (!*value)
            continue;
        print_seam(to, before, key);
        fprintf(to, "%*s// %s\n", indent, "", table[i].help);
        fprintf(to, is_bare(&table[i]) ? "%*s\"%s\": %s" : "%*s\"%s\": \"%s\"", indent, "",
                key + section + (section != 0), value);
        before = key;
    }
    fprintf(to, before && section_len(before) ? "\n  }\n}\n" : "\n}\n");
}
