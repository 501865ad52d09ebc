/* SPDX-License-Identifier: MIT */
#include "examples/worker/keeper.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/wait.h>
#include <unistd.h>

#include "examples/worker/resume_table.h"
#include "spoa/net/listener.h"
#include "spoa/net/net.h"

#define CHECK_EVERY 1.0 /* seconds */
#define STOP_TICK   0.5
#define STOP_TICKS  8
#define TUNNELS     4  /* as many as sessions, most of them only remembered */
#define REAPED      64 /* sessions at a time */

struct kept { /* a session in the table */
    struct running *running;
    bool over;
};

struct open_conn {
    struct keeper_conn *conn;
    bool gone;
};

struct keeper {
    struct loop *loop;
    struct keeper_options options;
    struct listener listener; /* closed: it is stopped */
    struct resume_table tunnels;
    struct kept *sessions;
    struct open_conn *conns;
    unsigned session_count, conn_count;
    uint64_t memory;
    struct loop_timer check, stop;
    struct loop_task sweep; /* frees what has ended, at the end of the turn */
    bool stopping, freeing;
    unsigned stop_ticks;
};

/* ---- what has ended ---- */

static void free_session(struct keeper *k, unsigned i)
{
    k->memory -= running_session(k->sessions[i].running)->plan.ring;
    running_free(k->sessions[i].running);
    for (k->session_count--; i < k->session_count; i++)
        k->sessions[i] = k->sessions[i + 1];
}

static void sweep(void *context)
{
    struct keeper *k = context;
    for (unsigned i = k->conn_count; i-- > 0;)
        if (k->conns[i].gone) {
            keeper_conn_free(k->conns[i].conn);
            k->conns[i] = k->conns[--k->conn_count];
        }
    for (unsigned i = k->session_count; i-- > 0;)
        if (k->sessions[i].over)
            free_session(k, i);
    if (k->stopping && k->session_count == 0)
        loop_stop(k->loop);
}

static void session_over(void *owner, struct running *r)
{
    struct keeper *k = owner;
    for (unsigned i = 0; i < k->session_count; i++)
        if (k->sessions[i].running == r)
            k->sessions[i].over = true;
    if (!k->freeing)
        loop_defer(k->loop, &k->sweep);
}

static void conn_gone(struct keeper *k, struct keeper_conn *c)
{
    for (unsigned i = 0; i < k->conn_count; i++)
        if (k->conns[i].conn == c)
            k->conns[i].gone = true;
    loop_defer(k->loop, &k->sweep);
}

/* ---- sessions ---- */

struct loop *keeper_loop(struct keeper *k)
{
    return k->loop;
}

struct running *keeper_find(struct keeper *k, struct slice scope, struct slice id)
{
    for (unsigned i = 0; i < k->session_count; i++) {
        struct running *r = k->sessions[i].running;
        if (!running_is_forgotten(r) && session_is(running_session(r), scope, id))
            return r;
    }
    return NULL;
}

struct running *keeper_next(struct keeper *k, struct running *r, struct slice scope)
{
    unsigned i = 0;
    while (r && k->sessions[i++].running != r)
        ;
    for (; i < k->session_count; i++) {
        struct running *next = k->sessions[i].running;
        struct slice of = running_session(next)->plan.scope;
        if (!running_is_forgotten(next) && (!scope.len || slice_equal(of, scope)))
            return next;
    }
    return NULL;
}

static bool is_full(const struct keeper *k, uint32_t ring)
{
    return k->session_count == k->options.sessions || ring > k->options.memory - k->memory;
}

/* When the table or its memory is full, the oldest sessions that have ended and that nobody reads make room. */
static void make_room(struct keeper *k, uint32_t ring)
{
    for (unsigned i = 0; i < k->session_count && is_full(k, ring);) {
        const struct session *s = running_session(k->sessions[i].running);
        if (s->state == SESSION_ENDED && s->readers == 0)
            free_session(k, i);
        else
            i++;
    }
}

static bool choose_id(struct keeper *k, struct slice scope, char id[9])
{
    for (int tries = 0; tries < 8; tries++) {
        uint32_t number;
        if (getrandom(&number, sizeof number, 0) != sizeof number)
            return false;
        snprintf(id, 9, "%08x", number);
        if (!keeper_find(k, scope, slice_text(id)))
            return true;
    }
    return false;
}

static struct running *refuse(enum keeper_code *code, enum keeper_code is, struct fail *why, const char *text)
{
    *code = is;
    fail(why, "%s", text);
    return NULL;
}

struct running *keeper_create(struct keeper *k, const struct keeper_message *create, enum keeper_code *code,
                              struct fail *why)
{
    char chosen[9];
    uint32_t ring = create->ring ? create->ring : SESSION_RING;
    make_room(k, ring);
    if (k->stopping || is_full(k, ring))
        return refuse(code, KEEPER_TOO_MANY, why, "no room for another session");
    if (!create->id.len && !choose_id(k, create->scope, chosen))
        return refuse(code, KEEPER_OUT_OF_MEMORY, why, "no random numbers");
    struct slice id = create->id.len ? create->id : slice_text(chosen);
    if (keeper_find(k, create->scope, id))
        return refuse(code, KEEPER_ID_TAKEN, why, "there is a session of that id");
    struct running *r = running_new(k->loop, create, id, session_over, k, code, why);
    if (!r)
        return NULL;
    if (!(create->flags & KEEPER_START_LATER) && !running_start(r, 0, code, why)) {
        running_free(r);
        return NULL;
    }
    running_expect(r, k->options.wait);
    k->sessions[k->session_count++] = (struct kept){r, false};
    k->memory += ring;
    return r;
}

static struct resume_tunnel *make_tunnel(struct keeper *k, const struct keeper_message *request,
                                         enum keeper_code *code, struct fail *why)
{
    struct keeper_message create = *request;
    create.type = KEEPER_CREATE;
    create.flags = 0;
    *code = KEEPER_EXPIRED;
    if ((request->flags & KEEPER_RECEIVED) || keeper_find(k, request->scope, request->id))
        return fail(why, "there is no such tunnel any more"), NULL;
    *code = KEEPER_TOO_MANY;
    if (!resume_table_has_room(&k->tunnels))
        return fail(why, "no room for another tunnel"), NULL;
    struct running *r = keeper_create(k, &create, code, why);
    struct resume_tunnel *t = r ? resume_table_add(&k->tunnels, r) : NULL;
    if (r && !t) {
        *code = KEEPER_OUT_OF_MEMORY;
        fail(why, "out of memory");
        running_forget(r);
    }
    return t;
}

bool keeper_resume(struct keeper *k, struct resume_carrier *c, const struct keeper_message *request,
                   struct keeper_message *answer, enum keeper_code *code, struct fail *why)
{
    struct resume_tunnel *t = resume_table_find(&k->tunnels, request->scope, request->id);
    if (!t)
        t = make_tunnel(k, request, code, why);
    if (!t)
        return false;
    enum resume_answer is = resume_tunnel_request(t, c, request, answer);
    *code = is == RESUME_LATE ? KEEPER_LATE : is == RESUME_EXPIRED ? KEEPER_OVER : KEEPER_IMPOSSIBLE;
    return is == RESUME_ACCEPTED || fail(why, "this attempt cannot go on");
}

/* ---- processes ---- */

static struct running *running_of(struct keeper *k, pid_t pid)
{
    for (unsigned i = 0; i < k->session_count; i++) {
        const struct session *s = running_session(k->sessions[i].running);
        if (s->state == SESSION_RUNNING && s->pid == (uint32_t)pid)
            return k->sessions[i].running;
    }
    return NULL;
}

/* A child that has ended, and is still to be waited for; 0: none. */
static pid_t ended(idtype_t which, pid_t pid)
{
    siginfo_t info = {.si_pid = 0};
    return waitid(which, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) < 0 ? 0 : info.si_pid;
}

/* The sessions whose leaders have ended by now. These are waited for last: until then nobody else gets their numbers,
 * and nobody else is killed. */
static void reap_sessions(struct keeper *k)
{
    struct running *dead[REAPED];
    pid_t leaders[REAPED] = {0};
    size_t count = 0, ends_all = 0;
    for (unsigned i = 0; i < k->session_count && count < REAPED; i++) {
        struct running *r = k->sessions[i].running;
        pid_t pid = (pid_t)running_session(r)->pid;
        if (running_session(r)->state != SESSION_RUNNING || ended(P_PID, pid) == 0)
            continue;
        dead[count++] = r;
        if (running_ends_all(r))
            leaders[ends_all++] = pid;
    }
    process_kill_sessions(leaders, ends_all);
    for (size_t i = 0; i < count; i++) {
        int status = 0;
        pid_t pid = (pid_t)running_session(dead[i])->pid;
        if (waitpid(pid, &status, 0) == pid)
            running_exited(dead[i], status);
    }
}

void keeper_reap(struct keeper *k)
{
    for (pid_t pid; (pid = ended(P_ALL, 0));) {
        if (running_of(k, pid))
            reap_sessions(k);
        else
            waitpid(pid, NULL, 0);
    }
}

/* ---- the socket ---- */

static void on_accepted(void *owner, int fd)
{
    struct keeper *k = owner;
    struct keeper_conn *c = NULL;
    if (k->conn_count < k->options.connections)
        c = keeper_conn_new(k, fd, conn_gone);
    else
        close(fd);
    if (c)
        k->conns[k->conn_count++] = (struct open_conn){c, false};
}

void keeper_check(struct keeper *k)
{
    for (unsigned i = k->conn_count; i-- > 0;)
        keeper_conn_check(k->conns[i].conn);
}

static void check_due(void *owner)
{
    struct keeper *k = owner;
    keeper_check(k);
    loop_timer_set(&k->check, CHECK_EVERY);
}

static bool listen_at(struct keeper *k, struct fail *why)
{
    struct net_address address;
    char text[sizeof address.path.sun_path + 8];
    if (snprintf(text, sizeof text, "unix@%s", k->options.path) >= (int)sizeof text)
        return fail(why, "%s: too long for a socket", k->options.path);
    if (!net_parse(slice_text(text), &address, why))
        return false;
    int fd = net_listen(&address, 0600, why);
    if (fd < 0)
        return false;
    k->listener = (struct listener){.accepted = on_accepted, .owner = k, .batch = 1};
    listener_open(&k->listener, k->loop, fd);
    return true;
}

static void close_listener(struct keeper *k)
{
    if (listener_is_open(&k->listener))
        net_unlisten(listener_release(&k->listener));
}

static bool any_alive(const struct keeper *k)
{
    for (unsigned i = 0; i < k->session_count; i++) {
        enum session_state state = running_session(k->sessions[i].running)->state;
        if (state == SESSION_RUNNING || state == SESSION_DRAINING)
            return true;
    }
    return false;
}

/* What has ended may still have a reader that is being told so: it has had half a second at least. */
static void stop_due(void *owner)
{
    struct keeper *k = owner;
    if (++k->stop_ticks == STOP_TICKS || !any_alive(k))
        loop_stop(k->loop);
    else
        loop_timer_set(&k->stop, STOP_TICK);
}

void keeper_stop(struct keeper *k)
{
    if (k->stopping)
        return loop_stop(k->loop);
    k->stopping = true;
    close_listener(k);
    for (unsigned i = 0; i < k->session_count; i++)
        running_forget(k->sessions[i].running);
    loop_timer_set(&k->stop, STOP_TICK);
    loop_defer(k->loop, &k->sweep);
}

static bool take_memory(struct keeper *k)
{
    k->sessions = calloc(k->options.sessions, sizeof *k->sessions);
    k->conns = calloc(k->options.connections, sizeof *k->conns);
    return k->sessions && k->conns;
}

struct keeper *keeper_new(struct loop *loop, const struct keeper_options *options, struct fail *why)
{
    struct keeper *k = calloc(1, sizeof *k);
    if (!k) {
        fail(why, "out of memory");
        return NULL;
    }
    k->loop = loop;
    k->options = *options;
    k->sweep = (struct loop_task){.run = sweep, .context = k};
    resume_table_init(&k->tunnels, loop, options->grace, TUNNELS * options->sessions);
    loop_timer_open(&k->check, loop, check_due, k);
    loop_timer_open(&k->stop, loop, stop_due, k);
    loop_timer_set(&k->check, CHECK_EVERY);
    if (!(take_memory(k) || fail(why, "out of memory")) || !listen_at(k, why)) {
        keeper_free(k);
        return NULL;
    }
    return k;
}

/* Who had no time to end. */
static void kill_left(struct keeper *k)
{
    pid_t leaders[REAPED];
    size_t count = 0;
    for (unsigned i = 0; i < k->session_count; i++) {
        const struct session *s = running_session(k->sessions[i].running);
        if (s->state == SESSION_RUNNING)
            leaders[count++] = (pid_t)s->pid;
        if (count == REAPED || (count && i + 1 == k->session_count)) {
            process_kill_sessions(leaders, count);
            count = 0;
        }
    }
}

void keeper_free(struct keeper *k)
{
    if (!k)
        return;
    k->freeing = true;
    kill_left(k);
    close_listener(k);
    while (k->conn_count)
        keeper_conn_free(k->conns[--k->conn_count].conn);
    resume_table_free(&k->tunnels);
    while (k->session_count)
        free_session(k, k->session_count - 1);
    loop_timer_close(&k->check);
    loop_timer_close(&k->stop);
    free(k->sessions);
    free(k->conns);
    free(k);
}
