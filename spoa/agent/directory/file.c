/* SPDX-License-Identifier: MIT */
#include "spoa/agent/directory/file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <libgen.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/inotify.h>
#include <time.h>
#include <unistd.h>

#include "spoa/agent/model/record_json.h"
#include "spoa/base/os/file.h"
#include "spoa/base/os/thread.h"
#include "spoa/net/loop.h"

#define LOOK_EVERY    (100 * MILLISECOND) /* between two checks of the file */
#define READ_MAX      ((size_t)1 << 20) /* bytes of one read, after which a reader notices that it was stopped */
#define READS_MAX     16                /* reads of inotify in one turn of the loop */
#define LOOKS_AGAIN   10 /* checks between two attempts to read a file that could not be read */
#define FILE_MAX      ((off_t)2 << 30)
#define RECORD_DEPTH  6
#define RECORD_LIMITS ((struct json_limits){.bytes = (size_t)256 * 1024, .depth = RECORD_DEPTH})

/* ---- reading one file ---- */

/* State of one reading of the file. */
struct loading {
    const char *path;
    struct slice text;            /* the file's content */
    const struct records *before; /* the last good table, or NULL */
    struct directory_load *load;
    const atomic_bool *stop;                  /* set from another thread to give up, or NULL */
    const struct directory_file_check *check; /* additional check of records, or NULL */
    bool is_public;                           /* everybody may read the file */
    uint8_t scratch[128 * 1024];              /* ports and headers of one record */
};

/* Turns the message ":LINE:COLUMN: what" about a value within the file into "path:LINE:COLUMN: what" of the file. Returns false. */
static bool fail_at(const struct loading *l, struct slice value, const struct fail *inner, struct fail *why)
{
    struct slice what = slice_text(inner->text), rest = what, path, line_text, column_text;
    uint64_t line = 1, column = 1, lines = 0;
    if (slice_split(&rest, ':', &path) && slice_split(&rest, ':', &line_text) &&
        slice_split(&rest, ':', &column_text) && slice_u64(line_text, UINT32_MAX, &line) &&
        slice_u64(column_text, UINT32_MAX, &column))
        what = slice_trim(rest);
    const uint8_t *start_of_line = l->text.at;
    for (const uint8_t *p = l->text.at; p < value.at; p++)
        if (*p == '\n') {
            lines++;
            start_of_line = p + 1;
        }
    if (line == 1)
        column += (uint64_t)(value.at - start_of_line);
    return fail(why, "%s:%" PRIu64 ":%" PRIu64 ": %.*s", l->path, lines + line, column, SLICE_PRINTF(what));
}

/* Returns whether a record has headers: they are secrets, because they let the gate in at a worker. */
static bool has_headers(const struct record *record)
{
    struct record_details details;
    struct worker worker;
    uint16_t port;
    size_t cursor = 0;
    if (record->headers.len)
        return true;
    while (record_port_next(record, &cursor, &port, &worker))
        if (record_details(record, port, &details) && details.headers.len)
            return true;
    return false;
}

/* Parses one record and adds it. An older epoch than that of the last table keeps the last table's record. */
static bool load_record(void *context, struct slice key, struct slice value, struct fail *why)
{
    struct loading *l = context;
    struct fail inner;
    struct record record, old;
    if (l->stop && atomic_load(l->stop))
        return fail(why, "stopped");
    struct json *doc = json_parse(value, "", 0, RECORD_LIMITS, &inner);
    if (!doc)
        return fail_at(l, value, &inner, why);
    struct writer scratch = writer_of(l->scratch, sizeof l->scratch);
    bool good = record_from_json(doc, json_root(doc), &scratch, &record, &inner);
    good = good && (!l->check || l->check->record(l->check->context, doc, json_root(doc), &inner));
    const struct record *kept = &record;
    if (good && l->before && record.epoch && records_get(l->before, key, &old) == LOOKUP_FOUND &&
        record.epoch < old.epoch) {
        kept = &old;
        l->load->epochs_behind++;
    }
    good = good && records_add(l->load->records, key, kept, &inner);
    l->load->exposed += good && l->is_public && has_headers(kept);
    json_free(doc);
    return good || fail_at(l, value, &inner, why);
}

/* Parses one member of the root beside "sandboxes". */
static bool load_other(void *context, struct slice key, struct slice value, struct fail *why)
{
    struct loading *l = context;
    struct fail inner = {":1:1: not_before is a time in Unix seconds"};
    uint64_t seconds;
    if (slice_is(key, "revoked")) {
        int64_t now = (int64_t)time(NULL);
        return revoked_read_object(slice_trim(value), l->path, now, &l->load->revoked, &l->load->revoked_over,
                                   why);
    }
    if (!slice_is(key, "not_before"))
        fail(&inner, ":1:1: beside sandboxes only not_before and revoked may stand here");
    else if (slice_u64(value, (uint64_t)1 << 53, &seconds)) {
        l->load->not_before = (int64_t)seconds;
        return true;
    }
    return fail_at(l, value, &inner, why);
}

/* Reads the whole file into malloc'd memory. Returns false with *why, also if the file changed meanwhile: the next check reads it
 * again. */
static bool read_whole(const char *path, struct slice *text, bool *is_public, const atomic_bool *stop,
                       struct fail *why)
{
    struct stat before, after;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe must not block the thread */
    if (fd < 0)
        return fail(why, "%s: %s", path, strerror(errno));
    uint8_t *memory = NULL;
    bool good = fstat(fd, &before) == 0 && S_ISREG(before.st_mode) && before.st_size <= FILE_MAX;
    if (!good) {
        fail(why, "%s: not a file, or over %lld bytes", path, (long long)FILE_MAX);
    } else if (!(memory = malloc((size_t)before.st_size + 1))) {
        good = fail(why, "%s: out of memory", path);
    } else {
        size_t len = 0, size = (size_t)before.st_size;
        ssize_t n;
        while (len < size && !(stop && atomic_load(stop)) &&
               (n = read(fd, memory + len, size - len < READ_MAX ? size - len : READ_MAX)) > 0)
            len += (size_t)n;
        /* the open file keeps its content when the path is replaced, so only these members of struct stat count */
        if (len != size || fstat(fd, &after) != 0 || before.st_size != after.st_size ||
            before.st_mtim.tv_sec != after.st_mtim.tv_sec || before.st_mtim.tv_nsec != after.st_mtim.tv_nsec)
            good = fail(why, "%s: changed while it was read", path);
        *text = slice_of(memory, len);
        *is_public = before.st_mode & S_IROTH;
    }
    close(fd);
    if (!good)
        free(memory);
    return good;
}

/* Reads the file into *load. Returns false with *why; *load then has no records, and load->unread tells whether they were parsed. */
static bool load_file(const char *path, const struct records *before,
                      const struct directory_file_check *check, struct directory_load *load,
                      const atomic_bool *stop, struct fail *why)
{
    uint64_t start = loop_clock();
    struct loading *l = calloc(1, sizeof *l);
    *load =
        (struct directory_load){.records = records_new(before ? records_count(before) : 0), .unread = true};
    bool good = l && load->records;
    if (!good)
        fail(why, "%s: out of memory", path);
    if (good && (good = read_whole(path, &l->text, &l->is_public, stop, why))) {
        load->unread = false;
        l->path = path;
        l->before = before;
        l->load = load;
        l->stop = stop;
        l->check = check;
        const struct json_stream stream = {load_record, load_other, l};
        good = json_stream_object(l->text, path, "sandboxes", 0, RECORD_DEPTH + 2, &stream, why);
        free((void *)l->text.at);
    }
    free(l);
    if (!good) {
        records_release(load->records);
        revoked_release(load->revoked);
        load->records = NULL;
        load->revoked = NULL;
    }
    load->seconds = (double)(loop_clock() - start) / 1e6;
    return good;
}

bool directory_file_load(const char *path, const struct records *before, struct directory_load *load,
                         struct fail *why)
{
    return load_file(path, before, NULL, load, NULL, why);
}

bool directory_file_load_checked(const char *path, const struct directory_file_check *check,
                                 struct directory_load *load, struct fail *why)
{
    return load_file(path, NULL, check, load, NULL, why);
}

/* ---- workers that records name by host name ---- */

struct host_names { /* list of texts; zeroed before its first use */
    char **texts;
    size_t count, size;
};

static void free_hosts(struct host_names *w)
{
    for (size_t i = 0; i < w->count; i++)
        free(w->texts[i]);
    free(w->texts);
    *w = (struct host_names){0};
}

/* Adds the worker's host name, if it has one. Returns false if memory is short. */
static bool add_host(struct host_names *w, const struct worker *worker)
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

/* Collects the host names of all records, each once. Returns false if memory is short; free *w in both cases. */
static bool collect_hosts(struct host_names *w, const struct records *records)
{
    struct record record;
    struct worker worker;
    struct slice key;
    size_t cursor = 0, kept = 0;
    bool good = true;
    while (good && records_each(records, &cursor, &key, &record)) {
        good = add_host(w, &record.worker);
        for (size_t at = 0; good && record_port_next(&record, &at, &(uint16_t){0}, &worker);)
            good = add_host(w, &worker);
    }
    if (w->count)
        qsort(w->texts, w->count, sizeof *w->texts, by_text);
    for (size_t i = 0; i < w->count; i++)
        if (kept && strcmp(w->texts[kept - 1], w->texts[i]) == 0)
            free(w->texts[i]);
        else
            w->texts[kept++] = w->texts[i];
    w->count = kept;
    return good;
}

/* ---- inotify: the folder is watched, because a watch on the file would stay with a file that was replaced ---- */

/* Reads the waiting events, but no more than READS_MAX times if somebody writes all the time. Returns whether the file was written or
 * replaced, or whether the kernel has lost events. */
static bool read_events(int fd, const char *path)
{
    _Alignas(struct inotify_event) char events[4096];
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    bool any = false;
    ssize_t n;
    for (int i = 0; i < READS_MAX && (n = read(fd, events, sizeof events)) > 0; i++)
        for (const char *p = events; p < events + n;) {
            const struct inotify_event *e = (const struct inotify_event *)(const void *)p;
            /* a file that was only created is not written yet */
            bool whole = e->len && (e->mask & (IN_CLOSE_WRITE | IN_MOVED_TO));
            any = any || (e->mask & IN_Q_OVERFLOW) || (whole && strcmp(name, e->name) == 0);
            p += sizeof *e + e->len;
        }
    return any;
}

/* ---- watching the file ---- */

struct directory_file {
    const char *path;
    struct directory *directory;
    struct loop *loop;
    struct loop_io events;   /* inotify */
    struct loop_timer look;  /* runs on_start once, then on_look */
    unsigned looks;          /* number of checks of a file that could not be read */
    struct records *records; /* the last good table, or NULL */
    struct stat seen;        /* attributes of the file when it was last read */
    bool unread; /* the file was missing, or could not be read or taken for want of descriptors or memory */
    struct fail reported; /* the last error that was reported; empty: none */

    bool reading;     /* a thread reads the file */
    bool again;       /* read once more after that, because the file changed meanwhile */
    atomic_bool stop; /* tells the thread to give up */
    pthread_t reader;
    struct loop_task read; /* posted by the thread when it ends */
    /* the thread's while it reads */
    struct directory_load load;
    struct host_names hosts;
    bool good;
    struct fail why;
};

static void read_again(struct directory_file *d);

/* Reports that the file is bad, but not the same error twice in a row for the same file (`again`). */
static void note_bad(struct directory_file *d, bool again)
{
    if (!again || strcmp(d->why.text, d->reported.text) != 0)
        directory_health(d->directory, false, true, d->why.text);
    d->reported = d->why;
}

/* Frees what the last reading has left. */
static void drop_load(struct directory_file *d)
{
    records_release(d->load.records);
    revoked_release(d->load.revoked);
    free_hosts(&d->hosts);
    d->load = (struct directory_load){.records = NULL};
}

/* Takes the result of the thread. */
static void on_read(void *context)
{
    struct directory_file *d = context;
    bool again = d->unread;
    pthread_join(d->reader, NULL);
    d->reading = false;
    d->unread = d->load.unread;
    if (d->good) {
        d->reported.text[0] = '\0';
        records_release(d->records);
        d->records = records_retain(d->load.records);
        d->unread = !directory_loaded(d->directory, &d->load);
    } else {
        note_bad(d, again);
    }
    drop_load(d);
    if (d->again)
        read_again(d);
}

/* The thread: a million records take more than a second, too long for the loop. */
static void *run_reader(void *context)
{
    struct directory_file *d = context;
    d->good = load_file(d->path, d->records, NULL, &d->load, &d->stop, &d->why);
    if (d->good && !collect_hosts(&d->hosts, d->load.records)) {
        d->good = fail(&d->why, "%s: out of memory", d->path);
        d->load.unread = true;
    }
    d->load.hosts = d->hosts.texts;
    d->load.host_count = d->hosts.count;
    loop_post(d->loop, &d->read);
    return NULL;
}

/* Starts a thread that reads the file, or notes that it must be read again. */
static void read_again(struct directory_file *d)
{
    d->again = d->reading;
    if (d->reading)
        return;
    /* the folder may have been replaced; watching a folder twice has no effect */
    char folder[PATH_MAX];
    snprintf(folder, sizeof folder, "%s", d->path);
    (void)inotify_add_watch(loop_io_fd(&d->events), dirname(folder),
                            IN_CLOSE_WRITE | IN_MOVED_TO | IN_CREATE | IN_ONLYDIR);
    /* noted before the reading: the next check sees a change that happens in between */
    file_look(d->path, &d->seen);
    d->reading = thread_start(&d->reader, run_reader, d, &d->why);
    if (d->reading)
        return;
    note_bad(d, d->unread);
    d->unread = true;
}

/* Reads the file only if an event names it. Replacing a file causes an event for its other name first, and reading on that event
 * would read it twice. */
static void on_events(void *owner, int events)
{
    struct directory_file *d = owner;
    (void)events;
    if (read_events(loop_io_fd(&d->events), d->path))
        read_again(d);
}

static void on_look(void *owner)
{
    struct directory_file *d = owner;
    struct stat now;
    /* events about the same change are consumed here, or the file would be read once more because of them */
    bool event = read_events(loop_io_fd(&d->events), d->path);
    file_look(d->path, &now);
    if (event || !file_looks_same(&d->seen, &now) ||
        (d->unread && !d->reading && ++d->looks % LOOKS_AGAIN == 0))
        read_again(d);
    loop_timer_set(&d->look, LOOK_EVERY);
}

static void on_start(void *owner)
{
    struct directory_file *d = owner;
    loop_timer_open(&d->look, d->loop, on_look, d);
    loop_timer_set(&d->look, LOOK_EVERY);
    read_again(d);
}

static void *file_start(const void *own, struct directory *directory, struct loop *loop, struct log *log,
                        struct fail *why)
{
    const struct directory_file_options *options = own;
    struct directory_file *d = calloc(1, sizeof *d);
    (void)log;
    if (!d) {
        fail(why, "out of memory");
        return NULL;
    }
    int fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    if (fd < 0) {
        fail(why, "cannot watch files: %s",
             errno == EMFILE ? "fs.inotify.max_user_instances or RLIMIT_NOFILE is too low" : strerror(errno));
        free(d);
        return NULL;
    }
    d->path = options->path;
    d->directory = directory;
    d->loop = loop;
    d->read = (struct loop_task){.run = on_read, .context = d};
    loop_io_open(&d->events, loop, fd, on_events, d);
    loop_io_want(&d->events, LOOP_READ);
    loop_timer_open(&d->look, loop, on_start, d);
    loop_timer_set(&d->look, 0);
    return d;
}

static void destroy(void *context)
{
    struct directory_file *d = context;
    drop_load(d);
    records_release(d->records);
    free(d);
}

/* The reader stops within a record, or a mebibyte. Posting its task is the last thing that it does, so after the join only that task is
 * left, which then frees everything. */
static void file_stop(void *self)
{
    struct directory_file *d = self;
    loop_io_close(&d->events);
    loop_timer_close(&d->look);
    atomic_store(&d->stop, true);
    if (!d->reading) {
        destroy(d);
        return;
    }
    d->read.run = destroy;
    pthread_join(d->reader, NULL);
}

static const struct option options[] = {
    DIRECTORY_KIND_OPTION(struct directory_file_options, "file"),
    {.key = "path",
     .type = OPTION_PATH,
     .offset = offsetof(struct directory_file_options, path),
     .help = "the file with the records; read again when it changes",
     .later = true},
};

const struct directory_kind directory_kind_file = {
    .name = "file",
    .options = options,
    .options_count = sizeof options / sizeof *options,
    .options_size = sizeof(struct directory_file_options),
    .start = file_start,
    .stop = file_stop,
};
