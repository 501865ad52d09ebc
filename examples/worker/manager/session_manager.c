/* SPDX-License-Identifier: MIT */
#include "examples/worker/manager/session_manager.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/wait.h>
#include <unistd.h>

#include "examples/worker/resume/resume_table.h"
#include "spoa/net/listener.h"
#include "spoa/net/net.h"

#define CHECK_EVERY SECOND
#define STOP_TICK   (500 * MILLISECOND)
#define STOP_TICKS  8
#define TUNNELS     4  /* as many as sessions, most of them only remembered */
#define REAPED      64 /* sessions at a time */

struct kept { /* a session in the table */
    struct running *running;
    bool over;
};

struct open_conn {
    struct session_manager_conn *conn;
    bool gone;
};

struct session_manager {
    struct loop *loop;
    struct session_manager_options options;
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

static void free_session(struct session_manager *manager, unsigned i)
{
    manager->memory -= running_session(manager->sessions[i].running)->plan.ring;
    running_free(manager->sessions[i].running);
    for (manager->session_count--; i < manager->session_count; i++)
        manager->sessions[i] = manager->sessions[i + 1];
}

static void sweep(void *context)
{
    struct session_manager *manager = context;
    for (unsigned i = manager->conn_count; i-- > 0;)
        if (manager->conns[i].gone) {
            session_manager_conn_free(manager->conns[i].conn);
            manager->conns[i] = manager->conns[--manager->conn_count];
        }
    for (unsigned i = manager->session_count; i-- > 0;)
        if (manager->sessions[i].over)
            free_session(manager, i);
    if (manager->stopping && manager->session_count == 0)
        loop_stop(manager->loop);
}

static void session_over(void *owner, struct running *r)
{
    struct session_manager *manager = owner;
    for (unsigned i = 0; i < manager->session_count; i++)
        if (manager->sessions[i].running == r)
            manager->sessions[i].over = true;
    if (!manager->freeing)
        loop_defer(manager->loop, &manager->sweep);
}

static void conn_gone(struct session_manager *manager, struct session_manager_conn *c)
{
    for (unsigned i = 0; i < manager->conn_count; i++)
        if (manager->conns[i].conn == c)
            manager->conns[i].gone = true;
    loop_defer(manager->loop, &manager->sweep);
}

/* ---- sessions ---- */

struct loop *session_manager_loop(struct session_manager *manager)
{
    return manager->loop;
}

struct running *session_manager_find(struct session_manager *manager, struct slice scope, struct slice id)
{
    for (unsigned i = 0; i < manager->session_count; i++) {
        struct running *r = manager->sessions[i].running;
        if (!running_is_forgotten(r) && session_is(running_session(r), scope, id))
            return r;
    }
    return NULL;
}

struct running *session_manager_next(struct session_manager *manager, struct running *r, struct slice scope)
{
    unsigned i = 0;
    while (r && manager->sessions[i++].running != r)
        ;
    for (; i < manager->session_count; i++) {
        struct running *next = manager->sessions[i].running;
        struct slice of = running_session(next)->plan.scope;
        if (!running_is_forgotten(next) && (!scope.len || slice_equal(of, scope)))
            return next;
    }
    return NULL;
}

static bool is_full(const struct session_manager *manager, uint32_t ring)
{
    return manager->session_count == manager->options.sessions ||
           ring > manager->options.memory - manager->memory;
}

/* When the table or its memory is full, the oldest sessions that have ended and that nobody reads make room. */
static void make_room(struct session_manager *manager, uint32_t ring)
{
    for (unsigned i = 0; i < manager->session_count && is_full(manager, ring);) {
        const struct session *s = running_session(manager->sessions[i].running);
        if (s->state == SESSION_ENDED && s->readers == 0)
            free_session(manager, i);
        else
            i++;
    }
}

static bool choose_id(struct session_manager *manager, struct slice scope, char id[9])
{
    for (int tries = 0; tries < 8; tries++) {
        uint32_t number;
        if (getrandom(&number, sizeof number, 0) != sizeof number)
            return false;
        snprintf(id, 9, "%08x", number);
        if (!session_manager_find(manager, scope, slice_text(id)))
            return true;
    }
    return false;
}

static struct running *refuse(enum manager_code *code, enum manager_code is, struct fail *why,
                              const char *text)
{
    *code = is;
    fail(why, "%s", text);
    return NULL;
}

struct running *session_manager_create(struct session_manager *manager, const struct manager_message *create,
                                       enum manager_code *code, struct fail *why)
{
    char chosen[9];
    uint32_t ring = create->ring ? create->ring : SESSION_RING;
    make_room(manager, ring);
    if (manager->stopping || is_full(manager, ring))
        return refuse(code, MANAGER_TOO_MANY, why, "no room for another session");
    if (!create->id.len && !choose_id(manager, create->scope, chosen))
        return refuse(code, MANAGER_OUT_OF_MEMORY, why, "no random numbers");
    struct slice id = create->id.len ? create->id : slice_text(chosen);
    if (session_manager_find(manager, create->scope, id))
        return refuse(code, MANAGER_ID_TAKEN, why, "there is a session of that id");
    struct running *r = running_new(manager->loop, create, id, session_over, manager, code, why);
    if (!r)
        return NULL;
    if (!(create->flags & MANAGER_START_LATER) && !running_start(r, 0, code, why)) {
        running_free(r);
        return NULL;
    }
    running_expect(r, manager->options.wait);
    manager->sessions[manager->session_count++] = (struct kept){r, false};
    manager->memory += ring;
    return r;
}

static struct resume_tunnel *make_tunnel(struct session_manager *manager,
                                         const struct manager_message *request, enum manager_code *code,
                                         struct fail *why)
{
    struct manager_message create = *request;
    create.type = MANAGER_CREATE;
    create.flags = 0;
    *code = MANAGER_EXPIRED;
    if ((request->flags & MANAGER_RECEIVED) || session_manager_find(manager, request->scope, request->id))
        return fail(why, "there is no such tunnel any more"), NULL;
    *code = MANAGER_TOO_MANY;
    if (!resume_table_has_room(&manager->tunnels))
        return fail(why, "no room for another tunnel"), NULL;
    struct running *r = session_manager_create(manager, &create, code, why);
    struct resume_tunnel *t = r ? resume_table_add(&manager->tunnels, r) : NULL;
    if (r && !t) {
        *code = MANAGER_OUT_OF_MEMORY;
        fail(why, "out of memory");
        running_forget(r);
    }
    return t;
}

bool session_manager_resume(struct session_manager *manager, struct resume_carrier *c,
                            const struct manager_message *request, struct manager_message *answer,
                            enum manager_code *code, struct fail *why)
{
    struct resume_tunnel *t = resume_table_find(&manager->tunnels, request->scope, request->id);
    if (!t)
        t = make_tunnel(manager, request, code, why);
    if (!t)
        return false;
    enum resume_answer is = resume_tunnel_request(t, c, request, answer);
    *code = is == RESUME_LATE ? MANAGER_LATE : is == RESUME_EXPIRED ? MANAGER_OVER : MANAGER_IMPOSSIBLE;
    return is == RESUME_ACCEPTED || fail(why, "this attempt cannot go on");
}

/* ---- processes ---- */

static struct running *running_of(struct session_manager *manager, pid_t pid)
{
    for (unsigned i = 0; i < manager->session_count; i++) {
        const struct session *s = running_session(manager->sessions[i].running);
        if (s->state == SESSION_RUNNING && s->pid == (uint32_t)pid)
            return manager->sessions[i].running;
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
static void reap_sessions(struct session_manager *manager)
{
    struct running *dead[REAPED];
    pid_t leaders[REAPED] = {0};
    size_t count = 0, ends_all = 0;
    for (unsigned i = 0; i < manager->session_count && count < REAPED; i++) {
        struct running *r = manager->sessions[i].running;
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

void session_manager_reap(struct session_manager *manager)
{
    for (pid_t pid; (pid = ended(P_ALL, 0));) {
        if (running_of(manager, pid))
            reap_sessions(manager);
        else
            waitpid(pid, NULL, 0);
    }
}

/* ---- the socket ---- */

static void on_accepted(void *owner, int fd)
{
    struct session_manager *manager = owner;
    struct session_manager_conn *c = NULL;
    if (manager->conn_count < manager->options.connections)
        c = session_manager_conn_new(manager, fd, conn_gone);
    else
        close(fd);
    if (c)
        manager->conns[manager->conn_count++] = (struct open_conn){c, false};
}

void session_manager_check(struct session_manager *manager)
{
    for (unsigned i = manager->conn_count; i-- > 0;)
        session_manager_conn_check(manager->conns[i].conn);
}

static void check_due(void *owner)
{
    struct session_manager *manager = owner;
    session_manager_check(manager);
    loop_timer_set(&manager->check, CHECK_EVERY);
}

static bool listen_at(struct session_manager *manager, struct fail *why)
{
    struct net_address address;
    char text[sizeof address.path.sun_path + 8];
    if (snprintf(text, sizeof text, "unix@%s", manager->options.path) >= (int)sizeof text)
        return fail(why, "%s: too long for a socket", manager->options.path);
    if (!net_parse(slice_text(text), &address, why))
        return false;
    int fd = net_listen(&address, 0600, why);
    if (fd < 0)
        return false;
    manager->listener = (struct listener){.accepted = on_accepted, .owner = manager, .batch = 1};
    listener_open(&manager->listener, manager->loop, fd);
    return true;
}

static void close_listener(struct session_manager *manager)
{
    if (listener_is_open(&manager->listener))
        net_unlisten(listener_release(&manager->listener));
}

static bool any_alive(const struct session_manager *manager)
{
    for (unsigned i = 0; i < manager->session_count; i++) {
        enum session_state state = running_session(manager->sessions[i].running)->state;
        if (state == SESSION_RUNNING || state == SESSION_DRAINING)
            return true;
    }
    return false;
}

/* What has ended may still have a reader that is just getting it: it has had half a second at least. */
static void stop_due(void *owner)
{
    struct session_manager *manager = owner;
    if (++manager->stop_ticks == STOP_TICKS || !any_alive(manager))
        loop_stop(manager->loop);
    else
        loop_timer_set(&manager->stop, STOP_TICK);
}

void session_manager_stop(struct session_manager *manager)
{
    if (manager->stopping)
        return loop_stop(manager->loop);
    manager->stopping = true;
    close_listener(manager);
    for (unsigned i = 0; i < manager->session_count; i++)
        running_forget(manager->sessions[i].running);
    loop_timer_set(&manager->stop, STOP_TICK);
    loop_defer(manager->loop, &manager->sweep);
}

static bool take_memory(struct session_manager *manager)
{
    manager->sessions = calloc(manager->options.sessions, sizeof *manager->sessions);
    manager->conns = calloc(manager->options.connections, sizeof *manager->conns);
    return manager->sessions && manager->conns;
}

struct session_manager *session_manager_new(struct loop *loop, const struct session_manager_options *options,
                                            struct fail *why)
{
    struct session_manager *manager = calloc(1, sizeof *manager);
    if (!manager) {
        fail(why, "out of memory");
        return NULL;
    }
    manager->loop = loop;
    manager->options = *options;
    manager->sweep = (struct loop_task){.run = sweep, .context = manager};
    resume_table_init(&manager->tunnels, loop, options->grace, TUNNELS * options->sessions);
    loop_timer_open(&manager->check, loop, check_due, manager);
    loop_timer_open(&manager->stop, loop, stop_due, manager);
    loop_timer_set(&manager->check, CHECK_EVERY);
    if (!(take_memory(manager) || fail(why, "out of memory")) || !listen_at(manager, why)) {
        session_manager_free(manager);
        return NULL;
    }
    return manager;
}

/* Who had no time to end. */
static void kill_left(struct session_manager *manager)
{
    pid_t leaders[REAPED];
    size_t count = 0;
    for (unsigned i = 0; i < manager->session_count; i++) {
        const struct session *s = running_session(manager->sessions[i].running);
        if (s->state == SESSION_RUNNING)
            leaders[count++] = (pid_t)s->pid;
        if (count == REAPED || (count && i + 1 == manager->session_count)) {
            process_kill_sessions(leaders, count);
            count = 0;
        }
    }
}

void session_manager_free(struct session_manager *manager)
{
    if (!manager)
        return;
    manager->freeing = true;
    kill_left(manager);
    close_listener(manager);
    while (manager->conn_count)
        session_manager_conn_free(manager->conns[--manager->conn_count].conn);
    resume_table_free(&manager->tunnels);
    while (manager->session_count)
        free_session(manager, manager->session_count - 1);
    loop_timer_close(&manager->check);
    loop_timer_close(&manager->stop);
    free(manager->sessions);
    free(manager->conns);
    free(manager);
}
