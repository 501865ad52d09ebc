/* SPDX-License-Identifier: MIT */
/*
 * The directory kind `dns`: no store of records at all. A sandbox is where a name that is made of its id and namespace
 * says.
 *
 * Id and namespace must each be one label of a name: an id "a.kube-system" must not lead somewhere else.
 */
#include <stdlib.h>

#include "spoa/agent/directory/kind.h"
#include "spoa/agent/model/worker_url.h"
#include "spoa/base/bytes/writer.h"
#include "spoa/net/dns.h"

enum { QUESTIONS_MAX = 1024, NAME_MOST = 253, LABEL_MOST = 63 };

struct directory_dns_options {
    struct directory_common common;
    char *name, *namespace;
    int64_t port, timeout;
    bool tls;
    struct texts servers;
};

struct directory_dns {
    const struct directory_dns_options *options;
    struct directory *directory;
    struct dns *dns;
    struct dns_options dns_options;
    struct loop_timer started;
};

struct look_up {
    struct directory_question question;
    struct directory_dns *kind;
    size_t name_len;
    char name[NAME_MOST];
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

/* ---- asking ---- */

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
static uint64_t shorter(uint64_t ttl, const struct directory_dns_options *o)
{
    uint64_t most = (uint64_t)o->common.ttl * MILLISECOND;
    uint64_t good = ttl < SECOND ? SECOND : ttl;
    return good < most ? good : most;
}

static void dns_tell_health(struct directory_dns *d, bool answering)
{
    directory_health(d->directory, answering, false, "the name servers do not answer");
}

static void on_answer(void *owner, const struct dns_answer *answer)
{
    struct look_up *l = owner;
    const struct directory_dns_options *o = l->kind->options;
    struct record record = {.state = RECORD_RUNNING};
    dns_tell_health(l->kind, answer->result != DNS_FAILED);
    if (answer->result != DNS_FOUND) {
        directory_answer(&l->question, answer->result == DNS_ABSENT ? LOOKUP_ABSENT : LOOKUP_UNAVAILABLE,
                         NULL, 0);
        return;
    }
    record.worker = (struct worker){.kind = o->tls ? WORKER_HTTPS : WORKER_HTTP,
                                    .host = slice_of(l->name, l->name_len),
                                    .port = (uint16_t)o->port,
                                    .addr = lowest(answer)};
    directory_answer(&l->question, LOOKUP_FOUND, &record, shorter(answer->ttl, o));
}

static void dns_kind_ask(void *self, struct directory_question *q)
{
    struct look_up *l = (struct look_up *)(void *)q;
    struct directory_dns *d = l->kind = self;
    struct writer name = writer_of(l->name, sizeof l->name);
    if (!name_of(d->options, q->key, &name)) {
        directory_answer(q, LOOKUP_ABSENT, NULL, 0);
        return;
    }
    l->name_len = name.len;
    /* it has waited for its turn already */
    if (!dns_ask(d->dns, writer_slice(&name), (struct fair_owner){.rank = FAIR_VERIFIED}, on_answer, l))
        directory_answer(q, LOOKUP_UNAVAILABLE, NULL, 0);
}

/* ---- its life ---- */

/* There is no connection that could tell: taken for granted until a look-up fails. */
static void on_started(void *self)
{
    dns_tell_health(self, true);
}

static void *dns_start(const void *options, struct directory *directory, struct loop *loop, struct log *log,
                       struct fail *why)
{
    struct directory_dns *d = calloc(1, sizeof *d);
    (void)log;
    if (!d) {
        fail(why, "out of memory");
        return NULL;
    }
    d->options = options;
    d->directory = directory;
    d->dns_options = (struct dns_options){.servers = d->options->servers,
                                          .exact = true,
                                          .timeout = (uint64_t)d->options->timeout * MILLISECOND};
    d->dns = dns_new(loop, &d->dns_options, why);
    if (!d->dns) {
        free(d);
        return NULL;
    }
    loop_timer_open(&d->started, loop, on_started, d);
    loop_timer_set(&d->started, 0);
    return d;
}

static void dns_stop(void *self)
{
    struct directory_dns *d = self;
    loop_timer_close(&d->started);
    dns_free(d->dns);
    free(d);
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
     .help = "a worker's name, with `{sandbox}` and `{namespace}`, one in a label",
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
     .help = "the worker's port; 0: the request's",
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
     .help = "name servers; not set: /etc/resolv.conf's",
     .max = 8},
    {.key = "timeout",
     .type = OPTION_DURATION,
     .offset = offsetof(struct directory_dns_options, timeout),
     .fallback = "3s",
     .help = "for one look-up, repeats included",
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
    .start = dns_start,
    .question_size = sizeof(struct look_up),
    .ask = dns_kind_ask,
    .look_ups_at_once = QUESTIONS_MAX,
    .stop = dns_stop,
};
