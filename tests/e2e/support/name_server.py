# SPDX-License-Identifier: MIT
"""A name server of a test's own, on loopback: over UDP, and over TCP what is too long for that."""

import contextlib
import ipaddress
import socket
import struct
import threading

from cell import stop_listening

NXDOMAIN, SERVFAIL, SILENT = "nxdomain", "servfail", "silent"
KINDS = {1: 4, 28: 6}


class NameServer:
    """`names`: from a name to a list of addresses, NXDOMAIN, SERVFAIL, SILENT (never answered), or a function that gives
    one of these; other names get `otherwise`. `delay`: seconds before each answer. `asked`: all questions, in order;
    `look_ups`: without those that were repeated, because an answer was late.
    `most_waiting`: how many of them waited for their delayed answers at once."""

    def __init__(self, otherwise=NXDOMAIN):
        self.socket, self.listener = self._bind()
        self.address = "127.0.0.1:%d" % self.socket.getsockname()[1]
        self.names, self.otherwise, self.ttl, self.asked, self.silent = {}, otherwise, 1, [], False
        self.look_ups = set()
        self.delay = 0
        self.waiting, self.most_waiting, self.lock = 0, 0, threading.Lock()
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()
        threading.Thread(target=self._run_tcp, daemon=True).start()

    @staticmethod
    def _bind():
        """One port for UDP and TCP: what is free for the one need not be for the other."""
        for _ in range(50):
            udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            udp.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
            udp.bind(("127.0.0.1", 0))
            try:
                return udp, socket.create_server(udp.getsockname())
            except OSError:
                udp.close()
        raise AssertionError("no port is free for both")

    def count(self, name):
        return sum(asked == name for asked, _ in self.asked)

    def _answer(self, query):
        labels, at = [], 12
        while query[at]:
            labels.append(query[at + 1 : at + 1 + query[at]].decode())
            at += 1 + query[at]
        kind = struct.unpack(">H", query[at + 1 : at + 3])[0]
        name = ".".join(labels)
        self.asked.append((name, kind))
        self.look_ups.add((name, kind, query[:2]))
        found = self.names.get(name, self.otherwise)
        found = found() if callable(found) else found
        if found == SILENT or self.silent:
            return None
        addresses = [] if isinstance(found, str) else [ipaddress.ip_address(a) for a in found]
        records = [a.packed for a in addresses if KINDS.get(kind) == a.version]
        code = {NXDOMAIN: 3, SERVFAIL: 2}.get(found, 0) if isinstance(found, str) else 0
        head = query[:2] + struct.pack(">HHHHH", 0x8180 | code, 1, len(records), 0, 0)
        fields = struct.pack(">HHHI", 0xC00C, kind, 1, self.ttl)
        return head + query[12 : at + 5] + b"".join(fields + struct.pack(">H", len(r)) + r for r in records)

    def _run(self):
        while True:
            query, peer = self.socket.recvfrom(4096)
            if not peer:  # shut down
                return
            answer = self._answer(query)
            if answer and len(answer) > 512:  # cut behind the question
                answer = answer[:2] + struct.pack(">HHHHH", 0x8380, 1, 0, 0, 0) + query[12:]
            if answer and self.delay:
                self._wait(1)
                threading.Timer(self.delay, self._send_late, (answer, peer)).start()
            elif answer:
                self._send(answer, peer)

    def _wait(self, more):
        with self.lock:
            self.waiting += more
            self.most_waiting = max(self.waiting, self.most_waiting)

    def _send_late(self, answer, peer):
        self._wait(-1)
        self._send(answer, peer)

    def _send(self, answer, peer):
        with contextlib.suppress(OSError):  # closed meanwhile
            self.socket.sendto(answer, peer)

    def _run_tcp(self):
        while True:
            with contextlib.suppress(OSError, struct.error):
                if self.listener.fileno() < 0:
                    return
                sock, _ = self.listener.accept()
                with sock:
                    size = struct.unpack(">H", sock.recv(2, socket.MSG_WAITALL))[0]
                    answer = self._answer(sock.recv(size, socket.MSG_WAITALL))
                    if answer:
                        sock.sendall(struct.pack(">H", len(answer)) + answer)
                        sock.recv(1)

    def close(self):
        with contextlib.suppress(OSError):  # without a connection it fails, and yet it wakes who reads
            self.socket.shutdown(socket.SHUT_RDWR)
        self.thread.join()
        stop_listening(self.listener)
        self.socket.close()
