/* SPDX-License-Identifier: MIT */
/* A handover that can be read is written again to something that reads the same. */
#include <stdlib.h>

#include "spoa/proto/handover.h"
#include "tests/fuzz/fuzz.h"

enum { LINE = 8192 };

static bool same_text(struct slice a, struct slice b)
{
    return slice_present(a) == slice_present(b) && slice_equal(a, b);
}

static bool same(const struct handover *a, const struct handover *b)
{
    bool all = true;
#define SAME_TEXT(field)    all = all && same_text(a->field, b->field);
#define SAME_INT(field)     all = all && a->field == b->field;
#define SAME_BOOL(field)    all = all && a->field == b->field;
#define SAME_NAME(field)    all = all && a->field == b->field;
#define SAME_ADDRESS(field) all = all && memcmp(&a->field, &b->field, sizeof a->field) == 0;
#define X(kind, field, key) SAME_##kind(field)
    HANDOVER_FIELDS(X)
#undef X
    return all;
}

static int read_input(const uint8_t *data, size_t size)
{
    static uint8_t line[4 * LINE];
    struct handover first, second;
    struct fail why;

    if (size > LINE)
        return 0;
    uint8_t *memory = malloc(size + 1), *again = malloc(size + 1);
    struct writer decoded = writer_of(memory, size), encoded = writer_of(line, sizeof line);
    struct writer decoded_again = writer_of(again, size);
    if (memory && again && handover_decode(&first, slice_of(data, size), &decoded, &why)) {
        handover_encode(&first, &encoded);
        if (encoded.full || !handover_decode(&second, writer_slice(&encoded), &decoded_again, &why) ||
            !same(&first, &second))
            abort();
        static uint8_t kept[LINE + HANDOVER_PACKED_MAX];
        struct writer packed = writer_of(kept, size + HANDOVER_PACKED_MAX);
        handover_pack(&first, &packed);
        second = handover_unpack(writer_slice(&packed));
        if (packed.full || !same(&first, &second))
            abort();
    }
    free(memory);
    free(again);
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    return fuzz_grown(read_input, data, size);
}
