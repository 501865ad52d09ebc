/* SPDX-License-Identifier: MIT */
#include "spoa/agent/directory/dns.h"

#include <stdlib.h>

#include "spoa/agent/model/worker_url.h"
#include "spoa/base/thread.h"
#include "spoa/base/writer.h"
#include "spoa/net/dns.h"

enum { KEY_MOST = 255, NAME_MOST = 253, LABEL_MOST = 63, OPEN_MOST = 65536 };

struct directory_dns_options {
    struct directory_common common;
    char *name, *namespace;
    int64_t port, timeout;
    bool tls;
    struct texts servers;
};

struct directory_dns {
    const struct directory_dns_options *options;
    const struct directory_sink *sink;
    struct loop *loop;
    struct dns *dns;
    struct dns_options dns_options;
    struct loop_task end;
    pthread_t thread;
    bool stopping, told, told_answering;
    unsigned open; /* atomic */
};

struct look_up {
    struct loop_task task;
    struct directory_dns *directory;
    size_t len, name_len;
    char name[NAME_MOST];
    uint8_t key[];
};

/* ---- names ---- */

/* Without capitals, which DNS does not tell apart: "SB-1" would be another sandbox to tokens and limits, on the
 * worker of "sb-1". */
static bool is_label(struct slice text)
{
    for (size_t i = 0; i < text.len; i++)
        if (text.at[i] >= 'A' && text.at[i] <= 'Z')
            return false;
    return text.len <= LABEL_MOST && slice_find(text, '.') == text.len &&
           (hostname_valid(text) || slice_u64(text, UINT64_MAX, &(uint64_t){0}));
}

/* The template with what stands in braces replaced; "{" is not valid in a name otherwise. */
static void expand(const char *template, struct slice sandbox, struct slice space, struct writer *w)
{
    struct slice rest = slice_text(template), part;
    while (slice_split(&rest, '{', &part)) {
        struct slice what;
        size_t close = slice_find(part, '}');
        if (close < part.len) {
            what = slice_sub(part, 0, close);
            writer_put(w, slice_is(what, "sandbox") ? sandbox : space);
            part = slice_from(part, close + 1);
        }
        writer_put(w, part);
    }
}

/* False: there can be no such name. */
static bool name_of(const struct directory_dns_options *o, struct slice key, struct writer *w)
{
    struct slice space = slice_text(o->namespace), sandbox = key;
    size_t slash = slice_find(key, '/');
    if (slash < key.len) {
        space = slice_sub(key, 0, slash);
        sandbox = slice_from(key, slash + 1);
    }
    if (!is_label(sandbox) || !is_label(space))
        return false;
    /* of another namespace, which the name could not tell from this one */
    if (!strstr(o->name, "{namespace}") && !slice_is(space, o->namespace))
        return false;
    expand(o->name, sandbox, space, w);
    return !w->full && hostname_valid(writer_slice(w));
}

/* ---- answers ---- */

static void finish(struct look_up *l, enum lookup outcome, const struct record *record, double ttl)
{
    struct directory_dns *d = l->directory;
    if (!d->stopping)
        d->sink->answered(d->sink->context, slice_of(l->key, l->len), outcome, record, ttl);
    __atomic_sub_fetch(&d->open, 1, __ATOMIC_RELAXED);
    free(l);
}

static void tell_health(struct directory_dns *d, bool answering)
{
    if (d->stopping || (d->told && d->told_answering == answering))
        return;
    d->told = true;
    d->told_answering = answering;
    d->sink->health(d->sink->context, answering, false, answering ? "" : "the name servers do not answer");
}

static int by_address(const void *a, const void *b)
{
    return memcmp(a, b, sizeof(struct address));
}

/* All agents choose the same of several addresses, whatever their order in the answer. */
static struct address lowest(const struct dns_answer *answer)
{
    struct address sorted[DNS_ADDRESSES];
    memcpy(sorted, answer->addresses, sizeof sorted);
    qsort(sorted, answer->count, sizeof *sorted, by_address);
    return sorted[0];
}

/* What the answer says may be good for a shorter time than ours, never for a longer one. */
static double shorter(double ttl, const struct directory_dns_options *o)
{
    double most = (double)o->common.ttl / 1000;
    return ttl < 1 ? 1 < most ? 1 : most : ttl < most ? ttl : most;
}

static void on_answer(void *owner, const struct dns_answer *answer)
{
    struct look_up *l = owner;
    const struct directory_dns_options *o = l->directory->options;
    struct record record = {.state = RECORD_RUNNING};
    tell_health(l->directory, answer->result != DNS_FAILED);
    if (answer->result != DNS_FOUND) {
        finish(l, answer->result == DNS_ABSENT ? LOOKUP_ABSENT : LOOKUP_UNAVAILABLE, NULL, -1);
        return;
    }
    record.worker = (struct worker){.kind = o->tls ? WORKER_HTTPS : WORKER_HTTP,
                                    .host = slice_of(l->name, l->name_len),
                                    .port = (uint16_t)o->port,
                                    .addr = lowest(answer)};
    finish(l, LOOKUP_FOUND, &record, shorter(answer->ttl, o));
}

/* ---- questions ---- */

static void run_look_up(void *context)
{
    struct look_up *l = context;
    struct directory_dns *d = l->directory;
    struct writer name = writer_of(l->name, sizeof l->name);
    if (!name_of(d->options, slice_of(l->key, l->len), &name)) {
        finish(l, LOOKUP_ABSENT, NULL, -1);
        return;
    }
    l->name_len = name.len;
    if (d->stopping || !dns_ask(d->dns, writer_slice(&name), on_answer, l))
        finish(l, LOOKUP_UNAVAILABLE, NULL, -1);
}

static bool look_up(void *self, struct slice key)
{
    struct directory_dns *d = self;
    if (key.len > KEY_MOST || __atomic_load_n(&d->open, __ATOMIC_RELAXED) >= OPEN_MOST)
        return false;
    struct look_up *l = calloc(1, sizeof *l + key.len);
    if (!l)
        return false;
    __atomic_add_fetch(&d->open, 1, __ATOMIC_RELAXED);
    l->directory = d;
    l->len = key.len;
    memcpy(l->key, key.at, key.len);
    l->task = (struct loop_task){.run = run_look_up, .context = l};
    loop_post(d->loop, &l->task);
    return true;
}

/* ---- its life ---- */

static void end_loop(void *context)
{
    struct directory_dns *d = context;
    d->stopping = true;
    loop_stop(d->loop);
}

/* There is no connection that could tell: taken for granted until a look-up fails. */
static void *run(void *context)
{
    struct directory_dns *d = context;
    tell_health(d, true);
    loop_run(d->loop);
    return NULL;
}

static void destroy(struct directory_dns *d)
{
    d->stopping = true;
    dns_free(d->dns);
    loop_free(d->loop);
    free(d);
}

static void *start(const void *options, const struct directory_sink *sink, struct log *log, struct fail *why)
{
    const struct directory_dns_options *o = options;
    struct directory_dns *d = calloc(1, sizeof *d);
    (void)log;
    if (!d) {
        fail(why, "out of memory");
        return NULL;
    }
    d->options = o;
    d->sink = sink;
    d->dns_options = (struct dns_options){o->servers, true, (double)o->timeout / 1000};
    d->end = (struct loop_task){.run = end_loop, .context = d};
    if ((d->loop = loop_new(why)) && (d->dns = dns_new(d->loop, &d->dns_options, why)) &&
        thread_start(&d->thread, run, d, why))
        return d;
    destroy(d);
    return NULL;
}

static void stop(void *self)
{
    struct directory_dns *d = self;
    loop_post(d->loop, &d->end);
    pthread_join(d->thread, NULL);
    destroy(d);
}

/* ---- options ---- */

/* In one label "{sandbox}-{namespace}" a-b of c and a of b-c would be one name. */
static bool are_apart(struct slice template)
{
    struct slice label;
    while (slice_split(&template, '.', &label)) {
        size_t first = slice_find(label, '{');
        if (first < label.len && slice_find(slice_from(label, first + 1), '{') < label.len - first - 1)
            return false;
    }
    return true;
}

static const char *check_name(struct slice value)
{
    struct slice rest = value, part;
    size_t sandboxes = 0;
    char name[NAME_MOST];
    struct writer w = writer_of(name, sizeof name);
    (void)slice_split(&rest, '{', &part);
    while (slice_split(&rest, '{', &part)) {
        bool sandbox = slice_starts(part, "sandbox}");
        if (!sandbox && !slice_starts(part, "namespace}"))
            return "a name with {sandbox} and, if need be, {namespace}";
        sandboxes += sandbox;
    }
    if (!are_apart(value))
        return "a name with one of {sandbox} and {namespace} in a label: with both in it, different "
               "sandboxes would have the same name";
    char *template = slice_dup(value);
    if (template)
        expand(template, SLICE_LITERAL("a"), SLICE_LITERAL("b"), &w);
    free(template);
    bool good = sandboxes > 0 && !w.full && hostname_valid(writer_slice(&w));
    return good ? NULL : "a name with {sandbox} and, if need be, {namespace}";
}

static const char *check_label(struct slice value)
{
    return is_label(value) ? NULL : "one label of a name, without capital letters";
}

static const struct option options[] = {
    DIRECTORY_KIND_OPTION(struct directory_dns_options, "dns"),
    {.key = "name",
     .type = OPTION_TEXT,
     .offset = offsetof(struct directory_dns_options, name),
     .help = "name of a sandbox's worker, with `{sandbox}` and `{namespace}`, one in a label",
     .min = 1,
     .max = NAME_MOST,
     .check = check_name,
     .example = "\"{sandbox}.{namespace}.svc.cluster.local\""},
    {.key = "namespace",
     .type = OPTION_TEXT,
     .offset = offsetof(struct directory_dns_options, namespace),
     .fallback = "default",
     .help = "`{namespace}` where a request names none, or `default`",
     .min = 1,
     .max = LABEL_MOST,
     .check = check_label},
    {.key = "port",
     .type = OPTION_INT,
     .offset = offsetof(struct directory_dns_options, port),
     .fallback = "0",
     .help = "the worker's port; 0: the port that the request names",
     .min = 0,
     .max = 65535},
    {.key = "tls",
     .type = OPTION_BOOL,
     .offset = offsetof(struct directory_dns_options, tls),
     .fallback = "false",
     .help = "whether workers speak TLS"},
    {.key = "servers",
     .type = OPTION_TEXTS,
     .offset = offsetof(struct directory_dns_options, servers),
     .fallback = OPTION_NONE,
     .help = "name servers; none: those of /etc/resolv.conf",
     .max = 8},
    {.key = "timeout",
     .type = OPTION_DURATION,
     .offset = offsetof(struct directory_dns_options, timeout),
     .fallback = "3s",
     .help = "for one look-up, with all that is sent again",
     .min = 50,
     .max = OPTION_MINUTE},
    DIRECTORY_CACHE_OPTIONS(struct directory_dns_options, "5s"),
};

const struct directory_kind directory_kind_dns = {
    .name = "dns",
    .options = options,
    .options_count = sizeof options / sizeof *options,
    .options_size = sizeof(struct directory_dns_options),
    .absence_is_doubt = true,
    .start = start,
    .look_up = look_up,
    .stop = stop,
};
