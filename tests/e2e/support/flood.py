# SPDX-License-Identifier: MIT
"""A process of its own that keeps many sockets busy: sends the same bytes to each as fast as it takes them, and reads all that comes.
Descriptors are inherited: python3 flood.py BYTES-FILE SENDERS READERS, both lists of numbers with commas."""

import os
import select
import sys


def main(path, senders, readers):
    with open(path, "rb") as f:
        block = f.read()
    poll, rest = select.epoll(), {}
    for fd in readers:
        os.set_blocking(fd, False)
        poll.register(fd, select.EPOLLIN)
    for fd in senders:
        os.set_blocking(fd, False)
        poll.register(fd, select.EPOLLIN | select.EPOLLOUT)
        rest[fd] = block
    while True:
        for fd, events in poll.poll():
            try:
                if events & select.EPOLLIN and not os.read(fd, 1 << 18):
                    poll.unregister(fd)
                elif events & select.EPOLLOUT:
                    rest[fd] = rest[fd][os.write(fd, rest[fd]):] or block
                elif events & (select.EPOLLHUP | select.EPOLLERR):
                    poll.unregister(fd)
            except BlockingIOError:
                pass
            except OSError:
                poll.unregister(fd)


if __name__ == "__main__":
    main(sys.argv[1], *([int(fd) for fd in text.split(",") if fd] for text in sys.argv[2:4]))
