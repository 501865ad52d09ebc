# SPDX-License-Identifier: MIT
"""A Redis server of a test's own, and a gate in front of one that stops forwarding, is slow, or talks nonsense."""

import json
import os
import select
import signal
import socket
import subprocess
import threading
import time

from cell import end, free_port, stop, until

PREFIX = "cellgate:sandbox:"


class Redis:
    """On a TCP port, and on a Unix socket in `folder`, which keeps its data for a restart."""

    def __init__(self, folder, *arguments, password=None, user=None):
        self.folder, self.arguments = folder, arguments
        self.password, self.user = password, user
        self.port, self.socket = free_port(), folder / "redis.sock"
        self.process = self.connection = None
        self.start()

    def start(self):
        command = ["redis-server", "--port", self.port, "--bind", "127.0.0.1", "--unixsocket", self.socket, "--dir", self.folder]
        command += ["--save", "", "--appendonly", "no", "--daemonize", "no", *self.arguments]
        with open(self.folder / "redis.log", "ab") as log:
            self.process = subprocess.Popen([str(c) for c in command], stdout=log, stderr=log)
        until(self._reachable, 10, "redis-server does not start")

    def _reachable(self):
        try:
            self.connection = socket.create_connection(("127.0.0.1", self.port), timeout=5)
        except OSError:
            return False
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self.password:
            self.ask("AUTH", *([self.user] if self.user else []), self.password)
        return self.ask("PING") == b"+PONG\r\n"

    def ask(self, *words):
        parts = [w if isinstance(w, bytes) else str(w).encode() for w in words]
        self.connection.sendall(b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(p), p) for p in parts))
        return self.connection.recv(1 << 16)

    def put(self, announce=True, **records):
        """Records (None removes one), and that they changed."""
        for name, record in records.items():
            if record is None:
                self.ask("DEL", PREFIX + name)
            else:
                self.ask("SET", PREFIX + name, record if isinstance(record, (str, bytes)) else json.dumps(record))
            if announce:
                self.announce(name)

    def announce(self, name):
        return self.ask("PUBLISH", PREFIX + "events", name)

    def commands(self, name):
        """How often the server was given this command."""
        for line in self.ask("INFO", "commandstats").decode().splitlines():
            if line.startswith(f"cmdstat_{name}:"):
                return int(line.split("calls=")[1].split(",")[0])
        return 0

    def stop(self):
        if self.connection:
            self.connection.close()
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
        end(self.process)

    def kill(self, save=False):
        if save:
            assert self.ask("SAVE") == b"+OK\r\n"
        self.connection.close()
        self.process.kill()
        self.process.wait()

    def pause(self):
        stop(self.process.pid)

    def go_on(self):
        os.kill(self.process.pid, signal.SIGCONT)


class Gate:
    """A TCP port in front of another. `stalled`: what comes is neither forwarded nor refused; `delay` seconds before
    each answer; `garble`: said instead of each answer; `shut`: connections are refused by ending them."""

    def __init__(self, target):
        self.target = target
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.stalled, self.delay, self.garble, self.shut = False, 0, None, False
        self.pairs, self.ending, self.asked = {}, False, []
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _accept(self):
        client = self.listener.accept()[0]
        try:
            server = None if self.shut else socket.create_connection(("127.0.0.1", self.target))
        except OSError:
            server = None
        if not server:
            client.close()
            return
        self.pairs[client], self.pairs[server] = (server, False), (client, True)

    def _drop(self, sock):
        other, _ = self.pairs.pop(sock)
        self.pairs.pop(other, None)
        sock.close()
        other.close()

    def _forward(self, sock):
        to, is_answer = self.pairs[sock]
        try:
            data = sock.recv(1 << 16)
            if not data:
                raise ConnectionError
            if is_answer:
                time.sleep(self.delay)
                data = self.garble if self.garble is not None else data
            else:
                self.asked.append(data)
            to.sendall(data)
        except OSError:
            self._drop(sock)

    def _run(self):
        while not self.ending:
            if self.shut:
                for sock in list(self.pairs):
                    if sock in self.pairs:
                        self._drop(sock)
            if self.stalled:
                time.sleep(0.01)
                continue
            ready = select.select([self.listener, *self.pairs], [], [], 0.02)[0]
            for sock in ready:
                if self.stalled:
                    break
                if sock is self.listener:
                    self._accept()
                elif sock in self.pairs:
                    self._forward(sock)

    def close(self):
        self.ending = True
        self.thread.join()
        self.listener.close()
        for sock in list(self.pairs):
            sock.close()
