/* SPDX-License-Identifier: MIT */
/* fuzz: what every fuzzer has. A CHECK that does not hold says which one and ends the run: that is a finding. */
#ifndef CELLGATE_TESTS_FUZZ_H
#define CELLGATE_TESTS_FUZZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition) fuzz_check(condition, #condition, __FILE__, __LINE__)

static inline void fuzz_check(bool holds, const char *condition, const char *file, int line)
{
    if (holds)
        return;
    fprintf(stderr, "%s:%d: does not hold: %s\n", file, line, condition);
    abort();
}

/* Lengths of pieces: those at which heads get longer, and reads, whole frames and rings end, and their neighbours. Inputs
 * stay small: the bytes of a long piece are made (fuzz_fill). */
static inline size_t fuzz_length(uint8_t choice)
{
    static const size_t lengths[] = {0,     1,     2,     3,      16,     124,    125,    126,
                                     127,   300,   4094,  4095,   4096,   4097,   16383,  16384,
                                     16385, 17000, 65520, 65526,  65533,  65534,  65535,  65536,
                                     65537, 70000, 81920, 131071, 131072, 262144, 600000, 1 << 20};
    return lengths[choice % (sizeof lengths / sizeof *lengths)];
}

/* Of the same seed the same bytes, from the first on; no two parts of them are alike. At most 1 MiB. */
static inline void fuzz_fill(uint8_t *to, size_t len, uint8_t seed)
{
    static uint8_t noise[(1 << 20) + 256];
    uint32_t state = 2654435769U;

    for (size_t i = 0; !noise[0] && i < sizeof noise; i++) {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        noise[sizeof noise - 1 - i] = (uint8_t)(i + 1 < sizeof noise ? state : 1);
    }
    if (len)
        memcpy(to, noise + seed, len);
}

/* For parsers, whose inputs are what they read: one that ends in FUZZ_GROWS and three bytes is read with a part of it, which
 * two of these bytes choose, repeated up to a length of fuzz_length. The fuzzer's own inputs are a few hundred bytes long. */
#define FUZZ_GROWS 0xfd

static inline int fuzz_grown(int (*read_input)(const uint8_t *data, size_t size), const uint8_t *data,
                             size_t size)
{
    if (size < 8 || data[size - 4] != FUZZ_GROWS)
        return read_input(data, size);
    size_t len = size - 4, most = fuzz_length(data[size - 1]), total = len, at = data[size - 3] % len;
    size_t part = 1 + data[size - 2] % (len - at);
    if (most > len)
        total += (most - len) / part * part;
    uint8_t *grown = malloc(total);
    CHECK(grown);
    memcpy(grown, data, at);
    for (size_t i = at; i < at + part + total - len; i += part)
        memcpy(grown + i, data + at, part);
    memcpy(grown + total - (len - at - part), data + at + part, len - at - part);
    int result = read_input(grown, total);
    free(grown);
    return result;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#endif
