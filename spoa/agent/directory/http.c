/* SPDX-License-Identifier: MIT */
/*
 * The directory kind `http`: a cell's control plane. The agent asks it for one sandbox at a time by GET {url}/v1/sandboxes/{id}, sends
 * changes as server-sent events from GET {url}/v1/events, and wakes a sandbox upon POST
 * {url}/v1/sandboxes/{id}/wake. docs/directory.md is the contract.
 *
 * After any event, one call of `look` at the end of the loop's turn checks everything.
 */
#include <stdlib.h>

#include "spoa/agent/directory/http_call.h"
#include "spoa/agent/directory/http_loop.h"
#include "spoa/agent/directory/http_stream.h"

#define CALLS_MAX 64                   /* maximum number of requests in flight */
#define WAKES_MAX 8                    /* of them wakes, so that slow wakes do not delay look-ups */
#define PAUSE     (100 * MILLISECOND)  /* time without requests after nobody answered */
#define LOG_PAUSE SECOND               /* minimum time between two log lines about bad answers */
#define SCRATCH   ((size_t)128 * 1024) /* memory for ports and headers of one record */

struct directory_http_options {
    struct directory_common common;
    char *url, *token_file, *ca_file;
    int64_t timeout; /* maximum time of one request [ms] */
};

/* A question that waits for a free call or is in flight. */
struct question {
    struct directory_question question;
    uint64_t deadline; /* time of loop_clock after which the question is not sent any more */
};

/* One of the calls. */
struct asking {
    struct http_call call;
    struct question *question; /* NULL if the call is free */
    uint64_t begun;            /* time of loop_clock */
};

struct directory_http {
    const struct directory_http_options *options;
    struct directory *directory;
    struct log *log;
    struct http_loop http;

    struct directory_http_target target;
    struct directory_http_stream stream;
    struct directory_questions waiting, wakes; /* look-ups and wakes without a call */
    struct asking asking[CALLS_MAX];
    size_t busy, waking; /* number of calls in flight, and of the wakes among them */
    /* Times of loop_clock, or 0: the last good answer, the end of a pause, the last log line. */
    uint64_t last_good, paused_until, logged;
    bool reachable; /* the last attempt got an answer */
    bool known;     /* health was reported; the last report follows */
    bool answering, pushing;
    bool was_bad; /* the last answer was a refusal */
    uint8_t scratch[SCRATCH];
};

/* ---- health ---- */

static void http_tell_health(struct directory_http *d, bool answering, const char *why)
{
    d->known = true;
    d->answering = answering;
    d->pushing = d->stream.open;
    directory_health(d->directory, answering, d->pushing, why);
}

/* Notes an answer that shows that the control plane works. */
static void note_good(struct directory_http *d)
{
    bool news = !d->known || !d->answering;
    d->last_good = loop_clock();
    d->paused_until = 0;
    d->was_bad = false;
    if (news)
        directory_http_stream_hurry(&d->stream, d->last_good);
    http_tell_health(d, true, "");
}

/* Notes a status that speaks against the control plane as a whole although it works for others. Only the second one in a row is
 * reported, because the first one may be about this sandbox alone. `pause`: time that it asked for [µs]. */
static void note_refusal(struct directory_http *d, uint64_t pause, const char *why)
{
    if (pause)
        d->paused_until = loop_clock() + pause;
    if (d->was_bad || !d->known)
        http_tell_health(d, false, why);
    d->was_bad = true;
}

/* Notes that a request which began at `begun` got no answer. If others were answered meanwhile, this says nothing about them. */
static void note_silence(struct directory_http *d, uint64_t begun, const char *why)
{
    if (d->last_good >= begun)
        return;
    d->reachable = false;
    d->paused_until = loop_clock() + PAUSE;
    http_tell_health(d, false, why);
}

/* Logs a bad answer or a failed wake, but not more often than once in LOG_PAUSE. */
static void log_oddity(struct directory_http *d, const char *message, struct slice key, const char *why)
{
    uint64_t now = loop_clock();
    if (d->logged && now < d->logged + LOG_PAUSE)
        return;
    d->logged = now;
    log_write(d->log, LOG_WARN, message, LOG_SLICE("sandbox", key), LOG_TEXT("error", why));
}

/* ---- questions ---- */

/* Ends a question without an answer. */
static void end_unknown(struct question *q)
{
    directory_answer(&q->question, LOOKUP_UNAVAILABLE, NULL, 0);
}

static struct question *first_of(const struct directory_questions *all)
{
    return (struct question *)(void *)all->first;
}

static struct question *take_question(struct directory_questions *all)
{
    return (struct question *)(void *)directory_questions_take(all);
}

/* Tries a wake again later, because a tunnel may wait for it and nobody else asks; the queue limits the attempts. */
static void wake_later(struct directory_http *d, struct question *q)
{
    if (directory_wake_again(&q->question))
        return;
    log_oddity(d, "directory: the sandbox is not woken", q->question.key, "no answer in time");
    end_unknown(q);
}

static void give_up(struct directory_http *d, struct question *q)
{
    if (q->question.wake)
        wake_later(d, q);
    else
        end_unknown(q);
}

/* Gives up questions after their deadline, and all during a pause, when waiting is of no use. Deadlines are in the order in which
 * the questions came. */
static void give_up_late(struct directory_http *d, struct directory_questions *all, uint64_t now)
{
    for (const struct question *q; (q = first_of(all)) && (now < d->paused_until || now >= q->deadline);)
        give_up(d, take_question(all));
}

/* Sends a question by a free call, or ends the question if that fails. */
static void begin_request(struct directory_http *d, struct asking *a, struct question *q, uint64_t now)
{
    char path[4 * DIRECTORY_HTTP_KEY_MAX + 64];
    struct fail why;
    const struct http_call_request request = {.path = path,
                                              .method = q->question.wake ? "POST" : NULL,
                                              .body = "",
                                              .milliseconds = (long)d->options->timeout};
    if (!directory_http_target_path(q->question.key, q->question.wake ? "/wake" : "", path, sizeof path))
        fail(&why, "its id is too long");
    else if (http_call_begin(&a->call, d->http.multi, &d->target, &request, &why)) {
        a->question = q;
        a->begun = now;
        d->busy++;
        d->waking += q->question.wake;
        return;
    }
    log_oddity(d, "directory: cannot ask", q->question.key, why.text);
    http_tell_health(d, d->known && d->answering, why.text);
    give_up(d, q);
}

/* Returns whether a look-up may be sent. While nobody answers, one at a time is sent to find out; wakes do not count for that. */
static bool may_look_up(const struct directory_http *d)
{
    return d->waiting.first && d->busy < CALLS_MAX && (d->reachable || d->busy == d->waking);
}

/* Returns whether a wake may be sent. */
static bool may_wake(const struct directory_http *d)
{
    return d->wakes.first && d->busy < CALLS_MAX && d->waking < WAKES_MAX && (d->reachable || d->busy == 0);
}

static void begin_waiting(struct directory_http *d, uint64_t now)
{
    for (size_t i = 0; may_look_up(d) || may_wake(d);)
        if (d->asking[i].question)
            i++;
        else if (may_wake(d)) /* first, or look-ups could take every free call */
            begin_request(d, &d->asking[i], take_question(&d->wakes), now);
        else
            begin_request(d, &d->asking[i], take_question(&d->waiting), now);
}

/* ---- answers ---- */

/* Ends a wake by its status. */
static void end_wake(struct directory_http *d, struct question *q, unsigned status)
{
    char text[64];
    snprintf(text, sizeof text, "status %u", status);
    if (status == 429 || status >= 500)
        return wake_later(d, q);
    if (status >= 200 && status < 300)
        directory_announced(d->directory, q->question.key);
    else
        log_oddity(d, "directory: the sandbox is not woken", q->question.key, text);
    end_unknown(q);
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
        log_oddity(d, "directory: an answer cannot be used", q->question.key, why.text);
    directory_answer(&q->question, f.outcome, f.outcome == LOOKUP_FOUND ? &f.record : NULL, f.ttl);
    json_free(f.doc);
}

/* Ends the question of a call. */
static void end_request(struct directory_http *d, struct asking *a, CURLcode result)
{
    struct directory_http_reply reply = {.status = 0};
    struct fail why;
    struct question *q = a->question;
    a->question = NULL;
    d->busy--;
    d->waking -= q->question.wake;
    if (!http_call_end(&a->call, d->http.multi, result, &reply, &why)) {
        if (!q->question.wake) /* a slow wake says nothing about look-ups */
            note_silence(d, a->begun, why.text);
        return give_up(d, q);
    }
    d->reachable = true;
    if (q->question.wake)
        end_wake(d, q, reply.status);
    else
        end_look_up(d, q, &reply);
}

/* ---- the stream ---- */

/* Notes why the stream of events ended. */
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
        log_write(d->log, LOG_WARN, "directory: the control plane does not push changes any more",
                  LOG_TEXT("error", s->why.text));
    http_tell_health(d, d->answering, s->why.text);
}

/* Notes that the stream of events was opened. */
static void note_stream(struct directory_http *d)
{
    if (d->stream.open && !d->pushing) {
        d->reachable = true;
        note_good(d);
    }
}

/* ---- the loop ---- */

/* Takes the transfers that have ended. */
static void read_ended(struct directory_http *d)
{
    int left;
    for (CURLMsg *m; (m = curl_multi_info_read(d->http.multi, &left));) {
        CURLcode result = m->data.result;
        if (m->easy_handle == d->stream.easy) {
            directory_http_stream_end(&d->stream, d->http.multi, result, loop_clock());
            note_stream_end(d);
            continue;
        }
        for (size_t i = 0; i < CALLS_MAX; i++)
            if (d->asking[i].question && d->asking[i].call.easy == m->easy_handle) {
                end_request(d, &d->asking[i], result);
                break;
            }
    }
}

/* Returns when `look` must run again if nothing happens before. */
static uint64_t next_look(const struct directory_http *d)
{
    uint64_t next = directory_http_stream_next(&d->stream);
    if (may_look_up(d) || may_wake(d))
        return 0;
    if (d->waiting.first && first_of(&d->waiting)->deadline < next)
        next = first_of(&d->waiting)->deadline;
    if (d->wakes.first && first_of(&d->wakes)->deadline < next)
        next = first_of(&d->wakes)->deadline;
    return next;
}

/* Ends what has ended, and begins what may begin. What ends comes first, because it frees calls. */
static void look(void *context)
{
    struct directory_http *d = context;
    note_stream(d);
    read_ended(d);
    uint64_t now = loop_clock();
    size_t busy = d->busy;
    give_up_late(d, &d->waiting, now);
    give_up_late(d, &d->wakes, now);
    begin_waiting(d, now);
    if (!directory_http_stream_step(&d->stream, d->http.multi, &d->target, now))
        note_stream_end(d);
    if (d->busy > busy) { /* send now, not when libcurl's timer expires */
        http_loop_go(&d->http);
        note_stream(d);
        read_ended(d);
    }
    http_loop_at(&d->http, next_look(d));
}

/* ---- the kind ---- */

static void http_ask(void *self, struct directory_question *question)
{
    struct directory_http *d = self;
    struct question *q = (struct question *)(void *)question;
    q->deadline = loop_clock() + (uint64_t)d->options->timeout * MILLISECOND;
    directory_questions_put(question->wake ? &d->wakes : &d->waiting, question);
    http_loop_soon(&d->http);
}

static void end_all(struct directory_questions *all)
{
    for (struct question *q; (q = take_question(all));)
        end_unknown(q);
}

static void http_stop(void *self)
{
    struct directory_http *d = self;
    for (size_t i = 0; i < CALLS_MAX; i++) {
        if (d->asking[i].question)
            end_unknown(d->asking[i].question);
        http_call_free(&d->asking[i].call, d->http.multi);
    }
    directory_http_stream_free(&d->stream, d->http.multi);
    directory_http_target_free(&d->target);
    end_all(&d->waiting);
    end_all(&d->wakes);
    http_loop_stop(&d->http, free, d);
}

static void *http_start(const void *options, struct directory *directory, struct loop *loop, struct log *log,
                        struct fail *why)
{
    struct directory_http *d = calloc(1, sizeof *d);
    if (!d) {
        fail(why, "out of memory");
        return NULL;
    }
    if (!http_loop_start(&d->http, loop, look, d, why)) {
        free(d);
        return NULL;
    }
    d->options = options;
    d->directory = directory;
    d->log = log;
    d->reachable = true;
    directory_http_target_init(&d->target, d->options->url, d->options->token_file, d->options->ca_file);
    directory_http_stream_init(&d->stream, directory, (uint64_t)d->options->timeout * MILLISECOND,
                               writer_of(d->scratch, sizeof d->scratch));
    return d;
}

static bool http_check(const void *options, struct fail *why)
{
    return directory_http_target_check(((const struct directory_http_options *)options)->url, why);
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
     .help = "authorities (PEM) for its certificate; not set: the system's"},
    {.key = "timeout",
     .type = OPTION_DURATION,
     .offset = offsetof(struct directory_http_options, timeout),
     .fallback = "2s",
     .help = "maximum time of one request",
     .min = 50,
     .max = 60 * OPTION_SECOND},
    DIRECTORY_CACHE_OPTIONS(struct directory_http_options, "3s"),
};

const struct directory_kind directory_kind_http = {
    .name = "http",
    .options = table,
    .options_count = sizeof table / sizeof *table,
    .options_size = sizeof(struct directory_http_options),
    .check = http_check,
    .start = http_start,
    .question_size = sizeof(struct question),
    .ask = http_ask,
    .wakes = true,
    .look_ups_at_once = CALLS_MAX,
    .wakes_at_once = WAKES_MAX,
    .stop = http_stop,
};
