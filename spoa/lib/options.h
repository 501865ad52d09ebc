/* SPDX-License-Identifier: MIT */
/*
 * options: one table of configuration keys feeds the parser, `-h`, the manual page, docs/configuration.md and
 * the sample file. A table describes any JSON object: the whole configuration, one route, one token kind.
 *
 *     static const struct option table[] = {
 *         {"path", OPTION_TEXT, offsetof(struct route_text, path), NULL, "pattern of the request's path"},
 *         {"timeout", OPTION_DURATION, offsetof(struct route_text, timeout), "1h", "...", .min = 0, .max = 24
 * * OPTION_HOUR},
 *     };
 *
 * A dotted key "relay.listen" is member `listen` of the object `relay`. Unknown keys, wrong types and values
 * out of range are refused with their position; duplicate keys were refused by json.h already.
 */
#ifndef CELLGATE_LIB_OPTIONS_H
#define CELLGATE_LIB_OPTIONS_H

#include <stdio.h>

#include "spoa/lib/fail.h"
#include "spoa/lib/json.h"

enum option_type {                  /*  type of the field       written as */
                   OPTION_BOOL,     /*  bool                    true */
                   OPTION_INT,      /*  int64_t, min to max     17 */
                   OPTION_DURATION, /*  int64_t milliseconds    "250ms" "30s" "10m" "1h" "1d" */
                   OPTION_SIZE,     /*  int64_t bytes           "512B" "64KiB" "1MiB" "2GiB" */
                   OPTION_ENUM,     /*  int, index into names   "one of them" */
                   OPTION_TEXT,     /*  char *                  "text"; max: its length in bytes, 0: any */
                   OPTION_PATH,     /*  char *                  "file"; relative to the folder of the
                                       configuration file */
                   OPTION_ADDRESS, /*  struct net_address      "unix@/run/x.sock" "127.0.0.1:80" "[::1]:80" */
                   OPTION_TEXTS,   /*  struct option_texts     ["a", "b"]; max: how many, 0: any */
                   OPTION_NODE, /*  const json_node *       whatever a module reads itself; lives as long as
                                   the document */
};

struct option_texts {
    char **at;
    size_t count;
};

enum { OPTION_SECOND = 1000, OPTION_MINUTE = 60 * OPTION_SECOND, OPTION_HOUR = 60 * OPTION_MINUTE };
#define OPTION_DAY (24 * (int64_t)OPTION_HOUR)

/* As `fallback`: the key may be left out, the field is then zero (NULL, no texts). */
#define OPTION_NONE ""

struct option {
    const char *key;
    enum option_type type;
    size_t offset;            /* of the field in the struct that is filled */
    const char *fallback;     /* the default as `-o` would say it; NULL: the key is required */
    const char *help;         /* one line, begins in lower case, no full stop */
    int64_t min, max;         /* in the field's unit, both included */
    const char *const *names; /* OPTION_ENUM: NULL-terminated, the number is the index */
    const char *(*check)(
        struct slice value); /* of a text, path or each of the texts: NULL or what is wrong */
};

/* Fills *out (zeroed by the caller) from an object. base_dir: for relative paths, NULL leaves them. On
 * failure *out is in a state for options_free. */
bool options_read(const struct json *doc, const json_node *object, const struct option *table, size_t count,
                  const char *base_dir, void *out, struct fail *why);
/* "relay.keepalive=25s": the value as in the file, where strings need no quotes. Of a struct that
 * options_read filled. Keys of type OPTION_NODE cannot be set so. */
bool options_override(const struct option *table, size_t count, const char *assignment, void *out,
                      struct fail *why);
/* Frees texts and paths, and zeroes their fields. */
void options_free(const struct option *table, size_t count, void *out);

/* For modules that read nodes themselves: the same forms, false when it is none of them. */
bool options_duration(struct slice text, int64_t *milliseconds);
bool options_size(struct slice text, int64_t *bytes);

/* ---- the table, for people ---- */
void options_help(FILE *to, const struct option *table, size_t count); /* for -h */
void options_markdown(FILE *to, const struct option *table,
                      size_t count); /* a table of docs/configuration.md */
void options_manual(FILE *to, const struct option *table, size_t count); /* roff, a .TP for each key */

#endif
