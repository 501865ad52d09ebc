# SPDX-License-Identifier: MIT
"""What cell-worker lacks of OpenSandbox's execd and its SDK asks for: /ping, and files up and down. All else goes to the cell-worker
behind it, and comes back byte by byte where it is short: a client must not take what arrives together for one event."""

import email
import json
import re
import select
import socket
from urllib.parse import parse_qs, urlsplit

from origin import Origin
from plane import answer


class Execd(Origin):
    def __init__(self, **where):
        self.files, self.behind = {}, None
        super().__init__(answer=self._answer, **where)

    def _answer(self, connection, request):
        path = urlsplit(request.target).path
        query = {name: values[0] for name, values in parse_qs(urlsplit(request.target).query).items()}
        if path == "/ping":
            return answer(connection, 200, b"")
        if path == "/files/upload":
            head = b"Content-Type: " + request.get("content-type").encode() + b"\r\n\r\n"
            parts = email.message_from_bytes(head + connection.read_body(request)).get_payload()
            told = {part.get_param("name", header="content-disposition"): part.get_payload(decode=True) for part in parts}
            self.files[json.loads(told["metadata"])["path"]] = told["file"]
            return answer(connection, 200, b"")
        if path == "/files/download":
            if query["path"] not in self.files:
                return answer(connection, 404, {"code": "FILE_NOT_FOUND", "message": "file not found"}, "Content-Type: application/json")
            return answer(connection, 200, self.files[query["path"]], "Content-Type: application/octet-stream")
        return self._pass_on(connection, request)

    def _pass_on(self, connection, request):
        body = connection.read_body(request)
        with socket.create_connection(("127.0.0.1", self.behind)) as worker:
            head = re.sub(rb"(?i)\r\n(connection|transfer-encoding|content-length):[^\r]*", b"", request.head)
            worker.sendall(head + b"\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
            while True:
                ready = select.select([worker, connection.sock], [], [])[0]
                if connection.sock in ready and not connection.sock.recv(1, socket.MSG_PEEK):
                    return True  # its client left, which the worker notices by our end
                if worker in ready:
                    data = worker.recv(1 << 16)
                    if not data:
                        return True
                    for part in ([data[i : i + 1] for i in range(len(data))] if len(data) < 400 else [data]):
                        connection.send(part)
