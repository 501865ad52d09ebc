/* SPDX-License-Identifier: MIT */
/*
 * A forwarder that only moves bytes between two sockets: the least that a hop in the relay's place can cost.
 *
 *     bench_forward epoll ADDRESS TARGET       recv and send, level-triggered
 *     bench_forward io_uring ADDRESS TARGET    multishot receives into provided buffers, sends out of these,
 *                                              one system call a turn; only if it was built with liburing
 *
 * ADDRESS and TARGET: 127.0.0.1:PORT or unix@PATH. One thread. Either side's end is the end of both.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <unistd.h>
#ifdef WITH_LIBURING
#include <liburing.h>
#endif

#include "spoa/net/net.h"

enum { SCRATCH = 128 << 10, EVENTS = 256 };

struct pair;
struct end {
    struct pair *pair;
    struct end *peer;
    int fd;
    /* epoll: what the peer has sent and this socket did not take yet */
    uint8_t *held;
    size_t from, to;
    /* io_uring: full buffers that wait for this socket; -1 for none */
    int first, last;
};

struct pair {
    struct end ends[2];
    unsigned in_flight; /* io_uring: requests that have not ended */
    bool over;
    struct pair *next;
};

static struct net_address target;

static void die(const char *what)
{
    fprintf(stderr, "bench_forward: %s\n", what);
    exit(EXIT_FAILURE);
}

static struct pair *pair_new(int fd)
{
    struct fail why;
    struct pair *p = calloc(1, sizeof *p);
    int out = net_connect(&target, &why);
    if (!p || out < 0)
        die(p ? why.text : "out of memory");
    p->ends[0] = (struct end){.pair = p, .peer = &p->ends[1], .fd = fd, .first = -1, .last = -1};
    p->ends[1] = (struct end){.pair = p, .peer = &p->ends[0], .fd = out, .first = -1, .last = -1};
    return p;
}

static void pair_free(struct pair *p)
{
    for (int i = 0; i < 2; i++) {
        close(p->ends[i].fd);
        free(p->ends[i].held);
    }
    free(p);
}

/* ---- epoll ---- */
static int epoll;
static struct pair *over; /* freed behind the turn: later events of it may name them */

static void watch(struct end *e, int operation)
{
    bool full = e->peer->held != NULL;
    struct epoll_event event = {.events = (full ? 0u : EPOLLIN) | (e->held ? EPOLLOUT : 0u), .data.ptr = e};
    if (epoll_ctl(epoll, operation, e->fd, &event) != 0)
        die("epoll_ctl");
}

static void end_pair(struct pair *p)
{
    if (p->over)
        return;
    p->over = true;
    p->next = over;
    over = p;
}

/* Keeps what the socket did not take, and has the other side wait. */
static void hold(struct end *e, const uint8_t *bytes, size_t len)
{
    e->held = malloc(len);
    if (!e->held)
        die("out of memory");
    memcpy(e->held, bytes, len);
    e->from = 0;
    e->to = len;
    watch(e, EPOLL_CTL_MOD);
    watch(e->peer, EPOLL_CTL_MOD);
}

static void move(struct end *e)
{
    static uint8_t scratch[SCRATCH];
    ssize_t got = recv(e->fd, scratch, sizeof scratch, 0);
    if (got < 0 && errno == EAGAIN)
        return;
    ssize_t sent = got > 0 ? send(e->peer->fd, scratch, (size_t)got, MSG_NOSIGNAL) : -1;
    if (got <= 0 || (sent < 0 && errno != EAGAIN))
        end_pair(e->pair);
    else if (sent < got)
        hold(e->peer, scratch + (sent > 0 ? sent : 0), (size_t)(got - (sent > 0 ? sent : 0)));
}

static void drain(struct end *e)
{
    ssize_t sent = send(e->fd, e->held + e->from, e->to - e->from, MSG_NOSIGNAL);
    if (sent < 0 && errno == EAGAIN)
        return;
    if (sent < 0) {
        end_pair(e->pair);
        return;
    }
    e->from += (size_t)sent;
    if (e->from < e->to)
        return;
    free(e->held);
    e->held = NULL;
    watch(e, EPOLL_CTL_MOD);
    watch(e->peer, EPOLL_CTL_MOD);
}

static void on_event(struct end *e, unsigned events)
{
    if (e->pair->over)
        return;
    if (e->held && events & EPOLLOUT)
        drain(e);
    if (!e->pair->over && !e->peer->held && events & (EPOLLIN | EPOLLHUP | EPOLLERR))
        move(e);
}

static void accept_all(int listener)
{
    for (int fd; (fd = net_accept(listener)) >= 0;) {
        struct pair *p = pair_new(fd);
        watch(&p->ends[0], EPOLL_CTL_ADD);
        watch(&p->ends[1], EPOLL_CTL_ADD);
    }
}

static void run_epoll(int listener)
{
    struct epoll_event events[EVENTS], event = {.events = EPOLLIN};
    epoll = epoll_create1(EPOLL_CLOEXEC);
    if (epoll < 0 || epoll_ctl(epoll, EPOLL_CTL_ADD, listener, &event) != 0)
        die("epoll");
    for (;;) {
        int count = epoll_wait(epoll, events, EVENTS, -1);
        for (int i = 0; i < count; i++)
            if (events[i].data.ptr)
                on_event(events[i].data.ptr, events[i].events);
            else
                accept_all(listener);
        for (struct pair *p; (p = over);) {
            over = p->next;
            pair_free(p);
        }
    }
}

/* ---- io_uring ---- */
#ifdef WITH_LIBURING
enum { ENTRIES = 4096, BUFFERS = 1024, BUFFER_SIZE = 16 << 10, SENT = 1 }; /* SENT: a pointer's lowest bit */

static struct io_uring ring;
static struct io_uring_buf_ring *provided;
static uint8_t *memory;
static int length[BUFFERS], next[BUFFERS]; /* of a full buffer; the one behind it, for the same socket */
static struct end *starving[ENTRIES];      /* they found no buffer */
static unsigned starving_count;

static struct io_uring_sqe *entry(void)
{
    struct io_uring_sqe *sqe = io_uring_get_sqe(&ring);
    if (!sqe && io_uring_submit(&ring) >= 0)
        sqe = io_uring_get_sqe(&ring);
    if (!sqe)
        die("the ring is full");
    return sqe;
}

static void receive(struct end *e)
{
    struct io_uring_sqe *sqe = entry();
    io_uring_prep_recv_multishot(sqe, e->fd, NULL, 0, 0);
    sqe->flags |= IOSQE_BUFFER_SELECT;
    sqe->buf_group = 0;
    io_uring_sqe_set_data(sqe, e);
    e->pair->in_flight++;
}

/* One at a time for each socket: two could overtake each other. */
static void send_first(struct end *e)
{
    struct io_uring_sqe *sqe = entry();
    io_uring_prep_send(sqe, e->fd, memory + (size_t)e->first * BUFFER_SIZE, (size_t)length[e->first],
                       MSG_NOSIGNAL | MSG_WAITALL);
    io_uring_sqe_set_data64(sqe, (uint64_t)(uintptr_t)e | SENT);
    e->pair->in_flight++;
}

static void give_back(int buffer)
{
    io_uring_buf_ring_add(provided, memory + (size_t)buffer * BUFFER_SIZE, BUFFER_SIZE,
                          (unsigned short)buffer, io_uring_buf_ring_mask(BUFFERS), 0);
    io_uring_buf_ring_advance(provided, 1);
}

static void stop(struct pair *p)
{
    if (!p->over)
        for (int i = 0; i < 2; i++)
            shutdown(p->ends[i].fd, SHUT_RDWR);
    p->over = true;
}

static void on_sent(struct end *e, int sent)
{
    int buffer = e->first;
    if (sent < length[buffer])
        stop(e->pair);
    e->first = next[buffer];
    give_back(buffer);
    if (e->first >= 0)
        send_first(e);
}

static void on_received(struct end *e, const struct io_uring_cqe *cqe)
{
    struct end *to = e->peer;
    if (cqe->res > 0) {
        int buffer = (int)(cqe->flags >> IORING_CQE_BUFFER_SHIFT);
        length[buffer] = cqe->res;
        next[buffer] = -1;
        if (to->first < 0)
            to->first = buffer;
        else
            next[to->last] = buffer;
        to->last = buffer;
        if (to->first == buffer)
            send_first(to);
    } else if (cqe->res != -ENOBUFS) {
        stop(e->pair);
    }
    if (!(cqe->flags & IORING_CQE_F_MORE) && !e->pair->over) {
        if (starving_count == ENTRIES)
            die("too many sockets wait for buffers");
        e->pair->in_flight++; /* it is still named */
        starving[starving_count++] = e;
    }
}

static void on_completion(const struct io_uring_cqe *cqe, int listener)
{
    struct end *e =
        (struct end *)(uintptr_t)(cqe->user_data & ~(uint64_t)SENT); /* NOLINT: as we put it there */
    if (!e && cqe->res >= 0) {
        /* for the ring "would block" is an answer, if the socket says so */
        struct pair *p = pair_new(cqe->res);
        fcntl(p->ends[0].fd, F_SETFL, 0);
        fcntl(p->ends[1].fd, F_SETFL, 0);
        receive(&p->ends[0]);
        receive(&p->ends[1]);
    }
    if (!e && !(cqe->flags & IORING_CQE_F_MORE))
        io_uring_prep_multishot_accept(entry(), listener, NULL, NULL, 0);
    if (!e)
        return;
    if (cqe->user_data & SENT)
        on_sent(e, cqe->res);
    else
        on_received(e, cqe);
    if ((cqe->user_data & SENT || !(cqe->flags & IORING_CQE_F_MORE)) && --e->pair->in_flight == 0)
        pair_free(e->pair);
}

static void feed(void)
{
    unsigned count = starving_count;
    starving_count = 0;
    for (unsigned i = 0; i < count; i++) {
        struct pair *p = starving[i]->pair;
        if (!p->over)
            receive(starving[i]);
        if (--p->in_flight == 0)
            pair_free(p);
    }
}

static void run_io_uring(int listener)
{
    struct io_uring_params parameters = {.flags = IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN |
                                                  IORING_SETUP_CQSIZE,
                                         .cq_entries = 4 * ENTRIES};
    size_t size = BUFFERS * sizeof(struct io_uring_buf);
    memory = aligned_alloc(4096, (size_t)BUFFERS * BUFFER_SIZE);
    provided = aligned_alloc(4096, size);
    struct io_uring_buf_reg group = {.ring_addr = (uint64_t)(uintptr_t)provided, .ring_entries = BUFFERS};
    if (!memory || !provided || io_uring_queue_init_params(ENTRIES, &ring, &parameters) != 0 ||
        io_uring_register_buf_ring(&ring, &group, 0) != 0)
        die("no io_uring here");
    io_uring_buf_ring_init(provided);
    for (int i = 0; i < BUFFERS; i++)
        give_back(i);
    fcntl(listener, F_SETFL, 0);
    io_uring_prep_multishot_accept(entry(), listener, NULL, NULL, 0);
    for (;;) {
        struct io_uring_cqe *cqe;
        unsigned head, count = 0;
        io_uring_submit_and_wait(&ring, 1);
        io_uring_for_each_cqe(&ring, head, cqe)
        {
            on_completion(cqe, listener);
            count++;
        }
        io_uring_cq_advance(&ring, count);
        feed();
    }
}
#else
static void run_io_uring(int listener)
{
    (void)listener;
    die("built without liburing");
}
#endif

int main(int argc, char **argv)
{
    struct fail why;
    struct net_address address;
    struct rlimit files;
    if (argc != 4 || (strcmp(argv[1], "epoll") != 0 && strcmp(argv[1], "io_uring") != 0))
        die("usage: bench_forward epoll|io_uring ADDRESS TARGET");
    if (!net_parse(slice_text(argv[2]), &address, &why) || !net_parse(slice_text(argv[3]), &target, &why))
        die(why.text);
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    int listener = net_listen(&address, 0600, &why);
    if (listener < 0)
        die(why.text);
    printf("listening %s\n", argv[2]);
    fflush(stdout);
    if (argv[1][0] == 'e')
        run_epoll(listener);
    else
        run_io_uring(listener);
    return EXIT_SUCCESS;
}
