/* SPDX-License-Identifier: MIT */
#include "spoa/base/bytes/image.h"

#include <stdlib.h>

enum { VARINT_MAX = 10 /* bytes */, VARINT_BITS = 7, VARINT_MORE = 1 << VARINT_BITS };

/* ---- bytes ---- */
void image_check(struct image *image, bool holds)
{
    image->failed = image->failed || !holds;
}

static void put(struct image *image, const void *bytes, size_t len)
{
    image_check(image, image->failed || buffer_put(image->to, slice_of(bytes, len)));
}

struct slice image_take(struct image *image, size_t len)
{
    struct slice taken = reader_take(&image->from, len);

    image_check(image, !image->from.failed);
    return image->failed ? slice_of(NULL, 0) : taken;
}

/* Begins the next byte of bits. A writer writes it as 0 before the values of its fields, and image_bit sets its bits later. */
static void begin_bits(struct image *image)
{
    image->bits_left = 8;
    if (image->to) {
        image->bits_at = buffer_len(image->to);
        put(image, "", 1);
        return;
    }
    struct slice byte = image_take(image, 1);
    image->bits = byte.len ? byte.at[0] : 0;
}

bool image_bit(struct image *image, bool set)
{
    if (!image->bits_left)
        begin_bits(image);
    if (image->failed)
        return false;
    image->bits_left--;
    if (!image->to)
        return image->bits >> image->bits_left & 1;
    if (set)
        image->to->memory[image->to->start + image->bits_at] |= (uint8_t)(1u << image->bits_left);
    return set;
}

static void put_varint(struct image *image, uint64_t value)
{
    uint8_t bytes[VARINT_MAX];
    size_t len = 0;

    for (; value >= VARINT_MORE; value >>= VARINT_BITS)
        bytes[len++] = (uint8_t)(value | VARINT_MORE);
    bytes[len++] = (uint8_t)value;
    put(image, bytes, len);
}

static uint64_t take_varint(struct image *image)
{
    uint64_t value = 0;

    for (unsigned i = 0; i < VARINT_MAX; i++) {
        struct slice byte = image_take(image, 1);
        if (!byte.len)
            return 0;
        value |= (uint64_t)(byte.at[0] & (VARINT_MORE - 1)) << (VARINT_BITS * i);
        if (byte.at[0] < VARINT_MORE)
            return value;
    }
    image_check(image, false);
    return 0;
}

/* Maps a signed number to an unsigned one (0, -1, 1, -2 become 0, 1, 2, 3), so that small numbers of either sign make short varints. */
static uint64_t fold_sign(uint64_t value)
{
    return value << 1 ^ (value >> 63 ? UINT64_MAX : 0);
}

static uint64_t unfold_sign(uint64_t value)
{
    return value >> 1 ^ (value & 1 ? UINT64_MAX : 0);
}

/* ---- a whole image ---- */
enum {
    UNIT =
        1024 /* resolution of the image's time of writing, in µs: any earlier time serves as the base of the others */
};

struct image image_to(struct buffer *to, unsigned version, uint64_t now)
{
    struct image image = {.to = to, .times = {now & ~(uint64_t)(UNIT - 1), now & ~(uint64_t)(UNIT - 1)}};

    put_varint(&image, version);
    put_varint(&image, now / UNIT);
    return image;
}

struct image image_from(struct slice bytes, unsigned version, uint64_t now)
{
    struct image image = {.from = reader_of(bytes)};

    image_check(&image, take_varint(&image) == version);
    uint64_t written = take_varint(&image);
    image_check(&image, written <= UINT64_MAX / UNIT);
    written *= UNIT;
    image.times[0] = image.times[1] = written < now ? written : now;
    return image;
}

void image_keep(struct image *image, void **kept, size_t max)
{
    image->kept = kept;
    image->kept_max = max;
}

bool image_done(const struct image *image)
{
    bool kept = !image->kept || image->to || image->kept_count == image->kept_max;
    return !image->failed && kept && (image->to || reader_done(&image->from));
}

/* ---- the kinds of fields ---- */
void image_number(struct image *image, uint64_t *number, uint64_t max)
{
    if (image->to) {
        image_check(image, *number <= max);
        put_varint(image, *number);
        return;
    }
    *number = take_varint(image);
    image_check(image, *number <= max);
}

void image_bytes(struct image *image, void *bytes, size_t len)
{
    if (image->to) {
        put(image, bytes, len);
        return;
    }
    struct slice read = image_take(image, len);
    if (read.len)
        memcpy(bytes, read.at, read.len);
}

/* Stores a pointer in `kept`, or reads it from there. */
static void keep_memory(struct image *image, void **memory)
{
    image_check(image, image->kept_count < image->kept_max);
    if (image->failed)
        return;
    if (image->to)
        image->kept[image->kept_count] = *memory;
    else
        *memory = image->kept[image->kept_count];
    image->kept_count++;
}

void image_memory(struct image *image, void **memory, size_t size, size_t used)
{
    if (!image_bit(image, *memory))
        return;
    if (image->kept) {
        keep_memory(image, memory);
        return;
    }
    if (!image->to) {
        image_check(image, used <= image->from.rest.len);
        *memory = image->failed ? NULL : calloc(1, size ? size : 1);
        image_check(image, *memory != NULL);
    }
    if (!image->failed)
        image_bytes(image, *memory, used < size ? used : size);
}

static uint64_t load(const void *at, size_t size)
{
    uint8_t u8;
    uint16_t u16;
    uint32_t u32;
    uint64_t u64;

    switch (size) {
    case sizeof u8:
        memcpy(&u8, at, size);
        return u8;
    case sizeof u16:
        memcpy(&u16, at, size);
        return u16;
    case sizeof u32:
        memcpy(&u32, at, size);
        return u32;
    default:
        memcpy(&u64, at, sizeof u64);
        return u64;
    }
}

static void store(void *at, uint64_t value, size_t size)
{
    uint8_t u8 = (uint8_t)value;
    uint16_t u16 = (uint16_t)value;
    uint32_t u32 = (uint32_t)value;

    switch (size) {
    case sizeof u8:
        memcpy(at, &u8, size);
        break;
    case sizeof u16:
        memcpy(at, &u16, size);
        break;
    case sizeof u32:
        memcpy(at, &u32, size);
        break;
    default:
        memcpy(at, &value, sizeof value);
    }
}

/* Writes or reads a number as its difference from `usual`: the value `usual` takes only a bit, and so does a flag. */
static void image_usual(struct image *image, uint64_t *number, uint64_t max, uint64_t usual)
{
    uint64_t differs = image->to ? *number ^ usual : 0;

    image_check(image, !image->to || *number <= max);
    if (image_bit(image, differs)) {
        if (max == 1)
            differs = 1;
        else
            image_number(image, &differs, UINT64_MAX);
    }
    if (image->to)
        return;
    *number = differs ^ usual;
    image_check(image, *number <= max);
}

static void image_unsigned(struct image *image, const struct image_field *field, void *at)
{
    uint64_t value = image->to ? load(at, field->size) : 0;

    image_usual(image, &value, field->max, field->usual);
    if (!image->to && !image->failed)
        store(at, value, field->size);
}

static void image_signed(struct image *image, void *at)
{
    uint64_t value = image->to ? fold_sign(load(at, sizeof value)) : 0;

    if (image_bit(image, value))
        image_number(image, &value, UINT64_MAX);
    value = unfold_sign(value);
    if (!image->to)
        memcpy(at, &value, sizeof value);
}

/* Most times of an object are close to each other, or to one older time. So the image remembers two times, each of which stands for a
 * group, and writes the distance from the nearer one. */
enum { FAR = 1 << 16 /* distance in µs from which on a time begins another group */ };

static uint64_t span(uint64_t a, uint64_t b)
{
    return a > b ? a - b : b - a;
}

/* Makes `time` the most recent of the two times. The older one is replaced if `time` continued its group, or begins a group. */
static void note_time(struct image *image, unsigned which, uint64_t time)
{
    if (which || span(time, image->times[0]) > FAR)
        image->times[1] = image->times[0];
    image->times[0] = time;
}

/* Returns the number that stands for a time: 0 for UINT64_MAX, otherwise 1 + 2 * (distance from one of the two times) + (which one). */
static uint64_t encode_time(struct image *image, uint64_t time)
{
    unsigned which = span(time, image->times[1]) < span(time, image->times[0]);
    uint64_t distance = fold_sign(time - image->times[which]);

    if (time == UINT64_MAX)
        return 0;
    image_check(image, distance < UINT64_MAX >> 1);
    note_time(image, which, time);
    return (distance << 1 | which) + 1;
}

static uint64_t decode_time(struct image *image, uint64_t written)
{
    if (!written)
        return UINT64_MAX;
    unsigned which = (written - 1) & 1;
    uint64_t time = image->times[which] + unfold_sign((written - 1) >> 1);
    note_time(image, which, time);
    return time;
}

static void image_time(struct image *image, void *at)
{
    uint64_t time = image->to ? load(at, sizeof time) : 0;
    uint64_t written = image->to && time ? encode_time(image, time) : 0;
    bool set = image_bit(image, time);

    if (set)
        image_number(image, &written, UINT64_MAX);
    if (image->to || image->failed)
        return;
    time = set ? decode_time(image, written) : 0;
    memcpy(at, &time, sizeof time);
}

static void image_array(struct image *image, uint8_t *at, size_t size)
{
    uint64_t len = image->to ? size : 0;

    while (len && !at[len - 1])
        len--;
    if (!image->to)
        memset(at, 0, size);
    if (!image_bit(image, len))
        return;
    image_number(image, &len, size);
    if (!image->failed)
        image_bytes(image, at, len);
}

static void image_owned(struct image *image, const struct image_table *table, void **at)
{
    if (image->kept || image->to) {
        if (!image_bit(image, *at))
            return;
        if (image->kept)
            keep_memory(image, at);
        else
            image_part(image, table, *at);
        return;
    }
    if (!image_bit(image, false))
        return;
    *at = calloc(1, table->size);
    image_check(image, *at != NULL);
    if (*at)
        image_part(image, table, *at);
}

/* Writes or reads the content of a buffer that is not empty. If the memory stays in place, so does the content within it, and `start` is
 * written; otherwise the content is copied, and begins at 0 after reading. */
static void image_held(struct image *image, struct buffer *b)
{
    void *memory = b->memory;
    uint64_t start = b->start, len = buffer_len(b), size = b->size;

    if (image->kept) {
        keep_memory(image, &memory);
        image_number(image, &size, UINT32_MAX);
        image_number(image, &start, size);
        image_number(image, &len, size - start);
    } else {
        image_number(image, &len, b->limit);
        if (image->failed)
            return;
        if (image->to) {
            put(image, b->memory + b->start, len);
            return;
        }
        struct slice read = image_take(image, len);
        memory = read.len ? malloc(read.len) : NULL;
        image_check(image, memory != NULL);
        if (memory)
            memcpy(memory, read.at, read.len);
        start = 0;
        size = len;
    }
    if (image->to || image->failed)
        return;
    *b = (struct buffer){memory, (uint32_t)start, (uint32_t)(start + len), (uint32_t)size, b->limit};
}

static void image_buffer(struct image *image, struct buffer *b, const struct image_field *field)
{
    uint64_t limit = field->max ? field->max : b->limit;

    if (!field->max)
        image_usual(image, &limit, BUFFER_LIMIT_MAX, field->usual);
    if (!image->to)
        *b = buffer_with_limit(image->failed ? 0 : limit);
    if (image_bit(image, image->kept ? b->memory != NULL : buffer_len(b) > 0))
        image_held(image, b);
}

static void image_element(struct image *image, const struct image_field *field, void *at)
{
    switch (field->kind) {
    case IMAGE_IS_NUMBER:
        image_unsigned(image, field, at);
        break;
    case IMAGE_IS_SIGNED:
        image_signed(image, at);
        break;
    case IMAGE_IS_TIME:
        image_time(image, at);
        break;
    case IMAGE_IS_BYTES:
        image_array(image, at, field->size);
        break;
    case IMAGE_IS_PART:
        image_part(image, field->table, at);
        break;
    case IMAGE_IS_OWNED:
        image_owned(image, field->table, at);
        break;
    case IMAGE_IS_BUFFER:
        image_buffer(image, at, field);
        break;
    case IMAGE_IS_BY:
    case IMAGE_IS_DERIVED:
    case IMAGE_IS_ANEW:
        break;
    }
}

void image_part(struct image *image, const struct image_table *table, void *object)
{
    for (size_t i = 0; i < table->count && !image->failed; i++) {
        const struct image_field *field = &table->fields[i];
        if (field->kind == IMAGE_IS_BY)
            field->by(image, object);
        for (size_t k = 0; k < field->count && !image->failed; k++)
            image_element(image, field, (uint8_t *)object + field->offset + k * field->size);
    }
    if (image->failed)
        return;
    if (!image->to && table->derive)
        table->derive(object);
    if (!image->kept && table->holds)
        image_check(image, table->holds(object));
}
