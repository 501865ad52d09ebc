/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <poll.h>
#include <unistd.h>

#include "spoa/service/control.h"

/* Waits until the descriptor is ready. Returns false with *why and errno, ETIMEDOUT after the deadline. */
static bool await(int fd, short events, uint64_t deadline, struct fail *why)
{
    for (;;) {
        uint64_t now = loop_clock();
        struct pollfd ready = {.fd = fd, .events = events};
        int n = now < deadline ? poll(&ready, 1, (int)((deadline - now) / MILLISECOND) + 1) : 0;
        if (n > 0)
            return true;
        if (n == 0) {
            errno = ETIMEDOUT;
            return fail(why, "there is no answer");
        }
        if (errno != EINTR)
            return fail(why, "%s", strerror(errno));
    }
}

/* Sends everything. Returns false with *why and errno. */
static bool send_all(int fd, struct slice rest, uint64_t deadline, struct fail *why)
{
    while (rest.len) {
        if (!await(fd, POLLOUT, deadline, why))
            return false;
        ssize_t n = send(fd, rest.at, rest.len, MSG_NOSIGNAL);
        if (n < 0 && errno != EAGAIN && errno != EINTR)
            return fail(why, "%s", strerror(errno));
        rest = slice_from(rest, n > 0 ? (size_t)n : 0);
    }
    return true;
}

/* Receives until the end of the line. Returns false with *why and errno. */
static bool receive_line(int fd, uint64_t deadline, struct buffer *answer, struct fail *why)
{
    for (;;) {
        uint8_t bytes[4096];
        if (!await(fd, POLLIN, deadline, why))
            return false;
        ssize_t n = recv(fd, bytes, sizeof bytes, 0);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            continue;
        if (n < 0)
            return fail(why, "%s", strerror(errno));
        if (n == 0) {
            errno = ECONNRESET;
            return fail(why, "the answer ends too early");
        }
        struct slice part = slice_of(bytes, (size_t)n);
        size_t end = slice_find(part, '\n');
        if (!buffer_put(answer, slice_sub(part, 0, end))) {
            errno = EMSGSIZE;
            return fail(why, "the answer is too long");
        }
        if (end < part.len)
            return true;
    }
}

/* Waits for the connection, sends the request and receives the answer. */
static bool converse(int fd, struct slice request, uint64_t patience, struct buffer *answer, struct fail *why)
{
    uint64_t deadline = loop_clock() + patience;
    if (!await(fd, POLLOUT, deadline, why))
        return false;
    int error = net_connected(fd);
    if (error) {
        errno = error;
        return fail(why, "%s", strerror(error));
    }
    return send_all(fd, request, deadline, why) && send_all(fd, SLICE_LITERAL("\n"), deadline, why) &&
           receive_line(fd, deadline, answer, why);
}

bool control_ask(const struct net_address *address, struct slice request, uint64_t patience,
                 struct buffer *answer, struct fail *why)
{
    char text[NET_TEXT];
    struct fail inner;
    int fd = net_connect(address, why);
    if (fd < 0)
        return false;
    bool good = converse(fd, request, patience, answer, &inner);
    int error = errno;
    close(fd);
    errno = error;
    return good || fail(why, "%s: %s", net_text(address, text), inner.text);
}
