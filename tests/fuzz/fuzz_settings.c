/* SPDX-License-Identifier: MIT */
/* The whole table of the configuration over any document, then an override: no crash, no leak, a reason for a
 * no. */
#include <stdlib.h>

#include "spoa/service/settings.h"
#include "tests/fuzz/fuzz.h"

static void read_document(struct slice text)
{
    size_t count;
    const struct option *table = settings_options(&count);
    struct settings settings = {.doc = NULL};
    struct fail why = {""};
    struct json *doc = json_parse(text, "f", JSON_COMMENTS, (struct json_limits){1 << 20, 32}, &why);
    if (doc && options_read(doc, json_root(doc), table, count, "/base", &settings, &why)) {
        char *assignment = slice_dup(text);
        why.text[0] = '\0';
        if (assignment && !options_override(table, count, assignment, &settings, &why) && why.text[0] == '\0')
            abort(); /* a refusal says why */
        free(assignment);
    } else if (why.text[0] == '\0') {
        abort();
    }
    options_free(table, count, &settings);
    json_free(doc);
}

/* `key=value` lines over the defaults. */
static void override_defaults(struct slice text)
{
    size_t count;
    const struct option *table = settings_options(&count);
    struct settings settings = {.doc = NULL};
    struct fail why = {""};
    struct slice line;
    struct json *doc =
        json_parse(SLICE_LITERAL("{\"directory\":{}}"), "f", 0, (struct json_limits){99, 9}, &why);
    if (!doc || !options_read(doc, json_root(doc), table, count, "/base", &settings, &why))
        abort();
    while (slice_split(&text, '\n', &line)) {
        char *assignment = slice_dup(line);
        why.text[0] = '\0';
        if (assignment && !options_override(table, count, assignment, &settings, &why) && why.text[0] == '\0')
            abort(); /* a refusal says why */
        free(assignment);
    }
    options_free(table, count, &settings);
    json_free(doc);
}

static int read_input(const uint8_t *data, size_t size)
{
    read_document(slice_of(data, size));
    override_defaults(slice_of(data, size));
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    return fuzz_grown(read_input, data, size);
}
