# SPDX-License-Identifier: MIT
"""A small API server that says what a real one said (tests/data/kubernetes.json, made by record_kube.py), when a test wants it, and what
none would say."""

import json
import os
import queue
import socket
import subprocess
from urllib.parse import parse_qs, unquote, urlsplit

from cell import ROOT, end, free_port, until
from origin import Origin

RECORDED = json.loads((ROOT / "tests/data/kubernetes.json").read_text())
EVENTS = RECORDED["events"]
SANDBOXES = "/apis/agents.x-k8s.io/v1beta1/sandboxes"


def renamed(text, name, address=None, old="sb-new", addresses=("127.0.0.9", "127.0.0.10")):
    """The recorded event, of another sandbox, elsewhere."""
    text = text.replace(f'"{old}"', f'"{name}"')
    for was in addresses:
        text = text.replace(f'"{was}"', f'"{address or was}"')
    return text


def head(status, body=b"", *fields):
    lines = [f"HTTP/1.1 {status} X", "Content-Type: application/json", f"Content-Length: {len(body)}", *fields]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


class Watch:
    def __init__(self, connection, path, query):
        self.connection, self.path, self.query = connection, path, query
        self.said = queue.Queue()

    def run(self):
        self.connection.send(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n")
        while (piece := self.said.get()) is not None:
            self.connection.send(b"%x\r\n" % len(piece) + piece + b"\r\n" if piece else b"0\r\n\r\n")
        return True


class Dated:
    """A connection on which each head says this time."""

    def __init__(self, connection, date):
        self.connection, self.field = connection, b"Date: " + date.encode() + b"\r\n"
        self.read, self.read_body = connection.read, connection.read_body

    def send(self, data):
        line, end, rest = data.partition(b"\r\n")
        self.connection.send(line + end + self.field + rest if data.startswith(b"HTTP/") else data)


class FakeKube(Origin):
    """`lists`: path to the pages of a list, each (status, body) or bytes that are sent as they are; a path that is not there is 404.
    `watch_answer(connection, path, query)` may answer a watch in another way; else it is kept in `watches`. Whoever has not `token` is 401.
    `date`: of every answer; None: it says none."""

    def __init__(self, token=None, tls=None):
        super().__init__(self._answer, tls=tls)
        self.token = token
        self.lists = {SANDBOXES: [(200, RECORDED["empty"]["body"])]}
        self.watches, self.asked, self.patches = [], [], []
        self.watch_answer = self.list_answer = None
        self.patch_status = 200
        self.date = None

    def _answer(self, connection, request):
        request.body = connection.read_body(request)
        if self.date:
            connection = Dated(connection, self.date)
        target = urlsplit(request.target)
        path, query = unquote(target.path), {name: values[0] for name, values in parse_qs(target.query).items()}
        self.asked.append((request.method, path, query))
        if self.token and request.get("authorization") != f"Bearer {self.token}":
            return self.say_recorded(connection, "401")
        if request.method == "PATCH":
            self.patches.append((path, request.get("content-type"), json.loads(request.body)))
            connection.send(head(self.patch_status, b"{}"))
            return False
        if query.get("watch"):
            return self._watch(connection, path, query)
        return self._list(connection, path, query)

    @staticmethod
    def say_recorded(connection, name):
        connection.send(head(RECORDED[name]["status"], RECORDED[name]["body"].encode()))
        return False

    def _list(self, connection, path, query):
        if self.list_answer:
            return self.list_answer(connection, path, query)
        if path not in self.lists:
            return self.say_recorded(connection, "404")
        pages = self.lists[path]
        number = 0
        if at := query.get("continue"):
            number = 1 + [json.loads(body).get("metadata", {}).get("continue") for _, body in pages].index(at)
        status, body = pages[number]
        connection.send(head(status, body.encode()))
        return False

    def _watch(self, connection, path, query):
        if self.watch_answer:
            return self.watch_answer(connection, path, query)
        watch = Watch(connection, path, query)
        self.watches.append(watch)
        return watch.run()

    def say(self, *texts):
        """To whoever watches last."""
        for text in texts:
            self.watches[-1].said.put(text if isinstance(text, bytes) else text.encode())

    def end(self):
        """Ends the last watch as a server does whose time is over."""
        self.watches[-1].said.put(b"")
        self.watches[-1].said.put(None)

    def cut(self):
        """Ends it in the middle."""
        self.watches[-1].said.put(None)


class Http2:
    """HAProxy in front of it: the agent speaks HTTP/2 over TLS, as with a real one."""

    def __init__(self, kube, folder):
        self.ca, port = folder / "ca", free_port()
        command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=kube -addext subjectAltName=IP:127.0.0.1"
        subprocess.run([*command.split(), "-keyout", folder / "ca.key", "-out", self.ca], check=True, capture_output=True)
        (folder / "haproxy.cfg").write_text(f"""
defaults
    mode http
    timeout connect 5s
    timeout client 10m
    timeout server 10m
frontend kube
    bind 127.0.0.1:{port} ssl crt {self.ca} alpn h2
    default_backend kube
backend kube
    server kube 127.0.0.1:{kube.port}
""")
        with open(folder / "haproxy.log", "wb") as log:
            self.process = subprocess.Popen([*os.environ["HAPROXY"].split(), "-db", "-f", folder / "haproxy.cfg"], stdout=log, stderr=log)
        self.url = f"https://127.0.0.1:{port}"
        until(lambda: self.listens(port), 10, "HAProxy does not listen")

    @staticmethod
    def listens(port):
        with socket.socket() as client:
            return client.connect_ex(("127.0.0.1", port)) == 0

    def close(self):
        end(self.process)


def listed(*texts, continues="", version="900"):
    """A list of the objects of these events."""
    items = [json.loads(text)["object"] for text in texts]
    body = {"apiVersion": "agents.x-k8s.io/v1beta1", "items": items, "kind": "SandboxList",
            "metadata": {"continue": continues, "resourceVersion": version, "selfLink": ""}}
    return 200, json.dumps(body)
