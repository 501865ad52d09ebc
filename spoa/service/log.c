/* SPDX-License-Identifier: MIT */
#include "spoa/service/log.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "spoa/base/bytes/writer.h"
#include "spoa/service/redact.h"

enum {
    LINE_MAX_BYTES = 4096,   /* bytes of a line; PIPE_BUF, which a ready pipe takes in one piece */
    VALUE_MAX = 1024,        /* bytes of a value */
    QUEUE_BYTES = 256 << 10, /* bytes that wait to be written */
    LAST_WORDS_MS = 1000,    /* time for writing the queue when the log ends */
    PATIENCE_MS = 1000,      /* additional time for the thread to end after that */
    REST_MS = 5,             /* pause between two writes; lines that come during it wake nobody */
    KINDS = 64,              /* messages whose lines are counted; a daemon has about this number */
};

/* The lines of one message in the present window. */
struct kind {
    const char *message; /* a literal, or NULL if the place is free */
    enum log_level level;
    int64_t since;      /* start of the window [ms of the monotonic clock] */
    unsigned lines;     /* number of lines in the window */
    uint64_t held_back; /* number of them that were not written */
};

struct log {
    int fd;
    enum log_level level;
    pthread_t thread;
    pthread_mutex_t lock;     /* guards the fields below but dropped; never held during a system call */
    pthread_cond_t wake;      /* signals to the thread and to log_free */
    uint8_t *queue, *writing; /* buffers of QUEUE_BYTES; `writing` belongs to the thread */
    size_t queued;            /* bytes in `queue` */
    bool stopping;
    bool rests;       /* the thread pauses until rest_end */
    bool urgent;      /* a line must not wait for the end of the pause */
    int64_t rest_end; /* [ms of the monotonic clock] */
    bool ended;       /* the thread has ended */
    bool left;        /* log_free did not wait for that: the thread frees everything */
    int64_t deadline; /* end of writing after log_free [ms of the monotonic clock] */
    struct kind kinds[KINDS];
    _Atomic uint64_t dropped, held_back;
};

/* ---- lines ---- */

static const char *const level_names[] = {"debug", "info", "warn", "error"};

/* Writes `places` digits, with leading zeros. */
static void put_digits(struct writer *w, uint64_t v, size_t places)
{
    uint8_t digits[20];
    for (size_t i = places; i-- > 0; v /= 10)
        digits[i] = (uint8_t)('0' + v % 10);
    writer_put(w, slice_of(digits, places));
}

/* Writes the time. A thread writes many lines in a second, so the text of the second is kept. */
static void put_time(struct writer *w)
{
    static _Thread_local time_t second = -1;
    static _Thread_local char text[64];
    struct timespec now;
    struct tm tm;
    clock_gettime(CLOCK_REALTIME, &now);
    if (now.tv_sec != second && gmtime_r(&now.tv_sec, &tm) &&
        strftime(text, sizeof text, "ts=%Y-%m-%dT%H:%M:%S.", &tm))
        second = now.tv_sec;
    writer_text(w, text);
    put_digits(w, (uint64_t)now.tv_nsec / 1000000, 3);
    writer_u8(w, 'Z');
}

/* How a byte may stand in a value: BARE without quotes, PLAIN between quotes; others are escaped. */
enum { PLAIN = 1, BARE = 3 };
static const uint8_t marks[256] = {
    ['!'] = BARE,         ['#' ... '<'] = BARE, ['>' ... '['] = BARE,
    [']' ... '~'] = BARE, [' '] = PLAIN,        ['='] = PLAIN,
};

static bool needs_quotes(struct slice value)
{
    for (size_t i = 0; i < value.len; i++)
        if (marks[value.at[i]] != BARE)
            return true;
    return value.len == 0;
}

/* Writes a byte that must be escaped. */
static void put_special(struct writer *w, uint8_t c)
{
    static const char controls[] = "\n\r\t", letters[] = "nrt";
    const char *control = c ? strchr(controls, c) : NULL;
    if (control)
        writer_printf(w, "\\%c", letters[control - controls]);
    else if (c == '"' || c == '\\')
        writer_printf(w, "\\%c", c);
    else
        writer_printf(w, "\\x%02x", c);
}

static void put_escaped(struct writer *w, struct slice text)
{
    while (text.len) {
        size_t plain = 0;
        while (plain < text.len && marks[text.at[plain]])
            plain++;
        writer_put(w, slice_sub(text, 0, plain));
        if (plain < text.len)
            put_special(w, text.at[plain++]);
        text = slice_from(text, plain);
    }
}

/* Writes a value, cut to VALUE_MAX and with credentials redacted. */
static void put_value(struct writer *w, struct slice value)
{
    bool quoted = needs_quotes(value);
    const char *quote = quoted ? "\"" : "", *cut = value.len > VALUE_MAX ? "..." : "";
    struct slice rest = slice_sub(value, 0, VALUE_MAX), plain;
    writer_text(w, quote);
    do {
        bool secret = redact_split(&rest, &plain);
        if (quoted)
            put_escaped(w, plain);
        else
            writer_put(w, plain);
        if (secret)
            writer_text(w, "[redacted]");
    } while (rest.len);
    writer_text(w, cut);
    writer_text(w, quote);
}

/* Writes one field. */
static void put_field(struct writer *w, const struct log_field *field)
{
    writer_u8(w, ' ');
    writer_text(w, field->key);
    writer_u8(w, '=');
    switch (field->type) {
    case LOG_FIELD_SLICE:
        put_value(w, field->text);
        break;
    case LOG_FIELD_INT:
        if (field->i < 0)
            writer_u8(w, '-');
        writer_decimal(w, field->i < 0 ? -(uint64_t)field->i : (uint64_t)field->i);
        break;
    case LOG_FIELD_UINT:
        writer_decimal(w, field->u);
        break;
    case LOG_FIELD_SECONDS:
        if (field->seconds >= 0 && field->seconds < 1e9) {
            uint64_t microseconds = (uint64_t)(field->seconds * 1e6 + 0.5);
            writer_decimal(w, microseconds / 1000000);
            writer_u8(w, '.');
            put_digits(w, microseconds % 1000000, 6);
        } else {
            writer_printf(w, "%.6f", field->seconds);
        }
        break;
    }
}

/* Formats a line and returns its length. If a field does not fit, it and those after it are omitted, and the line has cut=true. */
static size_t format_line(uint8_t line[LINE_MAX_BYTES], enum log_level level, const char *message,
                          const struct log_field *fields, size_t count)
{
    static const char cut[] = " cut=true";
    struct writer w = writer_of(line, LINE_MAX_BYTES - sizeof cut);
    put_time(&w);
    writer_text(&w, " level=");
    writer_text(&w, level_names[level]);
    writer_text(&w, " msg=");
    put_value(&w, slice_text(message));
    for (size_t i = 0; i < count && !w.full; i++) {
        size_t before = w.len;
        put_field(&w, &fields[i]);
        if (w.full)
            w.len = before;
    }
    bool full = w.full;
    w.full = false;
    w.size = LINE_MAX_BYTES;
    if (full)
        writer_text(&w, cut);
    writer_u8(&w, '\n');
    return w.len;
}

/* ---- the queue ---- */

static int64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Wakes the thread for a line, with the lock held. Waking costs more than the line, so during a pause only an urgent line and a queue
 * that is half full do it. */
static void wake_for_line(struct log *log, enum log_level level)
{
    bool urgent = log->rests && !log->urgent && (level >= LOG_WARN || log->queued > QUEUE_BYTES / 2);
    log->urgent |= urgent;
    if (urgent || (!log->rests && log->queued == 0))
        pthread_cond_signal(&log->wake);
}

/* Queues a line, with the lock held, or counts it as dropped. */
static void put_line(struct log *log, enum log_level level, const uint8_t *line, size_t len)
{
    if (len > QUEUE_BYTES - log->queued) {
        atomic_fetch_add_explicit(&log->dropped, 1, memory_order_relaxed);
        return;
    }
    memcpy(log->queue + log->queued, line, len);
    wake_for_line(log, level);
    log->queued += len;
}

/* Ends the window of a message, with the lock held, and writes how many lines were held back. */
static void tell_held_back(struct log *log, struct kind *kind)
{
    uint8_t line[LINE_MAX_BYTES];
    const struct log_field fields[] = {LOG_TEXT("like", kind->message), LOG_U64("lines", kind->held_back)};
    if (kind->held_back)
        put_line(log, kind->level, line,
                 format_line(line, kind->level, "more of these were held back", fields, 2));
    *kind = (struct kind){.message = NULL};
}

/* Returns the place of a message, with the lock held: its own, a free one, or the one whose window began first. */
static struct kind *kind_of(struct log *log, const char *message)
{
    struct kind *best = &log->kinds[0];
    for (size_t i = 0; i < KINDS; i++) {
        struct kind *kind = &log->kinds[i];
        if (kind->message && (kind->message == message || strcmp(kind->message, message) == 0))
            return kind;
        if (best->message && (!kind->message || kind->since < best->since))
            best = kind;
    }
    tell_held_back(log, best);
    return best;
}

/* Counts a line of the message, with the lock held, and returns whether it may be written. */
static bool may_pass(struct log *log, enum log_level level, const char *message)
{
    int64_t now = now_ms();
    struct kind *kind = kind_of(log, message);
    if (kind->message && now - kind->since >= LOG_WINDOW_MS)
        tell_held_back(log, kind);
    if (!kind->message)
        *kind = (struct kind){.message = message, .since = now};
    kind->level = level;
    if (kind->lines++ < LOG_BURST)
        return true;
    if (!kind->held_back++)
        pthread_cond_signal(&log->wake); /* the thread then waits for the end of the window */
    atomic_fetch_add_explicit(&log->held_back, 1, memory_order_relaxed);
    return false;
}

void log_fields_audit(struct log *log, enum log_level level, const char *message,
                      const struct log_field *fields, size_t count)
{
    if (!log || level < log->level)
        return;
    uint8_t line[LINE_MAX_BYTES];
    size_t len = format_line(line, level, message, fields, count);
    pthread_mutex_lock(&log->lock);
    put_line(log, level, line, len);
    pthread_mutex_unlock(&log->lock);
}

void log_fields(struct log *log, enum log_level level, const char *message, const struct log_field *fields,
                size_t count)
{
    if (!log || level < log->level)
        return;
    if (level > LOG_DEBUG) {
        pthread_mutex_lock(&log->lock);
        bool passes = may_pass(log, level, message);
        pthread_mutex_unlock(&log->lock);
        if (!passes)
            return;
    }
    log_fields_audit(log, level, message, fields, count);
}

/* ---- the thread ---- */

/* Reports the held back lines of messages whose window has ended, or of all, with the lock held. Returns the end of the next window, or 0
 * if nothing is held back. */
static int64_t tell_all_held_back(struct log *log, bool all)
{
    int64_t now = now_ms(), next = 0;
    for (size_t i = 0; i < KINDS; i++) {
        struct kind *kind = &log->kinds[i];
        int64_t end = kind->since + LOG_WINDOW_MS;
        if (!kind->message || !kind->held_back)
            continue;
        if (all || now >= end)
            tell_held_back(log, kind);
        else if (!next || end < next)
            next = end;
    }
    return next;
}

/* Waits for a signal, with the lock held, but no longer than until `end` [ms of the monotonic clock], if that is not 0. */
static void wait_until(struct log *log, int64_t end)
{
    const struct timespec until = {end / 1000, end % 1000 * 1000000};
    if (end)
        (void)pthread_cond_timedwait(&log->wake, &log->lock, &until);
    else
        pthread_cond_wait(&log->wake, &log->lock);
}

/* Waits with the lock held until there are lines, the log ends, or held back lines have to be reported. After a write the thread pauses,
 * so that the next lines share one write. */
static void wait_for_lines(struct log *log)
{
    log->rests = true;
    while (!log->stopping && !log->urgent && now_ms() < log->rest_end)
        wait_until(log, log->rest_end);
    log->rests = log->urgent = false;
    for (;;) {
        int64_t next = tell_all_held_back(log, log->stopping);
        if (log->queued || log->stopping)
            return;
        wait_until(log, next);
    }
}

/* Returns whether the time for writing after log_free is over. */
static bool out_of_time(struct log *log)
{
    pthread_mutex_lock(&log->lock);
    bool over = log->stopping && now_ms() >= log->deadline;
    pthread_mutex_unlock(&log->lock);
    return over;
}

/* Writes everything, or counts the lines that could not be written. */
static void write_all(struct log *log, struct slice text)
{
    while (text.len && !out_of_time(log)) {
        struct pollfd ready = {.fd = log->fd, .events = POLLOUT};
        if (poll(&ready, 1, 100) <= 0)
            continue;
        /* Only whole lines are written, so that lines of other writers of the same pipe come between ours, not into one. */
        size_t len = text.len < LINE_MAX_BYTES ? text.len : LINE_MAX_BYTES;
        while (text.at[len - 1] != '\n')
            len--;
        ssize_t n = send(log->fd, text.at, len, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n < 0 && errno == ENOTSOCK) /* does not block: poll said so */
            n = write(log->fd, text.at, len);
        if (n > 0)
            text = slice_from(text, (size_t)n);
        else if (n < 0 && errno != EINTR && errno != EAGAIN)
            break;
    }
    uint64_t lost = 0;
    for (size_t i = 0; i < text.len; i++)
        lost += text.at[i] == '\n';
    atomic_fetch_add_explicit(&log->dropped, lost, memory_order_relaxed);
}

/* Waits for lines and takes all of them. Returns false if the log ends and no line is left. */
static bool take(struct log *log, struct slice *text)
{
    pthread_mutex_lock(&log->lock);
    wait_for_lines(log);
    uint8_t *filled = log->queue;
    log->queue = log->writing;
    log->writing = filled;
    *text = slice_of(filled, log->queued);
    log->queued = 0;
    log->rest_end = now_ms() + REST_MS;
    pthread_mutex_unlock(&log->lock);
    return text->len > 0;
}

static void discard(struct log *log)
{
    pthread_cond_destroy(&log->wake);
    pthread_mutex_destroy(&log->lock);
    free(log->queue);
    free(log->writing);
    free(log);
}

static void *run_log_thread(void *context)
{
    struct log *log = context;
    struct slice text;
    while (take(log, &text))
        write_all(log, text);
    pthread_mutex_lock(&log->lock);
    bool left = log->left;
    log->ended = true;
    pthread_cond_signal(&log->wake);
    pthread_mutex_unlock(&log->lock);
    if (left)
        discard(log);
    return NULL;
}

/* Starts the thread with all signals blocked, so that other threads handle them and a broken pipe gives EPIPE. */
static bool start(struct log *log)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    bool started = pthread_create(&log->thread, NULL, run_log_thread, log) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return started;
}

struct log *log_new(int fd, enum log_level level)
{
    struct log *log = calloc(1, sizeof *log);
    if (!log)
        return NULL;
    log->fd = fd;
    log->level = level;
    log->queue = malloc(QUEUE_BYTES);
    log->writing = malloc(QUEUE_BYTES);
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&log->wake, &monotonic);
    pthread_condattr_destroy(&monotonic);
    pthread_mutex_init(&log->lock, NULL);
    if (log->queue && log->writing && start(log))
        return log;
    discard(log);
    return NULL;
}

/* Waits for the thread, with the lock held. A thread may hang in a write although poll said that the descriptor is ready, as with a
 * terminal that was stopped. It is then abandoned, until the write succeeds or the process ends. */
static bool has_ended(struct log *log)
{
    int64_t end = log->deadline + PATIENCE_MS;
    const struct timespec until = {end / 1000, end % 1000 * 1000000};
    while (!log->ended && pthread_cond_timedwait(&log->wake, &log->lock, &until) == 0)
        ;
    log->left = !log->ended;
    if (log->left)
        pthread_detach(log->thread);
    return log->ended;
}

void log_free(struct log *log)
{
    if (!log)
        return;
    pthread_mutex_lock(&log->lock);
    log->stopping = true;
    log->deadline = now_ms() + LAST_WORDS_MS;
    pthread_cond_signal(&log->wake);
    bool ended = has_ended(log);
    pthread_mutex_unlock(&log->lock);
    if (!ended)
        return;
    pthread_join(log->thread, NULL);
    discard(log);
}

uint64_t log_dropped(const struct log *log)
{
    return log ? atomic_load_explicit(&log->dropped, memory_order_relaxed) : 0;
}

uint64_t log_held_back(const struct log *log)
{
    return log ? atomic_load_explicit(&log->held_back, memory_order_relaxed) : 0;
}
