/* SPDX-License-Identifier: MIT */
#include "tests/soak/record.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { CHECKED = RECORD_SIZE - 10 }; /* bytes in front of the checksum */

static uint32_t checksum(const char *text, size_t len, uint32_t seed)
{
    uint32_t hash = 2166136261u ^ seed; /* FNV-1a */
    for (size_t i = 0; i < len; i++)
        hash = (hash ^ (uint8_t)text[i]) * 16777619u;
    return hash;
}

void record_write(uint8_t to[RECORD_SIZE], const struct record_line *line, uint32_t seed)
{
    char text[2 * RECORD_SIZE];
    snprintf(text, sizeof text, "%c%06u %010" PRIu64 " %010" PRIu64 " ", line->kind,
             (unsigned)(line->stream % 1000000), line->number % 10000000000, line->value % 10000000000);
    snprintf(text + CHECKED, sizeof text - CHECKED, " %08x\n", checksum(text, CHECKED, seed));
    memcpy(to, text, RECORD_SIZE);
}

static bool parse(const uint8_t part[RECORD_SIZE], uint32_t seed, struct record_line *line)
{
    char text[RECORD_SIZE + 1] = "";
    unsigned sum;
    memcpy(text, part, RECORD_SIZE);
    return text[RECORD_SIZE - 1] == '\n' &&
           sscanf(text, "%c%6" SCNu64 " %10" SCNu64 " %10" SCNu64 " %8x", &line->kind, &line->stream,
                  &line->number, &line->value, &sum) == 5 &&
           sum == checksum(text, CHECKED, seed);
}

/* Drops the part up to its line's end, or all of it. */
static void resynchronise(struct record_reader *r)
{
    uint8_t *end = memchr(r->part, '\n', r->have);
    size_t drop = end ? (size_t)(end - r->part) + 1 : r->have;
    r->torn += drop;
    r->have -= drop;
    memmove(r->part, r->part + drop, r->have);
}

static void take(struct record_reader *r)
{
    struct record_line line;
    if (!parse(r->part, r->seed, &line)) {
        resynchronise(r);
        return;
    }
    r->have = 0;
    if (line.stream != r->stream % 1000000) {
        r->foreign += RECORD_SIZE;
    } else if (line.number < r->next) {
        r->repeated += RECORD_SIZE;
    } else {
        r->lost += (line.number - r->next) * RECORD_SIZE;
        r->next = line.number + 1;
        r->taken(r->owner, &line);
    }
}

void record_read(struct record_reader *r, struct slice bytes)
{
    r->bytes += bytes.len;
    while (bytes.len) {
        size_t len = RECORD_SIZE - r->have < bytes.len ? RECORD_SIZE - r->have : bytes.len;
        memcpy(r->part + r->have, bytes.at, len);
        r->have += len;
        bytes = slice_from(bytes, len);
        if (r->have == RECORD_SIZE)
            take(r);
    }
}
