/* SPDX-License-Identifier: MIT */
/* Whatever the scan accepts, cJSON reads to its end and every node has a position; both ways in agree, and so does the check of
 * what arrives in pieces, but for duplicate keys. */
#include <cjson/cJSON.h>
#include <stdlib.h>

#include "spoa/base/json/json.h"
#include "spoa/base/json/json_feed.h"
#include "tests/fuzz/fuzz.h"

static void visit(const struct json *doc, const json_node *node)
{
    struct fail why;
    struct slice text;
    int64_t value;
    json_fail(doc, node, &why, "x");
    json_int(doc, node, INT64_MIN, INT64_MAX, &value);
    if (json_text(node, &text) && memchr(text.at, 0, text.len))
        abort();
    for (const json_node *child = json_first(node); child; child = json_next(child))
        visit(doc, child);
}

static bool each(void *context, struct slice key, struct slice value, struct fail *why)
{
    struct fail inner;
    (void)context, (void)key, (void)why;
    if (!json_check(value, "value", JSON_COMMENTS, (struct json_limits){SIZE_MAX, 20}, &inner))
        abort();
    return true;
}

/* In pieces as long as the document says. */
static bool feed(struct slice text)
{
    size_t step = 1 + (text.len ? text.at[text.len / 2] % 7 : 0);
    struct json_feed f = json_feed_of(20);
    for (; text.len; text = slice_from(text, step)) {
        struct slice rest = slice_sub(text, 0, step);
        while (rest.len)
            if (json_feed(&f, &rest) == JSON_FEED_BAD)
                return false;
    }
    return json_feed_is_whole(&f);
}

static int read_input(const uint8_t *data, size_t size)
{
    struct slice text = slice_of(data, size);
    struct json_limits limits = {1 << 20, 20};
    struct fail why;
    for (int flags = 0; flags <= JSON_COMMENTS; flags++) {
        bool good = json_check(text, "fuzz", flags, limits, &why);
        struct json *doc = json_parse(text, "fuzz", flags, limits, &why);
        if (good != (doc != NULL))
            abort();
        if (doc)
            visit(doc, json_root(doc));
        json_free(doc);
        if (!flags && feed(text) != good && (good || !strstr(why.text, "duplicate key")))
            abort();
        if (good && !flags) {
            cJSON *tree = cJSON_ParseWithLength((const char *)data, size);
            if (!tree)
                abort();
            cJSON_Delete(tree);
        }
    }
    struct json_stream stream = {each, each, NULL};
    (void)json_stream_object(text, "fuzz", "sandboxes", JSON_COMMENTS, 20, &stream, &why);
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    return fuzz_grown(read_input, data, size);
}
