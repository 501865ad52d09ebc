/* SPDX-License-Identifier: MIT */
#include "spoa/agent/names.h"

#include <netdb.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>

#define RESOLVE_EVERY_S 30
#define USED_FOR_S      600
#define USED_MOST       4096

struct name {
    char *text;
    struct address addr;
};

struct name_table {
    atomic_uint references;
    size_t count;
    struct name names[]; /* sorted by text */
};

struct name_table *name_table_retain(struct name_table *table)
{
    atomic_fetch_add_explicit(&table->references, 1, memory_order_relaxed);
    return table;
}

void name_table_release(struct name_table *table)
{
    if (!table || atomic_fetch_sub_explicit(&table->references, 1, memory_order_acq_rel) > 1)
        return;
    for (size_t i = 0; i < table->count; i++)
        free(table->names[i].text);
    free(table);
}

static int compare(struct slice a, const char *b)
{
    int order = a.len ? strncmp((const char *)a.at, b, a.len) : 0;
    return order ? order : -(int)(b[a.len] != '\0');
}

bool name_table_find(const struct name_table *table, struct slice name, struct address *addr)
{
    size_t low = 0, high = table ? table->count : 0;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int order = compare(name, table->names[middle].text);
        if (order == 0) {
            *addr = table->names[middle].addr;
            return addr->family != 0;
        }
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return false;
}

/* ---- the set of wanted names ---- */

struct wanted {
    char **texts;
    size_t count, size;
};

static void wanted_free(struct wanted *w)
{
    for (size_t i = 0; i < w->count; i++)
        free(w->texts[i]);
    free(w->texts);
    *w = (struct wanted){0};
}

static bool wanted_add(struct wanted *w, const struct worker *worker)
{
    if (worker->addr.family || worker->kind == WORKER_NONE || worker->kind == WORKER_UNIX)
        return true;
    if (w->count == w->size) {
        size_t size = w->size ? w->size * 2 : 16;
        char **texts = realloc(w->texts, size * sizeof *texts);
        if (!texts)
            return false;
        w->texts = texts;
        w->size = size;
    }
    w->texts[w->count] = slice_dup(worker->host);
    return w->texts[w->count] && ++w->count;
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void wanted_sort(struct wanted *w)
{
    size_t kept = 0;
    if (w->count)
        qsort(w->texts, w->count, sizeof *w->texts, by_text);
    for (size_t i = 0; i < w->count; i++)
        if (kept && strcmp(w->texts[kept - 1], w->texts[i]) == 0)
            free(w->texts[i]);
        else
            w->texts[kept++] = w->texts[i];
    w->count = kept;
}

static bool wanted_collect(struct wanted *w, const struct records *records)
{
    struct record record;
    struct slice key;
    size_t cursor = 0;
    while (records_each(records, &cursor, &key, &record)) {
        size_t at = 0;
        struct worker worker;
        bool good = wanted_add(w, &record.worker);
        while (good && record_port_next(&record, &at, &(uint16_t){0}, &worker))
            good = wanted_add(w, &worker);
        if (!good)
            return false;
    }
    wanted_sort(w);
    return true;
}

/* ---- the resolver ---- */

/* A name that was asked for by itself. */
struct used {
    char *text;
    time_t until;
};

struct names {
    void (*changed)(void *context, struct name_table *table);
    void *context;
    pthread_t thread;
    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t woken;
    struct wanted wanted;
    struct used used[USED_MOST];
    size_t used_count;
    bool fresh, busy, stopping; /* busy: fresh ones are being resolved for the first time */
    pthread_cond_t settled;     /* neither fresh nor busy */
    struct name_table *table;   /* of the thread alone */
};

static void resolve(struct name *name, const struct name_table *before)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_ADDRCONFIG};
    struct addrinfo *list = NULL;
    name->addr = (struct address){0};
    if (getaddrinfo(name->text, NULL, &hints, &list) != 0) {
        (void)name_table_find(before, slice_text(name->text), &name->addr);
        return;
    }
    for (const struct addrinfo *a = list; a && !name->addr.family; a = a->ai_next) {
        if (a->ai_family == AF_INET) {
            const struct sockaddr_in *in = (const struct sockaddr_in *)(const void *)a->ai_addr;
            name->addr.family = 4;
            memcpy(name->addr.bytes, &in->sin_addr, 4);
        } else if (a->ai_family == AF_INET6) {
            const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)(const void *)a->ai_addr;
            name->addr.family = 6;
            memcpy(name->addr.bytes, &in6->sin6_addr, 16);
        }
    }
    freeaddrinfo(list);
}

/* A table of the wanted names, which move into it; their addresses are still those of the last table. */
static struct name_table *table_new(struct wanted *wanted, const struct name_table *before)
{
    struct name_table *table = calloc(1, sizeof *table + wanted->count * sizeof table->names[0]);
    if (!table)
        return NULL;
    table->references = 1;
    table->count = wanted->count;
    for (size_t i = 0; i < wanted->count; i++) {
        table->names[i].text = wanted->texts[i];
        (void)name_table_find(before, slice_text(wanted->texts[i]), &table->names[i].addr);
    }
    wanted->count = 0;
    return table;
}

static time_t seconds_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec;
}

static void forget_unused(struct names *n)
{
    time_t now = seconds_now();
    size_t kept = 0;
    for (size_t i = 0; i < n->used_count; i++)
        if (n->used[i].until > now)
            n->used[kept++] = n->used[i];
        else
            free(n->used[i].text);
    n->used_count = kept;
}

/* Called with the lock held. */
static bool copy_wanted(struct names *n, struct wanted *to)
{
    forget_unused(n);
    size_t size = n->wanted.count + n->used_count;
    *to = (struct wanted){calloc(size + 1, sizeof *to->texts), 0, size + 1};
    for (size_t i = 0; to->texts && i < size; i++) {
        const char *text = i < n->wanted.count ? n->wanted.texts[i] : n->used[i - n->wanted.count].text;
        if (!(to->texts[i] = strdup(text)))
            break;
        to->count++;
    }
    if (to->texts && to->count == size) {
        wanted_sort(to);
        return true;
    }
    wanted_free(to);
    return false;
}

static void resolve_all(struct names *n, struct wanted *wanted)
{
    struct name_table *table = table_new(wanted, n->table);
    if (!table)
        return;
    bool news = !n->table || n->table->count != table->count;
    for (size_t i = 0; i < table->count; i++) {
        struct address old = table->names[i].addr;
        resolve(&table->names[i], n->table);
        news = news || memcmp(&old, &table->names[i].addr, sizeof old) != 0;
        if (__atomic_load_n(&n->stopping, __ATOMIC_RELAXED))
            break;
    }
    if (news)
        n->changed(n->context, table);
    name_table_release(n->table);
    n->table = table;
}

static void *run(void *context)
{
    struct names *n = context;
    pthread_mutex_lock(&n->lock);
    while (!n->stopping) {
        struct wanted wanted = {0};
        bool copied = copy_wanted(n, &wanted);
        n->busy = true;
        n->fresh = false;
        pthread_mutex_unlock(&n->lock);
        if (copied && (wanted.count || n->table))
            resolve_all(n, &wanted);
        wanted_free(&wanted);
        struct timespec until;
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_sec += RESOLVE_EVERY_S;
        pthread_mutex_lock(&n->lock);
        n->busy = false;
        pthread_cond_broadcast(&n->settled);
        int error = 0;
        while (!n->fresh && !n->stopping && error == 0)
            error = pthread_cond_timedwait(&n->woken, &n->lock, &until);
    }
    pthread_mutex_unlock(&n->lock);
    return NULL;
}

struct names *names_start(void (*changed)(void *context, struct name_table *table), void *context,
                          struct fail *why)
{
    struct names *n = calloc(1, sizeof *n);
    if (!n) {
        fail(why, "out of memory");
        return NULL;
    }
    n->changed = changed;
    n->context = context;
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&n->woken, &monotonic);
    pthread_cond_init(&n->settled, &monotonic);
    pthread_condattr_destroy(&monotonic);
    pthread_mutex_init(&n->lock, NULL);
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int error = pthread_create(&n->thread, NULL, run, n);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (error == 0)
        return n;
    fail(why, "cannot start the resolver's thread: %s", strerror(error));
    free(n);
    return NULL;
}

bool names_want(struct names *n, const struct records *records)
{
    struct wanted wanted = {0};
    if (!wanted_collect(&wanted, records)) {
        wanted_free(&wanted);
        return false;
    }
    pthread_mutex_lock(&n->lock);
    struct wanted old = n->wanted;
    n->wanted = wanted;
    n->fresh = true;
    pthread_cond_signal(&n->woken);
    pthread_mutex_unlock(&n->lock);
    wanted_free(&old);
    return true;
}

bool names_use(struct names *n, struct slice host)
{
    size_t i = 0;
    pthread_mutex_lock(&n->lock);
    while (i < n->used_count && !slice_is(host, n->used[i].text))
        i++;
    bool known = i < n->used_count;
    bool good = known || (i < USED_MOST && (n->used[i].text = slice_dup(host)));
    if (good)
        n->used[i].until = seconds_now() + USED_FOR_S;
    if (good && !known) {
        n->used_count++;
        n->fresh = true;
        pthread_cond_signal(&n->woken);
    }
    pthread_mutex_unlock(&n->lock);
    return good;
}

void names_await(struct names *n, const struct timespec *until)
{
    pthread_mutex_lock(&n->lock);
    for (int error = 0; (n->fresh || n->busy) && error == 0;)
        error = pthread_cond_timedwait(&n->settled, &n->lock, until);
    pthread_mutex_unlock(&n->lock);
}

void names_stop(struct names *n)
{
    if (!n)
        return;
    pthread_mutex_lock(&n->lock);
    __atomic_store_n(&n->stopping, true, __ATOMIC_RELAXED);
    pthread_cond_signal(&n->woken);
    pthread_mutex_unlock(&n->lock);
    pthread_join(n->thread, NULL);
    pthread_cond_destroy(&n->woken);
    pthread_cond_destroy(&n->settled);
    pthread_mutex_destroy(&n->lock);
    wanted_free(&n->wanted);
    for (size_t i = 0; i < n->used_count; i++)
        free(n->used[i].text);
    name_table_release(n->table);
    free(n);
}
