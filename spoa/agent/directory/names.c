/* SPDX-License-Identifier: MIT */
#include "spoa/agent/directory/names.h"

#include <pthread.h>
#include <search.h>
#include <stdlib.h>

#include "spoa/agent/directory/host_names.h"
#include "spoa/base/thread.h"
#include "spoa/net/dns.h"

#define SECOND         UINT64_C(1000000)
#define AGAIN_LEAST    1.0 /* seconds, however short the time to live is */
#define AGAIN_MOST     30.0
#define AGAIN_FAILED   5.0
#define SWEEP          0.5  /* seconds between looks at what is to be asked again */
#define PUBLISH_LEAST  0.02 /* seconds between two tables */
#define PUBLISH_SHARE  10   /* of the time at most goes into making tables */
#define LOOKUP_TIMEOUT 5.0

/* ---- the names of the thread ---- */

struct host {
    struct host *next;
    struct names *names;
    struct address addr;
    uint64_t ask_at, used_until; /* loop_clock */
    uint64_t generation;         /* of the set of records that it was last in; 0: of none */
    bool asking, asked;          /* now; ever */
    char text[];
};

struct use {
    struct use *next;
    char text[];
};

struct names {
    bool (*changed)(void *context, struct name_table *table);
    void *context;
    pthread_t thread;

    /* of the thread */
    struct loop *loop;
    struct dns *dns;
    struct dns_options dns_options;
    struct loop_timer sweep, publish;
    struct loop_task take, end;
    void *tree; /* of all hosts, by text */
    struct host *hosts;
    size_t count;
    uint64_t generation;
    size_t unasked; /* of this generation */
    uint64_t published_at, publish_cost;
    struct name_table *table; /* the last one that was taken */
    uint64_t unused;          /* microseconds */
    size_t most;
    bool stopping;

    pthread_mutex_t lock;     /* guards what follows */
    struct host_names wanted; /* to be taken by the thread */
    struct use *uses;         /* the same */
    size_t use_count;
    bool fresh;             /* wanted is to be taken */
    bool settled;           /* what was taken has been asked for */
    pthread_cond_t settles; /* nothing is fresh, and settled */
};

static int by_text(const void *a, const void *b)
{
    return strcmp(((const struct host *)a)->text, ((const struct host *)b)->text);
}

static void schedule(struct host *e, double seconds)
{
    e->ask_at = loop_clock() + (uint64_t)(seconds * 1e6);
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
    bool taken = table && n->changed(n->context, table);
    if (taken) {
        name_table_release(n->table);
        n->table = name_table_retain(table);
    }
    name_table_release(table);
    n->published_at = loop_clock();
    n->publish_cost = n->published_at - start;
    if (!taken) /* out of memory: tried again */
        loop_timer_set(&n->publish, 1);
}

/* At once after a quiet time; many that come together share a table. */
static void publish_soon(struct names *n)
{
    double pause = (double)n->publish_cost * PUBLISH_SHARE / 1e6;
    double since = (double)(loop_clock() - n->published_at) / 1e6;
    pause = (pause > PUBLISH_LEAST ? pause : PUBLISH_LEAST) - since;
    if (!loop_timer_active(&n->publish))
        loop_timer_set(&n->publish, pause > 0 ? pause : 0);
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
    pthread_mutex_lock(&n->lock);
    n->settled = true;
    pthread_cond_broadcast(&n->settles);
    pthread_mutex_unlock(&n->lock);
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
        double again = answer->ttl > AGAIN_MOST ? AGAIN_MOST : answer->ttl;
        e->addr = chosen;
        schedule(e, again < AGAIN_LEAST ? AGAIN_LEAST : again);
        if (news)
            publish_soon(n);
    } else {
        schedule(e, e->addr.family ? AGAIN_FAILED : AGAIN_LEAST);
    }
    note_asked(n, e);
}

static void ask(struct host *e)
{
    e->asking = dns_ask(e->names->dns, slice_text(e->text), on_answer, e);
    if (!e->asking)
        schedule(e, AGAIN_LEAST);
}

/* room: it is made if it is not there. */
static struct host *host_for(struct names *n, const char *text, bool room)
{
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
    e->next = n->hosts;
    n->hosts = e;
    n->count++;
    ask(e);
    return e;
}

static void note_use(void *context, const char *text)
{
    struct names *n = context;
    struct host *e = host_for(n, text, n->count < n->most);
    if (e)
        e->used_until = loop_clock() + n->unused;
}

/* Who finds a name in the table does not ask for it here. */
static void note_uses(struct names *n)
{
    name_table_used(n->table, note_use, n);
}

static void take_wanted(struct names *n, const struct host_names *wanted)
{
    n->generation++;
    n->unasked = 0;
    for (size_t i = 0; i < wanted->count; i++) {
        struct host *e = host_for(n, wanted->texts[i], true);
        if (!e)
            continue;
        e->generation = n->generation;
        n->unasked += !e->asked;
    }
    look_settled(n);
}

static void take_uses(struct names *n, struct use *uses)
{
    for (struct use *u = uses, *next; u; u = next) {
        next = u->next;
        note_use(n, u->text);
        free(u);
    }
}

static void on_take(void *context)
{
    struct names *n = context;
    pthread_mutex_lock(&n->lock);
    struct host_names wanted = n->wanted;
    struct use *uses = n->uses;
    bool fresh = n->fresh;
    n->wanted = (struct host_names){0};
    n->uses = NULL;
    n->use_count = 0;
    n->fresh = false;
    n->settled = n->settled && !fresh;
    pthread_mutex_unlock(&n->lock);
    if (fresh && !n->stopping)
        take_wanted(n, &wanted);
    take_uses(n, n->stopping ? NULL : uses);
    host_names_free(&wanted);
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
            n->count--;
            free(e);
            continue;
        }
        if (!e->asking && e->ask_at <= now)
            ask(e);
        link = &e->next;
    }
    if (gone) /* whoever comes later is to wait for the address that it has then */
        publish_soon(n);
    loop_timer_set(&n->sweep, SWEEP);
}

/* ---- its life ---- */

static void on_end(void *context)
{
    struct names *n = context;
    n->stopping = true;
    loop_stop(n->loop);
}

static void *run(void *context)
{
    struct names *n = context;
    loop_run(n->loop);
    return NULL;
}

static void init_lock(struct names *n)
{
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&n->settles, &monotonic);
    pthread_condattr_destroy(&monotonic);
    pthread_mutex_init(&n->lock, NULL);
}

static void free_uses(struct use *uses)
{
    for (struct use *next; uses; uses = next) {
        next = uses->next;
        free(uses);
    }
}

static void keep_all(void *node)
{
    (void)node; /* they are freed by the list of them */
}

static void destroy(struct names *n)
{
    n->stopping = true;
    dns_free(n->dns);
    loop_timer_close(&n->sweep);
    loop_timer_close(&n->publish);
    loop_free(n->loop);
    tdestroy(n->tree, keep_all);
    name_table_release(n->table);
    for (struct host *e = n->hosts, *next; e; e = next) {
        next = e->next;
        free(e);
    }
    free_uses(n->uses);
    host_names_free(&n->wanted);
    pthread_cond_destroy(&n->settles);
    pthread_mutex_destroy(&n->lock);
    free(n);
}

static bool prepare(struct names *n, const struct texts *servers, struct fail *why)
{
    n->take = (struct loop_task){.run = on_take, .context = n};
    n->end = (struct loop_task){.run = on_end, .context = n};
    n->dns_options = (struct dns_options){.servers = *servers, .timeout = LOOKUP_TIMEOUT};
    if (!(n->loop = loop_new(why)) || !(n->dns = dns_new(n->loop, &n->dns_options, why)))
        return false;
    loop_timer_open(&n->sweep, n->loop, on_sweep, n);
    loop_timer_open(&n->publish, n->loop, publish, n);
    loop_timer_set(&n->sweep, SWEEP);
    return true;
}

struct names *names_start(const struct texts *servers, double unused, size_t most,
                          bool (*changed)(void *context, struct name_table *table), void *context,
                          struct fail *why)
{
    struct names *n = calloc(1, sizeof *n);
    if (!n) {
        fail(why, "out of memory");
        return NULL;
    }
    n->changed = changed;
    n->unused = (uint64_t)(unused * 1e6);
    n->most = most;
    n->context = context;
    n->settled = true;
    n->generation = 1; /* what is only used is in none */
    init_lock(n);
    if (prepare(n, servers, why) && thread_start(&n->thread, run, n, why))
        return n;
    destroy(n);
    return NULL;
}

bool names_want(struct names *n, const struct records *records)
{
    struct host_names wanted = {0};
    if (!host_names_collect(&wanted, records)) {
        host_names_free(&wanted);
        return false;
    }
    pthread_mutex_lock(&n->lock);
    struct host_names old = n->wanted;
    n->wanted = wanted;
    n->fresh = true;
    pthread_mutex_unlock(&n->lock);
    loop_post(n->loop, &n->take);
    host_names_free(&old);
    return true;
}

bool names_use(struct names *n, struct slice host)
{
    struct use *use = calloc(1, sizeof *use + host.len + 1);
    if (!use)
        return false;
    memcpy(use->text, host.at, host.len);
    pthread_mutex_lock(&n->lock);
    bool room = n->use_count < n->most;
    if (room) {
        use->next = n->uses;
        n->uses = use;
        n->use_count++;
    }
    pthread_mutex_unlock(&n->lock);
    if (room)
        loop_post(n->loop, &n->take);
    else
        free(use);
    return room;
}

void names_await(struct names *n, const struct timespec *until)
{
    pthread_mutex_lock(&n->lock);
    for (int error = 0; (n->fresh || !n->settled) && error == 0;)
        error = pthread_cond_timedwait(&n->settles, &n->lock, until);
    pthread_mutex_unlock(&n->lock);
}

void names_stop(struct names *n)
{
    if (!n)
        return;
    loop_post(n->loop, &n->end);
    pthread_join(n->thread, NULL);
    destroy(n);
}
