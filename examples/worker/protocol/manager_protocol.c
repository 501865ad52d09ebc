/* SPDX-License-Identifier: MIT */
#include "examples/worker/protocol/manager_protocol.h"

#include <stdlib.h>

#include "spoa/base/bytes/reader.h"

enum shape { END, U8, U16, U32, U64, TEXT, LIST, BYTES };

struct field {
    enum shape shape;
    size_t offset; /* offset in struct manager_message */
    size_t max;    /* longest TEXT, LIST or BYTES, in bytes */
};

#define AT(member) offsetof(struct manager_message, member)
#define NUMBER(shape, member) \
    {                         \
        shape, AT(member), 0  \
    }
#define NAME(member)                       \
    {                                      \
        TEXT, AT(member), MANAGER_NAME_MAX \
    }
#define PLAN                                                                                          \
    NAME(scope), NAME(id), NUMBER(U8, kind), NUMBER(U8, flags), NUMBER(U16, cols), NUMBER(U16, rows), \
        NUMBER(U32, ring), NUMBER(U32, stall_ms), NUMBER(U32, linger_ms), NUMBER(U32, timeout_ms),    \
        {TEXT, AT(cwd), MANAGER_PATH_MAX}, {LIST, AT(argv), MANAGER_LIST_MAX},                        \
    {                                                                                                 \
        LIST, AT(env), MANAGER_LIST_MAX                                                               \
    }
#define FIELDS_MAX 17

/* The fields of each type in the order of the protocol. manager_put and manager_read both walk this table, so they cannot disagree. */
static const struct layout {
    enum manager_type type;
    struct field fields[FIELDS_MAX];
} layouts[] = {
    {MANAGER_HELLO, {NUMBER(U8, version)}},
    {MANAGER_CREATE, {PLAN}},
    {MANAGER_RESUME, {PLAN, NUMBER(U64, number), NUMBER(U64, since), NUMBER(U32, buffer)}},
    {MANAGER_MESSAGE,
     {NUMBER(U8, flags),
      NUMBER(U32, size),
      NUMBER(U16, cols),
      NUMBER(U16, rows),
      {BYTES, AT(bytes), MANAGER_DATA_MAX}}},
    {MANAGER_ATTACH, {NAME(scope), NAME(id), NUMBER(U64, since), NUMBER(U8, flags), NUMBER(U8, kind)}},
    {MANAGER_INPUT, {{BYTES, AT(bytes), MANAGER_DATA_MAX}}},
    {MANAGER_RESIZE, {NAME(scope), NAME(id), NUMBER(U16, cols), NUMBER(U16, rows)}},
    {MANAGER_SIGNAL, {NAME(scope), NAME(id), NUMBER(U8, signal)}},
    {MANAGER_QUERY, {NAME(scope), NAME(id)}},
    {MANAGER_LIST, {NAME(scope)}},
    {MANAGER_DELETE, {NAME(scope), NAME(id)}},
    {MANAGER_DONE, {{END, 0, 0}}},
    {MANAGER_ERROR, {NUMBER(U8, code), {TEXT, AT(text), MANAGER_TEXT_MAX}, NUMBER(U64, number)}},
    {MANAGER_SESSION,
     {NAME(scope), NAME(id), NUMBER(U8, kind), NUMBER(U8, state), NUMBER(U32, pid), NUMBER(U16, cols),
      NUMBER(U16, rows), NUMBER(U8, readers), NUMBER(U64, first), NUMBER(U64, end), NUMBER(U64, input),
      NUMBER(U32, exit_code)}},
    {MANAGER_OUTPUT, {NUMBER(U8, stream), NUMBER(U64, since), {BYTES, AT(bytes), MANAGER_DATA_MAX}}},
    {MANAGER_EXIT, {NUMBER(U32, exit_code)}},
    {MANAGER_DETACHED, {NUMBER(U8, code)}},
    {MANAGER_RESUMED, {NUMBER(U64, since), NUMBER(U64, number), NUMBER(U32, buffer)}},
    {MANAGER_ITEM, {NUMBER(U8, flags), NUMBER(U8, stream), {BYTES, AT(bytes), MANAGER_DATA_MAX}}},
    {MANAGER_ACKNOWLEDGE, {NUMBER(U64, number)}},
    {MANAGER_END, {NUMBER(U64, number)}},
};

static const struct layout *layout_of(unsigned type)
{
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++)
        if (layouts[i].type == type)
            return &layouts[i];
    return NULL;
}

static void put_number(struct writer *w, const void *at, size_t size)
{
    uint64_t v = 0;
    switch (size) {
    case 1:
        v = *(const uint8_t *)at;
        break;
    case 2:
        v = *(const uint16_t *)at;
        break;
    case 4:
        v = *(const uint32_t *)at;
        break;
    default:
        v = *(const uint64_t *)at;
        break;
    }
    writer_be(w, v, size);
}

static void get_number(struct reader *r, void *at, size_t size)
{
    uint64_t v = reader_be(r, size);
    switch (size) {
    case 1:
        *(uint8_t *)at = (uint8_t)v;
        break;
    case 2:
        *(uint16_t *)at = (uint16_t)v;
        break;
    case 4:
        *(uint32_t *)at = (uint32_t)v;
        break;
    default:
        *(uint64_t *)at = v;
        break;
    }
}

static size_t number_size(enum shape shape)
{
    return shape == U8 ? 1 : shape == U16 ? 2 : shape == U32 ? 4 : 8;
}

static void put_field(struct writer *w, const struct field *field, const struct manager_message *m)
{
    const void *at = (const uint8_t *)m + field->offset;
    if (field->shape >= TEXT) {
        struct slice s = *(const struct slice *)at;
        if (s.len > field->max)
            w->full = true;
        if (field->shape != BYTES)
            writer_be(w, s.len, field->shape == TEXT ? 2 : 4);
        writer_put(w, s);
    } else {
        put_number(w, at, number_size(field->shape));
    }
}

void manager_put(struct writer *w, const struct manager_message *m)
{
    const struct layout *layout = layout_of(m->type);
    if (!layout || w->full || w->size - w->len < MANAGER_LENGTH_SIZE) {
        w->full = true;
        return;
    }
    struct writer body =
        writer_of(w->at + w->len + MANAGER_LENGTH_SIZE, w->size - w->len - MANAGER_LENGTH_SIZE);
    writer_u8(&body, (uint8_t)m->type);
    for (const struct field *field = layout->fields; field->shape != END; field++)
        put_field(&body, field, m);
    w->full = body.full || body.len > MANAGER_MESSAGE_MAX;
    writer_be(w, body.len, MANAGER_LENGTH_SIZE);
    w->len += w->full ? 0 : body.len;
}

static bool list_is_valid(struct slice list)
{
    return list.len == 0 || list.at[list.len - 1] == '\0';
}

static bool get_field(struct reader *r, const struct field *field, struct manager_message *m)
{
    void *at = (uint8_t *)m + field->offset;
    if (field->shape < TEXT) {
        get_number(r, at, number_size(field->shape));
        return true;
    }
    uint64_t len = field->shape == BYTES ? r->rest.len : reader_be(r, field->shape == TEXT ? 2 : 4);
    struct slice s = reader_take(r, len);
    *(struct slice *)at = s;
    if (s.len > field->max || (field->shape == LIST && !list_is_valid(s)))
        return false;
    return field->shape != TEXT || slice_find(s, '\0') == s.len;
}

static bool get_body(struct slice body, struct manager_message *m)
{
    struct reader r = reader_of(body);
    *m = (struct manager_message){0};
    const struct layout *layout = layout_of(reader_u8(&r));
    if (!layout)
        return false;
    m->type = layout->type;
    for (const struct field *field = layout->fields; field->shape != END; field++)
        if (!get_field(&r, field, m))
            return false;
    return reader_done(&r);
}

enum manager_result manager_read(struct slice *in, struct manager_message *m)
{
    struct reader r = reader_of(*in);
    uint32_t length = reader_u32(&r);
    if (r.failed)
        return MANAGER_MORE;
    if (length == 0 || length > MANAGER_MESSAGE_MAX)
        return MANAGER_BAD;
    struct slice body = reader_take(&r, length);
    if (r.failed)
        return MANAGER_MORE;
    *in = r.rest;
    return get_body(body, m) ? MANAGER_READ : MANAGER_BAD;
}

char **manager_strings(struct slice list)
{
    size_t count = 0;
    for (size_t i = 0; i < list.len; i++)
        count += list.at[i] == '\0';
    char **strings = malloc((count + 1) * sizeof *strings + list.len);
    if (!strings)
        return NULL;
    char *bytes = (char *)(strings + count + 1);
    if (list.len)
        memcpy(bytes, list.at, list.len);
    for (size_t i = 0; i < count; i++) {
        strings[i] = bytes;
        bytes += strlen(bytes) + 1;
    }
    strings[count] = NULL;
    return strings;
}

void manager_put_string(struct writer *list, struct slice string)
{
    if (slice_find(string, '\0') != string.len)
        list->full = true;
    writer_put(list, string);
    writer_u8(list, '\0');
}

bool manager_is_name(struct slice s)
{
    for (size_t i = 0; i < s.len; i++)
        if (!strchr("0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_./", s.at[i]) ||
            !s.at[i])
            return false;
    return s.len > 0 && s.len <= MANAGER_NAME_MAX;
}
