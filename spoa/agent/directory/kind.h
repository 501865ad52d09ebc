/* SPDX-License-Identifier: MIT */
/*
 * directory_kind: what a kind of directory brings, and what it tells the agent. A new kind is one file with a
 * table, and one entry in directory/options.c.
 *
 * There are two sorts. Kinds that hold all records (file) tell them whole by sink->loaded, and have no
 * look_up. Kinds that are asked for one record at a time answer by sink->answered; what they say is kept in
 * the agent's cache (directory/cache.h), which also sees to it that each key is asked for once at a time.
 *
 * A key is a sandbox id or "namespace/id", 1 to 255 bytes without blanks and control bytes, as in records.h.
 * Requests without a namespace and of namespace "default" ask look_up for the id alone.
 */
#ifndef CELLGATE_AGENT_DIRECTORY_KIND_H
#define CELLGATE_AGENT_DIRECTORY_KIND_H

#include "spoa/agent/directory/records.h"
#include "spoa/agent/token/revoked.h"
#include "spoa/service/log.h"
#include "spoa/service/options.h"

/* The first member, `common`, of the options of every kind. */
struct directory_common {
    char *kind;
    /* of kinds with look_up */
    int64_t ttl;     /* milliseconds an answer is good for where it does not say so itself */
    int64_t stale;   /* milliseconds a record serves on while the directory does not answer */
    int64_t entries; /* records kept */
};

/* Entries of a kind's table; kind_options is its struct. All have the first, kinds with look_up both. */
#define DIRECTORY_KIND_OPTION(kind_options, name)                                          \
    {                                                                                      \
        .key = "kind", .type = OPTION_TEXT, .offset = offsetof(kind_options, common.kind), \
        .help = "`" name "`", .max = 16                                                    \
    }
#define DIRECTORY_CACHE_OPTIONS(kind_options, ttl_default)                                                \
    {.key = "ttl",                                                                                        \
     .type = OPTION_DURATION,                                                                             \
     .offset = offsetof(kind_options, common.ttl),                                                        \
     .fallback = (ttl_default),                                                                           \
     .help = "how long an answer is good for; what is in use is then looked up again",                     \
     .min = 100,                                                                                          \
     .max = OPTION_DAY},                                                                                  \
        {.key = "stale",                                                                                  \
         .type = OPTION_DURATION,                                                                         \
         .offset = offsetof(kind_options, common.stale),                                                  \
         .fallback = "10m",                                                                               \
         .help = "how long the last good record serves while the directory does not answer",              \
         .min = 0,                                                                                        \
         .max = OPTION_DAY},                                                                              \
    {                                                                                                     \
        .key = "entries", .type = OPTION_INT, .offset = offsetof(kind_options, common.entries),           \
        .fallback = "100000", .help = "records in memory; what was not asked for longest goes first", \
        .min = 16, .max = 10000000                                                                        \
    }

struct directory_load {
    struct records *records;
    int64_t not_before;     /* 0: none */
    struct revoked *revoked; /* retain to keep; NULL: none */
    size_t revoked_over;    /* entries of the list that were left out */
    uint64_t epochs_behind; /* records ignored because their epoch went back */
    uint64_t exposed;       /* records with headers in a file that everybody can read */
    double seconds;         /* that reading took */
    bool unread;            /* it failed before the content was looked at: it may do the next time */
};

/*
 * What a kind tells. Any thread may call these, but not from within start, look_up, wake or stop: a kind
 * answers from a thread of its own. They never block on I/O, and copy what they keep.
 */
struct directory_sink {
    /* Of kinds that hold all: the whole table; load->records: retain to keep. False when out of memory: to be told
     * again. */
    bool (*loaded)(void *context, const struct directory_load *load);
    /* The answer to one look_up: FOUND with a record, ABSENT, or UNAVAILABLE (no answer in time, an answer
     * that makes no sense). ttl in seconds; below 0: the configured one. */
    void (*answered)(void *context, struct slice key, enum lookup outcome, const struct record *record,
                     double ttl);
    /* Pushed, with content. */
    void (*changed)(void *context, struct slice key, const struct record *record);
    /* Pushed: the directory says that there is none (any more). */
    void (*removed)(void *context, struct slice key);
    /* Pushed without content: looked up again if it is in use. */
    void (*announced)(void *context, struct slice key);
    /* Pushes may have been lost (a new connection): everything in use is looked up again. */
    void (*missed)(void *context);
    /* Tokens issued before (Unix seconds, 0: none) are revoked for all sandboxes. False as above. */
    bool (*revoked)(void *context, int64_t not_before);
    /* A list of revoked tokens as of revoked.h, to be added to those that are known, or `all` there are. False and *why. */
    bool (*revoked_tokens)(void *context, struct slice text, bool all, struct fail *why);
    /* When either changes, and once when the first is known. `why` (while not answering; no secrets, one
     * line) is for people; a bad file is one that does not answer. pushing: changes come by themselves. */
    void (*health)(void *context, bool answering, bool pushing, const char *why);
    void *context;
};

struct directory_kind {
    const char *name;             /* `kind` in the configuration */
    const struct option *options; /* for the manual too */
    size_t options_count;
    size_t options_size; /* of the struct that they fill, which begins with struct directory_common */
    /* What the table cannot say; false and *why as "directory.KEY: what". May be NULL. */
    bool (*check)(const void *options, struct fail *why);
    /* Absence where a record was is doubt (a server that was emptied): the record serves 30 s more. */
    bool absence_is_doubt;

    /* Starts its thread; does not wait for the directory. Options, sink and log outlive it. NULL and *why
     * when there is no memory, thread or descriptor. */
    void *(*start)(const void *options, const struct directory_sink *sink, struct log *log, struct fail *why);
    /* Any thread, never blocks: exactly one `answered` for it follows, within the kind's timeout when it is its turn among
     * those before. The key is copied. NULL: the kind holds all. False when out of memory or too much is in flight:
     * nothing follows. */
    bool (*look_up)(void *self, struct slice key);
    /* Asks the control plane to wake a suspended sandbox; as look_up, but nothing follows but the change of
     * the record. May be NULL: this directory cannot. */
    void (*wake)(void *self, struct slice key);
    /* Ends its thread; the sink is not called any more when it returns. */
    void (*stop)(void *self);
};

/* directory/options.c has the list of them. */
extern const struct directory_kind directory_kind_file;

#endif
