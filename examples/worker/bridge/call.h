/* SPDX-License-Identifier: MIT */
/*
 * call: an HTTP request with a small body that becomes one request to the session manager, whose answer becomes the
 * response.
 */
#ifndef CELLGATE_WORKER_BRIDGE_CALL_H
#define CELLGATE_WORKER_BRIDGE_CALL_H

#include "examples/worker/bridge/manager_client.h"
#include "spoa/base/json/json.h"
#include "spoa/net/http_server.h"

#define CALL_BODY_MAX 65536

struct call;

/* How a protocol says no. */
typedef void (*call_refuse)(struct http_exchange *x, enum manager_code code, const char *text);

struct call_plan {
    /* Puts one message to the manager, or refuses. body is NULL when there was none. */
    void (*ask)(struct call *c, const json_node *body);
    /* SESSION or DONE; whatever comes until the call is answered. */
    void (*answer)(struct call *c, const struct manager_message *m);
    call_refuse refuse;
};

struct call {
    struct http_exchange x;
    const struct call_plan *plan;
    struct manager_client manager;
    struct buffer body;
    struct json *json;
    char scope[MANAGER_NAME_MAX + 1], id[MANAGER_NAME_MAX + 1];
    bool too_large, answered;
};

/* `size`: of the structure, whose first member is the call; its own `close` ends with call_close. NULL when out of
 * memory. */
void *call_make(size_t size, struct http_conn *h, const struct call_plan *plan, const char *scope,
                struct slice id);
void call_close(struct http_exchange *x);
struct http_exchange *call_new(struct http_conn *h, const struct call_plan *plan, const char *scope,
                               struct slice id);
/* A member of the body; false when it is there and of another type or out of range, and then the call is
 * refused. */
bool call_number(struct call *c, const json_node *body, const char *key, int64_t min, int64_t max,
                 int64_t *value);
bool call_text(struct call *c, const json_node *body, const char *key, struct slice *value);
bool call_bool(struct call *c, const json_node *body, const char *key, bool *value);
/* The member `envs` as a list of "NAME=value"; env is full when it is not one or too long. */
void call_environment(const json_node *body, struct writer *env);
/* Refuses once. */
void call_fail(struct call *c, enum manager_code code, const char *text);
void call_done(struct call *c, unsigned status, struct slice body);
/* The status that fits a refusal of the session manager. */
unsigned call_status(enum manager_code code);

#endif
