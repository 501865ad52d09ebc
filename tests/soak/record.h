/* SPDX-License-Identifier: MIT */
/*
 * record: what the soak's streams are made of: lines of RECORD_SIZE bytes that tell whose they are, their
 * number and a checksum, so that whatever is lost, repeated, cut or a stranger's is known to the byte.
 *
 *     'd' 000017 0000000042 0000000041 9f3c01aa\n       kind, stream, number, value, checksum
 */
#ifndef CELLGATE_TESTS_SOAK_RECORD_H
#define CELLGATE_TESTS_SOAK_RECORD_H

#include "spoa/base/bytes/slice.h"

enum { RECORD_SIZE = 40 };

struct record_line {
    char kind;
    uint64_t stream, number, value;
};

/* Writes RECORD_SIZE bytes. `seed` tells the two directions of a stream apart. */
void record_write(uint8_t to[RECORD_SIZE], const struct record_line *line, uint32_t seed);

/* One direction of one stream, at its receiver. All counts are bytes. */
struct record_reader {
    uint64_t stream;
    uint32_t seed;
    uint64_t next; /* number that comes next */
    uint64_t bytes, lost, repeated;
    uint64_t torn;    /* parts of records */
    uint64_t foreign; /* whole records of another stream */
    uint8_t part[RECORD_SIZE];
    size_t have;
    void (*taken)(void *owner, const struct record_line *line); /* each whole record of this stream, once */
    void *owner;
};

void record_read(struct record_reader *r, struct slice bytes);

#endif
