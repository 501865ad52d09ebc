/* SPDX-License-Identifier: MIT */
#include "examples/control-plane/serve.h"

#include <stdio.h>
#include <stdlib.h>

#include "spoa/base/json/json_write.h"
#include "spoa/base/table/list.h"

#define COMMENT_EVERY (10 * SECOND)
#define LIST_MAX      ((size_t)256 << 20)
#define PIECE         ((size_t)64 * 1024)
#define EVENT_MAX     ((size_t)64 * 1024)

static struct serve *serve_of(const struct http_exchange *x)
{
    return web_server_context(web_server_of(x->conn));
}

/* ---- one sandbox ---- */

struct asked {
    struct http_exchange x;
    char id[SANDBOX_ID_MAX + 1];
};

static bool decode(struct slice text, struct writer *w)
{
    for (size_t i = 0; i < text.len; i++) {
        unsigned value = text.at[i];
        if (value == '%') {
            char digits[3] = {0}, *end;
            memcpy(digits, text.at + i + 1, text.len - i > 2 ? 2 : 0);
            value = (unsigned)strtoul(digits, &end, 16);
            if (end != digits + 2 || digits[0] == '+' || digits[0] == '-' || value == 0)
                return false;
            i += 2;
        }
        writer_u8(w, (uint8_t)value);
    }
    return true;
}

static bool read_id(const struct http_exchange *x, struct slice part, char id[static SANDBOX_ID_MAX + 1])
{
    struct slice space = http_parameter(x, "namespace");
    struct writer w = writer_of(id, SANDBOX_ID_MAX);
    bool good = true;
    if (slice_present(space)) {
        good = decode(space, &w);
        writer_text(&w, "/");
    }
    good = good && decode(part, &w) && !w.full && sandbox_id_is_good(writer_slice(&w));
    id[good ? w.len : 0] = '\0';
    return good;
}

static void get_end(struct http_exchange *x)
{
    const struct asked *a = (const struct asked *)x;
    const struct plane *plane = serve_of(x)->plane;
    const struct sandbox *s = plane_find(plane, slice_text(a->id));
    struct buffer body = buffer_with_limit(2 * SANDBOX_RECORD_MAX);
    if (!s)
        http_refuse(x, 404, "sandbox_not_found");
    else if (!plane_write_record(plane, s, &body))
        http_refuse(x, 500, "out of memory");
    else
        http_answer(x, 200, "application/json", NULL, buffer_slice(&body));
    buffer_free(&body);
}

static void wake_end(struct http_exchange *x)
{
    const struct asked *a = (const struct asked *)x;
    struct plane *plane = serve_of(x)->plane;
    struct slice id = slice_text(a->id);
    const struct sandbox *s = plane_find(plane, id);
    struct fail why;
    if (!s)
        return http_refuse(x, 404, "sandbox_not_found");
    if (s->state == STOPPED)
        return http_refuse(x, 409, "sandbox_stopped");
    if (!plane_wake(plane, id, &why))
        return http_refuse(x, 500, "not saved");
    http_answer(x, 202, "application/json", NULL, SLICE_LITERAL("{}"));
}

static struct http_exchange *ask(struct http_conn *h, struct slice part, void (*end)(struct http_exchange *x))
{
    struct asked *a = http_exchange_new(sizeof *a, h);
    if (!a)
        return NULL;
    read_id(&a->x, part, a->id);
    a->x.end = end;
    return &a->x;
}

static struct http_exchange *serve_get(struct http_conn *h, const struct slice *parts)
{
    return ask(h, parts[0], get_end);
}

static struct http_exchange *serve_wake(struct http_conn *h, const struct slice *parts)
{
    return ask(h, parts[0], wake_end);
}

/* ---- all of them ---- */

struct list {
    struct http_exchange x;
    struct buffer body;
};

static void list_room(struct http_exchange *x)
{
    struct list *l = (struct list *)x;
    while (buffer_len(&l->body) && !http_is_full(x)) {
        struct slice piece = slice_sub(buffer_slice(&l->body), 0, PIECE);
        http_piece(x, piece);
        buffer_consume(&l->body, piece.len);
    }
    if (buffer_len(&l->body) == 0)
        http_end(x);
}

static void list_end(struct http_exchange *x)
{
    struct list *l = (struct list *)x;
    l->body = buffer_with_limit(LIST_MAX);
    if (!plane_write(serve_of(x)->plane, true, &l->body))
        return http_refuse(x, 500, "out of memory");
    http_begin(x, 200, "application/json", NULL, buffer_len(&l->body));
    list_room(x);
}

static void list_close(struct http_exchange *x)
{
    buffer_free(&((struct list *)x)->body);
}

static struct http_exchange *serve_list(struct http_conn *h, const struct slice *parts)
{
    struct list *l = http_exchange_new(sizeof *l, h);
    (void)parts;
    if (!l)
        return NULL;
    l->x.room = list_room;
    l->x.close = list_close;
    l->x.end = list_end;
    return &l->x;
}

/* ---- events ---- */

static const struct slice nothing; /* stands for a text for which memory was short */

/* An agent that receives events. */
struct follower {
    struct http_exchange x;
    struct follower *next,
        **link; /* list of followers; `link` is NULL while the follower is not in the list */
};

/* Sends bytes to a follower. A follower that does not read is disconnected, and gets the missing events when it reconnects; so is every
 * follower if memory was short. */
static void send_to(struct follower *f, struct slice bytes)
{
    if (!slice_present(bytes) || http_is_full(&f->x))
        stream_close(http_stream(f->x.conn));
    else
        http_piece(&f->x, bytes);
}

static void send_all(struct serve *s, struct slice bytes)
{
    for (struct follower *f = s->followers, *next; f; f = next) {
        next = f->next;
        send_to(f, bytes);
    }
}

static bool write_revocation(const struct serve *s, struct buffer *to)
{
    long long not_before = plane_not_before(s->plane);
    bool tokens = plane_revoked_count(s->plane) > 0;
    if (not_before < 0 && !tokens)
        return true;
    bool good = buffer_put(to, SLICE_LITERAL("event: revoke\ndata: {"));
    if (not_before >= 0)
        good = good && json_write(to, "\"not_before\":%lld%s", not_before, tokens ? "," : "");
    if (tokens)
        good = good && buffer_put(to, SLICE_LITERAL("\"revoked\":")) && plane_write_revoked(s->plane, to);
    return good && buffer_put(to, SLICE_LITERAL("}\n\n"));
}

static void follow_end(struct http_exchange *x)
{
    struct follower *f = (struct follower *)x;
    struct serve *s = serve_of(x);
    struct buffer missed = buffer_with_limit(WEB_SERVER_OUTPUT_MAX / 2);
    http_begin(x, 200, "text/event-stream", "Cache-Control: no-store\r\n", HTTP_UNKNOWN_LENGTH);
    LIST_PUSH(s->followers, f);
    /* If the missed events do not fit, the agent looks up the records again. */
    bool good = buffer_put(&missed, SLICE_LITERAL(": cell-plane\n\n")) && write_revocation(s, &missed);
    if (good)
        feed_since(s->feed, http_get(x->head, "Last-Event-ID"), &missed);
    send_to(f, good ? buffer_slice(&missed) : nothing);
    buffer_free(&missed);
}

static void follow_close(struct http_exchange *x)
{
    struct follower *f = (struct follower *)x;
    if (!f->link)
        return;
    LIST_UNLINK(f);
    f->link = NULL;
}

static struct http_exchange *serve_events(struct http_conn *h, const struct slice *parts)
{
    struct follower *f = http_exchange_new(sizeof *f, h);
    (void)parts;
    if (!f)
        return NULL;
    f->x.close = follow_close;
    f->x.leave = http_end;
    f->x.end = follow_end;
    return &f->x;
}

const struct web_server_route plane_routes[] = {
    {"GET", "/v1/sandboxes", serve_list},
    {"GET", "/v1/sandboxes/*", serve_get},
    {"POST", "/v1/sandboxes/*/wake", serve_wake},
    {"GET", "/v1/events", serve_events},
    {"", NULL, NULL},
};

/* ---- changes ---- */

/* Appends the beginning of an event's data without its end: {"namespace":"team","sandbox":"sb-1" for the id "team/sb-1". */
static bool write_key(struct buffer *to, const char *id)
{
    struct slice key = slice_text(id);
    size_t slash = slice_find(key, '/');
    bool good = buffer_put(to, SLICE_LITERAL("{"));
    if (slash < key.len)
        good = good && buffer_put(to, SLICE_LITERAL("\"namespace\":")) &&
               json_write_text(to, slice_sub(key, 0, slash)) && buffer_put(to, SLICE_LITERAL(","));
    return good && buffer_put(to, SLICE_LITERAL("\"sandbox\":")) &&
           json_write_text(to, slash < key.len ? slice_from(key, slash + 1) : key);
}

static void on_change(void *context, const char *id, const struct sandbox *sandbox)
{
    struct serve *s = context;
    struct buffer data = buffer_with_limit(EVENT_MAX);
    bool good = write_key(&data, id);
    if (sandbox)
        good = good && buffer_put(&data, SLICE_LITERAL(",\"record\":")) &&
               plane_write_record(s->plane, sandbox, &data);
    good = good && buffer_put(&data, SLICE_LITERAL("}"));
    send_all(s, good ? feed_add(s->feed, sandbox ? "update" : "remove", buffer_slice(&data)) : nothing);
    buffer_free(&data);
}

bool serve_revoke(struct serve *s, int64_t not_before, struct fail *why)
{
    struct buffer event = buffer_with_limit(WEB_SERVER_OUTPUT_MAX / 2);
    if (!plane_revoke(s->plane, not_before, why))
        return false;
    send_all(s, write_revocation(s, &event) ? buffer_slice(&event) : nothing);
    buffer_free(&event);
    return true;
}

bool serve_revoke_token(struct serve *s, struct slice jti, int64_t until, struct fail *why)
{
    struct buffer event = buffer_with_limit(4096);
    if (!plane_revoke_token(s->plane, jti, until, why))
        return false;
    bool good = buffer_put(&event, SLICE_LITERAL("event: revoke\ndata: {\"revoked\":{")) &&
                json_write_text(&event, jti) && json_write(&event, ":%lld}}\n\n", (long long)until);
    send_all(s, good ? buffer_slice(&event) : nothing);
    buffer_free(&event);
    return true;
}

static void comment_due(void *owner)
{
    struct serve *s = owner;
    send_all(s, SLICE_LITERAL(":\n\n"));
    loop_timer_set(&s->comment, COMMENT_EVERY);
}

void serve_open(struct serve *s, struct loop *loop)
{
    plane_on_change(s->plane, on_change, s);
    loop_timer_open(&s->comment, loop, comment_due, s);
    loop_timer_set(&s->comment, COMMENT_EVERY);
}

void serve_close(struct serve *s)
{
    loop_timer_close(&s->comment);
}
