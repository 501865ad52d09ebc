/* SPDX-License-Identifier: MIT */
#include "spoa/ctl/explain_report.h"

#include <stdio.h>

static void print_quoted(struct slice text)
{
    putchar('"');
    for (size_t i = 0; i < text.len; i++) {
        uint8_t c = text.at[i];
        if (c < ' ' || c >= 0x7f || c == '"' || c == '\\')
            printf("\\u%04x", c);
        else
            putchar(c);
    }
    putchar('"');
}

static void print_plain(struct slice text)
{
    for (size_t i = 0; i < text.len; i++)
        putchar(text.at[i] < ' ' || text.at[i] >= 0x7f ? '?' : text.at[i]);
}

void report_text(struct report *r, const char *name, struct slice value)
{
    if (!slice_present(value))
        return;
    if (r->json) {
        printf("%s", r->members++ ? ", " : "");
        print_quoted(slice_text(name));
        printf(": ");
        print_quoted(value);
    } else {
        printf("  %-20s", name);
        print_plain(value);
        putchar('\n');
    }
}

void report_number(struct report *r, const char *name, int64_t value)
{
    if (value < 0)
        return;
    if (r->json)
        printf("%s\"%s\": %lld", r->members++ ? ", " : "", name, (long long)value);
    else
        printf("  %-20s%lld\n", name, (long long)value);
}

void report_truth(struct report *r, const char *name, bool value)
{
    if (!value)
        return;
    if (r->json)
        printf("%s\"%s\": true", r->members++ ? ", " : "", name);
    else
        printf("  %-20syes\n", name);
}

void report_step(void *context, const char *step, const char *text, struct slice detail)
{
    struct report *r = context;
    if (r->json) {
        printf("%s{\"step\": \"%s\", \"text\": ", r->members++ ? ", " : "", step);
        print_quoted(slice_text(text));
        if (slice_present(detail)) {
            printf(", \"detail\": ");
            print_quoted(detail);
        }
        putchar('}');
        return;
    }
    printf("%-9s %s", step, text);
    if (slice_present(detail)) {
        printf(": ");
        print_plain(detail);
    }
    putchar('\n');
}
