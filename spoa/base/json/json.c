/* SPDX-License-Identifier: MIT */
#include "spoa/base/json/json.h"

#include <cjson/cJSON.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "spoa/base/json/json_scan.h"
#include "spoa/base/json/json_string.h"
#include "spoa/base/os/file.h"

struct json {
    /* valueint of each node is its index in places; cJSON's own value is not used (see json.h) */
    cJSON *root;
    struct slice text;
    char *name; /* the document's name in errors */
    struct json_place *places;
};

/* ---- positions ---- */

/* Turns an offset into a line and a column. */
static void position(struct slice text, size_t at, size_t *line, size_t *column)
{
    *line = *column = 1;
    for (size_t i = 0; i < at; i++) {
        if (text.at[i] == '\n') {
            ++*line;
            *column = 1;
        } else if ((text.at[i] & 0xC0) != 0x80) { /* not within a UTF-8 character */
            ++*column;
        }
    }
}

static bool fail_at(struct slice text, size_t at, const char *name, struct fail *why, const char *what)
{
    size_t line, column;
    position(text, at, &line, &column);
    return fail(why, "%s:%zu:%zu: %s", name, line, column, what);
}

static size_t offset_of(const struct json *doc, const json_node *node, bool key)
{
    const struct json_place *place = &doc->places[node->valueint];
    return key && place->key ? place->key : place->value;
}

void json_place_key(const struct json *doc, const json_node *member, size_t *line, size_t *column)
{
    position(doc->text, offset_of(doc, member, true), line, column);
}

static bool fail_node(const struct json *doc, const json_node *node, bool key, struct fail *why,
                      const char *what)
{
    if (!node)
        return fail(why, "%s: %s", doc->name, what);
    return fail_at(doc->text, offset_of(doc, node, key), doc->name, why, what);
}

bool json_fail(const struct json *doc, const json_node *node, struct fail *why, const char *format, ...)
{
    struct fail what;
    va_list args;
    va_start(args, format);
    vsnprintf(what.text, sizeof what.text, format, args);
    va_end(args);
    return fail_node(doc, node, false, why, what.text);
}

bool json_fail_key(const struct json *doc, const json_node *member, struct fail *why, const char *format, ...)
{
    struct fail what;
    va_list args;
    va_start(args, format);
    vsnprintf(what.text, sizeof what.text, format, args);
    va_end(args);
    return fail_node(doc, member, true, why, what.text);
}

/* ---- checking and parsing ---- */

static bool check(struct json_scan *scan, const char *name, struct json_limits limits, struct fail *why)
{
    if (scan->text.len > limits.bytes)
        return fail(why, "%s:1:1: the document is longer than %zu bytes", name, limits.bytes);
    return json_scan_document(scan) || fail_at(scan->text, scan->what_at, name, why, scan->what);
}

bool json_check(struct slice text, const char *name, int flags, struct json_limits limits, struct fail *why)
{
    struct json_scan scan = json_scan_of(text, flags & JSON_COMMENTS, limits.depth);
    bool good = check(&scan, name, limits, why);
    json_scan_free(&scan);
    return good;
}

/* Numbers the nodes in preorder, from `next` on, as the scan has numbered their places. Returns the next free number. */
static int number_nodes(cJSON *node, int next)
{
    node->valueint = next++;
    for (cJSON *child = node->child; child; child = child->next)
        next = number_nodes(child, next);
    return next;
}

static bool build(struct json *doc, const char *plain, size_t places, struct fail *why)
{
    if (places > INT_MAX)
        return fail(why, "%s:1:1: the document has too many values", doc->name);
    doc->root = cJSON_ParseWithLengthOpts(plain, doc->text.len, NULL, false);
    if (!doc->root)
        return fail(why, "%s: out of memory", doc->name);
    number_nodes(doc->root, 0);
    return true;
}

/* Scans the text and builds the tree. `blank` is a copy of the text in which comments are erased for cJSON; NULL if the text may not
 * have comments. */
static bool parse(struct json *doc, char *blank, int flags, struct json_limits limits, struct fail *why)
{
    struct json_scan scan = json_scan_of(doc->text, flags & JSON_COMMENTS, limits.depth);
    scan.record = true;
    scan.blank = blank;
    bool good = check(&scan, doc->name, limits, why) &&
                build(doc, blank ? blank : (const char *)doc->text.at, scan.places_len, why);
    doc->places = scan.places;
    scan.places = NULL;
    json_scan_free(&scan);
    return good;
}

struct json *json_parse(struct slice text, const char *name, int flags, struct json_limits limits,
                        struct fail *why)
{
    bool comments = flags & JSON_COMMENTS, good = false;
    struct json *doc = calloc(1, sizeof *doc);
    char *blank = comments ? slice_dup(text) : NULL;
    if (doc) {
        doc->text = slice_of(slice_dup(text), text.len);
        doc->name = strdup(name);
    }
    if (doc && slice_present(doc->text) && doc->name && (blank || !comments))
        good = parse(doc, blank, flags, limits, why);
    else
        fail(why, "%s: out of memory", name);
    free(blank);
    if (good)
        return doc;
    json_free(doc);
    return NULL;
}

struct json *json_parse_file(const char *path, int flags, struct json_limits limits, struct fail *why)
{
    struct slice text;
    if (!file_read(path, limits.bytes, &text, why))
        return NULL;
    struct json *doc = json_parse(text, path, flags, limits, why);
    file_free(text);
    return doc;
}

void json_free(struct json *doc)
{
    if (!doc)
        return;
    cJSON_Delete(doc->root);
    free((void *)doc->text.at);
    free(doc->name);
    free(doc->places);
    free(doc);
}

const json_node *json_root(const struct json *doc)
{
    return doc->root;
}

/* ---- nodes ---- */

bool json_is_object(const json_node *node)
{
    return cJSON_IsObject(node);
}

bool json_is_array(const json_node *node)
{
    return cJSON_IsArray(node);
}

bool json_is_string(const json_node *node)
{
    return cJSON_IsString(node);
}

bool json_is_bool(const json_node *node)
{
    return cJSON_IsBool(node);
}

bool json_is_null(const json_node *node)
{
    return cJSON_IsNull(node);
}

bool json_is_number(const json_node *node)
{
    return cJSON_IsNumber(node);
}

const json_node *json_member(const json_node *object, const char *key)
{
    if (!json_is_object(object))
        return NULL;
    const json_node *member = object->child;
    while (member && strcmp(member->string, key) != 0)
        member = member->next;
    return member;
}

const json_node *json_member_at(const json_node *object, const char *path)
{
    struct slice rest = slice_text(path), part;
    while (object && slice_split(&rest, '.', &part)) {
        char name[64] = "";
        memcpy(name, part.at, part.len < sizeof name ? part.len : 0);
        object = json_member(object, name);
    }
    return object;
}

const json_node *json_first(const json_node *container)
{
    return container ? container->child : NULL;
}

const json_node *json_next(const json_node *child)
{
    return child->next;
}

const char *json_key(const json_node *member)
{
    return member->string;
}

size_t json_count(const json_node *container)
{
    size_t count = 0;
    for (const json_node *child = json_first(container); child; child = child->next)
        count++;
    return count;
}

bool json_text(const json_node *node, struct slice *value)
{
    if (!json_is_string(node))
        return false;
    *value = slice_text(node->valuestring);
    return true;
}

bool json_real(const json_node *node, double *value)
{
    if (!json_is_number(node))
        return false;
    *value = node->valuedouble;
    return true;
}

bool json_bool(const json_node *node, bool *value)
{
    if (!json_is_bool(node))
        return false;
    *value = cJSON_IsTrue(node);
    return true;
}

bool json_int(const struct json *doc, const json_node *node, int64_t min, int64_t max, int64_t *value)
{
    if (!json_is_number(node))
        return false;
    struct slice digits = slice_from(doc->text, doc->places[node->valueint].value);
    bool negative = slice_starts(digits, "-");
    digits = slice_from(digits, negative);
    size_t len = 0;
    while (len < digits.len && digits.at[len] >= '0' && digits.at[len] <= '9')
        len++;
    struct slice rest = slice_from(digits, len);
    if (slice_starts(rest, ".") || slice_starts(rest, "e") || slice_starts(rest, "E"))
        return false;
    uint64_t magnitude;
    if (!slice_u64(slice_sub(digits, 0, len), (uint64_t)INT64_MAX + negative, &magnitude))
        return false;
    if (negative && magnitude == 0)
        return false;
    int64_t v = negative ? -(int64_t)(magnitude - 1) - 1 : (int64_t)magnitude;
    if (v < min || v > max)
        return false;
    *value = v;
    return true;
}

/* The digits of a number before and after its point, and the power of ten that scales it. */
struct decimal {
    struct slice whole, fraction;
    int64_t exponent;
};

enum { EXPONENT_MAX = 100000 }; /* a larger exponent changes no result: a number has at most 63 characters */

/* Splits a number that the scan has accepted. Returns false if it is negative. */
static bool read_decimal(struct slice text, struct decimal *d)
{
    size_t len = 0, at;
    /* strchr finds NUL, too */
    while (len < text.len && strchr("+-.eE0123456789", text.at[len]) && text.at[len])
        len++;
    text = slice_sub(text, 0, len);
    for (at = 0; at < len && (text.at[at] | 0x20) != 'e';)
        at++;
    struct slice digits = slice_sub(text, 0, at), exponent = slice_from(text, at + 1);
    bool down = slice_starts(exponent, "-");
    uint64_t by = 0;
    size_t point = slice_find(digits, '.');
    *d = (struct decimal){.whole = slice_sub(digits, 0, point), .fraction = slice_from(digits, point + 1)};
    exponent = slice_from(exponent, down || slice_starts(exponent, "+"));
    for (size_t i = 0; i < exponent.len && by < EXPONENT_MAX; i++)
        by = by * 10 + exponent.at[i] - '0';
    d->exponent = down ? -(int64_t)by : (int64_t)by;
    return !slice_starts(text, "-");
}

bool json_seconds(const struct json *doc, const json_node *node, int64_t max, int64_t *value)
{
    struct decimal d;
    if (!json_is_number(node) || !read_decimal(slice_from(doc->text, doc->places[node->valueint].value), &d))
        return false;
    /* `places` digits stand before the point once the exponent has moved it; zeros follow the digits that are written */
    int64_t places = (int64_t)d.whole.len + d.exponent, v = 0;
    size_t digits = d.whole.len + d.fraction.len;
    for (int64_t i = 0; i < places && (v || (size_t)i < digits); i++) {
        size_t at = (size_t)i;
        int digit = at < d.whole.len ? d.whole.at[at] : at < digits ? d.fraction.at[at - d.whole.len] : '0';
        digit -= '0';
        if (digit > max || v > (max - digit) / 10)
            return false;
        v = v * 10 + digit;
    }
    *value = v;
    return true;
}

/* ---- streaming ---- */

struct streaming {
    const struct json_stream *stream;
    const char *key; /* the root's member that is streamed */
    struct fail *why;
    bool found;       /* the member was there */
    bool refused;     /* a callback has returned false and filled *why */
    uint8_t *scratch; /* an unescaped key; reused for the next one */
    size_t scratch_size;
};

/* Gives the unescaped key, valid until the next call. Returns false if memory is short. */
static bool unescaped(struct json_scan *scan, struct streaming *s, struct slice raw, struct slice *key)
{
    *key = raw;
    if (slice_find(raw, '\\') == raw.len)
        return true;
    if (s->scratch_size < raw.len) {
        uint8_t *bigger = realloc(s->scratch, raw.len);
        if (!bigger)
            return json_scan_fail(scan, scan->at, "out of memory");
        s->scratch = bigger;
        s->scratch_size = raw.len;
    }
    *key = slice_of(s->scratch, json_string_unescape(raw, s->scratch));
    return true;
}

/* Scans a value and passes it to a callback. */
static bool hand_over(struct json_scan *scan, struct streaming *s, struct slice raw,
                      bool (*take)(void *, struct slice, struct slice, struct fail *))
{
    size_t start = scan->at;
    struct slice key;
    if (!json_scan_value(scan, 0) || !unescaped(scan, s, raw, &key))
        return false;
    /* includes the space after the value */
    struct slice value = slice_sub(scan->text, start, scan->at - start);
    if (take(s->stream->context, key, value, s->why))
        return true;
    s->refused = true;
    return json_scan_fail(scan, start, ""); /* ends the scan; the callback has described the error */
}

static bool stream_each(struct json_scan *scan, struct slice raw, void *context)
{
    struct streaming *s = context;
    return hand_over(scan, s, raw, s->stream->each);
}

static bool stream_root(struct json_scan *scan, struct slice raw, void *context)
{
    struct streaming *s = context;
    struct slice key;
    if (!unescaped(scan, s, raw, &key))
        return false;
    if (slice_is(key, s->key)) {
        if (s->found)
            return json_scan_fail(scan, (size_t)(raw.at - scan->text.at) - 1, "duplicate key");
        s->found = true;
        return json_scan_object(scan, JSON_DUPLICATES_UNSEEN, stream_each, s);
    }
    if (!s->stream->other)
        return json_scan_fail(scan, (size_t)(raw.at - scan->text.at) - 1, "unknown key");
    return hand_over(scan, s, raw, s->stream->other);
}

bool json_stream_object(struct slice text, const char *name, const char *key, int flags, unsigned depth,
                        const struct json_stream *stream, struct fail *why)
{
    struct json_scan scan = json_scan_of(text, flags & JSON_COMMENTS, depth);
    struct streaming s = {.stream = stream, .key = key, .why = why};
    bool good = json_scan_begin(&scan) && json_scan_object(&scan, JSON_DUPLICATES_REFUSED, stream_root, &s) &&
                json_scan_end(&scan) &&
                (s.found || json_scan_fail(&scan, 0, "the expected member is missing"));
    if (!good && !s.refused)
        fail_at(text, scan.what_at, name, why, scan.what);
    free(s.scratch);
    json_scan_free(&scan);
    return good;
}

/* ---- one object, without a tree ---- */

struct members {
    bool (*member)(void *context, struct slice key, struct slice value);
    void *context;
};

static bool scan_one(struct json_scan *scan, struct slice key, void *context)
{
    const struct members *members = context;
    size_t start = scan->at;
    if (!json_scan_value(scan, 0))
        return false;
    struct slice value = slice_sub(scan->text, start, scan->at - start);
    /* the scan has skipped the space after the value */
    while (value.len && strchr(" \t\r\n", value.at[value.len - 1]))
        value.len--;
    return members->member(members->context, key, value);
}

bool json_members(struct slice text, unsigned depth,
                  bool (*member)(void *context, struct slice key, struct slice value), void *context)
{
    struct members members = {member, context};
    struct json_scan scan = json_scan_of(text, false, depth);
    bool good = json_scan_begin(&scan) &&
                json_scan_object(&scan, JSON_DUPLICATES_REFUSED, scan_one, &members) && json_scan_end(&scan);
    json_scan_free(&scan);
    return good;
}
