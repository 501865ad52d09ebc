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
 * A dotted key "relay.listen" is member `listen` of the object `relay`. Unknown keys, wrong types and values
 * out of range are refused with their position; duplicate keys were refused by json.h already. A key that was renamed
 * is read by its former name too, but not by both.
 */
#ifndef CELLGATE_SERVICE_OPTIONS_H
#define CELLGATE_SERVICE_OPTIONS_H

#include <stdio.h>

#include "spoa/base/bytes/texts.h"
#include "spoa/base/json/json.h"
#include "spoa/base/os/fail.h"
#include "spoa/base/os/file.h"

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

/* As `fallback`: the key may be left out, the field is then zero (NULL, no texts). */
#define OPTION_NONE ""

struct option {
    const char *key;
    enum option_type type;
    size_t offset;        /* of the field in the struct that is filled */
    const char *fallback; /* the default as `-o` would say it; NULL: the key is required */
    const char *help;     /* one line, begins in lower case, no full stop */
    /* Both included, in the field's unit. Texts: bytes, lists: how many; with max 0 any are allowed. */
    int64_t min, max;
    const char *const *names; /* OPTION_ENUM: NULL-terminated, the number is the index */
    /* Of a text, of each of the texts: NULL, or what it must be ("a DNS name"). */
    const char *(*check)(struct slice value);
    const char *form;    /* OPTION_NODE: what it is, for people: "a pattern or a list of them" */
    const char *example; /* JSON text for the sample file, where there is no default */
    bool secret;         /* OPTION_PATH: of a file that nobody else should read */
    bool later;          /* OPTION_PATH: the file may come after the start */
    const char *old;     /* the key's former name, which is still read; NULL: it has none */
};

/* Fills *out (zeroed by the caller) from an object. base_dir: for relative paths, NULL leaves them. On
 * failure *out is in a state for options_free. */
bool options_read(const struct json *doc, const json_node *object, const struct option *table, size_t count,
                  const char *base_dir, void *out, struct fail *why);
/* For each key that the object gives by its former name a text with its position. False and *why: out of memory. */
bool options_warn_old(const struct json *doc, const json_node *object, const struct option *table,
                      size_t count, struct texts *warnings, struct fail *why);
/* By the key or its former name; NULL: there is none. */
const struct option *options_find(const struct option *table, size_t count, struct slice key);
/* "relay.keepalive=25s": the value as in the file, where strings need no quotes. Of a struct that
 * options_read filled. Keys of type OPTION_NODE cannot be set so. */
bool options_override(const struct option *table, size_t count, const char *assignment, void *out,
                      struct fail *why);
/* Frees texts and paths, and zeroes their fields. */
void options_free(const struct option *table, size_t count, void *out);

/* Whether two structs that options_read filled say the same; nodes of two documents never do. */
bool options_equal(const struct option *table, size_t count, const void *a, const void *b);

/* Judges the secret files from table[*at] on until one is more exposed than FILE_PRIVATE; *at is then after it, and *what says who can do
 * what with it (file_exposure). Keys that begin with `other` are another daemon's, whose account nobody knows here; NULL:
 * none. Returns FILE_PRIVATE if no such file is left. */
enum file_exposure options_exposed_secret(const struct option *table, size_t count, const void *values,
                                          const char *other, size_t *at, struct fail *what);

/* Whether each file that a value names can be read now, but those that may come later. False: *why as "KEY: PATH: what".
 * Opens them: not for a loop's thread. */
bool options_readable(const struct option *table, size_t count, const void *values, struct fail *why);

/* For modules that read nodes themselves: the same forms, false when it is none of them. */
bool options_duration(struct slice text, int64_t *milliseconds);
bool options_size(struct slice text, int64_t *bytes);

/* ---- the table, for people ---- */
struct option_value { /* "a duration from 1s to 1h" */
    char text[256];
};
struct option_value options_value(const struct option *option);
void options_help(FILE *to, const struct option *table, size_t count); /* for -h */
void options_manual(FILE *to, const struct option *table, size_t count); /* roff, a .TP for each key */
/* A whole document with each key at its default, or its example, and its help as a comment. Keys must be in
 * the order of their sections, of which there is one level. */
void options_sample(FILE *to, const struct option *table, size_t count);

#endif
