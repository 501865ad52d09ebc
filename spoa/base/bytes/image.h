/* SPDX-License-Identifier: MIT */
/*
 * image: the one written-out form of state: a tunnel at rest is its image, and so is one that another process goes on with. A struct
 * has one table of its fields (`struct image_table`), by which image_part writes it and reads it back; tests and the fuzzer walk
 * the same table. A table says of each field what it is, or why it is not written: IMAGE_DERIVED (from what is written, or the
 * reader's own) or IMAGE_ANEW (it is begun anew). A field that is in no table fails tests/lint/images, and one that does not come back
 * fails tests/unit/relay/test_image_tables.c.
 *
 * Nothing in an image is a pointer, and what is read is checked: numbers against their limits, lengths against what is there. A
 * failed image stays failed, and what was read by it is not to be used, but may be freed. What can be written can be read.
 *
 * An image begins with its version and the time at which it was written. After that, each field of a table has a bit, which says
 * whether it differs from zero; eight of them stand in a byte in front of the values of these fields. A number takes as many bytes as
 * it needs, seven bits in each. A time is a distance from one that was written before it, the first one from the image's own.
 *
 * Memory that a struct owns stands in the image, byte for byte. Or it stays where it is: then the image only says that it is there, and
 * its owner keeps the pointers beside the image (`image_keep`), so that reading the image back needs no memory.
 */
#ifndef CELLGATE_BASE_IMAGE_H
#define CELLGATE_BASE_IMAGE_H

#include <stddef.h>

#include "spoa/base/bytes/buffer.h"
#include "spoa/base/bytes/reader.h"

struct image {
    struct buffer *to;       /* writes; NULL: reads */
    struct reader from;      /* what is still to be read */
    uint64_t times[2];       /* those from which the next time is counted, in µs of loop_clock */
    void **kept;             /* memory that stays where it is; NULL: memory stands in the image */
    size_t kept_count;       /* pointers in `kept` that were written or read */
    size_t kept_max;         /* room in `kept`, or the number of pointers there */
    size_t bits_at;          /* offset of the byte whose bits are being written */
    uint8_t bits, bits_left; /* the byte whose bits are being read, and how many of it are left */
    bool failed;             /* memory is short, the buffer's limit is reached, or what was read cannot be */
};

/* Begins an image of this version, which is written at `now`. */
struct image image_to(struct buffer *to, unsigned version, uint64_t now);
/* Begins to read. Fails if the version is another one. Times are what they were; if the reader's clock is behind the writer's, it is another
 * clock, and what was left of each time is left at `now`. */
struct image image_from(struct slice bytes, unsigned version, uint64_t now);
/* Memory stays where it is: pointers are written to `kept`, at most `max` of them, or were written there. */
void image_keep(struct image *image, void **kept, size_t max);
/* Returns true if all was written, or all was read, and nothing failed. */
bool image_done(const struct image *image);

/* ---- the table of a struct ---- */
enum image_kind {
    IMAGE_IS_NUMBER, /* an unsigned number, a bool or an enumeration, up to `max`; if it is `usual`, it takes a bit */
    IMAGE_IS_SIGNED, /* an int64_t */
    IMAGE_IS_TIME,   /* a uint64_t in µs of loop_clock; 0 and UINT64_MAX stand for themselves */
    IMAGE_IS_BYTES,  /* an array of bytes; zeros at its end are not written */
    IMAGE_IS_PART,   /* a struct that has a table */
    IMAGE_IS_OWNED,  /* a pointer to a struct on the heap that has a table; NULL: none */
    IMAGE_IS_BUFFER, /* a struct buffer; its limit is `max`, or, if that is 0, a number that is usually `usual` */
    IMAGE_IS_BY,     /* what `by` writes and reads, which gets the whole struct */
    IMAGE_IS_DERIVED,
    IMAGE_IS_ANEW,
};

struct image_table;
struct image_field {
    const char *name;
    enum image_kind kind;
    uint16_t offset, size, count; /* of the first element; of each; how many there are */
    uint64_t max, usual;
    const struct image_table *table;
    void (*by)(struct image *image, void *object);
};

struct image_table {
    const char *name;
    size_t size; /* of the struct */
    const struct image_field *fields;
    size_t count;
    bool (*holds)(const void *object); /* what must hold of the fields together; NULL: nothing */
    void (*derive)(void *object);      /* sets derived fields, after the others were read; NULL: none */
};

#define IMAGE_SIZE_OF(type, field) sizeof(((type *)0)->field)
#define IMAGE_FIELD(type, field, is, ...)                                          \
    {                                                                              \
        .name = #field, .offset = offsetof(type, field), .kind = (is), __VA_ARGS__ \
    }
#define IMAGE_ONE(type, field) .size = IMAGE_SIZE_OF(type, field), .count = 1
#define IMAGE_MANY(type, field) \
    .size = IMAGE_SIZE_OF(type, field[0]), .count = IMAGE_SIZE_OF(type, field) / IMAGE_SIZE_OF(type, field[0])

#define IMAGE_NUMBER(type, field, most) \
    IMAGE_FIELD(type, field, IMAGE_IS_NUMBER, IMAGE_ONE(type, field), .max = (most))
#define IMAGE_USUALLY(type, field, most, value) \
    IMAGE_FIELD(type, field, IMAGE_IS_NUMBER, IMAGE_ONE(type, field), .max = (most), .usual = (value))
#define IMAGE_NUMBERS(type, field, most) \
    IMAGE_FIELD(type, field, IMAGE_IS_NUMBER, IMAGE_MANY(type, field), .max = (most))
#define IMAGE_ANY(type, field)    IMAGE_NUMBER(type, field, UINT64_MAX >> (64 - 8 * IMAGE_SIZE_OF(type, field)))
#define IMAGE_FLAG(type, field)   IMAGE_NUMBER(type, field, 1)
#define IMAGE_FLAGS(type, field)  IMAGE_NUMBERS(type, field, 1)
#define IMAGE_SIGNED(type, field) IMAGE_FIELD(type, field, IMAGE_IS_SIGNED, IMAGE_ONE(type, field))
#define IMAGE_TIME(type, field)   IMAGE_FIELD(type, field, IMAGE_IS_TIME, IMAGE_ONE(type, field))
#define IMAGE_TIMES(type, field)  IMAGE_FIELD(type, field, IMAGE_IS_TIME, IMAGE_MANY(type, field))
#define IMAGE_BYTES(type, field)  IMAGE_FIELD(type, field, IMAGE_IS_BYTES, IMAGE_ONE(type, field))
#define IMAGE_PART(type, field, of) \
    IMAGE_FIELD(type, field, IMAGE_IS_PART, IMAGE_ONE(type, field), .table = (of))
#define IMAGE_PARTS(type, field, of) \
    IMAGE_FIELD(type, field, IMAGE_IS_PART, IMAGE_MANY(type, field), .table = (of))
#define IMAGE_OWNED(type, field, of) \
    IMAGE_FIELD(type, field, IMAGE_IS_OWNED, IMAGE_ONE(type, field), .table = (of))
#define IMAGE_BUFFER(type, field, limit) \
    IMAGE_FIELD(type, field, IMAGE_IS_BUFFER, IMAGE_ONE(type, field), .max = (limit))
#define IMAGE_BUFFER_USUALLY(type, field, value) \
    IMAGE_FIELD(type, field, IMAGE_IS_BUFFER, IMAGE_ONE(type, field), .usual = (value))
#define IMAGE_BUFFERS(type, field, limit) \
    IMAGE_FIELD(type, field, IMAGE_IS_BUFFER, IMAGE_MANY(type, field), .max = (limit))
#define IMAGE_BY(type, field, function) \
    IMAGE_FIELD(type, field, IMAGE_IS_BY, IMAGE_ONE(type, field), .by = (function))
#define IMAGE_DERIVED(type, field) IMAGE_FIELD(type, field, IMAGE_IS_DERIVED, IMAGE_ONE(type, field))
#define IMAGE_ANEW(type, field)    IMAGE_FIELD(type, field, IMAGE_IS_ANEW, IMAGE_ONE(type, field))

/* Defines the table `name` of a struct; further members of struct image_table may follow. */
#define IMAGE_TABLE(of, type, rows, ...)                                    \
    const struct image_table of = {.name = #type,                           \
                                   .size = sizeof(type),                    \
                                   .fields = (rows),                        \
                                   .count = sizeof(rows) / sizeof(rows)[0], \
                                   ##__VA_ARGS__}

/* Writes the struct, or reads it into one that is zeroed but for derived fields that its table needs. */
void image_part(struct image *image, const struct image_table *table, void *object);

/* ---- for the functions of IMAGE_BY ---- */
/* Writes one bit, or reads it. Returns it; false if the image has failed. */
bool image_bit(struct image *image, bool set);
void image_number(struct image *image, uint64_t *number, uint64_t max);
void image_bytes(struct image *image, void *bytes, size_t len);
/* Memory on the heap of `size` bytes, of which the first `used` say something; NULL: none. */
void image_memory(struct image *image, void **memory, size_t size, size_t used);
/* Fails the image unless this holds. */
void image_check(struct image *image, bool holds);
/* Returns the next bytes of what is read; empty if there are not so many. */
struct slice image_take(struct image *image, size_t len);

#endif
