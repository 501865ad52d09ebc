/* SPDX-License-Identifier: MIT */
/*
 * image: the serialised form of state. An idle tunnel is kept as its image, which takes less memory, and a tunnel moves to another
 * process as its image. A struct has one table of its fields (`struct image_table`), by which image_part writes the struct and reads
 * it back; tests and the fuzzer walk the same table. A table names each field's kind, or why the field is not written: IMAGE_DERIVED
 * (the reader computes it, or has its own) or IMAGE_ANEW (it starts from zero). tests/lint/images finds a field that is missing in
 * the table, and tests/unit/relay/test_image_tables.c a field that does not come back.
 *
 * An image holds no pointers. Reading checks everything, because an image may come from another program: numbers against their limits,
 * lengths against the bytes that are left. A failed image stays failed; the caller must not use the structs read from it, but may free
 * them. Every image that can be written can be read.
 *
 * Format: the version, the time of writing, then the fields in the order of their table. Each field has one bit, which is set if the
 * field differs from zero. A byte with the bits of eight fields precedes the values of these fields. A number is a varint: seven bits
 * per byte, the lowest first, and the eighth bit set if another byte follows. A time is the distance from an earlier time of the image.
 *
 * Memory that a struct owns is either copied into the image, or stays in place. If it stays (`image_keep`), the image only records that it
 * exists, and the owner keeps the pointers beside the image, so that reading the image back allocates nothing.
 */
#ifndef CELLGATE_BASE_IMAGE_H
#define CELLGATE_BASE_IMAGE_H

#include <stddef.h>

#include "spoa/base/bytes/buffer.h"
#include "spoa/base/bytes/reader.h"

/* An image that is being written or read. */
struct image {
    struct buffer *to;  /* output of a writer; NULL for a reader */
    struct reader from; /* bytes that the reader has not read yet */
    uint64_t times[2];  /* two earlier times, in µs of loop_clock; the next time is a distance from either */
    void **kept;        /* pointers to memory that stays in place; NULL if memory is copied into the image */
    size_t kept_count;  /* number of pointers in `kept` that were written or read so far */
    size_t kept_max;    /* room in `kept` of a writer; number of pointers in `kept` of a reader */
    size_t bits_at;     /* offset of the byte whose bits are being written */
    uint8_t bits,
        bits_left; /* byte whose bits are being read; number of its bits that are left, written or read */
    bool failed;   /* memory is short, the buffer's limit is reached, or the bytes are invalid */
};

/* Begins an image of this version. `now` is the time of writing, in µs of loop_clock. */
struct image image_to(struct buffer *to, unsigned version, uint64_t now);
/* Begins to read an image; the image fails if it has another version. If `now` is before the time of writing, the reader has another clock
 * (the machine was started again), and each time is moved so that it is as far from `now` as it was from the time of writing. */
struct image image_from(struct slice bytes, unsigned version, uint64_t now);
/* Lets memory stay in place: a writer stores at most `max` pointers in `kept`, and a reader finds `max` pointers there. */
void image_keep(struct image *image, void **kept, size_t max);
/* Returns true if nothing has failed, and a reader has read everything. */
bool image_done(const struct image *image);

/* ---- the table of a struct ---- */
enum image_kind {
    IMAGE_IS_NUMBER, /* unsigned number, bool or enumeration, at most `max`; the value `usual` takes only a bit */
    IMAGE_IS_SIGNED, /* int64_t */
    IMAGE_IS_TIME, /* uint64_t in µs of loop_clock; the values 0 and UINT64_MAX are no times, and come back as they are */
    IMAGE_IS_BYTES, /* array of bytes; zeros at its end are not written */
    IMAGE_IS_PART,  /* embedded struct with a table */
    IMAGE_IS_OWNED, /* pointer to a struct on the heap with a table, or NULL */
    IMAGE_IS_BUFFER, /* struct buffer; the limit is `max`, or if that is 0, it is written, and usually is `usual` */
    IMAGE_IS_BY,      /* any field, written and read by the function `by` */
    IMAGE_IS_DERIVED, /* not written: the reader computes the field, or has its own value */
    IMAGE_IS_ANEW,    /* not written: the field is zero after reading */
};

struct image_table;
/* One field of a struct, or an array of equal elements. Made by the macros below. */
struct image_field {
    const char *name;
    enum image_kind kind;
    uint16_t offset, size, count; /* offset of the first element; size and number of the elements */
    uint64_t max, usual;
    const struct image_table *table;               /* table of a PART, or of the target of OWNED */
    void (*by)(struct image *image, void *object); /* writes or reads the field; gets the whole struct */
};

struct image_table {
    const char *name;
    size_t size; /* size of the struct, in bytes */
    const struct image_field *fields;
    size_t count;
    bool (*holds)(const void *object); /* checks the fields against each other after reading, or NULL */
    void (*derive)(void *object);      /* sets derived fields after the others were read, or NULL */
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

/* Writes the struct, or reads it into *object. A reader must pass a zeroed struct; only derived fields that the table needs may be set. */
void image_part(struct image *image, const struct image_table *table, void *object);

/* ---- for the functions of IMAGE_BY: each one writes its argument, or reads it ---- */
/* Writes `set`, or reads a bit. Returns the bit; false if the image has failed. */
bool image_bit(struct image *image, bool set);
/* Fails the image if the number is above `max`. */
void image_number(struct image *image, uint64_t *number, uint64_t max);
void image_bytes(struct image *image, void *bytes, size_t len);
/* Handles heap memory of `size` bytes, of which only the first `used` are written. A reader allocates the memory, zeroed. *memory may be
 * NULL. */
void image_memory(struct image *image, void **memory, size_t size, size_t used);
/* Fails the image if `holds` is false. */
void image_check(struct image *image, bool holds);
/* Returns the reader's next `len` bytes. Fails the image and returns an absent slice if there are fewer. */
struct slice image_take(struct image *image, size_t len);

#endif
