/* SPDX-License-Identifier: MIT */
/*
 * json: reads RFC 8259 documents from outside, strictly. json_scan refuses what cJSON would let through: bytes after the document,
 * raw control characters, malformed numbers, invalid or overlong UTF-8, a byte-order mark, duplicate keys (compared after
 * unescaping), NUL in a string (\u0000), lone surrogates, too much depth. Only then does cJSON build the tree. Numbers are read from
 * the text and never from cJSON's double, which cannot hold every 64-bit integer.
 *
 * A document owns its tree and a copy of its text. Nodes, and the slices that json_text returns, are valid until json_free.
 */
#ifndef CELLGATE_BASE_JSON_JSON_H
#define CELLGATE_BASE_JSON_JSON_H

#include "spoa/base/bytes/slice.h"
#include "spoa/base/os/fail.h"

struct json;                    /* a document */
typedef struct cJSON json_node; /* one value in a document */

enum json_flags {
    JSON_COMMENTS = 1, /* allow // and block comments between tokens; positions stay those of the file */
};

struct json_limits {
    size_t bytes;   /* largest length of the text */
    unsigned depth; /* largest nesting of arrays and objects: [[1]] has depth 2 */
};

/* Returns true if text is one valid document within the limits. Otherwise *why is "NAME:LINE:COLUMN: what", with `name` as given.
 * The error never quotes the document, which may hold a secret. */
bool json_check(struct slice text, const char *name, int flags, struct json_limits limits, struct fail *why)
    MUST_CHECK;

/* Parses a document, which the caller frees with json_free. Returns NULL and fills *why if json_check would refuse the text, or if
 * memory is short. */
struct json *json_parse(struct slice text, const char *name, int flags, struct json_limits limits,
                        struct fail *why) MUST_CHECK;
/* Reads and parses a whole file; its path is the name in errors. Errors are those of file_read and json_parse. */
struct json *json_parse_file(const char *path, int flags, struct json_limits limits, struct fail *why)
    MUST_CHECK;
/* Frees the document and its nodes. NULL is fine. */
void json_free(struct json *doc);

const json_node *json_root(const struct json *doc);

/* ---- the type of a node: each of these returns false for NULL ---- */
bool json_is_object(const json_node *node);
bool json_is_array(const json_node *node);
bool json_is_string(const json_node *node);
bool json_is_bool(const json_node *node);
bool json_is_null(const json_node *node);
bool json_is_number(const json_node *node);

/* ---- walking the tree: a NULL argument gives NULL, so look-ups can be chained ---- */
/* Returns the member with exactly this key, or NULL if there is none or the node is no object. */
const json_node *json_member(const json_node *object, const char *key);
/* Returns a member of an object within objects, such as "relay.listen", or NULL. A part of the path has at most 63 bytes. */
const json_node *json_member_at(const json_node *object, const char *path);
/* Returns the first child, or NULL. */
const json_node *json_first(const json_node *container);
/* Returns the next child of the same container, or NULL. `child` must not be NULL. */
const json_node *json_next(const json_node *child);
/* Returns the unescaped key of an object's member, which must not be NULL. */
const char *json_key(const json_node *member);
size_t json_count(const json_node *container);

/* ---- values: each function returns false, and leaves *value as it is, if the node is NULL, of another type or out of range; a
 * caller whose *value holds a default may ignore the result ---- */
/* Gives the unescaped text: UTF-8 without NUL, which a NUL follows in memory. */
bool json_text(const json_node *node, struct slice *value);
bool json_bool(const json_node *node, bool *value);
/* Gives an integer exactly. The text must be written as one: no fraction, no exponent, no "-0". */
bool json_int(const struct json *doc, const json_node *node, int64_t min, int64_t max, int64_t *value);

/* Gives a number of seconds from 0 to max, rounded down, as dates in tokens need it. The number may have a fraction and an exponent
 * (1e9, 1500000000.25), and is computed from its digits. */
bool json_seconds(const struct json *doc, const json_node *node, int64_t max, int64_t *value);

/* Gives the nearest double of any number: good enough for display, not for a decision. */
bool json_real(const json_node *node, double *value);

/* Fills why with "NAME:LINE:COLUMN: " and the text, at the position of the node; with "NAME: " and the text if the node is NULL.
 * Always returns false. Lines and columns count from 1, columns in characters. */
__attribute__((format(printf, 4, 5))) bool json_fail(const struct json *doc, const json_node *node,
                                                     struct fail *why, const char *format, ...);
/* Like json_fail, at the position of the member's key. */
__attribute__((format(printf, 4, 5))) bool json_fail_key(const struct json *doc, const json_node *member,
                                                         struct fail *why, const char *format, ...);
/* Gives the position of the member's key, for warnings. */
void json_place_key(const struct json *doc, const json_node *member, size_t *line, size_t *column);

/*
 * Streams a document that is too large for one tree, such as a million records. The root must be an object with the member `key`,
 * whose value is an object: `each` is called for every member of that object, in order, with the unescaped key and the text of the
 * value, which is valid JSON and may have space and comments after it. `other` is called for the other members of the root; without
 * `other` they are errors.
 *
 * Returns false and fills *why if the text is not valid, the member is missing, or a callback has returned false; such a callback
 * fills *why itself, position included. Duplicate keys within the large object are not detected here, because that would need memory
 * for all keys: `each` must refuse them.
 */
struct json_stream {
    bool (*each)(void *context, struct slice key, struct slice value, struct fail *why);
    /* NULL if there may be none */
    bool (*other)(void *context, struct slice key, struct slice value, struct fail *why);
    void *context;
};
bool json_stream_object(struct slice text, const char *name, const char *key, int flags, unsigned depth,
                        const struct json_stream *stream, struct fail *why) MUST_CHECK;

/* Calls `member` for each member of the object in `text`, in order, without building a tree: with the key as it stands between its
 * quotes, still escaped, and the text of the value without space around it. Returns false if json_check would refuse the text, if the
 * text is no object, or if `member` has returned false. */
bool json_members(struct slice text, unsigned depth,
                  bool (*member)(void *context, struct slice key, struct slice value), void *context)
    MUST_CHECK;

#endif
