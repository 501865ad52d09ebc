/* SPDX-License-Identifier: MIT */
#include "spoa/ctl/attach/attach.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#define DIAL_SECONDS 10

struct attach_wire {
    int fd;
    SSL_CTX *context; /* NULL: plain */
    SSL *tls;
    bool needs_write; /* TLS must write before it can go on */
};

int attach_wire_fd(const struct attach_wire *wire)
{
    return wire->fd;
}

short attach_wire_events(const struct attach_wire *wire, bool read, bool write)
{
    return (short)((read ? POLLIN : 0) | (write || wire->needs_write ? POLLOUT : 0));
}

static bool wait_for(int fd, short events, int seconds)
{
    struct pollfd p = {.fd = fd, .events = events};
    return poll(&p, 1, seconds * 1000) > 0;
}

bool attach_wire_wait(struct attach_wire *wire, bool read, bool write, int seconds)
{
    return wait_for(wire->fd, attach_wire_events(wire, read, write), seconds);
}

void attach_wire_free(struct attach_wire *wire)
{
    if (!wire)
        return;
    if (wire->tls)
        SSL_shutdown(wire->tls);
    SSL_free(wire->tls);
    SSL_CTX_free(wire->context);
    if (wire->fd >= 0)
        close(wire->fd);
    free(wire);
}

/* ---- connecting ---- */

static int connect_to(const struct addrinfo *address)
{
    int fd = socket(address->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), error = 0, on = 1;
    socklen_t len = sizeof(error);

    if (fd < 0)
        return -1;
    if (connect(fd, address->ai_addr, address->ai_addrlen) == 0)
        error = 0;
    else if (errno != EINPROGRESS)
        error = errno;
    else if (!wait_for(fd, POLLOUT, DIAL_SECONDS))
        error = ETIMEDOUT;
    else
        getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len);
    if (error) {
        close(fd);
        errno = error;
        return -1;
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)); /* keystrokes do not wait for each other */
    return fd;
}

static bool connect_first(struct attach_wire *wire, const struct attach_url *url, struct fail *why)
{
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM}, *list;
    int error = getaddrinfo(url->host, url->port, &hints, &list);

    if (error)
        return fail(why, "cannot resolve %s: %s", url->host, gai_strerror(error));
    for (const struct addrinfo *a = list; a && wire->fd < 0; a = a->ai_next)
        wire->fd = connect_to(a);
    freeaddrinfo(list);
    if (wire->fd < 0)
        return fail(why, "cannot connect to %s port %s: %s", url->host, url->port, strerror(errno));
    return true;
}

/* ---- TLS ---- */

static bool trust_authorities(SSL_CTX *context, const struct attach_trust *trust, struct fail *why)
{
    if (trust->insecure)
        return true;
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER, NULL);
    if (trust->ca_file ? SSL_CTX_load_verify_file(context, trust->ca_file)
                       : SSL_CTX_set_default_verify_paths(context))
        return true;
    return fail(why, "cannot read certificates from %s",
                trust->ca_file ? trust->ca_file : "the system's store");
}

/* Sets the host to verify. An address is verified as an address and never sent as a server name (RFC 6066 section 3). */
static bool expect_host(SSL *tls, const char *host)
{
    if (X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(tls), host))
        return true;
    return SSL_set1_host(tls, host) && SSL_set_tlsext_host_name(tls, host);
}

static bool tls_create(struct attach_wire *wire, const struct attach_url *url,
                       const struct attach_trust *trust, struct fail *why)
{
    static const unsigned char protocols[] = "\x08http/1.1"; /* no upgrade works on HTTP/2 this way */

    wire->context = SSL_CTX_new(TLS_client_method());
    if (!wire->context)
        return fail(why, "cannot set up TLS");
    SSL_CTX_set_min_proto_version(wire->context, TLS1_2_VERSION);
    SSL_CTX_set_options(wire->context,
                        SSL_OP_IGNORE_UNEXPECTED_EOF); /* only a Close frame marks the end of the session */
    SSL_CTX_set_mode(wire->context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    SSL_CTX_set_alpn_protos(wire->context, protocols, sizeof(protocols) - 1);
    if (!trust_authorities(wire->context, trust, why))
        return false;
    wire->tls = SSL_new(wire->context);
    if (!wire->tls || !SSL_set_fd(wire->tls, wire->fd) || !expect_host(wire->tls, url->host))
        return fail(why, "cannot set up TLS");
    return true;
}

/* Maps the result of a TLS call; anything but a wish to read or write is the end of the connection. */
static ssize_t tls_result(struct attach_wire *wire, int result)
{
    int error = result > 0 ? SSL_ERROR_NONE : SSL_get_error(wire->tls, result);

    wire->needs_write = error == SSL_ERROR_WANT_WRITE;
    if (error == SSL_ERROR_NONE)
        return result;
    if (error == SSL_ERROR_ZERO_RETURN)
        return ATTACH_WIRE_END;
    return error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE ? ATTACH_WIRE_AGAIN
                                                                         : ATTACH_WIRE_FAILED;
}

static bool tls_connect(struct attach_wire *wire, const struct attach_url *url, struct fail *why)
{
    for (;;) {
        ERR_clear_error();
        ssize_t result = tls_result(wire, SSL_connect(wire->tls));
        if (result > 0)
            return true;
        if (result == ATTACH_WIRE_AGAIN && attach_wire_wait(wire, !wire->needs_write, false, DIAL_SECONDS))
            continue;
        long verdict = SSL_get_verify_result(wire->tls);
        const char *reason = ERR_reason_error_string(ERR_peek_error());
        return fail(why, "TLS with %s failed: %s", url->host,
                    verdict != X509_V_OK ? X509_verify_cert_error_string(verdict)
                    : reason             ? reason
                                         : "no answer");
    }
}

struct attach_wire *attach_wire_dial(const struct attach_url *url, const struct attach_trust *trust,
                                     struct fail *why)
{
    struct attach_wire *wire = calloc(1, sizeof(*wire));

    if (!wire) {
        fail(why, "out of memory");
        return NULL;
    }
    wire->fd = -1;
    if (connect_first(wire, url, why) &&
        (!url->tls || (tls_create(wire, url, trust, why) && tls_connect(wire, url, why))))
        return wire;
    attach_wire_free(wire);
    return NULL;
}

/* ---- bytes ---- */

static ssize_t plain_result(ssize_t result)
{
    if (result >= 0)
        return result;
    return errno == EAGAIN || errno == EINTR ? ATTACH_WIRE_AGAIN : ATTACH_WIRE_FAILED;
}

static int at_most_int(size_t len)
{
    return len > 1 << 20 ? 1 << 20 : (int)len;
}

ssize_t attach_wire_read(struct attach_wire *wire, void *to, size_t len)
{
    if (!wire->tls)
        return plain_result(recv(wire->fd, to, len, 0));
    ERR_clear_error();
    return tls_result(wire, SSL_read(wire->tls, to, at_most_int(len)));
}

ssize_t attach_wire_write(struct attach_wire *wire, struct slice bytes)
{
    if (!wire->tls)
        return plain_result(send(wire->fd, bytes.at, bytes.len, MSG_NOSIGNAL));
    ERR_clear_error();
    return tls_result(wire, SSL_write(wire->tls, bytes.at, at_most_int(bytes.len)));
}
