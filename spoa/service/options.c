/* SPDX-License-Identifier: MIT */
#include "spoa/service/options.h"

#include <stdlib.h>

#include "spoa/base/os/file.h"
#include "spoa/net/net.h"

enum { KEY_MAX = 96 };

/* The struct that the values of one object go to. */
struct target {
    const struct option *table;
    size_t count;
    const char *base_dir;
    void *out;
};

static void *field(const struct option *option, void *out)
{
    return (char *)out + option->offset;
}

/* ---- forms ---- */

struct unit {
    const char *name;
    int64_t factor;
};

/* Reads digits followed by one of the units. */
static bool number_with_unit(struct slice text, const struct unit *units, int64_t *value)
{
    size_t digits = 0;
    while (digits < text.len && text.at[digits] >= '0' && text.at[digits] <= '9')
        digits++;
    for (const struct unit *unit = units; unit->name; unit++) {
        uint64_t number;
        if (!slice_is(slice_from(text, digits), unit->name))
            continue;
        if (!slice_u64(slice_sub(text, 0, digits), (uint64_t)(INT64_MAX / unit->factor), &number))
            return false;
        *value = (int64_t)number * unit->factor;
        return true;
    }
    return false;
}

bool options_duration(struct slice text, int64_t *milliseconds)
{
    static const struct unit units[] = {{"ms", 1},          {"s", OPTION_SECOND}, {"m", OPTION_MINUTE},
                                        {"h", OPTION_HOUR}, {"d", OPTION_DAY},    {NULL, 0}};
    return number_with_unit(text, units, milliseconds);
}

bool options_size(struct slice text, int64_t *bytes)
{
    static const struct unit units[] = {
        {"B", 1}, {"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {NULL, 0}};
    return number_with_unit(text, units, bytes);
}

/* ---- one value ---- */

/* Fails with the form of the key's values. */
static bool refuse_value(const struct option *option, struct fail *why)
{
    struct option_value value = options_value(option);
    return fail(why, "%s must be %s", option->key, value.text);
}

static bool set_number(const struct option *option, int64_t value, void *out, struct fail *why)
{
    if (value < option->min || value > option->max)
        return refuse_value(option, why);
    *(int64_t *)field(option, out) = value;
    return true;
}

static bool set_enum(const struct option *option, struct slice text, void *out, struct fail *why)
{
    for (int i = 0; option->names[i]; i++) {
        if (slice_is(text, option->names[i])) {
            *(int *)field(option, out) = i;
            return true;
        }
    }
    return refuse_value(option, why);
}

static bool check_text(const struct option *option, struct slice text, struct fail *why)
{
    const char *wanted = option->check ? option->check(text) : NULL;
    return !wanted || fail(why, "%s must be %s", option->key, wanted);
}

static bool set_copy(const struct option *option, struct slice text, char **to, struct fail *why)
{
    *to = slice_dup(text);
    return *to || fail(why, "%s: out of memory", option->key);
}

static bool set_string(const struct option *option, struct slice text, void *out, struct fail *why)
{
    if (option->max && (text.len < (size_t)option->min || text.len > (size_t)option->max))
        return refuse_value(option, why);
    return check_text(option, text, why) && set_copy(option, text, field(option, out), why);
}

static bool set_path(const struct option *option, struct slice text, const char *base_dir, void *out,
                     struct fail *why)
{
    if (text.len == 0)
        return refuse_value(option, why);
    if (text.at[0] == '/' || !base_dir)
        return check_text(option, text, why) && set_copy(option, text, field(option, out), why);
    char *joined = NULL;
    if (!check_text(option, text, why))
        return false;
    if (asprintf(&joined, "%s/%.*s", base_dir, SLICE_PRINTF(text)) < 0)
        return fail(why, "%s: out of memory", option->key);
    *(char **)field(option, out) = joined;
    return true;
}

/* Sets a value of one of the types that are strings in the file. */
static bool set_text(const struct target *target, const struct option *option, struct slice text,
                     struct fail *why)
{
    int64_t number;
    struct fail inner;
    switch (option->type) {
    case OPTION_DURATION:
        return options_duration(text, &number) ? set_number(option, number, target->out, why)
                                               : refuse_value(option, why);
    case OPTION_SIZE:
        return options_size(text, &number) ? set_number(option, number, target->out, why)
                                           : refuse_value(option, why);
    case OPTION_ENUM:
        return set_enum(option, text, target->out, why);
    case OPTION_ADDRESS:
        return net_parse(text, field(option, target->out), &inner) ||
               fail(why, "%s: %s", option->key, inner.text);
    case OPTION_PATH:
        return set_path(option, text, target->base_dir, target->out, why);
    case OPTION_TEXT:
        return set_string(option, text, target->out, why);
    default:
        return refuse_value(option, why);
    }
}

/* Sets a list of texts. */
static bool set_texts(const struct json *doc, const struct option *option, const json_node *list, void *out,
                      struct fail *why)
{
    struct texts *texts = field(option, out);
    size_t count = json_count(list);
    if (option->max && (count < (size_t)option->min || count > (size_t)option->max)) {
        struct option_value value = options_value(option);
        return json_fail(doc, list, why, "%s must be %s", option->key, value.text);
    }
    texts->at = calloc(count + 1, sizeof *texts->at); /* an empty list differs from a missing one */
    if (!texts->at)
        return json_fail(doc, list, why, "out of memory");
    for (const json_node *node = json_first(list); node; node = json_next(node)) {
        struct slice text;
        struct fail inner;
        if (!json_text(node, &text))
            return json_fail(doc, node, why, "%s must be a list of texts", option->key);
        if (!check_text(option, text, &inner) || !set_copy(option, text, &texts->at[texts->count], &inner))
            return json_fail(doc, node, why, "%s", inner.text);
        texts->count++;
    }
    return true;
}

/* Sets a value from a node of the file. */
static bool set_node(const struct target *target, const struct json *doc, const struct option *option,
                     const json_node *node, struct fail *why)
{
    struct fail inner;
    struct slice text;
    int64_t number;
    bool good;
    if (option->type == OPTION_TEXTS && json_is_array(node))
        return set_texts(doc, option, node, target->out, why);
    if (option->type == OPTION_NODE) {
        *(const json_node **)field(option, target->out) = node;
        return true;
    }
    if (option->type == OPTION_BOOL)
        good = json_bool(node, field(option, target->out)) || refuse_value(option, &inner);
    else if (option->type == OPTION_INT)
        good = json_int(doc, node, option->min, option->max, &number)
                   ? set_number(option, number, target->out, &inner)
                   : refuse_value(option, &inner);
    else
        good = json_text(node, &text) ? set_text(target, option, text, &inner) : refuse_value(option, &inner);
    return good || json_fail(doc, node, why, "%s", inner.text);
}

/* ---- values from elsewhere: -o and defaults ---- */

/* Sets a value from a text: a string without quotes, or JSON. */
static bool assign(const struct target *target, const struct option *option, struct slice value,
                   struct fail *why)
{
    enum option_type type = option->type;
    bool string = type != OPTION_BOOL && type != OPTION_INT && type != OPTION_TEXTS && type != OPTION_NODE;
    if (string && !slice_starts(value, "\""))
        return set_text(target, option, value, why);
    struct json *doc = json_parse(value, "value", 0, (struct json_limits){65536, 2}, why);
    bool good = doc && set_node(target, doc, option, json_root(doc), why);
    json_free(doc);
    return good;
}

/* ---- whole objects ---- */

const struct option *options_find(const struct option *table, size_t count, struct slice key)
{
    for (size_t i = 0; i < count; i++)
        if (slice_is(key, table[i].key) || (table[i].old && slice_is(key, table[i].old)))
            return &table[i];
    return NULL;
}

/* Returns whether the key begins with "section.". `key` may be NULL. */
static bool is_within(const char *key, const char *section)
{
    size_t len = strlen(section);
    return key && strncmp(key, section, len) == 0 && key[len] == '.';
}

/* Returns whether a key of the table is in this section. */
static bool is_section(const struct target *target, const char *key)
{
    for (size_t i = 0; i < target->count; i++)
        if (is_within(target->table[i].key, key) || is_within(target->table[i].old, key))
            return true;
    return false;
}

/* Fails because the file gives the key `key` by its other name, too. */
static bool refuse_both(const struct json *doc, const struct option *option, const char *key,
                        const json_node *member, const json_node *other, struct fail *why)
{
    size_t line, column;
    json_place_key(doc, other, &line, &column);
    if (strcmp(key, option->key) == 0)
        return json_fail_key(doc, member, why, "%s is given by its old name %s at %zu:%zu too", key,
                             option->old, line, column);
    return json_fail_key(doc, member, why, "%s is the old name of %s, which is given at %zu:%zu too", key,
                         option->key, line, column);
}

/* Reads the members of an object. `seen` has for each option the member that gave it. Errors name a key only if it looks like one,
 * because the file may have anything. */
static bool read_members(const struct target *target, const struct json *doc, const json_node *object,
                         const char *section, const json_node **seen, struct fail *why)
{
    if (!json_is_object(object))
        return json_fail(doc, object, why, "%s%san object is expected", section, *section ? ": " : "");
    for (const json_node *member = json_first(object); member; member = json_next(member)) {
        char key[KEY_MAX];
        int len = snprintf(key, sizeof key, "%s%s%s", section, *section ? "." : "", json_key(member));
        const char *own = json_key(member);
        bool plain =
            *own && !own[strspn(own, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")];
        bool named = plain && len < KEY_MAX;
        const struct option *option =
            named ? options_find(target->table, target->count, slice_text(key)) : NULL;
        if (option) {
            const json_node **by = &seen[option - target->table];
            if (*by)
                return refuse_both(doc, option, key, member, *by, why);
            *by = member;
            if (!set_node(target, doc, option, member, why))
                return false;
        } else if (named && is_section(target, key)) {
            if (!read_members(target, doc, member, key, seen, why))
                return false;
        } else {
            return json_fail_key(doc, member, why, "unknown key%s%s", named ? " " : "", named ? key : "");
        }
    }
    return true;
}

/* Sets the default of a key that the file does not give. */
static bool set_default(const struct target *target, const struct json *doc, const json_node *object,
                        const struct option *option, struct fail *why)
{
    struct fail inner;
    if (!option->fallback)
        return json_fail(doc, object, why, "%s is missing", option->key);
    if (strcmp(option->fallback, OPTION_NONE) == 0)
        return true;
    return assign(target, option, slice_text(option->fallback), &inner) ||
           json_fail(doc, object, why, "default of %s", inner.text);
}

bool options_read(const struct json *doc, const json_node *object, const struct option *table, size_t count,
                  const char *base_dir, void *out, struct fail *why)
{
    struct target target = {table, count, base_dir, out};
    const json_node **seen = calloc(count + 1, sizeof *seen);
    if (!seen)
        return json_fail(doc, object, why, "out of memory");
    bool good = read_members(&target, doc, object, "", seen, why);
    for (size_t i = 0; good && i < count; i++)
        if (!seen[i])
            good = set_default(&target, doc, object, &table[i], why);
    free(seen);
    return good;
}

bool options_warn_old(const struct json *doc, const json_node *object, const struct option *table,
                      size_t count, struct texts *warnings, struct fail *why)
{
    for (size_t i = 0; i < count; i++) {
        struct fail warning;
        const json_node *member = table[i].old ? json_member_at(object, table[i].old) : NULL;
        if (!member)
            continue;
        json_fail_key(doc, member, &warning, "%s is now called %s", table[i].old, table[i].key);
        if (!texts_add(warnings, slice_text(warning.text)))
            return fail(why, "out of memory");
    }
    return true;
}

/* Frees and zeroes a field that owns memory. */
static void free_field(const struct option *option, void *out)
{
    if (option->type == OPTION_TEXT || option->type == OPTION_PATH) {
        char **text = field(option, out);
        free(*text);
        *text = NULL;
    } else if (option->type == OPTION_TEXTS) {
        texts_free(field(option, out));
    }
}

void options_free(const struct option *table, size_t count, void *out)
{
    for (size_t i = 0; i < count; i++)
        free_field(&table[i], out);
}

/* Returns whether a field of two structs is equal. */
static bool field_equal(const struct option *option, const void *a, const void *b)
{
    const void *x = (const char *)a + option->offset, *y = (const char *)b + option->offset;
    const struct texts *s = x, *t = y;
    bool same = true;
    switch (option->type) {
    case OPTION_BOOL:
        return *(const bool *)x == *(const bool *)y;
    case OPTION_INT:
    case OPTION_DURATION:
    case OPTION_SIZE:
        return *(const int64_t *)x == *(const int64_t *)y;
    case OPTION_ENUM:
        return *(const int *)x == *(const int *)y;
    case OPTION_TEXT:
    case OPTION_PATH: {
        const char *left = *(char *const *)x, *right = *(char *const *)y;
        return left && right ? strcmp(left, right) == 0 : left == right;
    }
    case OPTION_ADDRESS:
        return memcmp(x, y, sizeof(struct net_address)) == 0;
    case OPTION_TEXTS:
        for (size_t i = 0; s->count == t->count && i < s->count; i++)
            same = same && strcmp(s->at[i], t->at[i]) == 0;
        return same && s->count == t->count;
    case OPTION_NODE:
        break;
    }
    return *(const json_node *const *)x == *(const json_node *const *)y;
}

bool options_equal(const struct option *table, size_t count, const void *a, const void *b)
{
    bool same = true;
    for (size_t i = 0; same && i < count; i++)
        same = field_equal(&table[i], a, b);
    return same;
}

static size_t field_size(enum option_type type)
{
    switch (type) {
    case OPTION_BOOL:
        return sizeof(bool);
    case OPTION_ENUM:
        return sizeof(int);
    case OPTION_ADDRESS:
        return sizeof(struct net_address);
    case OPTION_NODE:
        return 0;
    default:
        return sizeof(int64_t);
    }
}

/* A text that is not set and an empty one are different. */
static uint64_t text_mark(const struct hash_secret *secret, const char *text)
{
    return text ? hash_keyed(secret, slice_of((const uint8_t *)text, strlen(text) + 1)) : 0;
}

uint64_t options_mark(const struct option *option, const struct hash_secret *secret, const void *values)
{
    const void *at = (const char *)values + option->offset;
    const struct texts *texts = at;
    uint64_t mark = 0;

    if (option->type == OPTION_TEXT || option->type == OPTION_PATH)
        return text_mark(secret, *(char *const *)at);
    if (option->type != OPTION_TEXTS)
        return hash_keyed(secret, slice_of(at, field_size(option->type)));
    for (size_t i = 0; i < texts->count; i++) {
        const uint64_t both[] = {mark, text_mark(secret, texts->at[i])};
        mark = hash_keyed(secret, slice_of((const uint8_t *)both, sizeof both));
    }
    return mark;
}

enum file_exposure options_exposed_secret(const struct option *table, size_t count, const void *values,
                                          const char *other, size_t *at, struct fail *what)
{
    enum file_exposure exposure = FILE_PRIVATE;
    while (exposure == FILE_PRIVATE && *at < count) {
        const struct option *option = &table[(*at)++];
        bool is_other = other && strncmp(option->key, other, strlen(other)) == 0;
        const char *path =
            option->secret ? *(char *const *)(const void *)((const char *)values + option->offset) : NULL;
        if (path)
            exposure = file_exposure(path, is_other ? FILE_READ_BY_ROOT : FILE_READ_BY_SELF, what);
    }
    return exposure;
}

bool options_readable(const struct option *table, size_t count, const void *values, struct fail *why)
{
    for (const struct option *option = table; option < table + count; option++) {
        if (option->type != OPTION_PATH || option->later)
            continue;
        const char *path = *(char *const *)(const void *)((const char *)values + option->offset);
        struct fail inner;
        if (path && !(option->secret ? file_readable_secret(path, FILE_READABLE, &inner)
                                     : file_readable(path, &inner)))
            return fail(why, "%s: %s", option->key, inner.text);
    }
    return true;
}

bool options_override(const struct option *table, size_t count, const char *assignment, void *out,
                      struct fail *why)
{
    struct target target = {table, count, NULL, out};
    struct slice value = slice_text(assignment), name;
    char key[KEY_MAX];
    if (!slice_split(&value, '=', &name) || !slice_present(value))
        return fail(why, "-o %.64s: it must have the form key=value", assignment);
    snprintf(key, sizeof key, "%.*s", SLICE_PRINTF(name));
    const struct option *option = name.len < sizeof key ? options_find(table, count, name) : NULL;
    if (!option)
        return fail(why, "-o %.64s: unknown key", key);
    if (option->type == OPTION_NODE)
        return fail(why, "-o %s: this key can only be set in the file", key);
    struct fail inner;
    free_field(option, out);
    return assign(&target, option, value, &inner) || fail(why, "-o %s: %s", key, inner.text);
}
