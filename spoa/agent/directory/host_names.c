/* SPDX-License-Identifier: MIT */
#include "spoa/agent/directory/host_names.h"

#include <stdlib.h>

void host_names_free(struct host_names *w)
{
    for (size_t i = 0; i < w->count; i++)
        free(w->texts[i]);
    free(w->texts);
    *w = (struct host_names){0};
}

static bool add(struct host_names *w, const struct worker *worker)
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

static void sort(struct host_names *w)
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

bool host_names_collect(struct host_names *w, const struct records *records)
{
    struct record record;
    struct slice key;
    size_t cursor = 0;
    while (records && records_each(records, &cursor, &key, &record)) {
        size_t at = 0;
        struct worker worker;
        bool good = add(w, &record.worker);
        while (good && record_port_next(&record, &at, &(uint16_t){0}, &worker))
            good = add(w, &worker);
        if (!good)
            return false;
    }
    sort(w);
    return true;
}
