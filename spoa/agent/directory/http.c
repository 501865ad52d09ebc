/* SPDX-License-Identifier: MIT */
#include "spoa/agent/directory/http.h"

#include <stdlib.h>

#include "spoa/agent/directory/http_call.h"
#include "spoa/agent/directory/http_stream.h"
#include "spoa/base/thread.h"

#define CALLS_MAX  64                  /* to the control plane at a time; half are left to those who wait */
#define WAKES_MAX  8                   /* of them, so that those that hang hold up no look-up */
#define HELD_MAX   65536               /* questions that wait or are being asked */
#define PAUSE      ((uint64_t)100000)  /* microseconds without a question, after nobody answered */
#define LOG_PAUSE  ((uint64_t)1000000) /* microseconds between two lines about odd answers */
#define TURN_MAX   1000                /* milliseconds */
#define WAKE_AGAIN ((uint64_t)500000)  /* microseconds between attempts to have one sandbox woken */
/* Microseconds after which nobody waits any more; relay.hold, if not set. */
#define WAKE_MOST ((uint64_t)30000000)
#define SCRATCH   ((size_t)128 * 1024) /* ports and headers of one record */

struct question {
    struct question *next;
    uint64_t deadline; /* of loop_clock(): if it was not begun by then, it is not asked any more */
    bool wake;
    uint64_t again, wanted_until; /* a wake: the next attempt, and the last */
    size_t len;
    uint8_t key[];
};

struct asking {
    struct directory_http_call call;
    struct question *question; /* NULL: this call is free */
    uint64_t begun;
};

struct directory_http {
    const struct directory_http_options *options;
    const struct directory_sink *sink;
    struct log *log;
    pthread_t thread;
    CURLM *multi;

    pthread_mutex_t lock; /* of these */
    struct question *inbox, **inbox_end;
    size_t held;
    bool stopping;

    /* of the thread: */
    struct directory_http_target target;
    struct directory_http_stream stream;
    struct question *waiting, **waiting_end; /* look-ups */
    struct question *wakes, **wakes_end;
    struct question *unheard,
        **unheard_end; /* wakes that nobody has answered, in the order of their next attempts */
    struct asking asking[CALLS_MAX];
    size_t busy, waking; /* calls; those that wake */
    uint64_t last_good, paused_until, logged;
    bool reachable; /* the last one who tried got an answer */
    bool known, answering, pushing, was_bad;
    uint8_t scratch[SCRATCH];
};

static struct slice key_of(const struct question *q)
{
    return slice_of(q->key, q->len);
}

/* ---- health ---- */

static void tell_health(struct directory_http *d, bool answering, const char *why)
{
    bool pushing = d->stream.open;
    if (d->known && d->answering == answering && d->pushing == pushing)
        return;
    d->known = true;
    d->answering = answering;
    d->pushing = pushing;
    d->sink->health(d->sink->context, answering, pushing, answering ? "" : why);
}

static void note_good(struct directory_http *d)
{
    bool news = !d->known || !d->answering;
    d->last_good = loop_clock();
    d->paused_until = 0;
    d->was_bad = false;
    if (news)
        directory_http_stream_hurry(&d->stream, d->last_good);
    tell_health(d, true, "");
}

/* A status that speaks against the control plane as a whole, while it is well with others: the second in a row
 * counts, as the first may be this one sandbox's. */
static void note_refusal(struct directory_http *d, double pause, const char *why)
{
    if (pause > 0)
        d->paused_until = loop_clock() + (uint64_t)(pause * 1e6);
    if (d->was_bad || !d->known)
        tell_health(d, false, why);
    d->was_bad = true;
}

/* No answer, to a request that began then. With others answered meanwhile it is this one's own affair. */
static void note_silence(struct directory_http *d, uint64_t begun, const char *why)
{
    if (d->last_good >= begun)
        return;
    d->reachable = false;
    d->paused_until = loop_clock() + PAUSE;
    tell_health(d, false, why);
}

static void log_oddity(struct directory_http *d, const char *message, struct slice key, const char *why)
{
    uint64_t now = loop_clock();
    if (d->logged && now < d->logged + LOG_PAUSE)
        return;
    d->logged = now;
    log_write(d->log, LOG_WARN, message, LOG_SLICE("sandbox", key), LOG_TEXT("error", why));
}

/* ---- questions ---- */

static void drop(struct directory_http *d, struct question *q)
{
    pthread_mutex_lock(&d->lock);
    d->held--;
    pthread_mutex_unlock(&d->lock);
    free(q);
}

static void put_last(struct question ***end, struct question *q)
{
    q->next = NULL;
    **end = q;
    *end = &q->next;
}

static struct question *take_first(struct question **first, struct question ***end)
{
    struct question *q = *first;
    *first = q->next;
    if (!*first)
        *end = first;
    return q;
}

/* A tunnel may wait for it, and nobody else will ask. */
static void wake_later(struct directory_http *d, struct question *q)
{
    uint64_t now = loop_clock();
    if (now >= q->wanted_until) {
        log_oddity(d, "directory: the sandbox is not woken", key_of(q), "no answer in time");
        return drop(d, q);
    }
    q->again = now + WAKE_AGAIN;
    put_last(&d->unheard_end, q);
}

static void wait_again(struct directory_http *d, uint64_t now)
{
    for (struct question *q; (q = d->unheard) && q->again <= now;) {
        if (!(d->unheard = q->next))
            d->unheard_end = &d->unheard;
        q->deadline = now + (uint64_t)d->options->timeout * 1000;
        put_last(&d->wakes_end, q);
    }
}

static void give_up(struct directory_http *d, struct question *q)
{
    if (q->wake)
        return wake_later(d, q);
    d->sink->answered(d->sink->context, key_of(q), LOOKUP_UNAVAILABLE, NULL, -1);
    drop(d, q);
}

static void take_inbox(struct directory_http *d)
{
    pthread_mutex_lock(&d->lock);
    struct question *q = d->inbox, *next;
    d->inbox = NULL;
    d->inbox_end = &d->inbox;
    pthread_mutex_unlock(&d->lock);
    for (; q; q = next) {
        next = q->next;
        put_last(q->wake ? &d->wakes_end : &d->waiting_end, q);
    }
}

static bool is_late(const struct directory_http *d, const struct question *q, uint64_t now)
{
    return q && (now < d->paused_until || now >= q->deadline);
}

/* Deadlines are in the order in which they were asked. While nobody answers, or asks us to wait, waiting is of
 * no use. */
static void give_up_late(struct directory_http *d, uint64_t now)
{
    while (is_late(d, d->waiting, now))
        give_up(d, take_first(&d->waiting, &d->waiting_end));
    while (is_late(d, d->wakes, now))
        give_up(d, take_first(&d->wakes, &d->wakes_end));
}

static void begin(struct directory_http *d, struct asking *a, struct question *q, uint64_t now)
{
    char path[4 * DIRECTORY_HTTP_KEY_MAX + 64];
    struct fail why;
    if (!directory_http_target_path(key_of(q), q->wake ? "/wake" : "", path, sizeof path))
        fail(&why, "its id is too long");
    else if (directory_http_call_begin(&a->call, d->multi, &d->target, path, q->wake,
                                       (long)d->options->timeout, &why)) {
        a->question = q;
        a->begun = now;
        d->busy++;
        d->waking += q->wake;
        return;
    }
    log_oddity(d, "directory: cannot ask", key_of(q), why.text);
    tell_health(d, d->known && d->answering, why.text);
    give_up(d, q);
}

/* One goes ahead where the last got no answer; look-ups do not wait for what wakes. */
static bool may_look_up(const struct directory_http *d)
{
    return d->waiting && d->busy < CALLS_MAX && (d->reachable || d->busy == d->waking);
}

static bool may_wake(const struct directory_http *d)
{
    return d->wakes && d->busy < CALLS_MAX && d->waking < WAKES_MAX && (d->reachable || d->busy == 0);
}

static void begin_waiting(struct directory_http *d, uint64_t now)
{
    for (size_t i = 0; may_look_up(d) || may_wake(d);)
        if (d->asking[i].question)
            i++;
        else if (may_wake(d)) /* they are few, and would find no room while there are always look-ups */
            begin(d, &d->asking[i], take_first(&d->wakes, &d->wakes_end), now);
        else
            begin(d, &d->asking[i], take_first(&d->waiting, &d->waiting_end), now);
}

/* ---- answers ---- */

static void end_wake(struct directory_http *d, struct question *q, unsigned status)
{
    char text[64];
    snprintf(text, sizeof text, "status %u", status);
    if (status == 429 || status >= 500)
        return wake_later(d, q);
    if (status >= 200 && status < 300)
        d->sink->announced(d->sink->context, key_of(q));
    else
        log_oddity(d, "directory: the sandbox is not woken", key_of(q), text);
    drop(d, q);
}

static void end_look_up(struct directory_http *d, struct question *q,
                        const struct directory_http_reply *reply)
{
    struct directory_http_finding f;
    struct fail why = {""};
    struct writer scratch = writer_of(d->scratch, sizeof d->scratch);
    directory_http_answer(reply, &scratch, &f, &why);
    if (f.health == DIRECTORY_HTTP_BAD)
        note_refusal(d, f.pause, why.text);
    else
        note_good(d);
    if (f.health != DIRECTORY_HTTP_GOOD)
        log_oddity(d, "directory: an answer that is of no use", key_of(q), why.text);
    d->sink->answered(d->sink->context, key_of(q), f.outcome, f.outcome == LOOKUP_FOUND ? &f.record : NULL,
                      f.ttl);
    json_free(f.doc);
    drop(d, q);
}

static void end(struct directory_http *d, struct asking *a, CURLcode result)
{
    struct directory_http_reply reply = {.status = 0};
    struct fail why;
    struct question *q = a->question;
    a->question = NULL;
    d->busy--;
    d->waking -= q->wake;
    if (!directory_http_call_end(&a->call, d->multi, result, &reply, &why)) {
        if (!q->wake) /* that may take its time, which says nothing of look-ups */
            note_silence(d, a->begun, why.text);
        return give_up(d, q);
    }
    d->reachable = true;
    if (q->wake)
        end_wake(d, q, reply.status);
    else
        end_look_up(d, q, &reply);
}

/* ---- the stream ---- */

static void note_stream_end(struct directory_http *d)
{
    const struct directory_http_stream *s = &d->stream;
    if (s->status == 0)
        note_silence(d, s->begun, s->why.text);
    else if (s->absent)
        note_good(d);
    else if (!d->known)
        note_refusal(d, 0, s->why.text);
    if (d->pushing)
        log_write(d->log, LOG_WARN, "directory: changes do not come by themselves any more",
                  LOG_TEXT("error", s->why.text));
    tell_health(d, d->answering, s->why.text);
}

static void note_stream(struct directory_http *d)
{
    if (d->stream.open && !d->pushing) {
        d->reachable = true;
        note_good(d);
    }
}

/* ---- the thread ---- */

static void read_ended(struct directory_http *d)
{
    int left;
    for (CURLMsg *m; (m = curl_multi_info_read(d->multi, &left));) {
        CURLcode result = m->data.result;
        if (m->easy_handle == d->stream.easy) {
            directory_http_stream_end(&d->stream, d->multi, result, loop_clock());
            note_stream_end(d);
            continue;
        }
        for (size_t i = 0; i < CALLS_MAX; i++)
            if (d->asking[i].question && d->asking[i].call.easy == m->easy_handle) {
                end(d, &d->asking[i], result);
                break;
            }
    }
}

static int patience(const struct directory_http *d, uint64_t now)
{
    uint64_t next = directory_http_stream_next(&d->stream, &d->target);
    if (may_look_up(d) || may_wake(d))
        return 0;
    if (d->waiting && d->waiting->deadline < next)
        next = d->waiting->deadline;
    if (d->wakes && d->wakes->deadline < next)
        next = d->wakes->deadline;
    if (d->unheard && d->unheard->again < next)
        next = d->unheard->again;
    if (next <= now)
        return 1;
    return (next - now) / 1000 >= TURN_MAX ? TURN_MAX : (int)((next - now) / 1000) + 1;
}

static bool is_stopping(struct directory_http *d)
{
    pthread_mutex_lock(&d->lock);
    bool stopping = d->stopping;
    pthread_mutex_unlock(&d->lock);
    return stopping;
}

static void *run(void *context)
{
    struct directory_http *d = context;
    int running;
    while (!is_stopping(d)) {
        uint64_t now = loop_clock();
        take_inbox(d);
        wait_again(d, now);
        give_up_late(d, now);
        begin_waiting(d, now);
        if (!directory_http_stream_step(&d->stream, d->multi, &d->target, now))
            note_stream_end(d);
        curl_multi_perform(d->multi, &running);
        note_stream(d);
        read_ended(d);
        curl_multi_poll(d->multi, NULL, 0, patience(d, loop_clock()), NULL);
    }
    return NULL;
}

/* ---- for the agent ---- */

static bool ask(struct directory_http *d, struct slice key, bool wake)
{
    struct question *q = malloc(sizeof *q + key.len);
    if (!q)
        return false;
    uint64_t now = loop_clock();
    *q = (struct question){.wake = wake, .len = key.len, .wanted_until = now + WAKE_MOST};
    q->deadline = now + (uint64_t)d->options->timeout * 1000;
    memcpy(q->key, key.at, key.len);
    pthread_mutex_lock(&d->lock);
    bool full = d->held >= HELD_MAX, first = !d->inbox;
    if (!full) {
        put_last(&d->inbox_end, q);
        d->held++;
    }
    pthread_mutex_unlock(&d->lock);
    if (full)
        free(q);
    else if (first)
        curl_multi_wakeup(d->multi);
    return !full;
}

static bool look_up(void *self, struct slice key)
{
    return ask(self, key, false);
}

static void wake(void *self, struct slice key)
{
    ask(self, key, true);
}

static void free_questions(struct question *q)
{
    while (q) {
        struct question *next = q->next;
        free(q);
        q = next;
    }
}

static void destroy(struct directory_http *d)
{
    for (size_t i = 0; i < CALLS_MAX; i++) {
        free(d->asking[i].question);
        directory_http_call_free(&d->asking[i].call, d->multi);
    }
    directory_http_stream_free(&d->stream, d->multi);
    directory_http_target_free(&d->target);
    free_questions(d->waiting);
    free_questions(d->wakes);
    free_questions(d->unheard);
    free_questions(d->inbox);
    curl_multi_cleanup(d->multi);
    pthread_mutex_destroy(&d->lock);
    free(d);
    curl_global_cleanup();
}

static void *start(const void *options, const struct directory_sink *sink, struct log *log, struct fail *why)
{
    if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK) {
        fail(why, "libcurl cannot start");
        return NULL;
    }
    struct directory_http *d = calloc(1, sizeof *d);
    CURLM *multi = d ? curl_multi_init() : NULL;
    if (!multi) {
        free(d);
        curl_global_cleanup();
        fail(why, "out of memory");
        return NULL;
    }
    d->options = options;
    d->sink = sink;
    d->log = log;
    d->multi = multi;
    d->reachable = true;
    d->inbox_end = &d->inbox;
    d->waiting_end = &d->waiting;
    d->wakes_end = &d->wakes;
    d->unheard_end = &d->unheard;
    pthread_mutex_init(&d->lock, NULL);
    directory_http_target_init(&d->target, options);
    directory_http_stream_init(&d->stream, sink, writer_of(d->scratch, sizeof d->scratch));
    if (thread_start(&d->thread, run, d, why))
        return d;
    destroy(d);
    return NULL;
}

static void stop(void *self)
{
    struct directory_http *d = self;
    pthread_mutex_lock(&d->lock);
    d->stopping = true;
    pthread_mutex_unlock(&d->lock);
    curl_multi_wakeup(d->multi);
    pthread_join(d->thread, NULL);
    destroy(d);
}

static bool check(const void *options, struct fail *why)
{
    return directory_http_target_check(options, why);
}

static const struct option table[] = {
    DIRECTORY_KIND_OPTION(struct directory_http_options, "http"),
    {.key = "url",
     .type = OPTION_TEXT,
     .offset = offsetof(struct directory_http_options, url),
     .help = "the control plane, without `/v1`: `http://127.0.0.1:8081`",
     .min = 8,
     .max = 2048},
    {.key = "token_file",
     .type = OPTION_PATH,
     .offset = offsetof(struct directory_http_options, token_file),
     .fallback = OPTION_NONE,
     .help = "sent as `Authorization: Bearer`; read again when it changes",
     .secret = true},
    {.key = "ca_file",
     .type = OPTION_PATH,
     .offset = offsetof(struct directory_http_options, ca_file),
     .fallback = OPTION_NONE,
     .help = "PEM of the authorities that may sign its certificate; none: the system's"},
    {.key = "timeout",
     .type = OPTION_DURATION,
     .offset = offsetof(struct directory_http_options, timeout),
     .fallback = "2s",
     .help =
         "for one request; a look-up also waits as long for its turn",
     .min = 50,
     .max = 60 * OPTION_SECOND},
    DIRECTORY_CACHE_OPTIONS(struct directory_http_options, "3s"),
};

const struct directory_kind directory_kind_http = {
    .name = "http",
    .options = table,
    .options_count = sizeof table / sizeof *table,
    .options_size = sizeof(struct directory_http_options),
    .check = check,
    .start = start,
    .look_up = look_up,
    .wake = wake,
    .stop = stop,
};
