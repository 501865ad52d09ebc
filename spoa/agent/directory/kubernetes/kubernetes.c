/* SPDX-License-Identifier: MIT */
/*
 * The directory kind `kubernetes`. It lists and watches objects of an API server (watch.h), keeps their records in a store of its own
 * (store.h), answers each question from the store at once, and pushes changes.
 *
 * A record serves until `stale` after its watch was last open. ABSENT is answered only while every watch is open, because
 * otherwise a new sandbox would not be known.
 */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "spoa/agent/directory/http_loop.h"
#include "spoa/agent/directory/kubernetes/transfer.h"
#include "spoa/agent/directory/kubernetes/wake.h"
#include "spoa/agent/model/worker_url.h"

#define OWN_FOLDER "/var/run/secrets/kubernetes.io/serviceaccount/"
#define LOG_PAUSE  SECOND /* minimum time between two log lines about ambiguous keys */

enum { SPACES_MAX = 64 }; /* maximum number of namespaces */

struct directory_kubernetes_options {
    struct directory_common common;
    struct texts resources, namespaces;
    char *selector, *label, *port, *url, *token_file, *ca_file;
    int64_t timeout;     /* maximum time until an answer begins [ms] */
    int64_t max_objects; /* maximum number of objects in the store */
};

struct directory_kubernetes {
    const struct directory_kubernetes_options *options;
    struct directory *directory;
    struct log *log;
    struct http_loop http;
    struct directory_http_target target;
    struct kubernetes_watching all;
    struct kubernetes_watch *watches;      /* one for each resource in each namespace */
    struct kubernetes_transfer *transfers; /* one for each watch */
    size_t watch_count;
    struct kubernetes_wake wake;
    bool known;      /* every list was complete once */
    uint64_t logged; /* time of the last log line about an ambiguous key (loop_clock) */
    char url[128];   /* API server of the cluster that this pod runs in */
    /* written by the loop's thread, read by others */
    atomic_uint_fast64_t counts[DIRECTORY_FOLLOWED];
    atomic_uint_fast64_t silent_since; /* last contact of the longest closed watch, or 0 */
};

/* ---- the store ---- */

/* Finds a record, and says UNAVAILABLE if it is too old or if absence is not certain. FOUND: *record is valid until the store changes. */
static enum lookup find(const struct directory_kubernetes *d, struct slice key, struct record *record)
{
    uint64_t stale = (uint64_t)d->options->common.stale * MILLISECOND;
    size_t source;
    enum lookup found = kubernetes_store_find(d->all.store, key, record, &source);
    if (found == LOOKUP_FOUND && !d->watches[source].open &&
        loop_clock() - d->watches[source].contact > stale)
        return LOOKUP_UNAVAILABLE;
    for (size_t i = 0; i < d->watch_count && found == LOOKUP_ABSENT; i++)
        found = d->watches[i].open ? found : LOOKUP_UNAVAILABLE;
    return found;
}

/* Call-back of the store: pushes a change. A removal is certain, whether the other watches are open or not. */
static void on_changed(void *context, struct slice key)
{
    struct directory_kubernetes *d = context;
    struct record record;
    size_t source;
    switch (kubernetes_store_find(d->all.store, key, &record, &source)) {
    case LOOKUP_FOUND:
        return directory_changed(d->directory, key, &record);
    case LOOKUP_ABSENT:
        return directory_removed(d->directory, key);
    default:
        if (kubernetes_store_ambiguous(d->all.store, key) &&
            (!d->logged || loop_clock() >= d->logged + LOG_PAUSE)) {
            d->logged = loop_clock();
            log_write(d->log, LOG_WARN, "directory: several sandboxes have this id, so it is refused",
                      LOG_SLICE("sandbox", key));
        }
        directory_announced(d->directory, key);
    }
}

/* ---- health ---- */

/* Reports the first failing watch, or health once every list was complete. */
static void tell_health(struct directory_kubernetes *d)
{
    const struct kubernetes_watch *failing = NULL;
    bool listed = true;
    for (size_t i = 0; i < d->watch_count; i++) {
        listed = listed && d->watches[i].listed_once;
        if (!failing && d->watches[i].failing)
            failing = &d->watches[i];
    }
    d->known = d->known || listed;
    if (failing)
        directory_health(d->directory, false, false, failing->why.text);
    else if (d->known)
        directory_health(d->directory, true, true, "");
}

/* Publishes the counters for other threads. */
static void count(struct directory_kubernetes *d)
{
    uint64_t open = 0, since = 0;
    for (size_t i = 0; i < d->watch_count; i++) {
        const struct kubernetes_watch *w = &d->watches[i];
        open += w->open;
        if (!w->open && (!since || w->contact < since))
            since = w->contact ? w->contact : 1;
    }
    const uint64_t counts[DIRECTORY_FOLLOWED] = {[DIRECTORY_WATCHES_OPEN] = open,
                                                 [DIRECTORY_WATCHES_CLOSED] = d->watch_count - open,
                                                 [DIRECTORY_OBJECTS] = kubernetes_store_count(d->all.store),
                                                 [DIRECTORY_OBJECTS_BYTES] =
                                                     kubernetes_store_bytes(d->all.store),
                                                 [DIRECTORY_LISTS_GOOD] = d->all.lists,
                                                 [DIRECTORY_LISTS_BAD] = d->all.lists_failed,
                                                 [DIRECTORY_EVENTS] = d->all.events,
                                                 [DIRECTORY_ERRORS] = d->all.errors,
                                                 [DIRECTORY_ODD] = d->all.odd};
    for (size_t i = 0; i < DIRECTORY_FOLLOWED; i++)
        atomic_store_explicit(&d->counts[i], counts[i], memory_order_relaxed);
    atomic_store_explicit(&d->silent_since, since, memory_order_relaxed);
}

static void kubernetes_counts(void *self, uint64_t counts[DIRECTORY_FOLLOWED])
{
    struct directory_kubernetes *d = self;
    uint64_t since = atomic_load_explicit(&d->silent_since, memory_order_relaxed);
    for (size_t i = 0; i < DIRECTORY_FOLLOWED; i++)
        counts[i] = atomic_load_explicit(&d->counts[i], memory_order_relaxed);
    counts[DIRECTORY_SILENT_SECONDS] = since ? (loop_clock() - since) / SECOND : 0;
}

/* ---- the loop ---- */

/* Takes the transfers that have ended. */
static void read_ended(struct directory_kubernetes *d)
{
    int left;
    for (CURLMsg *m; (m = curl_multi_info_read(d->http.multi, &left));) {
        CURL *easy = m->easy_handle;
        CURLcode result = m->data.result;
        bool ended = kubernetes_wake_end(&d->wake, easy, result);
        for (size_t i = 0; !ended && i < d->watch_count; i++)
            ended = kubernetes_transfer_end(&d->transfers[i], d->http.multi, &d->target, easy, result);
    }
}

/* Ends what has ended, and begins what may begin; called after any event. */
static void look(void *context)
{
    struct directory_kubernetes *d = context;
    bool begun = false;
    read_ended(d);
    uint64_t now = loop_clock(), next;
    for (size_t i = 0; i < d->watch_count; i++)
        begun = kubernetes_transfer_step(&d->transfers[i], d->http.multi, &d->target, now) || begun;
    begun = kubernetes_wake_step(&d->wake) || begun;
    if (begun) {
        http_loop_go(&d->http);
        read_ended(d);
    }
    next = UINT64_MAX;
    for (size_t i = 0; i < d->watch_count; i++)
        if (kubernetes_watch_next(&d->watches[i]) < next)
            next = kubernetes_watch_next(&d->watches[i]);
    tell_health(d);
    count(d);
    http_loop_at(&d->http, next);
}

/* ---- the kind ---- */

static void kubernetes_ask(void *self, struct directory_question *q)
{
    struct directory_kubernetes *d = self;
    struct record record;
    if (q->wake) {
        kubernetes_wake_ask(&d->wake, q);
        http_loop_soon(&d->http);
        return;
    }
    enum lookup found = find(d, q->key, &record);
    directory_answer(q, found, found == LOOKUP_FOUND ? &record : NULL, 0);
}

/* Frees everything after the loop of libcurl has stopped. */
static void destroy(void *context)
{
    struct directory_kubernetes *d = context;
    kubernetes_store_free(d->all.store);
    free(d->watches);
    free(d->transfers);
    free(d);
}

static void kubernetes_stop(void *self)
{
    struct directory_kubernetes *d = self;
    kubernetes_wake_free(&d->wake);
    for (size_t i = 0; i < d->watch_count; i++) {
        kubernetes_transfer_free(&d->transfers[i], d->http.multi);
        kubernetes_watch_free(&d->watches[i]);
    }
    directory_http_target_free(&d->target);
    http_loop_stop(&d->http, destroy, d);
}

/* Finds the API server of the cluster that this pod runs in. Returns false with *why. */
static bool find_cluster(struct directory_kubernetes *d, struct fail *why)
{
    const char *host = getenv("KUBERNETES_SERVICE_HOST"), *port = getenv("KUBERNETES_SERVICE_PORT");
    struct address address;
    if (!host || !port || !(address_parse(slice_text(host), &address) || hostname_valid(slice_text(host))) ||
        !slice_u64(slice_text(port), 65535, &(uint64_t){0}))
        return fail(
            why,
            "directory.url is not set, and this is not a pod: there is no KUBERNETES_SERVICE_HOST with a "
            "KUBERNETES_SERVICE_PORT");
    bool literal6 = strchr(host, ':');
    return snprintf(d->url, sizeof d->url, "https://%s%s%s:%s", literal6 ? "[" : "", host,
                    literal6 ? "]" : "", port) < (int)sizeof d->url ||
           fail(why, "KUBERNETES_SERVICE_HOST is too long");
}

/* Chooses the API server, its token and its authorities. */
static bool aim(struct directory_kubernetes *d, struct fail *why)
{
    const struct directory_kubernetes_options *o = d->options;
    const char *token = o->token_file, *ca = o->ca_file;
    if (o->url) {
        directory_http_target_init(&d->target, o->url, token, ca);
        return true;
    }
    if (!find_cluster(d, why))
        return false;
    directory_http_target_init(&d->target, d->url, token ? token : OWN_FOLDER "token",
                               ca ? ca : OWN_FOLDER "ca.crt");
    return true;
}

/* Returns the sort with this name, or KUBERNETES_SORTS. */
static enum kubernetes_sort sort_named(const char *name)
{
    enum kubernetes_sort sort = 0;
    while (sort < KUBERNETES_SORTS && strcmp(kubernetes_resource_of(sort)->name, name) != 0)
        sort++;
    return sort;
}

/* Prepares a watch for each resource in each namespace. Returns false if memory is short. */
static bool make_watches(struct directory_kubernetes *d)
{
    const struct directory_kubernetes_options *o = d->options;
    size_t spaces = o->namespaces.count ? o->namespaces.count : 1;
    d->watches = calloc(o->resources.count * spaces, sizeof *d->watches);
    d->transfers = calloc(o->resources.count * spaces, sizeof *d->transfers);
    if (!d->watches || !d->transfers)
        return false;
    for (size_t i = 0; i < o->resources.count; i++)
        for (size_t k = 0; k < spaces; k++, d->watch_count++) {
            d->transfers[d->watch_count].watch = &d->watches[d->watch_count];
            kubernetes_watch_init(&d->watches[d->watch_count], &d->all, sort_named(o->resources.at[i]),
                                  o->namespaces.count ? o->namespaces.at[k] : NULL, d->watch_count);
        }
    return true;
}

/* Prepares everything but the loop of libcurl. Returns false with *why. */
static bool set_up(struct directory_kubernetes *d, struct fail *why)
{
    const struct directory_kubernetes_options *o = d->options;
    if (!aim(d, why))
        return false;
    d->all = (struct kubernetes_watching){.log = d->log,
                                          .slices = {o->label, o->port},
                                          .selector = o->selector,
                                          .timeout = (uint64_t)o->timeout * MILLISECOND};
    if (!make_watches(d))
        return fail(why, "out of memory");
    const struct kubernetes_store_options options = {
        .most = (size_t)o->max_objects, .sources = d->watch_count, .changed = on_changed, .context = d};
    d->all.store = kubernetes_store_new(&options);
    d->wake.all = &d->all;
    d->wake.target = &d->target;
    d->wake.watches = d->watches;
    count(d);
    return d->all.store || fail(why, "out of memory");
}

static void *kubernetes_start(const void *options, struct directory *directory, struct loop *loop,
                              struct log *log, struct fail *why)
{
    struct directory_kubernetes *d = calloc(1, sizeof *d);
    if (!d) {
        fail(why, "out of memory");
        return NULL;
    }
    d->options = options;
    d->directory = directory;
    d->log = log;
    if (!set_up(d, why) || !http_loop_start(&d->http, loop, look, d, why)) {
        destroy(d);
        return NULL;
    }
    d->wake.multi = d->http.multi;
    return d;
}

/* ---- options ---- */

static const char *check_resource(struct slice value)
{
    for (size_t i = 0; i < KUBERNETES_SORTS; i++)
        if (slice_is(value, kubernetes_resource_of((enum kubernetes_sort)i)->name))
            return NULL;
#define X(sort, variable, word) word ", "
    return SYSTEM_KUBERNETES_SORTS(X) "or endpointslices";
#undef X
}

/* Checks a namespace: a DNS label in lower case (RFC 1123 section 2.1). */
static const char *check_space(struct slice value)
{
    bool label = value.len <= KUBERNETES_LABEL_MAX && slice_find(value, '.') == value.len;
    for (size_t i = 0; i < value.len; i++)
        label = label && !(value.at[i] >= 'A' && value.at[i] <= 'Z') && value.at[i] != '_';
    return label && (hostname_valid(value) || slice_u64(value, UINT64_MAX, &(uint64_t){0})) ? NULL
                                                                                            : "a namespace";
}

/* Checks a text that becomes a part of a URL. */
static const char *check_printable(struct slice value)
{
    for (size_t i = 0; i < value.len; i++)
        if (value.at[i] < 0x20 || value.at[i] >= 0x7f)
            return "plain text without control bytes";
    return NULL;
}

/* Returns whether a text occurs twice. */
static bool has_twice(const struct texts *texts)
{
    for (size_t i = 0; i < texts->count; i++)
        for (size_t k = 0; k < i; k++)
            if (strcmp(texts->at[i], texts->at[k]) == 0)
                return true;
    return false;
}

static bool kubernetes_check(const void *options, struct fail *why)
{
    const struct directory_kubernetes_options *o = options;
    bool slices = false;
    static const char *const local[] = {"http://127.0.0.1", "http://localhost", "http://[::1]"};
    bool is_local = false;
    for (size_t i = 0; i < o->resources.count; i++)
        slices = slices || sort_named(o->resources.at[i]) == KUBERNETES_ENDPOINT_SLICES;
    if (o->resources.count == 0)
        return fail(why, "directory.resources: it is empty");
    if (has_twice(&o->resources))
        return fail(why, "directory.resources: one is named twice");
    if (has_twice(&o->namespaces))
        return fail(why, "directory.namespaces: one is named twice");
    if (slices && !o->label)
        return fail(why, "directory.label: endpointslices need the label that names their sandbox");
    if (!slices && (o->label || o->port))
        return fail(why, "directory.label and directory.port are for endpointslices");
    if (o->url && !directory_http_target_check(o->url, why))
        return false;
    for (size_t i = 0; o->url && i < sizeof local / sizeof *local; i++) {
        size_t len = strlen(local[i]);
        is_local =
            is_local || (strncmp(o->url, local[i], len) == 0 && (!o->url[len] || strchr(":/", o->url[len])));
    }
    if (o->url && strncmp(o->url, "https:", 6) != 0 && !is_local)
        return fail(why, "directory.url: http:// is for a proxy on this machine only");
    return true;
}

#define OPTIONS struct directory_kubernetes_options
static const struct option table[] = {
    DIRECTORY_KIND_OPTION(OPTIONS, "kubernetes"),
    {.key = "resources",
     .type = OPTION_TEXTS,
     .offset = offsetof(OPTIONS, resources),
#define X(sort, variable, word) "`" word "`, "
     .help = SYSTEM_KUBERNETES_SORTS(X) "`endpointslices`",
#undef X
     .min = 1,
     .max = KUBERNETES_SORTS,
     .check = check_resource,
     .example = "[\"agent-sandbox\"]"},
    {.key = "namespaces",
     .type = OPTION_TEXTS,
     .offset = offsetof(OPTIONS, namespaces),
     .fallback = OPTION_NONE,
     .help = "namespaces to watch; not set: all",
     .max = SPACES_MAX,
     .check = check_space},
    {.key = "selector",
     .type = OPTION_TEXT,
     .offset = offsetof(OPTIONS, selector),
     .fallback = OPTION_NONE,
     .help = "label selector, in the form of `kubectl -l`",
     .min = 1,
     .max = 1024,
     .check = check_printable,
     .example = "\"tier=public\""},
    {.key = "label",
     .type = OPTION_TEXT,
     .offset = offsetof(OPTIONS, label),
     .fallback = OPTION_NONE,
     .help = "endpointslices: label whose value is the sandbox's id",
     .min = 1,
     .max = 317,
     .check = check_printable,
     .example = "\"example.com/sandbox\""},
    {.key = "port",
     .type = OPTION_TEXT,
     .offset = offsetof(OPTIONS, port),
     .fallback = OPTION_NONE,
     .help = "endpointslices: name of the worker's port; not set: the request's port",
     .min = 1,
     .max = 63,
     .check = check_printable,
     .example = "\"http\""},
    {.key = "url",
     .type = OPTION_TEXT,
     .offset = offsetof(OPTIONS, url),
     .fallback = OPTION_NONE,
     .help = "API server; not set: that of the pod's cluster, with the pod's token and authority",
     .min = 1,
     .max = 2048,
     .example = "\"https://10.0.0.1:6443\""},
    {.key = "token_file",
     .type = OPTION_PATH,
     .offset = offsetof(OPTIONS, token_file),
     .fallback = OPTION_NONE,
     .help = "a bearer token; read again when it changes",
     .secret = true},
    {.key = "ca_file",
     .type = OPTION_PATH,
     .offset = offsetof(OPTIONS, ca_file),
     .fallback = OPTION_NONE,
     .help = "authorities (PEM) for the API server's certificate; not set: the system's"},
    {.key = "timeout",
     .type = OPTION_DURATION,
     .offset = offsetof(OPTIONS, timeout),
     .fallback = "15s",
     .help = "time until an answer begins",
     .min = 100,
     .max = OPTION_MINUTE},
    {.key = "max_objects",
     .type = OPTION_INT,
     .offset = offsetof(OPTIONS, max_objects),
     .fallback = "1000000",
     .help =
         "objects in memory, some 250 bytes each; with more, an unknown sandbox is `directory_unavailable`",
     .min = 1,
     .max = 10000000},
    DIRECTORY_CACHE_OPTIONS(OPTIONS, "10s"),
};

const struct directory_kind directory_kind_kubernetes = {
    .name = "kubernetes",
    .options = table,
    .options_count = sizeof table / sizeof *table,
    .options_size = sizeof(OPTIONS),
    .check = kubernetes_check,
    .holds = true,
    .start = kubernetes_start,
    .question_size = sizeof(struct kubernetes_question),
    .ask = kubernetes_ask,
    .wakes_at_once = KUBERNETES_WAKES_MAX,
    .wakes = true,
    .counts = kubernetes_counts,
    .stop = kubernetes_stop,
};
