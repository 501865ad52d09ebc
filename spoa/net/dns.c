/* SPDX-License-Identifier: MIT */
#include "spoa/net/dns.h"

#include <ares.h>
#include <errno.h>
#include <netdb.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "spoa/base/bytes/writer.h"
#include "spoa/base/os/file.h"

#define SYSTEM_FILE "/etc/resolv.conf"
#define LOOK_AGAIN  (5 * SECOND) /* time between two looks at that file */
/* time until a question is sent again; doubles with each round of servers */
#define TRY_MS 500
#define TRIES  4                  /* rounds of servers */
#define TICK   (50 * MILLISECOND) /* time between two checks for overdue questions */
/* time between two bursts, so that a server's socket does not overflow */
#define PACE       (5 * MILLISECOND)
#define BURST      64         /* questions sent at once */
#define FLIGHT_MAX 4096       /* questions in flight; c-ares tells them apart by 16 random bits */
#define ASKS_MAX   (1u << 20) /* open questions */

/* A socket of c-ares. */
struct socket {
    struct socket *next;
    struct channel *channel;
    struct loop_io io;
};

/* One configuration of c-ares. A channel becomes stale if the system's configuration has changed, or if one of its sockets cannot be
 * watched. A new channel then replaces it, and the stale one is freed after its last question has ended. */
struct channel {
    struct channel *next;
    struct dns *dns;
    ares_channel ares;
    struct socket *sockets;
    unsigned in_flight;
    bool stale;
};

/* A question. */
struct ask {
    struct ask *next, *before; /* in dns.open, in the order of `due` */
    struct channel *channel;   /* NULL if not sent yet */
    /* NULL after the answer: the question only waits for c-ares to end it */
    void (*answered)(void *owner, const struct dns_answer *answer);
    void *owner;
    uint64_t due;
    struct fair_place place; /* taken until c-ares has ended the question */
    int family;              /* AF_INET, then perhaps AF_INET6 */
    char name[];
};

struct dns {
    struct dns_options options;
    struct loop *loop;
    struct loop_timer timer;
    struct channel *channels; /* the first is in use; the others are stale */
    struct ask *open, *last;  /* questions that are not answered */
    struct fair *fair;        /* decides which question is sent next */
    unsigned in_flight;
    uint64_t looked_at;      /* time of the last look at SYSTEM_FILE */
    struct stat system_seen; /* SYSTEM_FILE before c-ares read it */
};

/* ---- sockets of c-ares ---- */

static void on_socket(void *owner, int events)
{
    struct socket *s = owner;
    int fd = loop_io_fd(&s->io); /* read first: c-ares may close and free the socket */
    ares_process_fd(s->channel->ares, events & LOOP_READ ? fd : ARES_SOCKET_BAD,
                    events & LOOP_WRITE ? fd : ARES_SOCKET_BAD);
}

static void drop_socket(struct socket **link)
{
    struct socket *s = *link;
    *link = s->next;
    (void)loop_io_release(&s->io); /* c-ares closes the descriptor */
    free(s);
}

static void on_socket_state(void *data, int fd, int readable, int writable)
{
    struct channel *c = data;
    struct socket **link = &c->sockets;
    while (*link && loop_io_fd(&(*link)->io) != fd)
        link = &(*link)->next;
    if (!readable && !writable) {
        if (*link)
            drop_socket(link);
        return;
    }
    if (!*link) {
        if (!(*link = calloc(1, sizeof **link))) {
            c->stale = true; /* questions on a socket that is not watched end by their timeout */
            return;
        }
        (*link)->channel = c;
        loop_io_open(&(*link)->io, c->dns->loop, fd, on_socket, *link);
    }
    loop_io_want(&(*link)->io, (readable ? LOOP_READ : 0) | (writable ? LOOP_WRITE : 0));
}

/* ---- answers from the network ---- */

/* FORGERIES is the number of datagrams that are dropped in one turn; further ones are read in the next turn. */
enum { DNS_HEAD = 12, FORGERIES = 16 };

/* Returns true if a datagram is a response. c-ares compares the id and the question with those that were sent, and the kernel checks the
 * source, because the socket is connected. But c-ares ignores QR and OPCODE (RFC 1035 section 4.1.1): it would take its own question, if an
 * attacker reflects it, for the answer that the name does not exist. */
static bool is_response(const uint8_t *datagram, size_t len)
{
    return len >= DNS_HEAD && (datagram[2] & 0xf8) == 0x80;
}

/* Receives for c-ares and drops datagrams that are no responses. c-ares passes no `from` for TCP, whose bytes are a stream and need no such
 * check. */
static ares_ssize_t socket_receive(ares_socket_t fd, void *to, size_t size, int flags, struct sockaddr *from,
                                   ares_socklen_t *from_len, void *data)
{
    (void)data;
    for (unsigned forged = 0; forged < FORGERIES; forged++) {
        ssize_t got = recvfrom(fd, to, size, flags, from, from_len);
        if (got < 0 || !from || is_response(to, (size_t)got))
            return got;
    }
    errno = EAGAIN;
    return -1;
}

/* Opens a socket for c-ares, which expects it to be non-blocking. */
static ares_socket_t socket_open(int family, int type, int protocol, void *data)
{
    (void)data;
    return socket(family, type | SOCK_NONBLOCK | SOCK_CLOEXEC, protocol);
}

static int socket_close(ares_socket_t fd, void *data)
{
    (void)data;
    return close(fd);
}

static int socket_connect(ares_socket_t fd, const struct sockaddr *to, ares_socklen_t len, void *data)
{
    (void)data;
    return connect(fd, to, len);
}

static ares_ssize_t socket_send(ares_socket_t fd, const struct iovec *parts, int count, void *data)
{
    const struct msghdr message = {.msg_iov = (struct iovec *)parts, .msg_iovlen = (size_t)count};
    (void)data;
    return sendmsg(fd, &message, MSG_NOSIGNAL);
}

static const struct ares_socket_functions socket_functions = {
    .asocket = socket_open,
    .aclose = socket_close,
    .aconnect = socket_connect,
    .arecvfrom = socket_receive,
    .asendv = socket_send,
};

/* ---- channels ---- */

static bool use_servers(struct channel *c, const struct texts *servers, struct fail *why)
{
    char list[1024];
    struct writer w = writer_of(list, sizeof list);
    for (size_t i = 0; i < servers->count; i++) {
        writer_text(&w, i ? "," : "");
        writer_text(&w, servers->at[i]);
    }
    writer_u8(&w, '\0');
    if (servers->count == 0)
        return true;
    if (w.full || ares_set_servers_ports_csv(c->ares, list) != ARES_SUCCESS)
        return fail(why, "servers are addresses with or without a port: \"10.0.0.10\", \"127.0.0.1:5353\"");
    return true;
}

static struct channel *channel_new(struct dns *d, struct fail *why)
{
    struct channel *c = calloc(1, sizeof *c);
    struct ares_options options = {.timeout =
                                       d->options.resend ? (int)(d->options.resend / MILLISECOND) : TRY_MS,
                                   .tries = TRIES,
                                   .sock_state_cb = on_socket_state,
                                   .sock_state_cb_data = c,
                                   .flags = ARES_FLAG_NOSEARCH | ARES_FLAG_NOALIASES,
                                   .lookups = (char[]){"b"}};
    int mask = ARES_OPT_TIMEOUTMS | ARES_OPT_TRIES | ARES_OPT_SOCK_STATE_CB;
    if (d->options.exact)
        mask |= ARES_OPT_FLAGS | ARES_OPT_LOOKUPS;
    file_look(SYSTEM_FILE, &d->system_seen);
    if (!c || ares_init_options(&c->ares, &options, mask) != ARES_SUCCESS) {
        free(c);
        fail(why, "out of memory");
        return NULL;
    }
    c->dns = d;
    ares_set_socket_functions(c->ares, &socket_functions, NULL);
    if (use_servers(c, &d->options.servers, why))
        return c;
    ares_destroy(c->ares);
    free(c);
    return NULL;
}

static void channel_free(struct channel *c)
{
    ares_destroy(c->ares); /* calls on_found for each question in flight */
    while (c->sockets)
        drop_socket(&c->sockets);
    free(c);
}

/* Frees stale channels without questions. Must not be called from a call-back of c-ares, which still uses its channel. */
static void free_retired(struct dns *d)
{
    for (struct channel **link = &d->channels->next, *c; (c = *link);) {
        if (c->in_flight == 0) {
            *link = c->next;
            channel_free(c);
        } else {
            link = &c->next;
        }
    }
}

static bool system_changed(struct dns *d)
{
    struct stat now;
    uint64_t clock = loop_clock();
    if (d->options.servers.count || (d->looked_at && clock - d->looked_at < LOOK_AGAIN))
        return false;
    d->looked_at = clock;
    file_look(SYSTEM_FILE, &now);
    return !file_looks_same(&d->system_seen, &now);
}

static void replace_stale(struct dns *d)
{
    struct fail ignored;
    if (system_changed(d))
        d->channels->stale = true;
    struct channel *fresh = d->channels->stale ? channel_new(d, &ignored) : NULL;
    if (!fresh) /* nothing is stale, or memory is short: the next turn tries again */
        return;
    fresh->next = d->channels;
    d->channels = fresh;
}

/* ---- questions ---- */

static const struct dns_answer nobody = {.result = DNS_FAILED};

static void unlink_ask(struct dns *d, struct ask *a)
{
    if (d->open == a)
        d->open = a->next;
    else
        a->before->next = a->next;
    if (d->last == a)
        d->last = a->before;
    else
        a->next->before = a->before;
}

/* Answers a question. on_found frees a question that c-ares still has. */
static void answer(struct dns *d, struct ask *a, const struct dns_answer *answer)
{
    void (*answered)(void *, const struct dns_answer *) = a->answered;
    void *owner = a->owner;
    unlink_ask(d, a);
    a->answered = NULL;
    if (!a->channel) {
        fair_leave(d->fair, &a->place);
        free(a);
    }
    answered(owner, answer);
}

static bool take_address(const struct sockaddr *from, struct address *to)
{
    *to = (struct address){0};
    if (from->sa_family == AF_INET) {
        to->family = 4;
        memcpy(to->bytes, &((const struct sockaddr_in *)(const void *)from)->sin_addr, 4);
    } else if (from->sa_family == AF_INET6) {
        to->family = 6;
        memcpy(to->bytes, &((const struct sockaddr_in6 *)(const void *)from)->sin6_addr, 16);
    }
    return to->family != 0;
}

static void take_addresses(const struct ares_addrinfo *found, struct dns_answer *to)
{
    int ttl = INT32_MAX;
    const struct ares_addrinfo_node *n = found->nodes;
    for (; n && to->count < DNS_ADDRESSES; n = n->ai_next)
        if (take_address(n->ai_addr, &to->addresses[to->count])) {
            to->count++;
            ttl = n->ai_ttl < ttl ? n->ai_ttl : ttl;
        }
    to->more = n != NULL;
    to->result = to->count ? DNS_FOUND : DNS_ABSENT;
    to->ttl = ttl > 0 ? (uint64_t)ttl * SECOND : 0;
}

static void on_found(void *context, int status, int timeouts, struct ares_addrinfo *found);

static void send_ask(struct ask *a, int family)
{
    const struct ares_addrinfo_hints hints = {.ai_family = family, .ai_socktype = SOCK_STREAM};
    a->family = family;
    ares_getaddrinfo(a->channel->ares, a->name, NULL, &hints, on_found, a);
}

static void on_found(void *context, int status, int timeouts, struct ares_addrinfo *found)
{
    struct ask *a = context;
    struct channel *c = a->channel;
    struct dns *d = c->dns;
    struct dns_answer reply = {.result = DNS_FAILED};
    (void)timeouts;
    /* IPv6 is asked for only if there is no IPv4 address: that halves the number of questions, and a server that drops questions for IPv6,
     * as some do, causes no delay */
    if (a->answered && a->family == AF_INET &&
        (status == ARES_ENODATA || (status == ARES_ENOTFOUND && !d->options.exact))) {
        send_ask(a, AF_INET6);
        return;
    }
    c->in_flight--;
    d->in_flight--;
    if (found)
        take_addresses(found, &reply);
    else if (status == ARES_ENOTFOUND || status == ARES_ENODATA || status == ARES_EBADNAME)
        reply.result = DNS_ABSENT;
    ares_freeaddrinfo(found);
    a->channel = NULL;
    fair_leave(d->fair, &a->place);
    if (a->answered)
        answer(d, a, &reply);
    else
        free(a);
}

/* Sends a burst of questions, in the turns of their askers. */
static void send_some(struct dns *d)
{
    struct fair_place *place;
    for (unsigned burst = 0; burst < BURST && (place = fair_next(d->fair)); burst++) {
        struct ask *a = place->of;
        a->channel = d->channels;
        a->channel->in_flight++;
        d->in_flight++;
        send_ask(a, AF_INET);
    }
}

static void on_timer(void *owner)
{
    struct dns *d = owner;
    struct channel *c = d->channels;
    do {
        if (c->in_flight)
            ares_process_fd(c->ares, ARES_SOCKET_BAD, ARES_SOCKET_BAD);
    } while ((c = c->next));
    while (d->open && d->open->due <= loop_clock())
        answer(d, d->open, &nobody);
    free_retired(d);
    replace_stale(d);
    send_some(d);
    bool unsent = fair_waiting(d->fair) > 0;
    if (unsent || d->open || d->in_flight)
        loop_timer_set(&d->timer, unsent ? PACE : TICK);
}

/* ---- life cycle ---- */

struct dns *dns_new(struct loop *loop, const struct dns_options *options, struct fail *why)
{
    const struct fair_limits limits = {.places = ASKS_MAX, .served = FLIGHT_MAX};
    struct dns *d = calloc(1, sizeof *d);
    if (!d) {
        fail(why, "out of memory");
        return NULL;
    }
    d->options = *options;
    d->loop = loop;
    fail(why, "out of memory"); /* channel_new may replace this */
    if (!(d->fair = fair_new(&limits)) || !(d->channels = channel_new(d, why))) {
        free(d->fair);
        free(d);
        return NULL;
    }
    loop_timer_open(&d->timer, loop, on_timer, d);
    return d;
}

void dns_free(struct dns *d)
{
    if (!d)
        return;
    loop_timer_close(&d->timer);
    while (d->open)
        answer(d, d->open, &nobody);
    for (struct channel *c = d->channels, *next; c; c = next) {
        next = c->next;
        channel_free(c);
    }
    free(d->fair);
    free(d);
}

bool dns_ask(struct dns *d, struct slice name, struct fair_owner asker,
             void (*answered)(void *owner, const struct dns_answer *answer), void *owner)
{
    bool idle = fair_waiting(d->fair) == 0;
    struct ask *a = calloc(1, sizeof *a + name.len + 1);
    if (!a)
        return false;
    a->place.of = a;
    if (!fair_enter(d->fair, &a->place, asker, 1, loop_clock())) {
        free(a);
        return false;
    }
    memcpy(a->name, name.at, name.len);
    a->answered = answered;
    a->owner = owner;
    a->due = loop_clock() + d->options.timeout;
    a->before = d->last;
    *(d->last ? &d->last->next : &d->open) = a;
    d->last = a;
    if (idle)
        loop_timer_set(&d->timer, 0);
    return true;
}

struct address dns_choose(const struct dns_answer *answer, const struct address *before)
{
    for (size_t i = 0; i < answer->count; i++)
        if (memcmp(&answer->addresses[i], before, sizeof *before) == 0)
            return *before;
    return answer->addresses[0];
}
