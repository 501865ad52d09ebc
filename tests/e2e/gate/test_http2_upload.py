# SPDX-License-Identifier: MIT
"""Uploads over HTTP/2 from far away: the window that HAProxy opens, not the distance, bounds how much is on its way."""

import collections
import hashlib
import os
import select
import socket
import threading
import time

import pytest
from cell import stop_listening
from client import Http1, Http2

RTT = float(os.environ.get("CELLGATE_RTT", "0.05"))
SIZE = int(os.environ.get("CELLGATE_UPLOAD", str(8 << 20)))


class Distance:
    """A line of any width and of RTT seconds, there and back, to a port of this machine."""

    def __init__(self, port):
        self.target = port
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.over = False
        self.threads = [threading.Thread(target=self._accept, daemon=True)]
        self.threads[0].start()

    def _accept(self):
        while not self.over:
            try:
                near = self.listener.accept()[0]
            except OSError:
                return
            far = socket.create_connection(("127.0.0.1", self.target))
            self.threads.append(threading.Thread(target=self._carry, args=(near, far), daemon=True))
            self.threads[-1].start()

    def _carry(self, near, far):
        other, lines = {near: far, far: near}, {near: collections.deque(), far: collections.deque()}
        reading = {near, far}
        for sock in other:
            sock.setblocking(False)
        while not self.over and (reading or any(lines.values())):
            due = [line[0][0] for line in lines.values() if line]
            wait = max(0, min(due) - time.monotonic()) if due else 0.2
            for sock in select.select(reading, [], [], wait)[0]:
                try:
                    data = sock.recv(1 << 18)
                except OSError:
                    data = b""
                if not data:
                    reading.discard(sock)
                lines[sock].append((time.monotonic() + RTT / 2, data))
            for sock, line in lines.items():
                while line and line[0][0] <= time.monotonic():
                    self._deliver(other[sock], line.popleft()[1])
        near.close()
        far.close()

    @staticmethod
    def _deliver(sock, data):
        try:
            if not data:
                sock.shutdown(socket.SHUT_WR)
            sock.settimeout(10)
            sock.sendall(data)
            sock.setblocking(False)
        except OSError:
            pass

    def close(self):
        self.over = True
        stop_listening(self.listener)
        for thread in self.threads[1:]:
            thread.join(5)


def answer(connection, request):
    body = connection.read_body(request)
    digest = hashlib.sha256(body).hexdigest().encode()
    connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: 64\r\n\r\n" + digest)


@pytest.fixture(scope="module")
def cell(cells, origins):
    origin = origins(answer=answer)
    return cells(sandboxes={"sb-1": {"worker": origin.url, "ports": {"80": origin.url}}})


@pytest.fixture(scope="module")
def far(cell):
    distance = {"http": Distance(cell.http), "h2": Distance(cell.https)}
    yield {kind: each.port for kind, each in distance.items()}
    for each in distance.values():
        each.close()


@pytest.mark.parametrize("kind", ["http", "h2"])
def test_an_upload_does_not_crawl_with_distance(cell, far, kind):
    body = os.urandom(SIZE)
    with Http1(far["http"], timeout=60) if kind == "http" else Http2(far["h2"], timeout=60) as client:
        begun = time.monotonic()
        response = client.request("POST", "/v1/sandboxes/sb-1/proxy/80/upload", [cell.bearer()], body)
        took = time.monotonic() - begun
    print(f"{SIZE >> 20} MiB over {kind} at {RTT * 1000:.0f} ms: {took:.2f} s")
    assert response.status == 200 and response.body.decode() == hashlib.sha256(body).hexdigest()
    # 64 KiB a round trip would be 128 of them
    assert took < 50 * RTT
