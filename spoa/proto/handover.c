/* SPDX-License-Identifier: MIT */
#include "spoa/proto/handover.h"

#include <arpa/inet.h>

#include "spoa/base/bytes/ascii.h"
#include "spoa/base/bytes/reader.h"

const char *const handover_resume_names[] = {"none", "scrollback", "since", "cell", "cursor", NULL};
const char *const handover_end_names[] = {"close", "exit-frame", "exit-json", NULL};
const char *const handover_keepalive_names[] = {"ping", "empty-frame", NULL};

struct handover handover_none(void)
{
    struct handover none = {0};
#define ABSENT_TEXT(field)
#define ABSENT_INT(field) none.field = -1;
#define ABSENT_BOOL(field)
#define ABSENT_ADDRESS(field)
#define ABSENT_NAME(field)
#define X(kind, field, key) ABSENT_##kind(field)
    HANDOVER_FIELDS(X)
#undef X
    return none;
}

/* ---- writing ---- */
/* Returns the number of bytes at the front that need no encoding. */
static size_t plain_len(struct slice s)
{
    static const bool plain[256] = {
        ['0' ... '9'] = true, ['A' ... 'Z'] = true, ['a' ... 'z'] = true, ['.'] = true,
        ['_'] = true,         ['~'] = true,         ['-'] = true,
    };
    size_t len = 0;
    while (len < s.len && plain[s.at[len]])
        len++;
    return len;
}

static void put_key(struct writer *w, const char *key)
{
    if (w->len > 0)
        writer_u8(w, ';');
    writer_text(w, key);
    writer_u8(w, '=');
}

static void put_text(struct writer *w, const char *key, struct slice value)
{
    static const char digits[] = "0123456789ABCDEF";
    if (!slice_present(value))
        return;
    put_key(w, key);
    while (value.len) {
        size_t plain = plain_len(value);
        writer_put(w, slice_sub(value, 0, plain));
        if (plain < value.len) {
            uint8_t c = value.at[plain++];
            writer_u8(w, '%');
            writer_u8(w, (uint8_t)digits[c >> 4]);
            writer_u8(w, (uint8_t)digits[c & 15]);
        }
        value = slice_from(value, plain);
    }
}

static void put_int(struct writer *w, const char *key, int64_t value)
{
    if (value < 0)
        return;
    put_key(w, key);
    writer_decimal(w, (uint64_t)value);
}

static void put_bool(struct writer *w, const char *key, bool value)
{
    if (value)
        put_int(w, key, 1);
}

static void put_address(struct writer *w, const char *key, struct address value)
{
    uint8_t memory[INET6_ADDRSTRLEN];
    struct writer text = writer_of(memory, sizeof memory);

    address_write(&text, &value);
    if (text.len)
        put_text(w, key, writer_slice(&text));
}

/* Returns a writer for the room after the bytes in w. An empty `line` tells put_key that no separator is needed. */
static struct writer room_after(const struct writer *w)
{
    return writer_of(w->at ? w->at + w->len : NULL, w->full ? 0 : w->size - w->len);
}

/* Adds to w the bytes that `line` has written into its room. */
static void append(struct writer *w, const struct writer *line)
{
    w->len += line->len;
    w->full = w->full || line->full;
}

void handover_encode(const struct handover *handover, struct writer *w)
{
    struct writer line = room_after(w);
#define PUT_TEXT(field, key)    put_text(&line, key, handover->field);
#define PUT_INT(field, key)     put_int(&line, key, handover->field);
#define PUT_BOOL(field, key)    put_bool(&line, key, handover->field);
#define PUT_ADDRESS(field, key) put_address(&line, key, handover->field);
#define PUT_NAME(field, key)    put_text(&line, key, slice_text(handover_##field##_names[handover->field]));
#define X(kind, field, key)     PUT_##kind(field, key)
    HANDOVER_FIELDS(X)
#undef X
    append(w, &line);
}

void handover_encode_identity(const struct handover *handover, struct writer *w)
{
    struct writer line = room_after(w);
#define X(kind, field, key) PUT_##kind(field, key)
    HANDOVER_IDENTITY(X)
#undef X
    append(w, &line);
}

/* ---- reading ---- */
/* Decodes a value into memory. Lower-case digits are refused: one value has one encoding, the one that put_text writes. */
static bool decode_text(struct slice in, struct writer *memory, struct slice *value)
{
    size_t start = memory->len;
    while (in.len) {
        size_t plain = plain_len(in);
        writer_put(memory, slice_sub(in, 0, plain));
        in = slice_from(in, plain);
        if (!in.len)
            break;
        int high = in.len < 3 || in.at[0] != '%' || in.at[1] >= 'a' ? -1 : ascii_hex_value(in.at[1]);
        int low = high < 0 || in.at[2] >= 'a' ? -1 : ascii_hex_value(in.at[2]);
        if (low < 0)
            return false;
        writer_u8(memory, (uint8_t)(high << 4 | low));
        in = slice_from(in, 3);
    }
    *value = slice_of(memory->at + start, memory->len - start);
    return !memory->full;
}

/* take_KIND(in, memory, names, value) reads a value of that kind. Returns false if the text is no such value. */
static bool take_TEXT(struct slice in, struct writer *memory, const char *const *names, struct slice *value)
{
    (void)names;
    return decode_text(in, memory, value);
}

static bool take_INT(struct slice in, struct writer *memory, const char *const *names, int64_t *value)
{
    uint64_t number;
    (void)memory, (void)names;
    if (!slice_u64(in, INT64_MAX, &number))
        return false;
    *value = (int64_t)number;
    return true;
}

static bool take_BOOL(struct slice in, struct writer *memory, const char *const *names, bool *value)
{
    (void)memory, (void)names;
    *value = slice_is(in, "1");
    return *value;
}

static bool take_ADDRESS(struct slice in, struct writer *memory, const char *const *names,
                         struct address *value)
{
    struct slice text;
    char literal[INET6_ADDRSTRLEN] = "";
    (void)names;
    size_t before = memory->len;
    if (!decode_text(in, memory, &text) || text.len >= sizeof literal)
        return false;
    memcpy(literal, text.at, text.len);
    memory->len = before; /* the literal needs no memory beyond this function */
    value->family = memchr(literal, ':', text.len) ? 6 : 4;
    return inet_pton(value->family == 4 ? AF_INET : AF_INET6, literal, value->bytes) == 1;
}

static bool take_NAME(struct slice in, struct writer *memory, const char *const *names, unsigned *value)
{
    (void)memory;
    for (*value = 0; names[*value]; ++*value)
        if (slice_is(in, names[*value]))
            return true;
    *value = 0;
    return false;
}

enum {
#define X(kind, field, key) FIELD_##field,
    HANDOVER_FIELDS(X)
#undef X
};

#define NAMES_TEXT(field)    NULL
#define NAMES_INT(field)     NULL
#define NAMES_BOOL(field)    NULL
#define NAMES_ADDRESS(field) NULL
#define NAMES_NAME(field)    handover_##field##_names

/* Reads one field, and skips an unknown key. `seen` has a bit for each field that was read. */
static bool take_field(struct handover *handover, uint64_t *seen, struct slice key, struct slice value,
                       struct writer *memory, struct fail *why)
{
#define X(kind, field, name)                                                                     \
    if (slice_is(key, name)) {                                                                   \
        uint64_t bit = UINT64_C(1) << FIELD_##field;                                             \
        if ((*seen & bit) || !take_##kind(value, memory, NAMES_##kind(field), &handover->field)) \
            return fail(why, "handover: bad value or second one of %s", name);                   \
        *seen |= bit;                                                                            \
        return true;                                                                             \
    }
    HANDOVER_FIELDS(X)
#undef X
    return true;
}

bool handover_decode(struct handover *handover, struct slice text, struct writer *memory, struct fail *why)
{
    struct slice part;
    uint64_t seen = 0;

    *handover = handover_none();
    while (slice_split(&text, ';', &part)) {
        size_t equals = slice_find(part, '=');
        if (equals == part.len)
            return fail(why, "handover: key without a value");
        if (!take_field(handover, &seen, slice_sub(part, 0, equals), slice_from(part, equals + 1), memory,
                        why))
            return false;
    }
    return true;
}

/* ---- the packed form: a bit for each field, then the values of the present ones ---- */
enum { LONG_TEXT = 255 }; /* in place of a length: the length follows in four bytes */

static bool has_TEXT(struct slice value)
{
    return slice_present(value);
}

static bool has_INT(int64_t value)
{
    return value >= 0;
}

static bool has_BOOL(bool value)
{
    return value;
}

static bool has_ADDRESS(struct address value)
{
    return value.family != 0;
}

static bool has_NAME(unsigned value)
{
    return value != 0;
}

static void pack_TEXT(struct writer *w, struct slice value)
{
    writer_u8(w, (uint8_t)(value.len < LONG_TEXT ? value.len : LONG_TEXT));
    if (value.len >= LONG_TEXT)
        writer_be(w, value.len, 4);
    writer_put(w, value);
}

static void pack_INT(struct writer *w, int64_t value)
{
    size_t bytes = 1;
    while (bytes < 8 && value >> (8 * bytes))
        bytes++;
    writer_u8(w, (uint8_t)bytes);
    writer_be(w, (uint64_t)value, bytes);
}

static void pack_BOOL(struct writer *w, bool value)
{
    (void)w, (void)value;
}

static void pack_ADDRESS(struct writer *w, struct address value)
{
    writer_put(w, slice_of(&value, sizeof value));
}

static void pack_NAME(struct writer *w, unsigned value)
{
    writer_u8(w, (uint8_t)value);
}

void handover_pack(const struct handover *handover, struct writer *w)
{
    uint64_t present = 0;
#define X(kind, field, key) present |= (uint64_t)has_##kind(handover->field) << FIELD_##field;
    HANDOVER_FIELDS(X)
#undef X
    writer_be(w, present, 8);
#define X(kind, field, key)          \
    if (has_##kind(handover->field)) \
        pack_##kind(w, handover->field);
    HANDOVER_FIELDS(X)
#undef X
}

static struct slice unpack_TEXT(struct reader *r)
{
    uint64_t len = reader_u8(r);
    return reader_take(r, len == LONG_TEXT ? reader_be(r, 4) : len);
}

static int64_t unpack_INT(struct reader *r)
{
    return (int64_t)reader_be(r, reader_u8(r));
}

static bool unpack_BOOL(const struct reader *r)
{
    (void)r;
    return true;
}

static struct address unpack_ADDRESS(struct reader *r)
{
    struct address value = {0};
    struct slice bytes = reader_take(r, sizeof value);
    if (bytes.len)
        memcpy(&value, bytes.at, bytes.len);
    return value;
}

static unsigned unpack_NAME(struct reader *r)
{
    return reader_u8(r);
}

static struct handover unpack(struct reader *r)
{
    struct handover handover = handover_none();
    uint64_t present = reader_be(r, 8);
#define X(kind, field, key)                     \
    if (present & UINT64_C(1) << FIELD_##field) \
        handover.field = unpack_##kind(r);
    HANDOVER_FIELDS(X)
#undef X
    return handover;
}

struct handover handover_unpack(struct slice packed)
{
    struct reader r = reader_of(packed);
    return unpack(&r);
}

/* ---- what may be anything ---- */
static bool may_be_TEXT(struct slice value, const char *const *names)
{
    (void)names;
    return value.len <= UINT32_MAX;
}

static bool may_be_INT(int64_t value, const char *const *names)
{
    (void)names;
    return value >= -1;
}

static bool may_be_BOOL(bool value, const char *const *names)
{
    (void)value, (void)names;
    return true;
}

static bool may_be_ADDRESS(struct address value, const char *const *names)
{
    (void)names;
    return value.family == 0 || value.family == 4 || value.family == 6;
}

static bool may_be_NAME(unsigned value, const char *const *names)
{
    unsigned count = 0;
    while (names[count])
        count++;
    return value < count;
}

bool handover_is_packed(struct slice packed)
{
    struct reader r = reader_of(packed);
    const struct handover handover = unpack(&r);
    bool may_be = reader_done(&r);

#define X(kind, field, key) may_be = may_be && may_be_##kind(handover.field, NAMES_##kind(field));
    HANDOVER_FIELDS(X)
#undef X
    return may_be;
}
