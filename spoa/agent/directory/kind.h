/* SPDX-License-Identifier: MIT */
/*
 * directory_kind: what a kind of directory brings, and what it tells. A new kind is one file with a table, a line at the
 * end of this file and an entry in directory/options.c.
 *
 * All kinds live on one loop, which they share with whatever else the agent asks others for (directory/names.h, renew):
 * nothing here may block. What takes long without waiting for a descriptor, as reading a file of a million records, has a
 * thread for as long as it takes.
 *
 * There are two sorts. Kinds that hold all records (file) tell them whole by directory_loaded, and have no
 * look_up. Kinds that are asked for one record at a time get questions, one at a time for each key, and answer each by
 * directory_answer; what they say is kept in the cache (directory/cache.h). A kind that follows its directory (a stream of
 * events, list and watch) says what it hears by directory_changed and the others.
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
#define DIRECTORY_CACHE_OPTIONS(kind_options, ttl_default)                                          \
    {.key = "ttl",                                                                                  \
     .type = OPTION_DURATION,                                                                       \
     .offset = offsetof(kind_options, common.ttl),                                                  \
     .fallback = (ttl_default),                                                                     \
     .help = "an answer's time to live; what is in use is then looked up again",                    \
     .min = 100,                                                                                    \
     .max = OPTION_DAY},                                                                            \
        {.key = "stale",                                                                            \
         .type = OPTION_DURATION,                                                                   \
         .offset = offsetof(kind_options, common.stale),                                            \
         .fallback = "10m",                                                                         \
         .help = "time the last good record serves while the directory does not answer",            \
         .min = 0,                                                                                  \
         .max = OPTION_DAY},                                                                        \
    {                                                                                               \
        .key = "entries", .type = OPTION_INT, .offset = offsetof(kind_options, common.entries),     \
        .fallback = "100000", .help = "records in memory; the least recently asked for goes first", \
        .min = 16, .max = 10000000                                                                  \
    }

/* ---- what a kind reports: on the loop's thread. What it reports is copied. ---- */

struct directory;

struct directory_load {
    struct records *records;
    char **hosts; /* of workers that the records name by host name, each once */
    size_t host_count;
    int64_t not_before;      /* 0: none */
    struct revoked *revoked; /* retain to keep; NULL: none */
    size_t revoked_over;     /* entries of the list that were left out */
    uint64_t epochs_behind;  /* records ignored because their epoch went back */
    uint64_t exposed;        /* records with headers in a file that everybody can read */
    double seconds;          /* that reading took */
    bool unread;             /* it failed before the content was looked at: it may do the next time */
};

/* A question to the directory. It begins what the kind needs for one (struct directory_kind.question_size). */
struct directory_question {
    struct directory_question *next; /* free for the kind while it has the question */
    struct directory *directory;
    uint64_t asked; /* loop_clock */
    uint64_t again; /* the same: when a wake is tried again */
    struct slice key;
    bool wake; /* else: look it up */
    /* of the queue: a place of who asked first, and those of other owners who wait for it, too */
    struct fair_place place;
    struct directory_joiner *joiners;
    unsigned joined; /* the number of these */
    struct hash_node node;
    bool listed;
};

/* In the order in which they came. */
struct directory_questions {
    struct directory_question *first, *last;
};

void directory_questions_put(struct directory_questions *questions, struct directory_question *question);
struct directory_question *directory_questions_take(
    struct directory_questions *questions); /* NULL: there is none */

/* The answer, and the end of the question: FOUND with a record, ABSENT, or UNAVAILABLE (no answer in time, an answer
 * that makes no sense; also the end of what was to wake, and of what is left when the kind is stopped). ttl in
 * microseconds; 0: the configured one. */
void directory_answer(struct directory_question *question, enum lookup outcome, const struct record *record,
                      uint64_t ttl);
/* Of a question that wakes: it is asked once more a moment later, in turn among those of others. Returns false if nobody waits
 * for that any more: to be answered then. */
bool directory_wake_again(struct directory_question *question);
/* Of kinds that hold all: the whole table; load->records: retain to keep. False when out of memory: to be reported
 * again. */
bool directory_loaded(struct directory *directory, const struct directory_load *load);
/* Pushed, with content. */
void directory_changed(struct directory *directory, struct slice key, const struct record *record);
/* Pushed: the directory says that there is none (any more). */
void directory_removed(struct directory *directory, struct slice key);
/* Pushed without content: looked up again if it is in use. */
void directory_announced(struct directory *directory, struct slice key);
/* Pushes may have been lost (a new connection): everything in use is looked up again. */
void directory_missed(struct directory *directory);
/* Tokens issued before (Unix seconds, 0: none) are revoked for all sandboxes. False as above. */
bool directory_revoked(struct directory *directory, int64_t not_before);
/* A list of revoked tokens as of revoked.h, to be added to those that are known, or `all` there are. False and *why. */
bool directory_revoked_tokens(struct directory *directory, struct slice text, bool all, struct fail *why);
/* `why` (while not answering; no secrets, one line) is for people; a bad file is one that does not answer. pushing:
 * changes come by themselves. Of kinds with look_up what is reported again changes nothing. */
void directory_health(struct directory *directory, bool answering, bool pushing, const char *why);

/* ---- what it brings: called on the loop's thread ---- */

/* What a kind that follows its directory counts; the first five are as of now. */
enum directory_followed {
    DIRECTORY_WATCHES_OPEN,
    DIRECTORY_WATCHES_CLOSED,
    DIRECTORY_OBJECTS,
    DIRECTORY_OBJECTS_BYTES,
    DIRECTORY_SILENT_SECONDS, /* since the one that is closed longest was last heard */
    DIRECTORY_LISTS_GOOD,
    DIRECTORY_LISTS_BAD,
    DIRECTORY_EVENTS,
    DIRECTORY_ERRORS, /* answers that were of no use, or none */
    DIRECTORY_ODD,    /* objects that make no sense */
    DIRECTORY_FOLLOWED
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
    /* It holds all records and answers at once; it says for how long what is known serves, the cache adds nothing. */
    bool holds;

    /* Does not wait for the directory, and tells nothing yet. Options, directory, loop and log outlive it. NULL and
     * *why when there is no memory or descriptor. */
    void *(*start)(const void *options, struct directory *directory, struct loop *loop, struct log *log,
                   struct fail *why);
    size_t question_size; /* of the struct that begins with struct directory_question */
    /* Takes the question over: one directory_answer follows, within the kind's timeout. NULL: the kind holds all. A question
     * that wakes asks the control plane to wake a suspended sandbox; only kinds that wake get some. */
    void (*ask)(void *self, struct directory_question *question);
    bool wakes;
    /* The number of look-ups and of wakes that it has at a time; 0: any number. The others wait in a queue that serves their
     * owners in turn (spoa/base/table/fair.h). */
    uint32_t look_ups_at_once, wakes_at_once;
    /* Any thread, until it is stopped. NULL: it has nothing to count. */
    void (*counts)(void *self, uint64_t counts[DIRECTORY_FOLLOWED]);
    /* Ends the questions that it has. */
    void (*stop)(void *self);
};

/* directory/options.c has the list of them. */
extern const struct directory_kind directory_kind_file, directory_kind_http, directory_kind_redis,
    directory_kind_dns, directory_kind_kubernetes;

#endif
