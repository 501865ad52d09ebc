/* SPDX-License-Identifier: MIT */
#include "examples/worker/session/running.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#define READ_SIZE      4096 /* size of a read, in bytes; a terminal never returns more at once */
#define MEMORY_AGAIN   (100 * MILLISECOND) /* pause after memory was short */
#define OPEN_AGAIN     (100 * MILLISECOND) /* time between two looks at a terminal that no process has open */
#define READS_PER_TURN 16                  /* reads per event: other sessions come next */
/* pending input from which on the session takes no more, in bytes */
#define INPUT_FULL (3 * (size_t)MANAGER_DATA_MAX)
/* largest pending input: beyond INPUT_FULL one message, and all that the buffers of a reader that has gone can hold */
#define INPUT_LIMIT (INPUT_FULL + 27 * (size_t)MANAGER_DATA_MAX)
#define LEFT_MAX    8 /* largest number of readers that have gone and still have pending input */
/* time in which other processes may still write to the output of a process that has ended */
#define LAST_WORDS (500 * MILLISECOND)
/* bytes that are read after the process has ended; no pipe or terminal can hold more of its output */
#define LAST_BYTES   (1u << 20)
#define FIRST_READER (5 * SECOND)  /* time for the first reader of a session that ends with its readers */
#define TO_KILL      (2 * SECOND)  /* time from SIGHUP to SIGKILL */
#define KEEP_ENDED   (10 * MINUTE) /* time for which a session outlives its process */

enum { IN, OUT, ERR, ENDS }; /* descriptors; a terminal is OUT for both directions */

struct running {
    struct session session;
    struct loop *loop;
    struct loop_io ends[ENDS];
    bool open[ENDS];
    size_t last[ENDS]; /* bytes read after the process had ended */
    /* the output is not read: the ring is full of output that the slowest reader has not taken, or memory is short */
    bool held;
    bool forgotten, over_told; /* running_forget was called; `over` was called */
    bool hung_up;              /* SIGHUP was sent, so the session's other processes end, too */
    uint64_t expected;         /* time of running_expect in µs; 0 for no limit */
    struct buffer input;
    struct running_reader *readers;
    struct loop_timer stall, kill, drain, limit, linger, memory;
    struct loop_timer unopened; /* active while the terminal is not read, because no process has it open */
    void (*over)(void *owner, struct running *r);
    void *owner;
};

static bool is_terminal(const struct running *r)
{
    return r->session.plan.kind == MANAGER_TERMINAL;
}

static bool is_alive(const struct running *r)
{
    return r->session.state == SESSION_RUNNING;
}

static int terminal_of(const struct running *r)
{
    return is_terminal(r) && r->open[OUT] ? loop_io_fd(&r->ends[OUT]) : -1;
}

static unsigned input_end(const struct running *r)
{
    return is_terminal(r) ? OUT : IN;
}

static void wake_readers(struct running *r)
{
    for (struct running_reader *reader = r->readers, *next; reader; reader = next) {
        next = reader->next;
        reader->wake(reader);
    }
}

/* Returns the smallest offset of all readers, or the end of the output if there are none. */
static uint64_t slowest(const struct running *r)
{
    uint64_t at = session_end(&r->session);
    for (const struct running_reader *reader = r->readers; reader; reader = reader->next)
        at = reader->at < at && !reader->left ? reader->at : at;
    return at;
}

/* ---- descriptors ---- */

static void want(struct running *r)
{
    for (unsigned n = IN; n < ENDS; n++) {
        int events = n == IN || r->held ? 0 : LOOP_READ;
        if (n == input_end(r) && buffer_len(&r->input))
            events |= LOOP_WRITE;
        if (r->open[n])
            loop_io_want(&r->ends[n], loop_timer_active(&r->unopened) ? 0 : events);
    }
}

static void close_end(struct running *r, unsigned n)
{
    if (!r->open[n])
        return;
    loop_io_close(&r->ends[n]);
    r->open[n] = false;
    if (n == input_end(r))
        buffer_free(&r->input);
}

static void set_held(struct running *r, bool held)
{
    if (held == r->held)
        return;
    r->held = held;
    if (!held)
        loop_timer_stop(&r->stall);
    else if (r->session.plan.stall_ms != MANAGER_FOREVER)
        loop_timer_set(&r->stall, r->session.plan.stall_ms * MILLISECOND);
    want(r);
}

static void finish(struct running *r);

static bool outputs_open(const struct running *r)
{
    return r->open[OUT] || r->open[ERR];
}

enum taken { TAKEN, NOTHING, NO_ROOM, NO_MEMORY, AT_END };

/* Reads from a pipe or a terminal. A terminal returns EIO if its other side is closed, but Linux looks for bytes first and for the other
 * side then, so bytes that were written in between are still there: only a second EIO is final. */
static ssize_t read_some(int fd, uint8_t *to, size_t most)
{
    ssize_t got = read(fd, to, most);
    return got < 0 && errno == EIO ? read(fd, to, most) : got;
}

static enum taken read_once(struct running *r, unsigned n)
{
    uint8_t bytes[READ_SIZE];
    if (r->last[n] >= LAST_BYTES)
        return AT_END;
    size_t room = session_room(&r->session, slowest(r));
    if (room == 0)
        return NO_ROOM;
    size_t memory = session_reserve(&r->session);
    if (memory == 0)
        return NO_MEMORY;
    size_t most = room < memory ? room : memory;
    ssize_t got = read_some(loop_io_fd(&r->ends[n]), bytes, most < sizeof bytes ? most : sizeof bytes);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return NOTHING;
    if (got <= 0)
        return AT_END;
    session_output(&r->session, n == ERR ? MANAGER_STDERR : MANAGER_STDOUT, slice_of(bytes, (size_t)got));
    if (r->session.state == SESSION_DRAINING)
        r->last[n] += (size_t)got;
    return TAKEN;
}

/* Stops reading a terminal for a while that no process has open. The master stays open, because a process may open the terminal again,
 * and closing the master would hang it up. */
static void leave_unopened(struct running *r)
{
    loop_timer_set(&r->unopened, OPEN_AGAIN);
    want(r);
}

static void unopened_due(void *owner)
{
    want(owner);
}

static void read_end(struct running *r, unsigned n, unsigned reads)
{
    enum taken taken = TAKEN;
    while (reads-- && taken == TAKEN)
        taken = read_once(r, n);
    if (taken == AT_END && is_terminal(r) && is_alive(r))
        leave_unopened(r);
    else if (taken == AT_END)
        close_end(r, n);
    set_held(r, taken == NO_ROOM || taken == NO_MEMORY);
    if (taken == NO_MEMORY)
        loop_timer_set(&r->memory, MEMORY_AGAIN);
    if (!outputs_open(r) && r->session.state == SESSION_DRAINING)
        finish(r);
    else
        wake_readers(r);
}

/* Returns true if no process has the terminal open. Linux reports POLLHUP then, and calls the master writable even if it is full. */
static bool nobody_has_it_open(int terminal)
{
    struct pollfd fd = {.fd = terminal};
    return poll(&fd, 1, 0) == 1 && (fd.revents & POLLHUP);
}

static void write_input(struct running *r)
{
    struct slice s = buffer_slice(&r->input);
    ssize_t put = s.len ? write(loop_io_fd(&r->ends[input_end(r)]), s.at, s.len) : 0;
    if (put > 0) {
        r->session.input += (uint64_t)put;
        buffer_consume(&r->input, (size_t)put);
    } else if (put < 0 && errno == EAGAIN && is_terminal(r) && nobody_has_it_open(terminal_of(r))) {
        leave_unopened(r);
    } else if (put < 0 && errno != EAGAIN && errno != EINTR) {
        buffer_free(&r->input);
        if (!is_terminal(r))
            close_end(r, IN);
    }
    want(r);
    wake_readers(r);
}

static void ready(struct running *r, unsigned n, int events)
{
    if (events & LOOP_WRITE)
        write_input(r);
    if ((events & LOOP_READ) && n != IN && r->open[n])
        read_end(r, n, READS_PER_TURN);
}

static void in_ready(void *owner, int events)
{
    ready(owner, IN, events);
}

static void out_ready(void *owner, int events)
{
    ready(owner, OUT, events);
}

static void err_ready(void *owner, int events)
{
    ready(owner, ERR, events);
}

/* ---- the end ---- */

static void tell_over(struct running *r)
{
    if (r->over_told)
        return;
    r->over_told = true;
    r->over(r->owner, r);
}

static bool has_ended(const struct running *r)
{
    return r->session.state == SESSION_ENDED || r->session.state == SESSION_NEW;
}

/* Sets the time for which a session without readers goes on, or is remembered after its end. */
static void linger(struct running *r)
{
    uint32_t linger_ms = r->session.plan.linger_ms;
    if (r->forgotten && has_ended(r))
        tell_over(r);
    else if (r->session.state == SESSION_ENDED)
        loop_timer_set(&r->linger, linger_ms ? KEEP_ENDED : 0);
    else if (linger_ms != MANAGER_FOREVER)
        loop_timer_set(&r->linger, linger_ms * MILLISECOND);
    else if (r->session.state == SESSION_NEW && r->expected)
        loop_timer_set(&r->linger, r->expected);
}

static void finish(struct running *r)
{
    for (unsigned n = IN; n < ENDS; n++)
        close_end(r, n);
    loop_timer_stop(&r->drain);
    loop_timer_stop(&r->limit);
    loop_timer_stop(&r->kill);
    loop_timer_stop(&r->memory);
    set_held(r, false);
    session_drained(&r->session);
    wake_readers(r);
    if (!r->session.readers)
        linger(r);
}

/* Ends the session some time after its process: the process's own output can be read by now, and other processes that hold its output
 * open get no more time. If a slow reader stops the reading, it is continued later, for LAST_BYTES at most. */
static void drain_due(void *owner)
{
    struct running *r = owner;
    bool held = false;
    for (unsigned n = OUT; n < ENDS && r->session.state == SESSION_DRAINING; n++)
        if (r->open[n]) {
            read_end(r, n, 1024);
            held = held || r->held;
        }
    if (r->session.state != SESSION_DRAINING)
        return;
    if (held)
        loop_timer_set(&r->drain, LAST_WORDS);
    else
        finish(r);
}

bool running_ends_all(const struct running *r)
{
    return r->hung_up;
}

void running_exited(struct running *r, int status)
{
    session_exited(&r->session, process_exit_code(status));
    close_end(r, IN);
    buffer_free(&r->input); /* no process reads it any more, even if others have the terminal open */
    loop_timer_stop(&r->unopened);
    want(r);
    if (!outputs_open(r))
        return finish(r);
    loop_timer_set(&r->drain, LAST_WORDS);
    wake_readers(r); /* some may be waiting for room for input, which is no longer needed */
}

void running_signal(struct running *r, int number)
{
    if (is_alive(r))
        process_signal((pid_t)r->session.pid, terminal_of(r), number);
}

/* Sends SIGHUP now, and SIGKILL after TO_KILL. */
static void hang_up(struct running *r)
{
    if (!is_alive(r) || loop_timer_active(&r->kill))
        return;
    r->hung_up = true;
    running_signal(r, SIGHUP);
    running_signal(r, SIGCONT);
    loop_timer_set(&r->kill, TO_KILL);
}

static void kill_due(void *owner)
{
    running_signal(owner, SIGKILL);
}

static void limit_due(void *owner)
{
    hang_up(owner);
}

void running_forget(struct running *r)
{
    r->forgotten = true;
    hang_up(r);
    if (has_ended(r) && !r->session.readers)
        tell_over(r);
}

bool running_is_forgotten(const struct running *r)
{
    return r->forgotten;
}

static void linger_due(void *owner)
{
    struct running *r = owner;
    if (is_alive(r))
        hang_up(r);
    else
        running_forget(r);
}

/* ---- readers ---- */

static void drop(struct running_reader *reader, enum manager_code code)
{
    running_detach(reader);
    reader->drop(reader, code);
}

static void stall_due(void *owner)
{
    struct running *r = owner;
    uint64_t now = loop_clock(), bound = (uint64_t)r->session.plan.stall_ms * MILLISECOND;
    for (struct running_reader *reader = r->readers, *next; reader; reader = next) {
        next = reader->next;
        if (!reader->left && now - reader->moved >= bound && session_room(&r->session, reader->at) == 0)
            drop(reader, MANAGER_TOO_SLOW);
    }
    if (r->held)
        loop_timer_set(&r->stall, r->session.plan.stall_ms * MILLISECOND);
}

static void release_hold(struct running *r)
{
    if (r->held && session_room(&r->session, slowest(r)) > 0)
        set_held(r, false);
}

static void memory_due(void *owner)
{
    release_hold(owner);
}

void running_attach(struct running *r, struct running_reader *reader, uint64_t since)
{
    reader->running = r;
    reader->at = reader->taken = session_clamp(&r->session, since);
    reader->moved = loop_clock();
    reader->owed = session_end(&r->session);
    reader->leaving = false;
    reader->ending = reader->left = false;
    reader->told_end = false;
    reader->next = r->readers;
    r->readers = reader;
    r->session.readers++;
    loop_timer_stop(&r->linger);
}

void running_end(struct running_reader *reader)
{
    reader->ending = true;
}

static void count_out(struct running_reader *reader)
{
    struct running *r = reader->running;
    if (reader->left)
        return;
    reader->ending = reader->left = true;
    r->session.readers--;
    if (reader->taken > r->session.unread)
        r->session.unread = reader->taken;
    release_hold(r);
    if (!r->session.readers)
        linger(r);
}

void running_detach(struct running_reader *reader)
{
    struct running *r = reader->running;
    if (!r)
        return;
    struct running_reader **link = &r->readers;
    while (*link != reader)
        link = &(*link)->next;
    *link = reader->next;
    if (reader->ending)
        wake_readers(r); /* their input had to wait for this reader's */
    count_out(reader);
    reader->running = NULL;
}

void running_leave(struct running_reader *reader)
{
    unsigned left = 0;
    if (!reader->running)
        return;
    count_out(reader);
    for (const struct running_reader *other = reader->running->readers; other; other = other->next)
        left += other->left;
    if (left > LEFT_MAX)
        drop(reader, MANAGER_TOO_SLOW);
}

static void drop_readers(struct running *r, enum manager_code code)
{
    while (r->readers)
        drop(r->readers, code);
}

void running_take_over(struct running *r)
{
    for (struct running_reader *reader = r->readers, *next; reader; reader = next) {
        next = reader->next;
        if (reader->left)
            continue;
        reader->leaving = reader->at < reader->owed;
        if (reader->leaving)
            continue;
        if (!reader->taken_over) {
            drop(reader, MANAGER_TAKEN_OVER);
        } else {
            count_out(reader);
            reader->taken_over(reader);
        }
    }
}

bool running_next(struct running_reader *reader, struct manager_message *m)
{
    struct running *r = reader->running;
    enum manager_stream stream;
    reader->at = session_clamp(&r->session, reader->at); /* if memory was short, `since` shows the gap */
    if (reader->leaving && reader->at >= reader->owed)
        return drop(reader, MANAGER_TAKEN_OVER), false;
    struct slice bytes = session_at(&r->session, reader->at, &stream);
    if (bytes.len) {
        uint64_t most = reader->leaving ? reader->owed - reader->at : MANAGER_DATA_MAX;
        bytes = slice_sub(bytes, 0, most < MANAGER_DATA_MAX ? (size_t)most : MANAGER_DATA_MAX);
        *m = (struct manager_message){
            .type = MANAGER_OUTPUT, .stream = (uint8_t)stream, .since = reader->at, .bytes = bytes};
        reader->at += bytes.len;
        reader->moved = loop_clock();
        release_hold(r);
        return true;
    }
    if (r->session.state != SESSION_ENDED || reader->told_end)
        return false;
    reader->told_end = true;
    *m = (struct manager_message){.type = MANAGER_EXIT, .exit_code = r->session.exit_code};
    return true;
}

void running_taken(struct running_reader *reader)
{
    reader->taken = reader->at;
    reader->moved = loop_clock();
}

void running_keep(struct running_reader *reader, uint64_t offset)
{
    reader->at = offset;
    running_taken(reader);
    release_hold(reader->running);
}

/* ---- input and size ---- */

bool running_wants_input(const struct running *r)
{
    return buffer_len(&r->input) <= INPUT_FULL;
}

bool running_wants_input_of(const struct running_reader *reader)
{
    size_t most = reader->ending ? INPUT_LIMIT - MANAGER_DATA_MAX : INPUT_FULL;
    for (const struct running_reader *earlier = reader->next; earlier; earlier = earlier->next)
        if (earlier->ending)
            return false;
    return buffer_len(&reader->running->input) <= most;
}

bool running_input_is_empty(const struct running *r)
{
    return buffer_len(&r->input) == 0;
}

bool running_reads(const struct running *r)
{
    return r->open[input_end(r)] && is_alive(r);
}

bool running_input(struct running *r, struct slice bytes)
{
    if (!running_reads(r) || !buffer_put(&r->input, bytes))
        return false;
    want(r);
    return true;
}

void running_resize(struct running *r, uint16_t cols, uint16_t rows)
{
    r->session.plan.cols = cols;
    r->session.plan.rows = rows;
    if (terminal_of(r) >= 0)
        process_resize(terminal_of(r), cols, rows);
}

/* ---- life ---- */

static bool start_process(struct running *r, struct process *process, enum manager_code *code,
                          struct fail *why)
{
    static const enum manager_code codes[] = {
        [PROCESS_IMPOSSIBLE] = MANAGER_START_FAILED, [PROCESS_NO_ROOM] = MANAGER_TOO_MANY};
    const struct manager_message *plan = &r->session.plan;
    char **argv = manager_strings(plan->argv), **env = manager_strings(plan->env);
    char *cwd = slice_dup(plan->cwd);
    struct process_plan of = {plan->kind == MANAGER_TERMINAL, plan->cols, plan->rows, cwd, argv, env};
    enum process_result result = PROCESS_NO_ROOM;
    fail(why, "out of memory");
    if (argv && env && cwd)
        result = process_start(&of, process, why);
    free(argv);
    free(env);
    free(cwd);
    *code = codes[result];
    return result == PROCESS_STARTED;
}

static void open_end(struct running *r, unsigned n, int fd, void (*on)(void *, int))
{
    if (fd < 0)
        return;
    loop_io_open(&r->ends[n], r->loop, fd, on, r);
    r->open[n] = true;
}

bool running_start(struct running *r, uint8_t kind, enum manager_code *code, struct fail *why)
{
    if (r->session.state != SESSION_NEW)
        return true;
    if (kind == MANAGER_TERMINAL || kind == MANAGER_PIPES)
        r->session.plan.kind = kind;
    struct process process = {0};
    if (!start_process(r, &process, code, why)) {
        linger(r);
        return false;
    }
    session_started(&r->session, (uint32_t)process.pid);
    open_end(r, OUT, process.out, out_ready);
    if (!is_terminal(r)) {
        if (r->session.plan.flags & MANAGER_NO_INPUT)
            close(process.in);
        else
            open_end(r, IN, process.in, in_ready);
        open_end(r, ERR, process.err, err_ready);
    }
    uint32_t timeout_ms = r->session.plan.timeout_ms;
    if (timeout_ms && timeout_ms != MANAGER_FOREVER)
        loop_timer_set(&r->limit, timeout_ms * MILLISECOND);
    want(r);
    return true;
}

struct running *running_new(struct loop *loop, const struct manager_message *create, struct slice id,
                            void (*over)(void *owner, struct running *r), void *owner,
                            enum manager_code *code, struct fail *why)
{
    struct running *r = calloc(1, sizeof *r);
    fail(why, "out of memory");
    if (!r || !session_init(&r->session, create, id, why)) {
        *code = fail_of_memory(why) ? MANAGER_OUT_OF_MEMORY : MANAGER_BAD_REQUEST;
        free(r);
        return NULL;
    }
    r->loop = loop;
    r->over = over;
    r->owner = owner;
    r->input = buffer_with_limit(INPUT_LIMIT);
    loop_timer_open(&r->stall, loop, stall_due, r);
    loop_timer_open(&r->kill, loop, kill_due, r);
    loop_timer_open(&r->drain, loop, drain_due, r);
    loop_timer_open(&r->limit, loop, limit_due, r);
    loop_timer_open(&r->linger, loop, linger_due, r);
    loop_timer_open(&r->memory, loop, memory_due, r);
    loop_timer_open(&r->unopened, loop, unopened_due, r);
    if ((create->flags & MANAGER_START_LATER) && create->linger_ms != MANAGER_FOREVER)
        loop_timer_set(&r->linger, FIRST_READER + create->linger_ms * MILLISECOND);
    return r;
}

void running_expect(struct running *r, uint64_t patience)
{
    r->expected = patience;
    if (r->session.state == SESSION_NEW && r->session.plan.linger_ms == MANAGER_FOREVER)
        linger(r);
}

void running_free(struct running *r)
{
    r->over_told = true;
    drop_readers(r, MANAGER_UNKNOWN_SESSION);
    running_signal(r, SIGKILL);
    for (unsigned n = IN; n < ENDS; n++)
        close_end(r, n);
    loop_timer_close(&r->stall);
    loop_timer_close(&r->kill);
    loop_timer_close(&r->drain);
    loop_timer_close(&r->limit);
    loop_timer_close(&r->linger);
    loop_timer_close(&r->memory);
    loop_timer_close(&r->unopened);
    session_clear(&r->session);
    free(r);
}

const struct session *running_session(const struct running *r)
{
    return &r->session;
}
