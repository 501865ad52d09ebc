/* SPDX-License-Identifier: MIT */
#include "spoa/base/json/json_scan.h"

#include <stdlib.h>

#include "spoa/base/json/json_string.h"

struct json_scan json_scan_of(struct slice text, bool comments, unsigned depth)
{
    return (struct json_scan){
        .text = text, .comments = comments, .depth_left = depth < JSON_DEPTH_MAX ? depth : JSON_DEPTH_MAX};
}

void json_scan_free(struct json_scan *scan)
{
    free(scan->keys);
    free(scan->places);
    scan->keys = NULL;
    scan->places = NULL;
    scan->keys_len = scan->keys_size = scan->places_len = scan->places_size = 0;
}

bool json_scan_fail(struct json_scan *scan, size_t at, const char *what)
{
    scan->what = what;
    scan->what_at = at;
    return false;
}

static bool fail_here(struct json_scan *scan, const char *what)
{
    return json_scan_fail(scan, scan->at, scan->at < scan->text.len ? what : "the document ends too early");
}

/* Returns the next byte, or -1 at the end of the text. */
static int peek(const struct json_scan *scan)
{
    return scan->at < scan->text.len ? scan->text.at[scan->at] : -1;
}

/* Skips the next byte if it is `byte`; else returns false. */
static bool accept(struct json_scan *scan, int byte)
{
    if (peek(scan) != byte)
        return false;
    scan->at++;
    return true;
}

/* ---- space ---- */

/* Returns the length of the comment at the front of s, or 0 if there is none or it is not closed. */
static size_t comment_len(struct slice s)
{
    if (s.len < 2 || s.at[0] != '/')
        return 0;
    if (s.at[1] == '/')
        return slice_find(s, '\n');
    if (s.at[1] != '*')
        return 0;
    const uint8_t *end = memmem(s.at + 2, s.len - 2, "*/", 2);
    return end ? (size_t)(end - s.at) + 2 : 0;
}

/* Skips space and, if allowed, comments. Fails on a comment that is not closed. */
static bool skip_space(struct json_scan *scan)
{
    for (;;) {
        int c = peek(scan);
        if (c == ' ' || c == '\n' || c == '\t' || c == '\r') {
            scan->at++;
        } else if (c == '/' && scan->comments) {
            size_t len = comment_len(slice_from(scan->text, scan->at));
            if (!len)
                return json_scan_fail(scan, scan->at, "not a comment, or one that does not end");
            if (scan->blank)
                memset(scan->blank + scan->at, ' ', len);
            scan->at += len;
        } else {
            return true;
        }
    }
}

/* Skips `byte`, which must come next, and the space after it. */
static bool expect(struct json_scan *scan, int byte, const char *what)
{
    return (accept(scan, byte) || fail_here(scan, what)) && skip_space(scan);
}

/* ---- memory ---- */

/* Returns the array with room for one more element, at twice the size if it was full; NULL if memory is short: the old array is then
 * still valid. */
static void *grown(void *array, size_t len, size_t *size, size_t each)
{
    if (len < *size)
        return array;
    size_t more = *size ? *size * 2 : 16;
    void *bigger = realloc(array, more * each);
    if (bigger)
        *size = more;
    return bigger;
}

/* Records where a value begins, if the caller wants places. */
static bool keep_place(struct json_scan *scan, size_t key)
{
    if (!scan->record)
        return true;
    struct json_place *places =
        grown(scan->places, scan->places_len, &scan->places_size, sizeof *scan->places);
    if (!places)
        return json_scan_fail(scan, scan->at, "out of memory");
    scan->places = places;
    places[scan->places_len++] = (struct json_place){key, scan->at};
    return true;
}

static bool keep_key(struct json_scan *scan, struct slice key)
{
    struct slice *keys = grown(scan->keys, scan->keys_len, &scan->keys_size, sizeof *scan->keys);
    if (!keys)
        return json_scan_fail(scan, scan->at, "out of memory");
    scan->keys = keys;
    keys[scan->keys_len++] = key;
    return true;
}

bool json_scan_end(struct json_scan *scan)
{
    return scan->at == scan->text.len || json_scan_fail(scan, scan->at, "text after the document");
}

/* ---- scalars ---- */

static bool scan_string(struct json_scan *scan, struct slice *raw)
{
    if (!accept(scan, '"'))
        return fail_here(scan, "a key in double quotes is expected");
    struct slice rest = slice_from(scan->text, scan->at);
    size_t len;
    const char *wrong = json_string_check(rest, &len);
    scan->at += len;
    if (wrong)
        return json_scan_fail(scan, scan->at, wrong);
    *raw = slice_sub(rest, 0, len);
    scan->at++;
    return true;
}

/* Scans one or more digits. */
static bool scan_digits(struct json_scan *scan)
{
    size_t start = scan->at;
    while (peek(scan) >= '0' && peek(scan) <= '9')
        scan->at++;
    return scan->at > start || fail_here(scan, "a digit is expected");
}

static bool scan_number(struct json_scan *scan)
{
    size_t start = scan->at;
    accept(scan, '-');
    if (accept(scan, '0')) {
        if (peek(scan) >= '0' && peek(scan) <= '9')
            return fail_here(scan, "a number begins with 0");
    } else if (!scan_digits(scan)) {
        return false;
    }
    if (accept(scan, '.') && !scan_digits(scan))
        return false;
    if (accept(scan, 'e') || accept(scan, 'E')) {
        if (!accept(scan, '+'))
            accept(scan, '-');
        if (!scan_digits(scan))
            return false;
    }
    return scan->at - start <= JSON_NUMBER_MAX || json_scan_fail(scan, start, "a number is too long");
}

/* Scans true, false or null. A word that the end of the text cuts off is reported as such. */
static bool scan_word(struct json_scan *scan, const char *word)
{
    struct slice rest = slice_from(scan->text, scan->at);
    if (!slice_starts(rest, word))
        return rest.len < strlen(word) && memcmp(rest.at, word, rest.len) == 0
                   ? json_scan_fail(scan, scan->text.len, "the document ends too early")
                   : fail_here(scan, "a value is expected");
    scan->at += strlen(word);
    return true;
}

/* ---- containers ---- */

/* Orders keys by content. Equal ones keep the order of the text, so that the error points at the second one. */
static int by_key(const void *one, const void *other)
{
    const struct slice *a = one, *b = other;
    int order = json_string_compare(*a, *b);
    return order ? order : (a->at > b->at) - (a->at < b->at);
}

/* Checks and drops the keys from index `first` on, which are those of the object that just ended. */
static bool refuse_duplicates(struct json_scan *scan, size_t first)
{
    size_t count = scan->keys_len - first;
    scan->keys_len = first;
    if (count < 2)
        return true;
    struct slice *keys = scan->keys + first;
    /* Many keys are sorted, so that duplicates become neighbours. Up to eight are compared each with each, which is faster. */
    if (count > 8)
        qsort(keys, count, sizeof *keys, by_key);
    size_t reach = count > 8 ? 1 : count;
    for (size_t i = 1; i < count; i++)
        for (size_t back = 1; back <= i && back <= reach; back++)
            if (json_string_compare(keys[i - back], keys[i]) == 0)
                return json_scan_fail(scan, (size_t)(keys[i].at - scan->text.at) - 1, "duplicate key");
    return true;
}

/* Opens an object or an array. */
static bool enter(struct json_scan *scan)
{
    if (scan->depth_left == 0)
        return json_scan_fail(scan, scan->at, "nested too deeply");
    scan->depth_left--;
    scan->at++;
    return skip_space(scan);
}

/* Closes an object or an array, whose closing bracket is `byte`. */
static bool leave(struct json_scan *scan, int byte, const char *what)
{
    scan->depth_left++;
    return expect(scan, byte, what);
}

bool json_scan_object(struct json_scan *scan, enum json_duplicates duplicates, json_scan_member *member,
                      void *context)
{
    size_t first = scan->keys_len;
    bool keep = duplicates == JSON_DUPLICATES_REFUSED;
    if (peek(scan) != '{')
        return fail_here(scan, "an object is expected");
    if (!enter(scan))
        return false;
    if (peek(scan) != '}') {
        do {
            struct slice key = {NULL, 0};
            if (!skip_space(scan) || !scan_string(scan, &key) || (keep && !keep_key(scan, key)) ||
                !skip_space(scan) || !expect(scan, ':', "':' is expected") || !member(scan, key, context))
                return false;
        } while (accept(scan, ','));
    }
    return leave(scan, '}', "',' or '}' is expected") && (!keep || refuse_duplicates(scan, first));
}

static bool scan_array(struct json_scan *scan)
{
    if (!enter(scan))
        return false;
    if (peek(scan) != ']') {
        do {
            if (!skip_space(scan) || !json_scan_value(scan, 0))
                return false;
        } while (accept(scan, ','));
    }
    return leave(scan, ']', "',' or ']' is expected");
}

static bool scan_member(struct json_scan *scan, struct slice key, void *context)
{
    (void)context;
    return json_scan_value(scan, (size_t)(key.at - scan->text.at) - 1);
}

static bool scan_scalar(struct json_scan *scan)
{
    struct slice raw;
    switch (peek(scan)) {
    case '"':
        return scan_string(scan, &raw);
    case 't':
        return scan_word(scan, "true");
    case 'f':
        return scan_word(scan, "false");
    case 'n':
        return scan_word(scan, "null");
    case '-':
    case '0':
    case '1':
    case '2':
    case '3':
    case '4':
    case '5':
    case '6':
    case '7':
    case '8':
    case '9':
        return scan_number(scan);
    default:
        return fail_here(scan, "a value is expected");
    }
}

bool json_scan_value(struct json_scan *scan, size_t key)
{
    if (!keep_place(scan, key))
        return false;
    if (peek(scan) == '{')
        return json_scan_object(scan, JSON_DUPLICATES_REFUSED, scan_member, NULL);
    if (peek(scan) == '[')
        return scan_array(scan);
    return scan_scalar(scan) && skip_space(scan);
}

bool json_scan_begin(struct json_scan *scan)
{
    if (slice_starts(scan->text, "\xEF\xBB\xBF"))
        return json_scan_fail(scan, 0, "a byte-order mark");
    return skip_space(scan);
}

bool json_scan_document(struct json_scan *scan)
{
    return json_scan_begin(scan) && json_scan_value(scan, 0) && json_scan_end(scan);
}
