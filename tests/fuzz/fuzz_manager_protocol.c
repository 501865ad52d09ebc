/* SPDX-License-Identifier: MIT */
/* Messages to and from cell-sandboxd: whatever is read is put again as the same bytes. */
#include <stdlib.h>

#include "examples/worker/protocol/manager_protocol.h"
#include "tests/fuzz/fuzz.h"

static int read_input(const uint8_t *data, size_t size)
{
    static uint8_t memory[MANAGER_LENGTH_SIZE + MANAGER_MESSAGE_MAX];
    struct slice in = slice_of(data, size), before = in;
    struct manager_message m;
    while (manager_read(&in, &m) == MANAGER_READ) {
        struct writer w = writer_of(memory, sizeof memory);
        manager_put(&w, &m);
        if (w.full || !slice_equal(writer_slice(&w), slice_sub(before, 0, before.len - in.len)))
            abort();
        char **strings = manager_strings(m.argv);
        for (char **s = strings; s && *s; s++)
            if (strlen(*s) >= m.argv.len)
                abort();
        free(strings);
        before = in;
    }
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    return fuzz_grown(read_input, data, size);
}
