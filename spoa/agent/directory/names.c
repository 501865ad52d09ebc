/* SPDX-License-Identifier: MIT */
#include "spoa/agent/directory/names.h"

#include <assert.h>
#include <search.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "spoa/base/table/references.h"
#include "spoa/net/dns.h"

#define AGAIN_MIN      SECOND /* minimum time between two look-ups of a name, whatever its time to live */
#define AGAIN_MAX      (30 * SECOND)
#define AGAIN_FAILED   (5 * SECOND)        /* pause after a failed look-up of a name with an address */
#define SWEEP_EVERY    (500 * MILLISECOND) /* between two checks for names that are due or unused */
#define PUBLISH_MIN    (20 * MILLISECOND)  /* minimum time between two tables */
#define PUBLISH_SHARE  10 /* the part of the time that building tables may take is 1 in this */
#define LOOKUP_TIMEOUT (5 * SECOND)

/* One name that is resolved. */
struct host {
    struct host *next;
    struct names *names;
    struct address addr;         /* family 0: no address yet */
    uint64_t ask_at, used_until; /* times of loop_clock */
    uint64_t generation;         /* the last names_want that named it, or 0 */
    bool asking, asked;          /* a look-up is in flight; one was answered before */
    struct fair_owner owner;     /* charged for the name */
    struct fair_place place;     /* place among max_used; none if names_want named it */
    char text[];
};

/* A names_use on its way to the loop's thread. */
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
    struct fair *shares; /* places of the names that names_use asked for */
    struct dns_options dns_options;
    struct loop_timer sweep, publish;
    void *tree;         /* hosts by text, for tsearch */
    struct host *hosts; /* all hosts */
    size_t count;
    uint64_t generation; /* counts names_want, from 1 on */
    size_t unasked;      /* number of names of this generation without an answer yet */
    uint64_t published_at, publish_cost;
    struct name_table *table; /* the last table that the owner took, or NULL */
    bool stopping;
    atomic_uint uses;       /* number of names_use on their way */
    atomic_uint references; /* the owner's, and one of each names_use on its way */
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

/* State of one walk over the tree, which either counts or fills a table. */
struct filling {
    struct name_table *table; /* NULL: only count */
    size_t count, bytes;
};

/* Visits a node of the tree. twalk_r visits inner nodes three times; postorder gives each node once, in order. */
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

static void publish(void *owner)
{
    struct names *n = owner;
    uint64_t start = loop_clock();
    note_uses(n); /* marks of the table that is replaced */
    struct filling f = {0};
    twalk_r(n->tree, fill, &f);
    struct name_table *table = f.table = name_table_new(f.count, f.bytes);
    if (table)
        twalk_r(n->tree, fill, &f);
    bool taken = table && n->options.changed(n->options.context, table);
    if (taken) {
        name_table_release(n->table);
        n->table = name_table_retain(table);
    }
    name_table_release(table);
    n->published_at = loop_clock();
    n->publish_cost = n->published_at - start;
    if (!taken) /* memory is short */
        loop_timer_set(&n->publish, SECOND);
}

/* Publishes at once if the last table is old enough; otherwise changes that come together share the next table. */
static void publish_soon(struct names *n)
{
    uint64_t pause = n->publish_cost * PUBLISH_SHARE;
    if (!loop_timer_active(&n->publish))
        loop_timer_set_at(&n->publish, n->published_at + (pause > PUBLISH_MIN ? pause : PUBLISH_MIN));
}

/* ---- asking ---- */

/* Reports that the wanted names are settled, if they are. */
static void check_settled(struct names *n)
{
    if (n->unasked)
        return;
    /* the owner looks into the table as soon as names are settled */
    if (loop_timer_active(&n->publish)) {
        loop_timer_stop(&n->publish);
        publish(n);
    }
    n->options.settled(n->options.context);
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
        uint64_t again = answer->ttl > AGAIN_MAX ? AGAIN_MAX : answer->ttl;
        e->addr = chosen;
        schedule(e, again < AGAIN_MIN ? AGAIN_MIN : again);
        if (news)
            publish_soon(n);
    } else {
        schedule(e, e->addr.family ? AGAIN_FAILED : AGAIN_MIN);
    }
    bool first = !e->asked && e->generation == n->generation;
    e->asked = true;
    if (first && --n->unasked == 0)
        check_settled(n);
}

static void ask_host(struct host *e)
{
    const struct fair_owner asker = {e->owner.hash, e->addr.family ? FAIR_IN_USE : e->owner.rank};
    e->asking = dns_ask(e->names->dns, slice_text(e->text), asker, on_answer, e);
    if (!e->asking)
        schedule(e, AGAIN_MIN);
}

/* Returns the host of that name, which is created and asked for if there is none. `owner` is charged for a new host, which is not
 * created beyond its share or max_used; NULL stands for names_want, which has no limit. Returns NULL if it cannot be created. */
static struct host *host_for(struct names *n, const char *text, const struct fair_owner *owner)
{
    bool room = !owner || (n->count < n->options.max_used && fair_has_room(n->shares, *owner, 1));
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

/* Keeps the name resolved for a while. */
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

/* Keeps the names resolved that were found in the last table: whoever finds a name there does not call names_use. */
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
    check_settled(n);
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
    if (atomic_fetch_add(&n->uses, 1) >= n->options.max_used ||
        !(use = calloc(1, sizeof *use + host.len + 1))) {
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

static void on_sweep(void *owner)
{
    struct names *n = owner;
    uint64_t now = loop_clock();
    bool gone = false;
    note_uses(n);
    for (struct host **link = &n->hosts, *e; (e = *link);) {
        bool wanted = e->generation == n->generation || e->used_until > now;
        if (!e->asking && !wanted) {
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
    if (gone) /* the next request must wait for a fresh address */
        publish_soon(n);
    loop_timer_set(&n->sweep, SWEEP_EVERY);
}

/* ---- its life ---- */

static void keep_all(void *node)
{
    (void)node; /* names_stop frees the list of hosts */
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
    n->generation = 1; /* names without a names_want have generation 0 */
    n->dns_options = (struct dns_options){.servers = options->servers, .timeout = LOOKUP_TIMEOUT};
    const struct fair_limits limits = {.places = (uint32_t)options->max_used};
    fail(why, "out of memory"); /* replaced if the cause is another one */
    n->shares = fair_new(&limits);
    n->dns = n->shares ? dns_new(loop, &n->dns_options, why) : NULL;
    if (!n->dns) {
        names_stop(n);
        return NULL;
    }
    loop_timer_open(&n->sweep, loop, on_sweep, n);
    loop_timer_open(&n->publish, loop, publish, n);
    loop_timer_set(&n->sweep, SWEEP_EVERY);
    return n;
}
