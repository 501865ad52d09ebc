/* SPDX-License-Identifier: MIT */
/*
 * log: one logfmt line per event on a file descriptor, written by a thread of its own from a bounded queue, so that a
 * full disk or a blocked pipe never stalls a loop; lines that did not fit are counted. A line behind another one leaves up
 * to five milliseconds later, at LOG_WARN and above at once. May be used by any thread.
 *
 *     log_write(log, LOG_INFO, "tunnel opened", LOG_SLICE("route", route), LOG_U64("bytes", n));
 *     -> ts=2026-11-20T23:25:16.123Z level=info msg="tunnel opened" route=pty bytes=17
 *
 * What happens over and over does not fill the disk: of one message the first LOG_BURST lines within LOG_WINDOW_MS are
 * written, and then one that says how many more there were. Not so at LOG_DEBUG, nor of log_audit, each line of which is
 * somebody's access.
 *
 * Values are quoted and escaped where logfmt needs it; control bytes and bytes over 0x7e never reach the line raw.
 * Redaction: what looks like a credential (a JWS compact, "Bearer ...", a query string, "v1." tokens,
 * "cellgate.bearer.") is replaced by "[redacted]" in every value, whoever wrote it.
 */
#ifndef CELLGATE_SERVICE_LOG_H
#define CELLGATE_SERVICE_LOG_H

#include "spoa/base/bytes/slice.h"

struct log;

enum { LOG_BURST = 50, LOG_WINDOW_MS = 10000 };

enum log_level { LOG_DEBUG, LOG_INFO, LOG_WARN, LOG_ERROR };

struct log_field {
    const char *key;
    enum { LOG_FIELD_SLICE, LOG_FIELD_INT, LOG_FIELD_UINT, LOG_FIELD_SECONDS } type;
    struct slice text;
    int64_t i;
    uint64_t u;
    double seconds;
};

#define LOG_SLICE(key_, value_) ((struct log_field){.key = (key_), .type = LOG_FIELD_SLICE, .text = (value_)})
#define LOG_TEXT(key_, value_)  LOG_SLICE(key_, slice_text(value_))
#define LOG_I64(key_, value_)   ((struct log_field){.key = (key_), .type = LOG_FIELD_INT, .i = (value_)})
#define LOG_U64(key_, value_)   ((struct log_field){.key = (key_), .type = LOG_FIELD_UINT, .u = (value_)})
#define LOG_SECONDS(key_, value_) \
    ((struct log_field){.key = (key_), .type = LOG_FIELD_SECONDS, .seconds = (value_)})

/* Lines below `level` are not written. NULL when out of memory or the thread cannot start. */
struct log *log_new(int fd, enum log_level level);
/* Writes what is queued (for at most a second) and ends the thread; one that hangs in a write is left behind. */
void log_free(struct log *log);
uint64_t log_dropped(const struct log *log);
uint64_t log_held_back(const struct log *log); /* because there were many like them */

typedef void log_fields_function(struct log *log, enum log_level level, const char *message,
                                 const struct log_field *fields, size_t count);
log_fields_function log_fields, log_fields_audit;
/* log may be NULL: then nothing is written (unit tests, sans-I/O cores without a log). */
#define log_write(log, level, message, ...) LOG_BY(log_fields, log, level, message, __VA_ARGS__)
#define log_audit(log, level, message, ...) LOG_BY(log_fields_audit, log, level, message, __VA_ARGS__)
#define LOG_BY(function, log, level, message, ...)                                                  \
    function((log), (level), (message), (const struct log_field[]){{.key = NULL}, __VA_ARGS__} + 1, \
             sizeof((const struct log_field[]){{.key = NULL}, __VA_ARGS__}) / sizeof(struct log_field) - 1)

#endif
