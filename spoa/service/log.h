/* SPDX-License-Identifier: MIT */
/*
 * log: writes one logfmt line per event to a file descriptor. A thread of its own writes from a bounded queue, so a full disk or a
 * blocked pipe never stalls a loop; lines that do not fit are counted. A line that follows another one is written up to
 * five milliseconds later; lines of LOG_WARN and above are written at once. Any thread may use it.
 *
 *     log_write(log, LOG_INFO, "tunnel opened", LOG_SLICE("route", route), LOG_U64("bytes", n));
 *     -> ts=2026-11-20T23:25:16.123Z level=info msg="tunnel opened" route=pty bytes=17
 *
 * Repetition does not fill the disk: the first LOG_BURST lines of one message within LOG_WINDOW_MS are written, then one line that
 * tells how many more there were. This does not hold for LOG_DEBUG, nor for log_audit, because each of its lines records an
 * access.
 *
 * Values are quoted and escaped where logfmt requires it; control bytes and bytes above 0x7e are never written raw. Redaction:
 * anything in a value that looks like a credential is replaced by "[redacted]" (redact.h).
 */
#ifndef CELLGATE_SERVICE_LOG_H
#define CELLGATE_SERVICE_LOG_H

#include "spoa/base/bytes/slice.h"

struct log;

enum { LOG_BURST = 50, LOG_WINDOW_MS = 10000 }; /* lines of one message; milliseconds */

enum log_level { LOG_DEBUG, LOG_INFO, LOG_WARN, LOG_ERROR };

/* One field of a line; made by the macros below. */
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

/* Returns a log that writes lines of `level` and above, or NULL if memory is short or the thread cannot start. */
struct log *log_new(int fd, enum log_level level) MUST_CHECK;
/* Writes what is queued, for at most a second, and ends the thread. A thread that hangs in a write is abandoned. */
void log_free(struct log *log);
/* Returns the number of lines that were lost because the queue was full or the descriptor failed. `log` may be NULL. */
uint64_t log_dropped(const struct log *log);
/* Returns the number of lines that were not written because of LOG_BURST. `log` may be NULL. */
uint64_t log_held_back(const struct log *log);

typedef void log_fields_function(struct log *log, enum log_level level, const char *message,
                                 const struct log_field *fields, size_t count);
log_fields_function log_fields, log_fields_audit;
/* Write a line. Nothing is written if `log` is NULL, as in unit tests and sans-I/O cores. */
#define log_write(log, level, message, ...) LOG_BY(log_fields, log, level, message, __VA_ARGS__)
#define log_audit(log, level, message, ...) LOG_BY(log_fields_audit, log, level, message, __VA_ARGS__)
#define LOG_BY(function, log, level, message, ...)                                                  \
    function((log), (level), (message), (const struct log_field[]){{.key = NULL}, __VA_ARGS__} + 1, \
             sizeof((const struct log_field[]){{.key = NULL}, __VA_ARGS__}) / sizeof(struct log_field) - 1)

#endif
