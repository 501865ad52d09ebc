/* SPDX-License-Identifier: MIT */
#include "examples/worker/bridge/manager_client.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "spoa/net/net.h"

#define IN_LIMIT  (2 * (size_t)(MANAGER_LENGTH_SIZE + MANAGER_MESSAGE_MAX))
#define OUT_LIMIT ((size_t)512 * 1024)
#define OUT_FULL  ((size_t)128 * 1024)
#define OVERHEAD  512           /* of a message that holds data */
#define PATIENCE  (10 * SECOND) /* in which it takes nothing of what was said last */

/* ---- last words ---- */

/* A client that leaves right behind its last words has said them: those that the session manager's socket does not
 * take at once outlive their client. */
struct last_words {
    struct web_server_work work; /* first: its callback knows them by it */
    struct web_server *server;   /* NULL: it knows that they have ended */
    struct stream stream;
};

static void end_last_words(struct web_server_work *work)
{
    struct last_words *w = (struct last_words *)work;
    struct web_server *server = w->server;
    w->server = NULL;
    stream_close(&w->stream);
    web_server_work_done(server, work);
}

static void on_said(void *owner)
{
    struct last_words *w = owner;
    if (w->server)
        end_last_words(&w->work);
    free(w);
}

static void leave_last_words(struct manager_client *client)
{
    static const struct stream_user saying = {.gone = on_said};
    static const struct stream_linger linger = {.step = PATIENCE, .grace = PATIENCE, .drain = SIZE_MAX};
    struct last_words *w = calloc(1, sizeof *w);
    if (!w)
        return;
    *w = (struct last_words){.work.end = end_last_words,
                             .server = client->server,
                             .stream = {.user = &saying, .owner = w, .out = client->stream.out}};
    client->stream.out = buffer_with_limit(OUT_LIMIT);
    int fd = stream_release(&client->stream);
    shutdown(
        fd, SHUT_RD); /* nobody hears it any more: the session manager learns that when it speaks, or looks */
    web_server_work_add(w->server, &w->work);
    stream_open(&w->stream, web_server_loop(w->server), fd);
    stream_finish(&w->stream, &linger);
}

/* ---- the conversation ---- */

static bool is_open(const struct manager_client *client)
{
    return stream_is_open(&client->stream);
}

void manager_client_close(struct manager_client *client)
{
    if (is_open(client)) {
        stream_send(&client->stream);
        if (buffer_len(&client->stream.out))
            leave_last_words(client);
    }
    stream_close(&client->stream);
}

static void lose(struct manager_client *client)
{
    if (!is_open(client))
        return;
    manager_client_close(client);
    client->lost(client->user);
}

static void on_input(void *owner)
{
    struct manager_client *client = owner;
    while (is_open(client) && !client->paused) {
        struct slice in = buffer_slice(&client->stream.in);
        size_t before = in.len;
        struct manager_message m;
        enum manager_result result = manager_read(&in, &m);
        if (result == MANAGER_BAD)
            lose(client);
        if (result != MANAGER_READ)
            return;
        client->message(client->user, &m);
        stream_consume(&client->stream, before - in.len);
    }
}

static void on_sent(void *owner)
{
    struct manager_client *client = owner;
    if (!manager_client_is_full(client) && client->room)
        client->room(client->user);
}

static void on_ended(void *owner, int error)
{
    (void)error;
    lose(owner);
}

/* A session manager that takes nothing more may have said the session's end. */
static const struct stream_user stream_user = {
    .input = on_input, .sent = on_sent, .ended = on_ended, .hears_out = true};

bool manager_client_open(struct manager_client *client, struct web_server *server, const char *path)
{
    struct net_address address;
    struct fail why;
    char text[sizeof address.path.sun_path + 8];
    int len = snprintf(text, sizeof text, "unix@%s", path);
    int fd = len < (int)sizeof text && net_parse(slice_text(text), &address, &why)
                 ? net_connect(&address, &why)
                 : -1;
    if (fd < 0)
        return false;
    client->server = server;
    client->stream = (struct stream){.user = &stream_user,
                                     .owner = client,
                                     .in = buffer_with_limit(IN_LIMIT),
                                     .out = buffer_with_limit(OUT_LIMIT)};
    stream_open(&client->stream, web_server_loop(server), fd);
    manager_client_put(client, &(struct manager_message){.type = MANAGER_HELLO, .version = MANAGER_VERSION});
    return true;
}

void manager_client_put(struct manager_client *client, const struct manager_message *m)
{
    size_t room = 0, need = OVERHEAD + m->bytes.len + m->argv.len + m->env.len + m->cwd.len;
    uint8_t *at = is_open(client) ? buffer_room(&client->stream.out, need, &room) : NULL;
    struct writer w = writer_of(at, room);
    if (at)
        manager_put(&w, m);
    if (!at || w.full)
        return lose(client);
    buffer_commit(&client->stream.out, w.len);
    stream_send_soon(&client->stream);
}

void manager_client_put_input(struct manager_client *client, struct slice bytes)
{
    while (bytes.len && is_open(client)) {
        struct slice part = slice_sub(bytes, 0, MANAGER_DATA_MAX);
        manager_client_put(client, &(struct manager_message){.type = MANAGER_INPUT, .bytes = part});
        bytes = slice_from(bytes, part.len);
    }
}

bool manager_client_is_full(const struct manager_client *client)
{
    return buffer_len(&client->stream.out) >= OUT_FULL;
}

void manager_client_pause(struct manager_client *client, bool paused)
{
    if (client->paused == paused)
        return;
    client->paused = paused;
    stream_pause(&client->stream, paused);
    if (!paused)
        stream_offer(&client->stream);
}
