/* SPDX-License-Identifier: MIT */
#include "spoa/agent/directory/names.h"

#include <assert.h>
#include <search.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "spoa/base/table/references.h"
#include "spoa/net/dns.h"

#define AGAIN_LEAST    SECOND /* however short the time to live is */
#define AGAIN_MOST     (30 * SECOND)
#define AGAIN_FAILED   (5 * SECOND)
#define SWEEP          (500 * MILLISECOND) /* between looks at what is to be asked again */
#define PUBLISH_LEAST  (20 * MILLISECOND)  /* between two tables */
#define PUBLISH_SHARE  10                  /* of the time at most goes into making tables */
#define LOOKUP_TIMEOUT (5 * SECOND)

struct host {
    struct host *next;
    struct names *names;
    struct address addr;
    uint64_t ask_at, used_until; /* loop_clock */
    uint64_t generation;         /* of the set of records that it was last in; 0: of none */
    bool asking, asked;          /* now; ever */
    struct fair_owner owner;
    struct fair_place place; /* has none if it is wanted for all */
    char text[];
};

struct use {
    struct loop_task task;
    struct names *names;
    struct fair_owner owner;
    char text[];
};

struct names {
    struct names_options options;
    struct loop *loop;
    struct dns *dns;
    struct fair *shares; /* of names that are only used */
    struct dns_options dns_options;
    struct loop_timer sweep, publish;
    void *tree; /* of all hosts, by text */
    struct host *hosts;
    size_t count;
    uint64_t generation;
    size_t unasked; /* of this generation */
    uint64_t published_at, publish_cost;
    struct name_table *table; /* the last one that was taken */
    bool stopping;
    atomic_uint uses, references; /* uses that are on their way, each of which has a reference */
};

static int by_text(const void *a, const void *b)
{
    return strcmp(((const struct host *)a)->text, ((const struct host *)b)->text);
}

static void schedule(struct host *e, uint64_t pause)
{
    e->ask_at = loop_clock() + pause;
}

static void note_uses(struct names *n);

/* ---- tables ---- */

struct filling {
    struct name_table *table; /* NULL: count only */
    size_t count, bytes;
};

/* The tree gives them in order; each inner one several times. */
static void fill(const void *node, VISIT visit, void *context)
{
    const struct host *e = *(const struct host *const *)node;
    struct filling *f = context;
    if ((visit != postorder && visit != leaf) || !e->addr.family)
        return;
    if (f->table)
        name_table_add(f->table, e->text, &e->addr);
    f->count++;
    f->bytes += strlen(e->text) + 1;
}

static struct name_table *table_of(const struct names *n)
{
    struct filling f = {0};
    twalk_r(n->tree, fill, &f);
    f.table = name_table_new(f.count, f.bytes);
    if (f.table)
        twalk_r(n->tree, fill, &f);
    return f.table;
}

static void publish(void *owner)
{
    struct names *n = owner;
    uint64_t start = loop_clock();
    note_uses(n); /* of the one that it replaces */
    struct name_table *table = table_of(n);
    bool taken = table && n->options.changed(n->options.context, table);
    if (taken) {
        name_table_release(n->table);
        n->table = name_table_retain(table);
    }
    name_table_release(table);
    n->published_at = loop_clock();
    n->publish_cost = n->published_at - start;
    if (!taken) /* out of memory: tried again */
        loop_timer_set(&n->publish, SECOND);
}

/* At once after a quiet time; many that come together share a table. */
static void publish_soon(struct names *n)
{
    uint64_t pause = n->publish_cost * PUBLISH_SHARE;
    if (!loop_timer_active(&n->publish))
        loop_timer_set_at(&n->publish, n->published_at + (pause > PUBLISH_LEAST ? pause : PUBLISH_LEAST));
}

/* ---- asking ---- */

static void look_settled(struct names *n)
{
    if (n->unasked)
        return;
    /* whoever waits wants to find the addresses */
    if (loop_timer_active(&n->publish)) {
        loop_timer_stop(&n->publish);
        publish(n);
    }
    n->options.settled(n->options.context);
}

static void note_asked(struct names *n, struct host *e)
{
    bool first = !e->asked && e->generation == n->generation;
    e->asked = true;
    if (first && --n->unasked == 0)
        look_settled(n);
}

static void on_answer(void *owner, const struct dns_answer *answer)
{
    struct host *e = owner;
    struct names *n = e->names;
    e->asking = false;
    if (n->stopping)
        return;
    if (answer->result == DNS_FOUND) {
        struct address chosen = dns_choose(answer, &e->addr);
        bool news = memcmp(&chosen, &e->addr, sizeof chosen) != 0;
        uint64_t again = answer->ttl > AGAIN_MOST ? AGAIN_MOST : answer->ttl;
        e->addr = chosen;
        schedule(e, again < AGAIN_LEAST ? AGAIN_LEAST : again);
        if (news)
            publish_soon(n);
    } else {
        schedule(e, e->addr.family ? AGAIN_FAILED : AGAIN_LEAST);
    }
    note_asked(n, e);
}

static void ask_host(struct host *e)
{
    const struct fair_owner asker = {e->owner.hash, e->addr.family ? FAIR_IN_USE : e->owner.rank};
    e->asking = dns_ask(e->names->dns, slice_text(e->text), asker, on_answer, e);
    if (!e->asking)
        schedule(e, AGAIN_LEAST);
}

/* owner: who uses it, of whose share it is made, if there is room; NULL: it is wanted for all, and is made if it is not there. */
static struct host *host_for(struct names *n, const char *text, const struct fair_owner *owner)
{
    bool room = !owner || (n->count < n->options.most && fair_has_room(n->shares, *owner, 1));
    size_t size = strlen(text) + 1;
    struct host *e = calloc(1, sizeof *e + size);
    if (!e)
        return NULL;
    memcpy(e->text, text, size);
    struct host *const *found = room ? tsearch(e, &n->tree, by_text) : tfind(e, &n->tree, by_text);
    if (!found || *found != e) {
        free(e);
        return found ? *found : NULL;
    }
    e->names = n;
    e->owner = owner ? *owner : (struct fair_owner){.rank = FAIR_VERIFIED};
    bool counted = !owner || fair_enter(n->shares, &e->place, *owner, 1, 0);
    assert(counted); /* fair_has_room was true above */
    (void)counted;
    e->next = n->hosts;
    n->hosts = e;
    n->count++;
    ask_host(e);
    return e;
}

static void note_use_of(struct names *n, const char *text, struct fair_owner owner)
{
    struct host *e = host_for(n, text, &owner);
    if (e)
        e->used_until = loop_clock() + n->options.unused;
}

static void note_use(void *context, const char *text)
{
    note_use_of(context, text, (struct fair_owner){.rank = FAIR_VERIFIED});
}

/* Who finds a name in the table does not ask for it here. */
static void note_uses(struct names *n)
{
    name_table_used(n->table, note_use, n);
}

void names_want(struct names *n, char *const *hosts, size_t count)
{
    n->generation++;
    n->unasked = 0;
    for (size_t i = 0; i < count; i++) {
        struct host *e = host_for(n, hosts[i], NULL);
        if (!e)
            continue;
        e->generation = n->generation;
        n->unasked += !e->asked;
    }
    look_settled(n);
}

static void release_names(struct names *n)
{
    if (references_drop(&n->references))
        free(n);
}

static void on_use(void *context)
{
    struct use *use = context;
    struct names *n = use->names;
    if (!n->stopping)
        note_use_of(n, use->text, use->owner);
    free(use);
    atomic_fetch_sub(&n->uses, 1);
    release_names(n);
}

bool names_use(struct names *n, struct slice host, struct fair_owner owner)
{
    struct use *use = NULL;
    if (atomic_fetch_add(&n->uses, 1) >= n->options.most || !(use = calloc(1, sizeof *use + host.len + 1))) {
        atomic_fetch_sub(&n->uses, 1);
        return false;
    }
    references_add(&n->references);
    memcpy(use->text, host.at, host.len);
    use->names = n;
    use->owner = owner;
    use->task = (struct loop_task){.run = on_use, .context = use};
    loop_post(n->loop, &use->task);
    return true;
}

static bool is_wanted(const struct host *e, uint64_t now)
{
    return e->generation == e->names->generation || e->used_until > now;
}

static void on_sweep(void *owner)
{
    struct names *n = owner;
    uint64_t now = loop_clock();
    bool gone = false;
    note_uses(n);
    for (struct host **link = &n->hosts, *e; (e = *link);) {
        if (!e->asking && !is_wanted(e, now)) {
            gone = gone || e->addr.family;
            *link = e->next;
            (void)tdelete(e, &n->tree, by_text);
            fair_leave(n->shares, &e->place);
            n->count--;
            free(e);
            continue;
        }
        if (!e->asking && e->ask_at <= now)
            ask_host(e);
        link = &e->next;
    }
    if (gone) /* whoever comes later is to wait for the address that it has then */
        publish_soon(n);
    loop_timer_set(&n->sweep, SWEEP);
}

/* ---- its life ---- */

static void keep_all(void *node)
{
    (void)node; /* they are freed by the list of them */
}

void names_stop(struct names *n)
{
    if (!n)
        return;
    n->stopping = true;
    dns_free(n->dns);
    loop_timer_close(&n->sweep);
    loop_timer_close(&n->publish);
    tdestroy(n->tree, keep_all);
    name_table_release(n->table);
    for (struct host *e = n->hosts, *next; e; e = next) {
        next = e->next;
        free(e);
    }
    free(n->shares);
    release_names(n);
}

struct names *names_start(struct loop *loop, const struct names_options *options, struct fail *why)
{
    struct names *n = calloc(1, sizeof *n);
    if (!n) {
        fail(why, "out of memory");
        return NULL;
    }
    n->options = *options;
    n->loop = loop;
    n->references = 1;
    n->generation = 1; /* what is only used is in none */
    n->dns_options = (struct dns_options){.servers = options->servers, .timeout = LOOKUP_TIMEOUT};
    const struct fair_limits limits = {.places = (uint32_t)options->most};
    fail(why, "out of memory"); /* unless DNS says something else */
    n->shares = fair_new(&limits);
    n->dns = n->shares ? dns_new(loop, &n->dns_options, why) : NULL;
    if (!n->dns) {
        names_stop(n);
        return NULL;
    }
    loop_timer_open(&n->sweep, loop, on_sweep, n);
    loop_timer_open(&n->publish, loop, publish, n);
    loop_timer_set(&n->sweep, SWEEP);
    return n;
}
