/* SPDX-License-Identifier: MIT */
#include "examples/worker/bridge/call.h"

#include <stdio.h>
#include <string.h>

#include "examples/worker/bridge/worker_options.h"

#define DEPTH 4

unsigned call_status(enum manager_code code)
{
    switch (code) {
    case MANAGER_BAD_REQUEST:
    case MANAGER_IMPOSSIBLE:
    case MANAGER_START_FAILED:
        return 400;
    case MANAGER_EXPIRED:
    case MANAGER_OVER:
        return 410;
    case MANAGER_UNKNOWN_SESSION:
        return 404;
    case MANAGER_ALREADY_ATTACHED:
    case MANAGER_ID_TAKEN:
    case MANAGER_LATE:
        return 409;
    default:
        return 503;
    }
}

void call_fail(struct call *c, enum manager_code code, const char *text)
{
    if (c->answered)
        return;
    c->answered = true;
    c->plan->refuse(&c->x, code, text);
}

void call_done(struct call *c, unsigned status, struct slice body)
{
    c->answered = true;
    http_answer(&c->x, status, body.len ? "application/json" : NULL, NULL, body);
}

bool call_number(struct call *c, const json_node *body, const char *key, int64_t min, int64_t max,
                 int64_t *value)
{
    const json_node *node = json_member(body, key);
    if (!node || json_is_null(node) || json_int(c->json, node, min, max, value))
        return true;
    call_fail(c, MANAGER_BAD_REQUEST, "a number in the body is none, or out of range");
    return false;
}

bool call_text(struct call *c, const json_node *body, const char *key, struct slice *value)
{
    const json_node *node = json_member(body, key);
    if (!node || json_is_null(node) || json_text(node, value))
        return true;
    call_fail(c, MANAGER_BAD_REQUEST, "a text in the body is none");
    return false;
}

bool call_bool(struct call *c, const json_node *body, const char *key, bool *value)
{
    const json_node *node = json_member(body, key);
    if (!node || json_is_null(node) || json_bool(node, value))
        return true;
    call_fail(c, MANAGER_BAD_REQUEST, "a boolean in the body is none");
    return false;
}

void call_environment(const json_node *body, struct writer *env)
{
    char memory[MANAGER_PATH_MAX];
    struct slice value;
    const json_node *envs = json_member(body, "envs");
    env->full |= envs && !json_is_null(envs) && !json_is_object(envs);
    for (const json_node *member = json_is_object(envs) ? json_first(envs) : NULL; member;
         member = json_next(member)) {
        struct writer w = writer_of(memory, sizeof memory);
        if (!json_text(member, &value) || strchr(json_key(member), '='))
            env->full = true;
        else
            writer_printf(&w, "%s=%.*s", json_key(member), SLICE_PRINTF(value));
        env->full |= w.full;
        manager_put_string(env, writer_slice(&w));
    }
}

static void on_message(void *user, const struct manager_message *m)
{
    struct call *c = user;
    char text[MANAGER_TEXT_MAX + 1];
    if (c->answered)
        return;
    if (m->type == MANAGER_ERROR) {
        snprintf(text, sizeof text, "%.*s", SLICE_PRINTF(m->text));
        call_fail(c, (enum manager_code)m->code, text);
    } else {
        c->plan->answer(c, m);
    }
}

static void on_lost(void *user)
{
    call_fail(user, MANAGER_OUT_OF_MEMORY, "the session manager is not there");
}

static void on_body(struct http_exchange *x, struct slice piece)
{
    struct call *c = (struct call *)x;
    if (!buffer_put(&c->body, piece))
        c->too_large = true;
}

/* Whether the body is one that can be read; *root is NULL when there is none. */
static bool read_body(struct call *c, const json_node **root)
{
    struct fail why;
    struct slice text = buffer_slice(&c->body);
    if (text.len == 0)
        return true;
    c->json = json_parse(text, "body", 0, (struct json_limits){CALL_BODY_MAX, DEPTH}, &why);
    *root = c->json ? json_root(c->json) : NULL;
    return json_is_object(*root);
}

static void on_end(struct http_exchange *x)
{
    struct call *c = (struct call *)x;
    struct web_server *server = web_server_of(x->conn);
    const json_node *root = NULL;
    if (c->too_large)
        return http_refuse(x, 413, "the body is too large");
    if (!read_body(c, &root))
        return call_fail(c, MANAGER_BAD_REQUEST, "the body is not a JSON object");
    if (!manager_client_open(&c->manager, server, worker_options(x->conn)->manager))
        return on_lost(c);
    c->plan->ask(c, root);
}

void call_close(struct http_exchange *x)
{
    struct call *c = (struct call *)x;
    c->answered = true;
    manager_client_close(&c->manager);
    buffer_free(&c->body);
    json_free(c->json);
}

void *call_make(size_t size, struct http_conn *h, const struct call_plan *plan, const char *scope,
                struct slice id)
{
    struct call *c = http_exchange_new(size, h);
    if (!c)
        return NULL;
    c->x.body = on_body;
    c->x.end = on_end;
    c->x.close = call_close;
    c->plan = plan;
    c->body = buffer_with_limit(CALL_BODY_MAX);
    c->manager.message = on_message;
    c->manager.lost = on_lost;
    c->manager.user = c;
    snprintf(c->scope, sizeof c->scope, "%s", scope);
    snprintf(c->id, sizeof c->id, "%.*s", SLICE_PRINTF(id));
    return c;
}

struct http_exchange *call_new(struct http_conn *h, const struct call_plan *plan, const char *scope,
                               struct slice id)
{
    return call_make(sizeof(struct call), h, plan, scope, id);
}
