/* SPDX-License-Identifier: MIT */
/* What decodes is spelt exactly as encoding spells it; anything encodes and comes back. */
#include <stdlib.h>

#include "spoa/base/text/base64url.h"
#include "tests/fuzz/fuzz.h"

static int read_input(const uint8_t *data, size_t size)
{
    struct slice input = slice_of(data, size);
    uint8_t *bytes = malloc(size + 1), *text = malloc(base64url_length(size) + 1);
    struct writer b = writer_of(bytes, size), t = writer_of(text, base64url_length(size));
    if (base64url_decode(input, &b)) {
        base64url_encode(writer_slice(&b), &t);
        if (t.full || !slice_equal(writer_slice(&t), input))
            abort();
    }
    t.len = b.len = 0;
    b.full = false;
    base64url_encode(input, &t);
    if (t.full || t.len != t.size || !base64url_decode(writer_slice(&t), &b) ||
        !slice_equal(writer_slice(&b), input))
        abort();
    free(bytes);
    free(text);
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    return fuzz_grown(read_input, data, size);
}
