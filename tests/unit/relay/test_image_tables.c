/* SPDX-License-Identifier: MIT */
/* Each field of each table that a tunnel is made of comes back, whatever it is: all tables are found from that of a tunnel with its sockets
 * and those of the adapters. That no field is missing in them is for tests/lint/images. */
#include "tests/unit/support.h"

#include <stdlib.h>

#include "spoa/relay/scrollback/state.h"
#include "spoa/relay/tunnel_io/tunnel_io_parts.h"

#define NOW (UINT64_C(1) << 40)

enum { TABLES_MAX = 64, FIELDS_MAX = 64, VERSION = 1 };

static const struct image_table *tables[TABLES_MAX];
static size_t tables_count;
static uint32_t seed;

static uint64_t any(void)
{
    uint64_t value = 0;
    for (unsigned i = 0; i < 4; i++) {
        seed = seed * 1664525 + 1013904223;
        value = value << 16 | seed >> 16;
    }
    return value;
}

static void find(const struct image_table *table)
{
    for (size_t i = 0; i < tables_count; i++)
        if (tables[i] == table)
            return;
    assert_true(tables_count < TABLES_MAX);
    tables[tables_count++] = table;
    for (size_t i = 0; i < table->count; i++)
        if (table->fields[i].table)
            find(table->fields[i].table);
}

static void find_all(void)
{
    find(&tunnel_io_table);
    find(&upgrade_table);
    find(adapter_cell.image);
    find(adapter_since.image);
    find(adapter_cursor.image);
    find(adapter_scrollback.image);
    assert_null(adapter_none.image);
    assert_true(tables_count >= 25);
}

static bool is_written(const struct image_field *field)
{
    switch (field->kind) {
    case IMAGE_IS_NUMBER:
    case IMAGE_IS_SIGNED:
    case IMAGE_IS_TIME:
    case IMAGE_IS_BYTES:
    case IMAGE_IS_BUFFER:
        return true;
    default:
        return false; /* a part, which has a table of its own, or nothing */
    }
}

/* A table of those fields that this one says itself. */
static struct image_table own_of(const struct image_table *table, struct image_field rows[FIELDS_MAX])
{
    struct image_table own = {.name = table->name, .size = table->size, .fields = rows};
    assert_true(table->count <= FIELDS_MAX);
    for (size_t i = 0; i < table->count; i++)
        if (is_written(&table->fields[i]))
            rows[own.count++] = table->fields[i];
    return own;
}

static uint64_t number_of(const struct image_field *field)
{
    uint64_t choices[] = {0, 1, field->max, field->max / 2, any()};
    uint64_t value = choices[any() % 5];
    return field->max == UINT64_MAX ? value : value % (field->max + 1);
}

static uint64_t time_of(void)
{
    uint64_t choices[] = {0, UINT64_MAX, NOW, NOW - any() % 1000000, NOW + any() % 1000000, 1};
    return choices[any() % 6];
}

static void fill_one(const struct image_field *field, uint8_t *at)
{
    uint64_t value = 0;

    switch (field->kind) {
    case IMAGE_IS_NUMBER:
        value = number_of(field);
        memcpy(at, &value, field->size);
        break;
    case IMAGE_IS_SIGNED:
        value = any() % 2 ? any() : (uint64_t)-1;
        memcpy(at, &value, sizeof value);
        break;
    case IMAGE_IS_TIME:
        value = time_of();
        memcpy(at, &value, sizeof value);
        break;
    case IMAGE_IS_BYTES:
        for (size_t i = 0, len = any() % (field->size + 1u); i < len; i++)
            at[i] = (uint8_t)any();
        break;
    default: {
        struct buffer *b = (struct buffer *)(void *)at;
        *b = buffer_with_limit(field->max ? field->max : 50 + any() % 1000);
        if (any() % 2)
            assert_true(buffer_put(b, SLICE_LITERAL("some bytes")));
    }
    }
}

static bool is_same(const struct image_field *field, const uint8_t *a, const uint8_t *b)
{
    if (field->kind != IMAGE_IS_BUFFER)
        return memcmp(a, b, field->size) == 0;
    const struct buffer *one = (const void *)a, *other = (const void *)b;
    return one->limit == other->limit && slice_equal(buffer_slice(one), buffer_slice(other));
}

static void each_element(const struct image_table *table, void *object,
                         void (*visit)(const struct image_field *field, uint8_t *at))
{
    for (size_t i = 0; i < table->count; i++)
        for (size_t k = 0; k < table->fields[i].count; k++)
            visit(&table->fields[i], (uint8_t *)object + table->fields[i].offset + k * table->fields[i].size);
}

static void free_one(const struct image_field *field, uint8_t *at)
{
    if (field->kind == IMAGE_IS_BUFFER)
        buffer_free((struct buffer *)(void *)at);
}

static void assert_same(const struct image_table *table, const void *a, const void *b)
{
    for (size_t i = 0; i < table->count; i++)
        for (size_t k = 0; k < table->fields[i].count; k++) {
            const struct image_field *field = &table->fields[i];
            size_t at = field->offset + k * field->size;
            if (!is_same(field, (const uint8_t *)a + at, (const uint8_t *)b + at))
                fail_msg("%s: %s does not come back", table->name, field->name);
        }
}

static void come_back(const struct image_table *table)
{
    void *object = calloc(1, table->size), *back = calloc(1, table->size);
    struct buffer bytes = buffer_with_limit(1 << 20);

    assert_true(object && back);
    each_element(table, object, fill_one);
    struct image write = image_to(&bytes, VERSION, NOW);
    image_part(&write, table, object);
    if (!image_done(&write))
        fail_msg("%s is not written", table->name);
    struct slice guard = guarded(buffer_slice(&bytes));
    struct image read = image_from(guard, VERSION, NOW);
    image_part(&read, table, back);
    if (!image_done(&read))
        fail_msg("%s is not read", table->name);
    assert_same(table, object, back);
    each_element(table, object, free_one);
    each_element(table, back, free_one);
    guarded_free(guard);
    buffer_free(&bytes);
    free(object);
    free(back);
}

static void each_field_comes_back(void **state)
{
    struct image_field rows[FIELDS_MAX];
    (void)state;
    find_all();
    for (size_t i = 0; i < tables_count; i++) {
        const struct image_table own = own_of(tables[i], rows);
        for (unsigned round = 0; round < 200; round++)
            come_back(&own);
    }
}

static void rows_lie_within_their_struct(void **state)
{
    (void)state;
    find_all();
    for (size_t i = 0; i < tables_count; i++)
        for (size_t k = 0; k < tables[i]->count; k++) {
            const struct image_field *field = &tables[i]->fields[k];
            assert_true((size_t)field->offset + (size_t)field->size * field->count <= tables[i]->size);
            assert_true(field->kind != IMAGE_IS_NUMBER || field->size == 1 || field->size == 2 ||
                        field->size == 4 || field->size == 8);
            assert_true((field->kind != IMAGE_IS_TIME && field->kind != IMAGE_IS_SIGNED) || field->size == 8);
            assert_true((field->kind != IMAGE_IS_PART && field->kind != IMAGE_IS_OWNED) || field->table);
            assert_true(field->kind != IMAGE_IS_PART || field->size == field->table->size);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_field_comes_back),
        cmocka_unit_test(rows_lie_within_their_struct),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
