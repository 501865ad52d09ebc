/* SPDX-License-Identifier: MIT */
#include "spoa/agent/directory/kubernetes/watch.h"

#include <inttypes.h>
#include <stdio.h>

#include "spoa/agent/directory/http_target.h"
#include "spoa/agent/directory/kubernetes/json.h"

#define DELAY_MIN  (100 * MILLISECOND)
#define DELAY_MAX  (10 * SECOND)
#define ASKED_MAX  (30 * SECOND)   /* maximum pause that a server may ask for */
#define WATCH_MIN  ((uint64_t)300) /* minimum duration of a requested watch [s] */
#define WATCH_MORE ((uint64_t)60)  /* random part of the duration, added to WATCH_MIN [s] */
#define WATCH_OVER (30 * SECOND)   /* time over that duration after which a watch hangs */
#define GOOD_AFTER SECOND          /* a watch that lived this long succeeded */
#define LIST_MAX   (1800 * SECOND) /* maximum duration of a list */
#define WHOLE_MAX  (120 * SECOND)  /* maximum time until the first byte of a list in one piece */
#define LOG_PAUSE  SECOND          /* minimum time between two log lines about odd objects */
#define TOO_LARGE  "an event of its watch is over 2 MiB"

enum {
    PAGE = 500,        /* objects of a page */
    PAGES_MAX = 40000, /* of one list */
    REFUSALS_MAX = 3   /* refused watches in a row after which the objects are listed again */
};

static const struct kubernetes_resource *resource(const struct kubernetes_watch *w)
{
    return kubernetes_resource_of(w->sort);
}

/* ---- objects ---- */

/* Counts and logs an object that cannot be used. */
static void log_odd(struct kubernetes_watch *w, const struct kubernetes_object *o, const char *why)
{
    w->all->odd++;
    if (w->all->logged && w->last_byte < w->all->logged + LOG_PAUSE)
        return;
    w->all->logged = w->last_byte;
    log_write(w->all->log, LOG_WARN, "directory: an object cannot be used",
              LOG_TEXT("resource", resource(w)->plural), LOG_SLICE("namespace", o->space),
              LOG_SLICE("name", o->name), LOG_TEXT("why", why));
}

/* Puts an object into the store. Returns false if its name is unknown, so that it may be any of the known objects. */
static bool take_object(struct kubernetes_watch *w, struct slice text, bool too_large,
                        struct kubernetes_object *o)
{
    struct kubernetes_watching *all = w->all;
    struct writer scratch = writer_of(all->scratch, sizeof all->scratch);
    struct fail why = {""};
    enum kubernetes_reading reading = kubernetes_object_read(w->sort, &all->slices, text, &scratch, o, &why);
    if (too_large) {
        /* only the name was read, so the record has no more than a state */
        fail(&why, "it is over 2 MiB");
        o->record = (struct record){.state = RECORD_WAKING, .bare = true};
        reading = reading == KUBERNETES_FOUND ? KUBERNETES_ODD : reading;
    }
    if (reading == KUBERNETES_ODD || reading == KUBERNETES_UNREADABLE)
        log_odd(w, o, why.text);
    if (reading == KUBERNETES_UNREADABLE)
        return false;
    if (reading == KUBERNETES_NONE)
        kubernetes_store_remove(all->store, w->source, o->space, o->name);
    else if (!kubernetes_store_put(all->store, w->source, w->sort, o))
        log_odd(w, o, "there is no room for it (max_objects)");
    return true;
}

/* Remembers the version to continue from. */
static void keep_version(struct kubernetes_watch *w, struct slice version)
{
    if (version.len && version.len < sizeof w->at) {
        memcpy(w->at, version.at, version.len);
        w->at[version.len] = '\0';
    }
}

/* Notes the first reason why the present answer is broken. */
static void break_off(struct kubernetes_watch *w, const char *why)
{
    if (!w->broken)
        fail(&w->odd, "%s", why);
    w->broken = true;
}

/* Takes an event of a watch. */
static void on_event(struct kubernetes_watch *w, struct slice text, bool too_large)
{
    enum kubernetes_event event = KUBERNETES_ERROR;
    struct kubernetes_object o = {.space = {NULL, 0}};
    struct slice object;
    struct writer scratch = writer_of(w->all->scratch, sizeof w->all->scratch);
    struct fail why;
    if (!kubernetes_event_read(text, &event, &object, &why))
        return break_off(w, too_large ? TOO_LARGE : why.text);
    w->all->events++;
    if (event == KUBERNETES_ERROR) {
        char message[128];
        unsigned code;
        struct fail ended;
        kubernetes_status_read(object, &code, message, sizeof message);
        w->gone = w->gone || code == 410;
        fail(&ended, "its watch ended with an error (%u): %s", code, message);
        return break_off(w, ended.text);
    }
    bool named = event == KUBERNETES_PUT ? take_object(w, object, too_large, &o)
                                         : kubernetes_object_identify(object, &scratch, &o);
    if (event == KUBERNETES_GONE && named)
        kubernetes_store_remove(w->all->store, w->source, o.space, o.name);
    if (named || event == KUBERNETES_BOOKMARK)
        keep_version(w, o.version);
    else
        break_off(w, too_large ? TOO_LARGE : "an event of its watch names no object");
}

/* Call-back of the stream: an object of a list, or an event. */
static void on_object(void *context, struct slice text, bool too_large)
{
    struct kubernetes_watch *w = context;
    struct kubernetes_object o = {.space = {NULL, 0}};
    if (w->broken)
        return;
    if (w->phase == KUBERNETES_WATCHING)
        on_event(w, text, too_large);
    else if (!take_object(w, text, too_large, &o))
        kubernetes_store_lose(w->all->store, w->source);
}

/* Call-back of the stream: another member of a list's document. */
static void on_member(void *context, struct slice key, struct slice value)
{
    struct kubernetes_watch *w = context;
    struct writer scratch = writer_of(w->all->scratch, sizeof w->all->scratch);
    struct slice one, text;
    if (slice_is(key, "items") && slice_is(value, "null")) /* an empty list */
        w->stream.has_items = true;
    if (!slice_is(key, "metadata"))
        return;
    if (kubernetes_json_member(value, "resourceVersion", &one) && kubernetes_json_text(one, &scratch, &text))
        keep_version(w, text);
    if (!kubernetes_json_member(value, "continue", &one) || kubernetes_json_is(one, ""))
        return;
    if (kubernetes_json_text(one, &scratch, &text) && text.len < sizeof w->next) {
        memcpy(w->next, text.at, text.len);
        w->next[text.len] = '\0';
    } else {
        break_off(w, "the `continue` of its list makes no sense");
    }
}

/* ---- answers ---- */

void kubernetes_watch_head(struct kubernetes_watch *w, unsigned status, uint64_t now)
{
    w->last_byte = now;
    w->status = status;
    if (status != 200 || w->phase != KUBERNETES_WATCHING)
        return;
    w->open = true;
    w->failing = false;
    w->told.text[0] = '\0';
    w->refusals = 0;
}

bool kubernetes_watch_body(struct kubernetes_watch *w, struct slice bytes, uint64_t now)
{
    w->last_byte = now;
    if (w->status != 200) {
        /* the beginning of an error's body is kept for its message */
        size_t room = sizeof w->answer - w->answer_len;
        struct slice part = slice_sub(bytes, 0, room);
        memcpy(w->answer + w->answer_len, part.at, part.len);
        w->answer_len += part.len;
        return bytes.len <= room;
    }
    if (!w->broken && !kubernetes_stream_feed(&w->stream, bytes, &w->odd))
        w->broken = true;
    return !w->broken;
}

/* ---- requests ---- */

void kubernetes_path(struct writer *w, enum kubernetes_sort sort, size_t version, struct slice space)
{
    const struct kubernetes_resource *r = kubernetes_resource_of(sort);
    writer_text(w, "/apis/");
    writer_text(w, r->group);
    writer_u8(w, '/');
    writer_text(w, r->versions[version]);
    if (slice_present(space)) {
        writer_text(w, "/namespaces/");
        directory_http_target_encode(w, space);
    }
    writer_u8(w, '/');
    writer_text(w, r->plural);
}

static void put_parameter(struct writer *w, const char *name, const char *value)
{
    writer_text(w, name);
    directory_http_target_encode(w, slice_text(value));
}

/* Writes the label selector: that of the resource or the label of EndpointSlices, and the operator's. */
static void put_selector(const struct kubernetes_watch *w, struct writer *to)
{
    const char *own = w->sort == KUBERNETES_ENDPOINT_SLICES ? w->all->slices.label : resource(w)->selector;
    const char *parts[] = {own, w->all->selector};
    bool any = false;
    for (size_t i = 0; i < 2; i++)
        if (parts[i]) {
            put_parameter(to, any ? "%2C" : "&labelSelector=", parts[i]);
            any = true;
        }
}

/* Writes the path and the query of the next request. */
static void put_request(const struct kubernetes_watch *w, struct writer *to)
{
    kubernetes_path(to, w->sort, w->version, slice_text(w->space));
    if (w->phase == KUBERNETES_WATCHING) {
        /* the duration has a random part, so that agents which began together do not ask together */
        struct backoff chance = {.least = WATCH_MORE, .most = WATCH_MORE, .jitter = 100};
        writer_printf(to, "?watch=1&allowWatchBookmarks=true&timeoutSeconds=%" PRIu64,
                      WATCH_MIN + backoff_next(&chance));
        put_parameter(to, "&resourceVersion=", w->at);
    } else if (w->paged) {
        writer_printf(to, "?limit=%d", PAGE);
        if (w->page[0])
            put_parameter(to, "&continue=", w->page);
    } else {
        writer_text(to, "?limit=0");
    }
    put_selector(w, to);
}

/* Plans the next request. */
static void plan(struct kubernetes_watch *w, uint64_t due)
{
    w->phase = KUBERNETES_IDLE;
    w->open = false;
    w->due = due;
}

/* Notes a failure, and logs it unless it is the last one again. */
static void note_failure(struct kubernetes_watch *w, const char *why)
{
    w->failing = true;
    w->all->errors++;
    fail(&w->why, "%s%s%s: %.200s", resource(w)->plural, w->space ? " in " : "", w->space ? w->space : "",
         why);
    if (strcmp(w->told.text, w->why.text) == 0)
        return;
    w->told = w->why;
    log_write(w->all->log, LOG_ERROR, "directory: a request to the API server failed",
              LOG_TEXT("why", w->why.text));
}

/* Prepares the next request. */
static void begin(struct kubernetes_watch *w, uint64_t now)
{
    w->phase = w->listed ? KUBERNETES_WATCHING : KUBERNETES_LISTING;
    if (!w->listed && !w->page[0]) {
        w->pages = 0;
        w->list_begun = now;
        kubernetes_store_list(w->all->store, w->source);
    }
    if (!w->listed)
        w->at[0] = '\0';
    w->next[0] = w->odd.text[0] = '\0';
    w->status = 0;
    w->answer_len = 0;
    w->broken = w->gone = w->open = false;
    w->begun = w->last_byte = now;
    kubernetes_stream_begin(&w->stream, w->listed ? KUBERNETES_WATCH : KUBERNETES_LIST);
}

/* ---- the end of a request ---- */

/* Returns the time of the next attempt after a failure. */
static uint64_t later(struct kubernetes_watch *w, uint64_t retry_after, uint64_t now)
{
    uint64_t step = backoff_next(&w->backoff);
    bool asked = w->status == 429 || w->status == 503;
    uint64_t pause = !asked ? 0 : retry_after < ASKED_MAX / SECOND ? retry_after * SECOND : ASKED_MAX;
    return now + (pause > step ? pause : step);
}

/* Explains a status other than 200. */
static void explain_status(struct kubernetes_watch *w, struct fail *why)
{
    char message[128];
    unsigned code;
    kubernetes_status_read(slice_of(w->answer, w->answer_len), &code, message, sizeof message);
    if (w->status == 401)
        fail(why, "status 401: the API server refuses the token");
    else if (w->status == 403)
        fail(why, "status 403: RBAC lacks `%s` on %s.%s%s%s",
             w->phase == KUBERNETES_WATCHING ? "watch" : "list", resource(w)->plural, resource(w)->group,
             w->space ? " in " : " in all namespaces", w->space ? w->space : "");
    else if (w->status == 404)
        fail(why, "status 404: the cluster does not have %s/%s", resource(w)->group,
             resource(w)->versions[w->version]);
    else
        fail(why, "status %u %s", w->status, message);
}

/* Explains the end of a request. */
static void explain(struct kubernetes_watch *w, const char *error, struct fail *why)
{
    if (w->odd.text[0])
        *why = w->odd;
    else if (w->status && w->status != 200)
        explain_status(w, why);
    else
        fail(why, "%.200s", error ? error : "its answer is cut");
}

/* Takes a complete list: objects that it has not named are removed. */
static void finish_list(struct kubernetes_watch *w, uint64_t now)
{
    bool room = kubernetes_store_listed(w->all->store, w->source);
    w->all->lists++;
    w->twice = room && !w->twice; /* objects that did not fit may fit now, beside those that remain */
    w->listed = !w->twice;
    w->listed_once = true;
    w->paged = true;
    w->failing = false;
    w->told.text[0] = '\0';
    w->contact = now;
    w->refusals = 0;
    w->page[0] = '\0';
    plan(w, now);
}

/* Takes a failed list, and plans the next attempt. */
static void fail_list(struct kubernetes_watch *w, const char *error, uint64_t retry_after, uint64_t now)
{
    struct fail why;
    explain(w, error, &why);
    note_failure(w, why.text);
    w->all->lists_failed++;
    if (w->status == 410 && w->page[0])
        w->paged = false; /* the pages took so long that the server has forgotten the list */
    if (w->status == 404 && resource(w)->versions[1])
        w->version = !w->version;
    w->page[0] = '\0';
    plan(w, later(w, retry_after, now));
}

static void end_list(struct kubernetes_watch *w, const char *error, uint64_t retry_after, uint64_t now)
{
    bool whole = !error && w->status == 200 && !w->broken && kubernetes_stream_whole(&w->stream) &&
                 w->stream.has_items && w->at[0];
    if (whole && w->next[0]) {
        bool again =
            strcmp(w->next, w->page) == 0 || ++w->pages >= PAGES_MAX || now > w->list_begun + LIST_MAX;
        memcpy(w->page, w->next, sizeof w->page);
        if (!again)
            return plan(w, now);
        break_off(w, "its list has no end");
        whole = false;
    }
    if (whole)
        finish_list(w, now);
    else
        fail_list(w, error, retry_after, now);
}

/* Takes the end of a watch: continues it, or lets the objects be listed first. */
static void end_watch(struct kubernetes_watch *w, const char *error, uint64_t retry_after, uint64_t now)
{
    bool open = w->open, lived = open && now > w->begun + GOOD_AFTER;
    bool whole = !error && !w->broken;
    struct fail why;
    if (open)
        w->contact = now;
    explain(w, error, &why);
    bool refused = w->status >= 400 && w->status < 500 && w->status != 401 && w->status != 429;
    w->refusals += w->status >= 400;
    bool again = w->broken || refused || w->refusals >= REFUSALS_MAX; /* list again */
    /* a list is expensive: a watch that only lives a short while must not reset the pause before the next list */
    if (lived && (!again || now > w->begun + DELAY_MAX))
        backoff_reset(&w->backoff);
    if ((w->broken && !w->gone) || (!open && w->status != 410))
        note_failure(w, why.text);
    if (again) {
        w->listed = false;
        w->refusals = 0;
    }
    bool too_old = w->gone || w->status == 410;
    if (whole && lived && !again)
        return plan(w, now);
    /* many agents may have to list again at once: the random part spreads them over a second */
    struct backoff chance = {.least = SECOND, .most = SECOND, .jitter = 100};
    uint64_t due = later(w, retry_after, now);
    plan(w, too_old ? due + backoff_next(&chance) : due);
}

void kubernetes_watch_end(struct kubernetes_watch *w, const char *error, uint64_t retry_after, uint64_t now)
{
    if (w->phase == KUBERNETES_LISTING)
        end_list(w, error, retry_after, now);
    else
        end_watch(w, error, retry_after, now);
    kubernetes_stream_free(&w->stream);
}

/* ---- timeouts ---- */

/* Returns when the present request hangs. */
static uint64_t hangs_at(const struct kubernetes_watch *w)
{
    if (w->open)
        return w->begun + (WATCH_MIN + WATCH_MORE) * SECOND + WATCH_OVER;
    uint64_t patience = w->phase == KUBERNETES_LISTING && !w->paged ? WHOLE_MAX : w->all->timeout;
    uint64_t silent = w->last_byte + patience, max = w->list_begun + LIST_MAX;
    return w->phase == KUBERNETES_LISTING && max < silent ? max : silent;
}

enum kubernetes_step kubernetes_watch_step(struct kubernetes_watch *w, struct writer *path, uint64_t now)
{
    if (now < kubernetes_watch_next(w))
        return KUBERNETES_WAIT;
    if (w->phase != KUBERNETES_IDLE) {
        if (!w->odd.text[0])
            fail(&w->odd, w->open ? "its watch does not end" : "no answer in time");
        return KUBERNETES_END;
    }
    begin(w, now);
    put_request(w, path);
    if (!path->full)
        return KUBERNETES_BEGIN;
    kubernetes_watch_end(w, "the URL is too long", 0, now);
    return KUBERNETES_WAIT;
}

uint64_t kubernetes_watch_next(const struct kubernetes_watch *w)
{
    return w->phase == KUBERNETES_IDLE ? w->due : hangs_at(w);
}

/* ---- life ---- */

void kubernetes_watch_init(struct kubernetes_watch *w, struct kubernetes_watching *all,
                           enum kubernetes_sort sort, const char *space, size_t source)
{
    *w = (struct kubernetes_watch){.all = all,
                                   .sort = sort,
                                   .space = space,
                                   .source = source,
                                   .paged = true,
                                   .backoff = {.least = DELAY_MIN, .most = DELAY_MAX, .jitter = 50}};
    w->stream = (struct kubernetes_stream){
        .object = on_object, .member = on_member, .label = all->slices.label, .context = w};
}

void kubernetes_watch_free(struct kubernetes_watch *w)
{
    kubernetes_stream_free(&w->stream);
}
