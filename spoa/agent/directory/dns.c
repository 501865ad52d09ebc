/* SPDX-License-Identifier: MIT */
/*
 * The directory kind `dns`, which has no store of records: a sandbox is where a name made of its id and namespace resolves to.
 *
 * Invariant: id and namespace are one label of the name each. Otherwise an id such as "a.kube-system" would lead to another namespace.
 */
#include <stdlib.h>

#include "spoa/agent/directory/kind.h"
#include "spoa/agent/model/worker_url.h"
#include "spoa/base/bytes/writer.h"
#include "spoa/net/dns.h"

enum {
    QUESTIONS_MAX = 1024,
    NAME_MAX_LEN = 253,
    LABEL_MAX_LEN = 63
}; /* names and labels: RFC 1035 section 2.3.4 */

struct directory_dns_options {
    struct directory_common common;
    char *name, *namespace; /* the template of a name; the namespace of a key that has none */
    int64_t port;           /* port of the workers, or 0 for the request's */
    int64_t timeout;        /* maximum time of one look-up, with its repeats [ms] */
    bool tls;               /* workers speak TLS */
    struct texts servers;   /* name servers; empty: the system's */
};

struct directory_dns {
    const struct directory_dns_options *options;
    struct directory *directory;
    struct dns *dns;
    struct dns_options dns_options;
    struct loop_timer started; /* reports the first health */
};

/* A question of this kind, with the name that it looks up. */
struct look_up {
    struct directory_question question;
    struct directory_dns *kind;
    size_t name_len;
    char name[NAME_MAX_LEN];
};

/* ---- names ---- */

/* Returns whether the text may be a label of a name. Capital letters are refused because DNS ignores case: "SB-1" would be another
 * sandbox than "sb-1" to tokens and limits, but on the same worker. */
static bool is_label(struct slice text)
{
    for (size_t i = 0; i < text.len; i++)
        if (text.at[i] >= 'A' && text.at[i] <= 'Z')
            return false;
    return text.len <= LABEL_MAX_LEN && slice_find(text, '.') == text.len &&
           (hostname_valid(text) || slice_u64(text, UINT64_MAX, &(uint64_t){0}));
}

/* Writes the template with the words in braces replaced. A name cannot contain a brace otherwise. */
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

/* Writes the name of the sandbox `key`. Returns false if there can be no such name. */
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
    /* without {namespace} the name would be that of the same id in the configured namespace */
    if (!strstr(o->name, "{namespace}") && !slice_is(space, o->namespace))
        return false;
    expand(o->name, sandbox, space, w);
    return !w->full && hostname_valid(writer_slice(w));
}

/* ---- asking ---- */

/* Reports whether the name servers answer. This kind never pushes. */
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
    /* Orders addresses so that all agents choose the same one of several, whatever their order in the answer. */
    struct address lowest = answer->addresses[0];
    for (size_t i = 1; i < answer->count; i++)
        if (memcmp(&answer->addresses[i], &lowest, sizeof lowest) < 0)
            lowest = answer->addresses[i];
    /* the configured ttl is the maximum; a second is the minimum, which spares the name servers */
    uint64_t good = answer->ttl < SECOND ? SECOND : answer->ttl, max = (uint64_t)o->common.ttl * MILLISECOND;
    record.worker = (struct worker){.kind = o->tls ? WORKER_HTTPS : WORKER_HTTP,
                                    .host = slice_of(l->name, l->name_len),
                                    .port = (uint16_t)o->port,
                                    .addr = lowest};
    directory_answer(&l->question, LOOKUP_FOUND, &record, good < max ? good : max);
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
    /* the question has already waited in the queue of its owner */
    if (!dns_ask(d->dns, writer_slice(&name), (struct fair_owner){.rank = FAIR_VERIFIED}, on_answer, l))
        directory_answer(q, LOOKUP_UNAVAILABLE, NULL, 0);
}

/* ---- life ---- */
/* Assumes that the name servers answer until a look-up fails: there is no connection that could show it. */
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

/* Checks the template of names. Returns what is wanted, or NULL if the value is good. */
static const char *check_name(struct slice value)
{
    struct slice rest = value, part;
    size_t sandboxes = 0;
    char name[NAME_MAX_LEN];
    struct writer w = writer_of(name, sizeof name);
    (void)slice_split(&rest, '{', &part);
    while (slice_split(&rest, '{', &part)) {
        bool sandbox = slice_starts(part, "sandbox}");
        if (!sandbox && !slice_starts(part, "namespace}"))
            return "a name with {sandbox} and, if need be, {namespace}";
        sandboxes += sandbox;
    }
    /* With both in one label, "{sandbox}-{namespace}", a-b of namespace c and a of namespace b-c would be one name. */
    struct slice labels = value, label;
    bool apart = true;
    while (slice_split(&labels, '.', &label)) {
        size_t first = slice_find(label, '{');
        if (first < label.len && slice_find(slice_from(label, first + 1), '{') < label.len - first - 1)
            apart = false;
    }
    if (!apart)
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
     .max = NAME_MAX_LEN,
     .check = check_name,
     .example = "\"{sandbox}.{namespace}.svc.cluster.local\""},
    {.key = "namespace",
     .type = OPTION_TEXT,
     .offset = offsetof(struct directory_dns_options, namespace),
     .fallback = "default",
     .help = "`{namespace}` where a request names none, or `default`",
     .min = 1,
     .max = LABEL_MAX_LEN,
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
     .help = "maximum time of one look-up, with its repeats",
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
