/* SPDX-License-Identifier: MIT */
/*
 * options: one table of configuration keys feeds the parser, `-h`, the manual page and
 * the sample file. A table describes any JSON object: the whole configuration, one route, one token kind.
 *
 *     static const struct option table[] = {
 *         {"path", OPTION_TEXT, offsetof(struct route_text, path), NULL, "pattern of the request's path"},
 *         {"timeout", OPTION_DURATION, offsetof(struct route_text, timeout), "1h", "...",
 *          .min = 0, .max = 24 * OPTION_HOUR},
 *     };
 *
 * A dotted key "relay.listen" is member `listen` of the object `relay`. Unknown keys, wrong types and values out of range are refused
 * with their position; json.h refuses duplicate keys. A key that was renamed is also read by its former name, but
 * not by both names at once.
 */
#ifndef CELLGATE_SERVICE_OPTIONS_H
#define CELLGATE_SERVICE_OPTIONS_H

#include <stdio.h>

#include "spoa/base/bytes/texts.h"
#include "spoa/base/json/json.h"
#include "spoa/base/os/fail.h"
#include "spoa/base/os/file.h"
#include "spoa/base/table/hash.h"

/*
 * type      field                  in the file
 * BOOL      bool                   true
 * INT       int64_t                17
 * DURATION  int64_t, milliseconds  "250ms" "30s" "10m" "1h" "1d"
 * SIZE      int64_t, bytes         "512B" "64KiB" "1MiB" "2GiB"
 * ENUM      int, index into names  "one of them"
 * TEXT      char *                 "any text"
 * PATH      char *                 "keys/k1", relative to the folder of the configuration file
 * ADDRESS   struct net_address     "unix@/run/x.sock" "127.0.0.1:80" "[::1]:80"
 * TEXTS     struct texts           ["a", "b"]
 * NODE      const json_node *      whatever a module reads itself; lives as long as the document
 */
enum option_type {
    OPTION_BOOL,
    OPTION_INT,
    OPTION_DURATION,
    OPTION_SIZE,
    OPTION_ENUM,
    OPTION_TEXT,
    OPTION_PATH,
    OPTION_ADDRESS,
    OPTION_TEXTS,
    OPTION_NODE,
};

enum { OPTION_SECOND = 1000, OPTION_MINUTE = 60 * OPTION_SECOND, OPTION_HOUR = 60 * OPTION_MINUTE };
#define OPTION_DAY (24 * (int64_t)OPTION_HOUR)

/* A `fallback`: the key may be omitted, and the field is then zero (NULL, no texts). */
#define OPTION_NONE ""

/* One key. */
struct option {
    const char *key;
    enum option_type type;
    size_t offset;        /* offset of the field in the struct that options_read fills */
    const char *fallback; /* default, in the form of `-o`; NULL if the key is required */
    const char *help;     /* one line in lower case, without a full stop */
    /* Inclusive limits, in the field's unit; bytes of a text, number of elements of a list. With max 0 a text or list has no limit. */
    int64_t min, max;
    const char *const *names; /* OPTION_ENUM: NULL-terminated; the index is the value */
    /* Checks a text, or each text of a list. Returns NULL, or what the value must be ("a DNS name"). */
    const char *(*check)(struct slice value);
    const char *form;    /* OPTION_NODE: form of the value, for people: "a pattern or a list of them" */
    const char *example; /* JSON text for the sample file, if there is no default */
    bool secret;         /* OPTION_PATH: nobody else should be able to read the file */
    bool later;          /* OPTION_PATH: the file may be created after the start */
    bool restart;        /* the value is read at start only: a reload keeps the old one */
    const char *old;     /* the key's former name, which is still read, or NULL */
};

/* Reads an object into *out, which the caller has zeroed. Relative paths are relative to base_dir, or kept if that is NULL. Returns false
 * with *why; *out must be given to options_free in both cases. */
bool options_read(const struct json *doc, const json_node *object, const struct option *table, size_t count,
                  const char *base_dir, void *out, struct fail *why) MUST_CHECK;
/* Adds a warning with its position for each key that the object gives by its former name. Returns false with *why if memory is short. */
bool options_warn_old(const struct json *doc, const json_node *object, const struct option *table,
                      size_t count, struct texts *warnings, struct fail *why) MUST_CHECK;
/* Returns the row of a key, found by its present or former name, or NULL. */
const struct option *options_find(const struct option *table, size_t count, struct slice key);
/* Sets one value of a struct that options_read filled. The assignment is "relay.keepalive=25s", with the value as in the file; strings
 * need no quotes. Keys of type OPTION_NODE cannot be set. Returns false with *why. */
bool options_override(const struct option *table, size_t count, const char *assignment, void *out,
                      struct fail *why) MUST_CHECK;
/* Frees texts and paths, and zeroes their fields. */
void options_free(const struct option *table, size_t count, void *out);

/* Returns whether two structs that options_read filled are equal; nodes of two documents never are. */
bool options_equal(const struct option *table, size_t count, const void *a, const void *b);

/* Returns a mark of one value: values whose marks differ are different. Nodes all have the same mark. */
uint64_t options_mark(const struct option *option, const struct hash_secret *secret, const void *values);

/* Judges the secret files from table[*at] on until one is more exposed than FILE_PRIVATE; *at is then after it, and *what says who can do
 * what with it (file_exposure). Keys that begin with `other` are another daemon's, whose account nobody knows here; NULL:
 * none. Returns FILE_PRIVATE if no such file is left. */
enum file_exposure options_exposed_secret(const struct option *table, size_t count, const void *values,
                                          const char *other, size_t *at, struct fail *what);

/* Checks that each file that a value names can be read, except those that may come later. Returns false with *why, "KEY: PATH: what". Opens
 * the files, so it is not for a loop's thread. */
bool options_readable(const struct option *table, size_t count, const void *values, struct fail *why)
    MUST_CHECK;

/* Read the forms of OPTION_DURATION and OPTION_SIZE, for modules that read nodes themselves. Return false if the text has another form. */
bool options_duration(struct slice text, int64_t *milliseconds) MUST_CHECK;
bool options_size(struct slice text, int64_t *bytes) MUST_CHECK;

/* ---- the table as text ---- */
struct option_value { /* a form such as "a duration from 1s to 1h" */
    char text[256];
};
/* Returns the form of a key's values. */
struct option_value options_value(const struct option *option);
void options_help(FILE *to, const struct option *table, size_t count);   /* for -h */
void options_manual(FILE *to, const struct option *table, size_t count); /* roff, a .TP for each key */
/* A whole document with each key at its default, or its example, and its help as a comment. Keys must be in
 * the order of their sections, of which there is one level. */
void options_sample(FILE *to, const struct option *table, size_t count);

#endif
