/* SPDX-License-Identifier: MIT */
/* However its bytes arrive, what a Redis server says is read the same way, and within its bounds. First byte: how
 * the rest is cut. */
#include <stdlib.h>

#include "spoa/proto/resp.h"
#include "tests/fuzz/fuzz.h"

static void judge(const struct resp *value, struct slice from)
{
    CHECK(value->count <= RESP_PARTS && (value->kind == RESP_ARRAY || value->count <= 1));
    for (size_t i = 0; i < value->count; i++) {
        const struct resp_part *part = &value->parts[i];
        CHECK(part->kind != RESP_ARRAY && part->text.len <= RESP_TEXT);
        if (part->text.len)
            CHECK(part->text.at >= from.at && part->text.at + part->text.len <= from.at + from.len);
    }
}

/* How many values there are, and how the last attempt ended. */
static size_t count(struct slice all, size_t step, enum resp_result *end)
{
    size_t values = 0, taken = 0;
    *end = RESP_MORE;
    for (size_t len = 0; len < all.len && *end != RESP_BROKEN;) {
        len = all.len - len < step ? all.len : len + step;
        uint8_t *copy = malloc(len - taken + 1);
        CHECK(copy);
        memcpy(copy, all.at + taken, len - taken);
        struct slice in = slice_of(copy, len - taken), before = in;
        struct resp value;
        while ((*end = resp_next(&in, &value)) == RESP_VALUE) {
            judge(&value, before);
            values++;
        }
        taken += before.len - in.len;
        free(copy);
    }
    return values;
}

static int read_input(const uint8_t *data, size_t size)
{
    if (size < 1)
        return 0;
    struct slice all = slice_of(data + 1, size - 1);
    enum resp_result once, stepwise;
    CHECK(count(all, all.len ? all.len : 1, &once) == count(all, 1u + data[0], &stepwise) &&
          once == stepwise);
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    return fuzz_grown(read_input, data, size);
}
