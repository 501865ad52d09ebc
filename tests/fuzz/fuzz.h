/* SPDX-License-Identifier: MIT */
/* fuzz: what every fuzzer has. A CHECK that does not hold says which one and ends the run: that is a finding. */
#ifndef CELLGATE_TESTS_FUZZ_H
#define CELLGATE_TESTS_FUZZ_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define CHECK(condition) fuzz_check(condition, #condition, __FILE__, __LINE__)

static inline void fuzz_check(bool holds, const char *condition, const char *file, int line)
{
    if (holds)
        return;
    fprintf(stderr, "%s:%d: does not hold: %s\n", file, line, condition);
    abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#endif
