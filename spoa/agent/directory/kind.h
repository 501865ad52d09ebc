/* SPDX-License-Identifier: MIT */
/*
 * directory_kind: what a kind of directory provides (struct directory_kind), and the functions by which it reports. A new kind is
 * one file with such a table, a declaration at the end of this file and an entry in directory/options.c.
 *
 * All kinds run on one loop, which they share with everything else that the agent asks others for (directory/names.h, renewals):
 * nothing here may block. Work that takes long without waiting for a descriptor, such as reading a file of a million records,
 * runs on a thread that lives as long as the work.
 *
 * There are two sorts of kinds. A kind that holds all records (file) reports the whole table by directory_loaded, and has no
 * `ask`. A kind that looks up one record at a time gets questions, one at a time for each key, and answers each
 * by directory_answer; the answers are kept in the cache (directory/cache.h). A kind that follows its directory (a stream of
 * events, list and watch) also reports changes by directory_changed and its neighbours.
 *
 * A key is a sandbox id or "namespace/id", 1 to 255 bytes without blanks and control bytes, as in records.h.
 * Requests without a namespace and of namespace "default" ask look_up for the id alone.
 */
#ifndef CELLGATE_AGENT_DIRECTORY_KIND_H
#define CELLGATE_AGENT_DIRECTORY_KIND_H

#include "spoa/agent/directory/records.h"
#include "spoa/agent/token/revoked.h"
#include "spoa/base/table/fair.h"
#include "spoa/base/table/hash_table.h"
#include "spoa/net/loop.h"
#include "spoa/service/log.h"
#include "spoa/service/options.h"

/* The first member, `common`, of the options of every kind. */
struct directory_common {
    char *kind;
    /* the cache's keys; used by kinds with `ask` */
    int64_t ttl;     /* lifetime of an answer that does not state its own [ms] */
    int64_t stale;   /* time that a record still serves while the directory does not answer [ms] */
    int64_t entries; /* maximum number of cached records */
};

/* Rows of a kind's option table; `kind_options` is the kind's options struct. Every kind has the first row, kinds with `ask` have both. */
#define DIRECTORY_KIND_OPTION(kind_options, name)                                          \
    {                                                                                      \
        .key = "kind", .type = OPTION_TEXT, .offset = offsetof(kind_options, common.kind), \
        .help = "`" name "`", .max = 16                                                    \
    }
#define DIRECTORY_CACHE_OPTIONS(kind_options, ttl_default)                                             \
    {.key = "ttl",                                                                                     \
     .type = OPTION_DURATION,                                                                          \
     .offset = offsetof(kind_options, common.ttl),                                                     \
     .fallback = (ttl_default),                                                                        \
     .help = "lifetime of an answer; a record in use is then looked up again",                         \
     .min = 100,                                                                                       \
     .max = OPTION_DAY},                                                                               \
        {.key = "stale",                                                                               \
         .type = OPTION_DURATION,                                                                      \
         .offset = offsetof(kind_options, common.stale),                                               \
         .fallback = "10m",                                                                            \
         .help = "time the last good record serves while the directory does not answer",               \
         .min = 0,                                                                                     \
         .max = OPTION_DAY},                                                                           \
    {                                                                                                  \
        .key = "entries", .type = OPTION_INT, .offset = offsetof(kind_options, common.entries),        \
        .fallback = "100000", .help = "maximum number of records; the least recently used is evicted", \
        .min = 16, .max = 10000000                                                                     \
    }

/* ---- reports of a kind: called on the loop's thread, and everything they pass is copied ---- */

struct directory;

/* One load of all records. */
struct directory_load {
    struct records *records;
    char **hosts; /* host names of workers in the records, each once */
    size_t host_count;
    int64_t not_before;      /* tokens issued before are revoked [Unix seconds]; 0 revokes none */
    struct revoked *revoked; /* revoked tokens, or NULL; retain to keep */
    size_t revoked_over;     /* number of entries of the list that did not fit */
    uint64_t epochs_behind;  /* number of records ignored because their epoch went back */
    uint64_t exposed;        /* number of records with headers in a file that everybody can read */
    double seconds;          /* duration of the load */
    bool unread;             /* set if the load failed before the content was parsed: a retry may succeed */
};

/* One question to the directory. The kind's own struct of question_size bytes begins with this one. */
struct directory_question {
    struct directory_question *next; /* the kind may use it for lists, while it has the question */
    struct directory *directory;
    uint64_t asked; /* time of the question (of loop_clock) */
    uint64_t again; /* time of the next attempt to wake (of loop_clock) */
    struct slice key;
    bool wake; /* set: wake the sandbox `key`; clear: look it up */
    /* private to the queue: the place of the first owner who asked, and those of other owners who wait for the same answer */
    struct fair_place place;
    struct directory_joiner *joiners;
    unsigned joined; /* number of joiners */
    struct hash_node node;
    bool listed;
};

/* A queue of questions, first in first out. */
struct directory_questions {
    struct directory_question *first, *last;
};

void directory_questions_put(struct directory_questions *questions, struct directory_question *question);
/* Removes and returns the first question, or returns NULL if there is none. */
struct directory_question *directory_questions_take(struct directory_questions *questions);

/* Ends the question with its answer: FOUND with a record, ABSENT, or UNAVAILABLE. UNAVAILABLE stands for no answer in time and for
 * an answer that makes no sense; a question that wakes, and any question left when the kind is stopped, ends with it too.
 * ttl: lifetime of the answer [µs], or 0 for the configured one. */
void directory_answer(struct directory_question *question, enum lookup outcome, const struct record *record,
                      uint64_t ttl);
/* Asks once more to wake, half a second later and in turn with the questions of other owners. Returns false if nobody waits for this
 * sandbox any more; the caller must then end the question by directory_answer. */
bool directory_wake_again(struct directory_question *question) MUST_CHECK;
/* Reports the whole table of a kind that holds all records; retain load->records to keep them. Returns false if memory is short; the
 * kind must then report again. */
bool directory_loaded(struct directory *directory, const struct directory_load *load) MUST_CHECK;
/* Reports a pushed change together with the new record. */
void directory_changed(struct directory *directory, struct slice key, const struct record *record);
/* Reports a pushed removal: the directory has no record for `key`. */
void directory_removed(struct directory *directory, struct slice key);
/* Reports a pushed change without content: the record is looked up again if it is in use. */
void directory_announced(struct directory *directory, struct slice key);
/* Reports that pushes may have been lost (a new connection): everything in use is looked up again. */
void directory_missed(struct directory *directory);
/* Revokes all tokens issued before `not_before` (Unix seconds; 0 revokes none). Returns false if memory is short; the kind must report
 * again. */
bool directory_revoked(struct directory *directory, int64_t not_before) MUST_CHECK;
/* Adds a list of revoked tokens (format: agent/token/revoked.h), or replaces all known ones if `all`. Returns false with *why if the
 * list cannot be read or memory is short. */
bool directory_revoked_tokens(struct directory *directory, struct slice text, bool all, struct fail *why)
    MUST_CHECK;
/* Reports whether the directory answers and whether it pushes changes; a file that cannot be read does not answer. `why` is used
 * while it does not answer: one line for operators, without secrets. For kinds with `ask`, repeating a report has no effect. */
void directory_health(struct directory *directory, bool answering, bool pushing, const char *why);

/* ---- what a kind provides: called on the loop's thread ---- */

/* Counters of a kind that follows its directory; the first five are gauges. */
enum directory_followed {
    DIRECTORY_WATCHES_OPEN,   /* watches that receive events */
    DIRECTORY_WATCHES_CLOSED, /* watches that are not connected */
    DIRECTORY_OBJECTS,        /* objects held */
    DIRECTORY_OBJECTS_BYTES,  /* memory of these objects */
    DIRECTORY_SILENT_SECONDS, /* time since the last event of the watch that has been closed longest */
    DIRECTORY_LISTS_GOOD,     /* complete lists read */
    DIRECTORY_LISTS_BAD,      /* lists that failed */
    DIRECTORY_EVENTS,         /* events received */
    DIRECTORY_ERRORS,         /* requests without a usable answer */
    DIRECTORY_ODD,            /* objects that could not be understood */
    DIRECTORY_FOLLOWED
};

struct directory_kind {
    const char *name;             /* value of `kind` in the configuration */
    const struct option *options; /* rows of the configuration, also printed in the manual */
    size_t options_count;
    size_t options_size; /* of the struct that `options` fill, which begins with struct directory_common */
    /* Checks what the rows cannot express. Returns false with *why, "directory.KEY: what". May be NULL. */
    bool (*check)(const void *options, struct fail *why);
    /* Set if a directory may lose its records (a server that was emptied): a known record then serves 30 s after the first ABSENT. */
    bool absence_is_doubt;
    /* Set if the kind holds all records and answers at once: it decides alone how long a record serves, the cache adds no time. */
    bool holds;

    /* Starts the kind without waiting for the directory, and reports nothing yet. Options, directory, loop and log outlive the
     * kind. Returns NULL with *why if memory or descriptors are short. */
    void *(*start)(const void *options, struct directory *directory, struct loop *loop, struct log *log,
                   struct fail *why);
    size_t question_size; /* size of the kind's question, which begins with struct directory_question */
    /* Takes over the question and ends it by one directory_answer within the kind's timeout. NULL if the kind holds all records.
     * Questions that wake a suspended sandbox come only if `wakes` is set. */
    void (*ask)(void *self, struct directory_question *question);
    bool wakes;
    /* Maximum number of look-ups and of wakes that the kind has at a time, or 0 for any number. Others wait in a queue that serves owners
     * in turn (spoa/base/table/fair.h). */
    uint32_t look_ups_at_once, wakes_at_once;
    /* Fills in the counters; any thread may call it until the kind is stopped. NULL if the kind counts nothing. */
    void (*counts)(void *self, uint64_t counts[DIRECTORY_FOLLOWED]);
    /* Stops the kind, which ends all its questions first. */
    void (*stop)(void *self);
};

/* Kinds; directory/options.c lists them. */
extern const struct directory_kind directory_kind_file, directory_kind_http, directory_kind_redis,
    directory_kind_dns, directory_kind_kubernetes;

#endif
