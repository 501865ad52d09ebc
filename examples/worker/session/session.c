/* SPDX-License-Identifier: MIT */
#include "examples/worker/session/session.h"

#include <assert.h>
#include <stdlib.h>

static bool plan_is_good(const struct manager_message *m)
{
    bool kind = m->kind == MANAGER_TERMINAL || m->kind == MANAGER_PIPES;
    return m->type == MANAGER_CREATE && kind && manager_is_name(m->scope) && manager_is_name(m->id) &&
           m->argv.len > 1 && m->ring >= SESSION_RING_MIN && m->ring <= SESSION_RING_MAX;
}

/* Copies the plan by encoding and decoding it, so that a single block holds all of its strings. */
static bool copy_plan(struct session *s, const struct manager_message *create)
{
    size_t size = MANAGER_LENGTH_SIZE + MANAGER_MESSAGE_MAX;
    uint8_t *memory = malloc(size);
    if (!memory)
        return false;
    struct writer w = writer_of(memory, size);
    manager_put(&w, create);
    uint8_t *shrunk = w.full ? NULL : realloc(memory, w.len);
    struct slice in = slice_of(shrunk, w.len);
    if (!shrunk || manager_read(&in, &s->plan) != MANAGER_READ) {
        free(shrunk ? shrunk : memory);
        return false;
    }
    s->memory = shrunk;
    return true;
}

bool session_init(struct session *s, const struct manager_message *create, struct slice id, struct fail *why)
{
    *s = (struct session){0};
    struct manager_message plan = *create;
    plan.id = id;
    plan.ring = create->ring ? create->ring : SESSION_RING;
    plan.cols = create->cols ? create->cols : 80;
    plan.rows = create->rows ? create->rows : 24;
    if (!plan_is_good(&plan))
        return fail(why, "not a session that can be created");
    if (!copy_plan(s, &plan))
        return fail(why, "out of memory");
    s->output = chunks_with_limit(s->plan.ring);
    return true;
}

void session_clear(struct session *s)
{
    chunks_free(&s->output);
    free(s->memory);
    *s = (struct session){0};
}

bool session_is(const struct session *s, struct slice scope, struct slice id)
{
    return slice_equal(s->plan.scope, scope) && slice_equal(s->plan.id, id);
}

void session_started(struct session *s, uint32_t pid)
{
    assert(s->state == SESSION_NEW);
    s->state = SESSION_RUNNING;
    s->pid = pid;
}

void session_exited(struct session *s, uint32_t exit_code)
{
    assert(s->state == SESSION_RUNNING);
    s->state = SESSION_DRAINING;
    s->exit_code = exit_code;
}

void session_drained(struct session *s)
{
    assert(s->state == SESSION_DRAINING);
    s->state = SESSION_ENDED;
}

void session_output(struct session *s, enum manager_stream stream, struct slice bytes)
{
    if (s->plan.kind == MANAGER_TERMINAL)
        ring_put(&s->output.bytes, bytes);
    else
        chunks_put(&s->output, stream, bytes);
}

size_t session_reserve(struct session *s)
{
    return s->plan.kind == MANAGER_TERMINAL ? ring_reserve(&s->output.bytes) : chunks_reserve(&s->output);
}

size_t session_room(const struct session *s, uint64_t offset)
{
    offset = session_clamp(s, offset);
    if (s->plan.kind == MANAGER_TERMINAL)
        return (size_t)(s->plan.ring - (session_end(s) - offset));
    return chunks_room(&s->output, offset);
}

struct slice session_at(const struct session *s, uint64_t offset, enum manager_stream *stream)
{
    unsigned of = MANAGER_STDOUT;
    struct slice piece = s->plan.kind == MANAGER_TERMINAL ? ring_at(&s->output.bytes, offset)
                                                          : chunks_at(&s->output, offset, &of);
    *stream = (enum manager_stream)of;
    return piece;
}

uint64_t session_first(const struct session *s)
{
    return s->output.bytes.start;
}

uint64_t session_end(const struct session *s)
{
    return s->output.bytes.end;
}

uint64_t session_clamp(const struct session *s, uint64_t since)
{
    if (since < session_first(s))
        return session_first(s);
    return since < session_end(s) ? since : session_end(s);
}

struct manager_message session_describe(const struct session *s)
{
    uint8_t state = s->state == SESSION_NEW     ? MANAGER_NEW
                    : s->state == SESSION_ENDED ? MANAGER_ENDED
                                                : MANAGER_RUNNING;
    return (struct manager_message){.type = MANAGER_SESSION,
                                    .scope = s->plan.scope,
                                    .id = s->plan.id,
                                    .kind = s->plan.kind,
                                    .state = state,
                                    .pid = s->pid,
                                    .cols = s->plan.cols,
                                    .rows = s->plan.rows,
                                    .readers = (uint8_t)(s->readers < UINT8_MAX ? s->readers : UINT8_MAX),
                                    .first = session_first(s),
                                    .end = session_end(s),
                                    .input = s->input,
                                    .exit_code = s->exit_code};
}
