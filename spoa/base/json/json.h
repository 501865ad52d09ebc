/* SPDX-License-Identifier: MIT */
/*
 * json: RFC 8259 documents from outside, read strictly. A scan of our own refuses what cJSON lets through
 * (see docs/architecture.md): anything behind the document, raw control bytes, bad numbers, invalid or
 * overlong UTF-8, a byte-order mark, duplicate keys (compared after unescaping), NUL in a string (\u0000),
 * lone surrogates, too much depth. Only then does cJSON build the tree. Numbers are read from the text, never
 * from cJSON's double.
 *
 * A document owns its tree and a copy of its text; nodes are valid until json_free.
 */
#ifndef CELLGATE_BASE_JSON_JSON_H
#define CELLGATE_BASE_JSON_JSON_H

#include "spoa/base/bytes/slice.h"
#include "spoa/base/os/fail.h"

struct json;                    /* a document */
typedef struct cJSON json_node; /* one value in it */

enum json_flags {
    JSON_COMMENTS = 1, /* allow // and block comments between tokens; positions stay those of the file */
};

struct json_limits {
    size_t bytes;
    unsigned depth; /* [[1]] has depth 2 */
};

/* Whether text is one valid document within limits; why becomes "NAME:LINE:COLUMN: what" (NAME as given). The
 * text of the document is never quoted, it may hold a secret. */
bool json_check(struct slice text, const char *name, int flags, struct json_limits limits, struct fail *why);

/* NULL and *why when json_check would refuse, or out of memory. */
struct json *json_parse(struct slice text, const char *name, int flags, struct json_limits limits,
                        struct fail *why);
/* Reads a whole file first; its path is the name in errors. */
struct json *json_parse_file(const char *path, int flags, struct json_limits limits, struct fail *why);
void json_free(struct json *doc); /* NULL is fine */

const json_node *json_root(const struct json *doc);

/* ---- what a node is ---- */
bool json_is_object(const json_node *node); /* all of these: false for NULL */
bool json_is_array(const json_node *node);
bool json_is_string(const json_node *node);
bool json_is_bool(const json_node *node);
bool json_is_null(const json_node *node);
bool json_is_number(const json_node *node);

/* ---- going through it ---- */
const json_node *json_member(const json_node *object,
                             const char *key); /* exact case; NULL if there is none */
/* Through objects within objects: "relay.listen". */
const json_node *json_member_at(const json_node *object, const char *path);
const json_node *json_first(const json_node *container); /* first child or NULL */
const json_node *json_next(const json_node *child);
const char *json_key(const json_node *member); /* of an object's member */
size_t json_count(const json_node *container);

/* ---- reading values; false when the node is of another type or out of range ---- */
bool json_text(const json_node *node, struct slice *value); /* UTF-8 without NUL; NUL-terminated in memory */
bool json_bool(const json_node *node, bool *value);
/* An integer written as one (no fraction, no exponent, no "-0"), exactly. */
bool json_int(const struct json *doc, const json_node *node, int64_t min, int64_t max, int64_t *value);

/* A number that is not negative, in whole seconds: any way to write it (1e9, 1500000000.25), rounded down, from its digits. */
bool json_seconds(const struct json *doc, const json_node *node, int64_t max, int64_t *value);

/* Any number, as the nearest double: for showing, not for deciding. */
bool json_real(const json_node *node, double *value);

/* Fills why with "NAME:LINE:COLUMN: " of the node and the text; always false. Lines and columns count from 1,
 * columns in characters. Of a NULL node: "NAME: ". */
__attribute__((format(printf, 4, 5))) bool json_fail(const struct json *doc, const json_node *node,
                                                     struct fail *why, const char *format, ...);
/* The same with the position of the member's key. */
__attribute__((format(printf, 4, 5))) bool json_fail_key(const struct json *doc, const json_node *member,
                                                         struct fail *why, const char *format, ...);
/* Where the member's key stands. */
void json_place_key(const struct json *doc, const json_node *member, size_t *line, size_t *column);

/*
 * For documents too large for one tree (a million records): calls `each` for every member of the object that
 * is root's member `key`, in order, with the member's unescaped key and the unparsed text of its value
 * (already checked; space and comments may follow in it). Other members of the root are refused unless
 * `other` takes them. Duplicate keys within the big object are NOT found here: `each` sees them and refuses.
 * Stops with false as soon as a callback returns false, which fills *why whole, position included. A root
 * without the member is refused.
 */
struct json_stream {
    bool (*each)(void *context, struct slice key, struct slice value, struct fail *why);
    bool (*other)(void *context, struct slice key, struct slice value, struct fail *why); /* may be NULL */
    void *context;
};
bool json_stream_object(struct slice text, const char *name, const char *key, int flags, unsigned depth,
                        const struct json_stream *stream, struct fail *why);

/* Calls `member` for each member of the object that the text is, in order: its key as it stands between the quotes, still
 * escaped, and the text of its value, which was checked. Builds nothing. False when json_check would refuse the text, it is no
 * object, or `member` is false. */
bool json_members(struct slice text, unsigned depth,
                  bool (*member)(void *context, struct slice key, struct slice value), void *context);

#endif
