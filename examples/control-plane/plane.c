/* SPDX-License-Identifier: MIT */
#include "examples/control-plane/plane.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "spoa/base/json/json.h"
#include "spoa/base/json/json_write.h"
#include "spoa/base/os/file.h"

#define FILE_MAX            ((size_t)256 << 20)
#define DEPTH               10
#define EPOCH_MAX           ((int64_t)1 << 62) /* largest epoch of a new record; leaves room for later changes */
#define JTI_MOST            128                /* longest id of a token, in bytes */
#define REVOKED_TOKENS_MOST 256    /* largest number of tokens; all fit into one event of 64 KiB */
#define FORGET_SECONDS      3600   /* time after a token's expiry; agents' clocks may differ by less */
#define WAKE_AGAIN          SECOND /* time until a retry if a woken sandbox could not be saved */

/* A single revoked token. */
struct revoked_token {
    char *jti;     /* id of the token */
    int64_t until; /* time of the token's expiry, in Unix seconds */
};

struct plane {
    struct loop *loop;
    const struct plane_options *options;
    struct sandbox **sandboxes; /* sorted by id */
    size_t count, size;
    int64_t not_before; /* see plane_not_before */
    struct revoked_token *revoked;
    size_t revoked_count;
    void (*changed)(void *context, const char *id, const struct sandbox *s);
    void *context;
};

/* ---- the table ---- */

static int compare(const char *a, struct slice b)
{
    struct slice text = slice_text(a);
    size_t common = text.len < b.len ? text.len : b.len;
    int order = memcmp(text.at, b.at, common);
    return order ? order : text.len < b.len ? -1 : text.len > b.len;
}

/* Returns the index of the first sandbox whose id is not less than `id`. */
static size_t position(const struct plane *p, struct slice id)
{
    size_t low = 0, high = p->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (compare(p->sandboxes[middle]->id, id) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static struct sandbox *find(const struct plane *p, struct slice id)
{
    size_t i = position(p, id);
    return i < p->count && compare(p->sandboxes[i]->id, id) == 0 ? p->sandboxes[i] : NULL;
}

static bool has_room(struct plane *p)
{
    if (p->count < p->size)
        return true;
    size_t size = p->size ? 2 * p->size : 16;
    struct sandbox **longer = realloc(p->sandboxes, size * sizeof *longer);
    if (!longer)
        return false;
    p->sandboxes = longer;
    p->size = size;
    return true;
}

static void take_out(struct plane *p, size_t i)
{
    p->count--;
    memmove(&p->sandboxes[i], &p->sandboxes[i + 1], (p->count - i) * sizeof *p->sandboxes);
}

static void woken(void *owner);

/* Inserts a sandbox at index i. has_room must have returned true. */
static void put_in(struct plane *p, size_t i, struct sandbox *s)
{
    memmove(&p->sandboxes[i + 1], &p->sandboxes[i], (p->count - i) * sizeof *p->sandboxes);
    p->sandboxes[i] = s;
    p->count++;
}

/* Returns a new sandbox that is not in the table yet, or NULL with *why. */
static struct sandbox *make(struct plane *p, struct slice id, struct slice record, struct fail *why)
{
    struct sandbox *s = has_room(p) ? sandbox_new(id) : NULL;
    if (!s) {
        fail(why, "out of memory");
        return NULL;
    }
    s->owner = p;
    loop_timer_open(&s->waking, p->loop, woken, s);
    if (sandbox_read(s, record, why))
        return s;
    sandbox_free(s);
    return NULL;
}

const struct sandbox *plane_find(const struct plane *p, struct slice id)
{
    return find(p, id);
}

size_t plane_count(const struct plane *p)
{
    return p->count;
}

const struct sandbox *plane_at(const struct plane *p, size_t i)
{
    return p->sandboxes[i];
}

int64_t plane_not_before(const struct plane *p)
{
    return p->not_before;
}

void plane_on_change(struct plane *p, void (*changed)(void *context, const char *id, const struct sandbox *s),
                     void *context)
{
    p->changed = changed;
    p->context = context;
}

/* ---- tokens that are revoked one by one ---- */

static void forget_token(struct plane *p, size_t i)
{
    free(p->revoked[i].jti);
    p->revoked[i] = p->revoked[--p->revoked_count];
}

/* Forgets tokens that have expired so long ago that no agent accepts them any more. */
static void forget_tokens(struct plane *p)
{
    for (size_t i = p->revoked_count; i-- > 0;)
        if (p->revoked[i].until < time(NULL) - FORGET_SECONDS)
            forget_token(p, i);
}

static bool add_token(struct plane *p, struct slice jti, int64_t until, struct fail *why)
{
    if (jti.len == 0 || jti.len > JTI_MOST)
        return fail(why, "a jti has 1 to %d bytes", JTI_MOST);
    for (size_t i = 0; i < jti.len; i++)
        if (jti.at[i] <= ' ' || jti.at[i] > '~' || jti.at[i] == '"' || jti.at[i] == '\\')
            return fail(why, "a jti is printable ASCII without blanks, quotes and backslashes");
    for (size_t i = 0; i < p->revoked_count; i++)
        if (slice_is(jti, p->revoked[i].jti)) {
            p->revoked[i].until = until;
            return true;
        }
    if (p->revoked_count >= REVOKED_TOKENS_MOST)
        return fail(why, "%d tokens are revoked already", REVOKED_TOKENS_MOST);
    struct revoked_token *more = reallocarray(p->revoked, p->revoked_count + 1, sizeof *more);
    char *copy = slice_dup(jti);
    if (more)
        p->revoked = more;
    if (!more || !copy) {
        free(copy);
        return fail(why, "out of memory");
    }
    more[p->revoked_count++] = (struct revoked_token){copy, until};
    return true;
}

size_t plane_revoked_count(const struct plane *p)
{
    return p->revoked_count;
}

bool plane_write_revoked(const struct plane *p, struct buffer *to)
{
    bool good = buffer_put(to, SLICE_LITERAL("{"));
    for (size_t i = 0; good && i < p->revoked_count; i++)
        good = (i == 0 || buffer_put(to, SLICE_LITERAL(","))) &&
               json_write_text(to, slice_text(p->revoked[i].jti)) &&
               json_write(to, ":%lld", (long long)p->revoked[i].until);
    return good && buffer_put(to, SLICE_LITERAL("}"));
}

/* ---- the file ---- */

/* Returns the Authorization for the sandbox's worker, or NULL: the secret must not go to a worker that is not one of the options'. */
static const char *authorization_for(const struct plane *p, const struct sandbox *s)
{
    for (size_t i = 0; i < p->options->worker_count && s->worker; i++)
        if (strcmp(p->options->workers[i], s->worker) == 0)
            return p->options->authorization;
    return NULL;
}

bool plane_write_record(const struct plane *p, const struct sandbox *s, struct buffer *to)
{
    return sandbox_write(s, authorization_for(p, s), to);
}

bool plane_write(const struct plane *p, bool for_agents, struct buffer *to)
{
    bool good = buffer_put(to, SLICE_LITERAL("{\"sandboxes\":{"));
    for (size_t i = 0; i < p->count && good; i++)
        good = buffer_put(to, i ? SLICE_LITERAL(",\n") : SLICE_LITERAL("\n")) &&
               json_write_text(to, slice_text(p->sandboxes[i]->id)) && buffer_put(to, SLICE_LITERAL(":")) &&
               (for_agents ? plane_write_record(p, p->sandboxes[i], to)
                           : sandbox_write(p->sandboxes[i], NULL, to));
    good = good && buffer_put(to, SLICE_LITERAL("\n}"));
    if (p->not_before >= 0)
        good = good && json_write(to, ",\"not_before\":%lld", (long long)p->not_before);
    if (p->revoked_count)
        good = good && buffer_put(to, SLICE_LITERAL(",\"revoked\":")) && plane_write_revoked(p, to);
    return good && buffer_put(to, SLICE_LITERAL("}\n"));
}

static bool write_all(int fd, struct slice text)
{
    while (text.len) {
        ssize_t n = write(fd, text.at, text.len);
        if (n < 0 && errno != EINTR)
            return false;
        text = slice_from(text, n > 0 ? (size_t)n : 0);
    }
    return true;
}

/* Syncs the folder, so that a renamed file survives a power cut. Errors are ignored, because some file systems cannot sync a folder. */
static void sync_folder_of(const char *path)
{
    char folder[4096];
    const char *slash = strrchr(path, '/');
    int len = slash && slash > path ? (int)(slash - path) : 1;
    snprintf(folder, sizeof folder, "%.*s", len, slash ? path : ".");
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return;
    fsync(fd);
    close(fd);
}

/* Writes a temporary file and renames it, so that the file is always complete, and on the disk before the change is answered. The file
 * has mode 0600, because records may hold secrets. */
static bool replace_file(const char *path, struct slice text, struct fail *why)
{
    char part[4096];
    if (snprintf(part, sizeof part, "%s.part", path) >= (int)sizeof part)
        return fail(why, "%s: the name is too long", path);
    int fd = open(part, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0)
        return fail(why, "%s: %s", part, strerror(errno));
    bool good = write_all(fd, text) && fsync(fd) == 0;
    good = close(fd) == 0 && good && rename(part, path) == 0;
    if (good)
        sync_folder_of(path);
    return good || fail(why, "%s: %s", path, strerror(errno));
}

static bool save(const struct plane *p, struct fail *why)
{
    struct buffer text = buffer_with_limit(FILE_MAX);
    if (!p->options->state)
        return true;
    bool good = plane_write(p, false, &text) || fail(why, "%s: out of memory", p->options->state);
    good = good && replace_file(p->options->state, buffer_slice(&text), why);
    buffer_free(&text);
    return good;
}

static bool on_loaded(void *context, struct slice key, struct slice record, struct fail *why)
{
    struct plane *p = context;
    if (!sandbox_id_is_good(key) || find(p, key))
        return fail(why, "%s: an id that is none, or is there twice", p->options->state);
    struct sandbox *s = make(p, key, slice_trim(record), why);
    if (!s)
        return false;
    put_in(p, position(p, key), s);
    if (s->state == WAKING)
        loop_timer_set(&s->waking, p->options->wake_time);
    return true;
}

static bool load_tokens(struct plane *p, struct slice text, struct fail *why)
{
    struct json *doc =
        json_parse(slice_trim(text), p->options->state, 0, (struct json_limits){1 << 20, 2}, why);
    const json_node *root = doc ? json_root(doc) : NULL;
    bool good = doc && (json_is_object(root) || fail(why, "%s: revoked is an object", p->options->state));
    for (const json_node *node = good ? json_first(root) : NULL; node && good; node = json_next(node)) {
        int64_t until;
        good = json_int(doc, node, 0, PLANE_TIME_MAX, &until)
                   ? add_token(p, slice_text(json_key(node)), until, why)
                   : json_fail(doc, node, why, "not a time in Unix seconds");
    }
    json_free(doc);
    return good;
}

static bool on_other(void *context, struct slice key, struct slice value, struct fail *why)
{
    struct plane *p = context;
    uint64_t seconds;
    if (slice_is(key, "revoked"))
        return load_tokens(p, value, why);
    if (!slice_is(key, "not_before"))
        return true;
    if (!slice_u64(slice_trim(value), PLANE_TIME_MAX, &seconds))
        return fail(why, "%s: not_before is a time in Unix seconds", p->options->state);
    p->not_before = (int64_t)seconds;
    return true;
}

static bool load(struct plane *p, struct fail *why)
{
    const struct json_stream stream = {.each = on_loaded, .other = on_other, .context = p};
    const char *path = p->options->state;
    struct slice text;
    if (!path || (access(path, F_OK) != 0 && errno == ENOENT))
        return true;
    if (!file_read(path, FILE_MAX, &text, why))
        return false;
    bool good = json_stream_object(text, path, "sandboxes", 0, DEPTH, &stream, why);
    file_free(text);
    return good;
}

/* ---- changes ---- */

/* The state of a sandbox before a change, which is restored if the change cannot be saved. */
struct before {
    char *worker;
    enum sandbox_state state;
    int64_t epoch;
};

static bool remember(const struct sandbox *s, struct before *b, struct fail *why)
{
    *b = (struct before){s->worker ? strdup(s->worker) : NULL, s->state, s->epoch};
    return !s->worker || b->worker || fail(why, "out of memory");
}

/* Saves a change of `s` and reports it to the call-back, or reverts it and returns false with *why. */
static bool commit(struct plane *p, struct sandbox *s, struct before *b, struct fail *why)
{
    sandbox_touch(s);
    if (save(p, why)) {
        free(b->worker);
        if (p->changed)
            p->changed(p->context, s->id, s);
        return true;
    }
    free(s->worker);
    s->worker = b->worker;
    s->state = b->state;
    s->epoch = b->epoch;
    return false;
}

static struct sandbox *find_or_fail(const struct plane *p, struct slice id, struct fail *why)
{
    struct sandbox *s = find(p, id);
    if (!s)
        fail(why, "there is no sandbox %.*s", SLICE_PRINTF(id));
    return s;
}

static bool change(struct plane *p, struct sandbox *s, enum sandbox_state state, const char *worker,
                   struct fail *why)
{
    struct before before;
    if (!remember(s, &before, why))
        return false;
    s->state = state;
    if (worker && !sandbox_set_worker(s, worker)) {
        s->state = before.state;
        free(before.worker);
        return fail(why, "out of memory");
    }
    if (!commit(p, s, &before, why))
        return false; /* the timer goes on: a sandbox that was being woken still is */
    if (state == WAKING)
        loop_timer_set(&s->waking, p->options->wake_time);
    else
        loop_timer_stop(&s->waking);
    return true;
}

/* Returns the worker after the sandbox's own in the order of the options, from the last one on to the first; NULL if there are none. */
static const char *next_worker(const struct plane *p, const struct sandbox *s)
{
    size_t count = p->options->worker_count, i = 0;
    while (i < count && (!s->worker || strcmp(p->options->workers[i], s->worker) != 0))
        i++;
    return count ? p->options->workers[i >= count - 1 ? 0 : i + 1] : NULL;
}

static void woken(void *owner)
{
    struct sandbox *s = owner;
    struct plane *p = s->owner;
    struct fail why;
    const char *worker = s->worker ? NULL : next_worker(p, s);
    bool placed = s->worker || worker;
    if (change(p, s, placed ? RUNNING : SUSPENDED, worker, &why))
        return;
    fprintf(stderr, "cell-plane: %s is not awake yet: %s\n", s->id, why.text);
    loop_timer_set(&s->waking, WAKE_AGAIN);
}

bool plane_set(struct plane *p, struct slice id, struct slice record, struct fail *why)
{
    if (!sandbox_id_is_good(id))
        return fail(why, "an id has 1 to %d bytes and no blanks", SANDBOX_ID_MAX);
    struct sandbox *old = find(p, id), *s = make(p, id, record, why);
    if (!s)
        return false;
    if (s->epoch > EPOCH_MAX) {
        sandbox_free(s);
        return fail(why, "epoch is at most 2^62");
    }
    size_t i = position(p, id);
    if (old && old->epoch > s->epoch)
        s->epoch = old->epoch;
    sandbox_touch(s);
    if (old)
        p->sandboxes[i] = s;
    else
        put_in(p, i, s);
    bool good = save(p, why);
    if (!good && old)
        p->sandboxes[i] = old;
    else if (!good)
        take_out(p, i);
    else if (p->changed)
        p->changed(p->context, s->id, s);
    if (good && s->state == WAKING)
        loop_timer_set(&s->waking, p->options->wake_time);
    sandbox_free(good ? old : s);
    return good;
}

bool plane_remove(struct plane *p, struct slice id, struct fail *why)
{
    struct sandbox *s = find_or_fail(p, id, why);
    if (!s)
        return false;
    size_t i = position(p, id);
    take_out(p, i);
    if (!save(p, why)) {
        put_in(p, i, s);
        return false;
    }
    if (p->changed)
        p->changed(p->context, s->id, NULL);
    sandbox_free(s);
    return true;
}

bool plane_move(struct plane *p, struct slice id, struct slice worker, struct fail *why)
{
    struct sandbox *s = find_or_fail(p, id, why);
    char *given = slice_present(worker) ? slice_dup(worker) : NULL;
    const char *to = given ? given : s ? next_worker(p, s) : NULL;
    bool good = s && (given || !slice_present(worker) || fail(why, "out of memory"));
    if (good && (!to || (strncmp(to, "http://", 7) != 0 && strncmp(to, "https://", 8) != 0)))
        good = fail(why, to ? "a worker is http://HOST:PORT or https://HOST:PORT" : "move it where to?");
    else if (good)
        good = change(p, s, s->state == MIGRATING ? RUNNING : s->state, to, why);
    free(given);
    return good;
}

bool plane_suspend(struct plane *p, struct slice id, struct fail *why)
{
    struct sandbox *s = find_or_fail(p, id, why);
    return s && change(p, s, SUSPENDED, NULL, why);
}

bool plane_stop(struct plane *p, struct slice id, struct fail *why)
{
    struct sandbox *s = find_or_fail(p, id, why);
    return s && change(p, s, STOPPED, NULL, why);
}

bool plane_revoke(struct plane *p, int64_t not_before, struct fail *why)
{
    int64_t before = p->not_before;
    p->not_before = not_before;
    if (save(p, why))
        return true;
    p->not_before = before;
    return false;
}

bool plane_revoke_token(struct plane *p, struct slice jti, int64_t until, struct fail *why)
{
    forget_tokens(p);
    size_t before = p->revoked_count;
    if (!add_token(p, jti, until, why))
        return false;
    if (save(p, why))
        return true;
    if (p->revoked_count > before)
        forget_token(p, before);
    return false;
}

bool plane_wake(struct plane *p, struct slice id, struct fail *why)
{
    struct sandbox *s = find_or_fail(p, id, why);
    if (!s || s->state == RUNNING || s->state == MIGRATING || s->state == WAKING)
        return s != NULL;
    return change(p, s, WAKING, NULL, why);
}

/* ---- life ---- */

struct plane *plane_new(struct loop *loop, const struct plane_options *options, struct fail *why)
{
    struct plane *p = calloc(1, sizeof *p);
    if (!p) {
        fail(why, "out of memory");
        return NULL;
    }
    p->loop = loop;
    p->options = options;
    p->not_before = -1;
    if (load(p, why))
        return p;
    plane_free(p);
    return NULL;
}

void plane_free(struct plane *p)
{
    if (!p)
        return;
    for (size_t i = 0; i < p->count; i++)
        sandbox_free(p->sandboxes[i]);
    free(p->sandboxes);
    while (p->revoked_count)
        forget_token(p, p->revoked_count - 1);
    free(p->revoked);
    free(p);
}
