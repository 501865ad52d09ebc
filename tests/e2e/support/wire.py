# SPDX-License-Identifier: MIT
"""A cable that can be cut: forwards TCP from a free port of 127.0.0.1 to another one."""

import contextlib
import socket
import struct
import threading

from cell import stop_listening

RESET = struct.pack("ii", 1, 0)


class Wire:
    """While `dead`, connections are made and reset at once. Use as a context manager."""

    def __init__(self, port):
        self._to = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._ends = set()
        self._lock = threading.Lock()
        self.dead = False
        self.cuts = 0  # connections that were cut

    def __enter__(self):
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_):
        stop_listening(self._listener)
        self.cut()

    def cut(self):
        with self._lock:
            ends, self._ends = self._ends, set()
        for end in ends:
            self.cuts += 1
            with contextlib.suppress(OSError):
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def _accept(self):
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            if self.dead:
                near.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
                near.close()
                continue
            far = socket.create_connection(("127.0.0.1", self._to))
            with self._lock:
                self._ends |= {near, far}
            for a, b in ((near, far), (far, near)):
                threading.Thread(target=self._forward, args=(a, b), daemon=True).start()

    @staticmethod
    def _forward(a, b):
        with contextlib.suppress(OSError):
            while data := a.recv(65536):
                b.sendall(data)
            b.shutdown(socket.SHUT_WR)
