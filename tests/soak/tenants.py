# SPDX-License-Identifier: MIT
"""Clients, workers, a control plane and a name server for tests/soak/greedy, each on asyncio: a process drives a hundred of them."""

import asyncio
import base64
import json
import multiprocessing
import os
import random
import struct

from name_server import SILENT, NameServer
from origin import accept_of

TEXT, BINARY, CLOSE, PING, PONG = 1, 2, 8, 9, 10
REQUEST, RESPONSE, DATA, END, RESET = 1, 2, 3, 4, 5  # messages of cellgate.mux.v1
PATIENCE = 30  # seconds after which a neighbour gives up


class Refused(Exception):
    """The gate did not do what was asked: a status, a Close, an end."""


def frame(opcode, payload=b"", fin=True, masked=True):
    """A WebSocket frame (RFC 6455 section 5.2). Its mask is zero, so that a greedy client's frames cost it nothing to make."""
    size, mask = len(payload), 0x80 if masked else 0
    head = bytes([opcode | (0x80 if fin else 0)])
    if size < 126:
        head += bytes([mask | size])
    elif size < 65536:
        head += struct.pack(">BH", mask | 126, size)
    else:
        head += struct.pack(">BQ", mask | 127, size)
    return head + (bytes(4) if masked else b"") + payload


async def read_frame(reader):
    first, second = await reader.readexactly(2)
    size = second & 127
    if size == 126:
        size = int.from_bytes(await reader.readexactly(2), "big")
    elif size == 127:
        size = int.from_bytes(await reader.readexactly(8), "big")
    mask = await reader.readexactly(4) if second & 128 else bytes(4)
    payload = await reader.readexactly(size)
    if any(mask):
        pattern = int.from_bytes((mask * (size // 4 + 1))[:size], "big")
        payload = (int.from_bytes(payload, "big") ^ pattern).to_bytes(size, "big")
    return first & 15, payload


async def read_head(reader):
    """(words of the first line, fields in lower case)"""
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    fields = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:] if line)}
    return head[0].split(" "), fields


sources = ["127.0.0.1"]  # the addresses that this process' clients come from


async def ask(port, line, *fields):
    """Sends a request to the gate: (status, reader, writer), with the answer's head read."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(random.choice(sources), 0))
    writer.write("\r\n".join([line + " HTTP/1.1", *fields, "", ""]).encode())
    try:
        words, _ = await read_head(reader)
    except asyncio.IncompleteReadError:
        writer.close()
        raise Refused("the connection ended before an answer") from None
    return int(words[1]), reader, writer


def upgrade(path, token=None, *fields):
    """The arguments of ask() for a WebSocket."""
    key = base64.b64encode(os.urandom(16)).decode()
    return (f"GET {path}", "Host: cell.test", "Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Version: 13",
            f"Sec-WebSocket-Key: {key}", *([f"Authorization: Bearer {token}"] if token else []), *fields)


async def websocket(port, path, token=None, *fields):
    status, reader, writer = await ask(port, *upgrade(path, token, *fields))
    if status != 101:
        writer.close()
        raise Refused(f"status {status}")
    return reader, writer


async def discard(reader):
    """Reads what comes until the end."""
    while await reader.read(1 << 16):
        pass


# ---- what stands around a cell, each in a process of its own ----


def at_leisure():
    """From now on this process gets a core only if no other process wants it."""
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))


def serve(start, manner=None):
    """Runs `start`, a coroutine function that returns an asyncio server, in a process of its own, which calls manner() first:
    (process, port)."""
    near, far = multiprocessing.Pipe()

    def run():
        if manner:
            manner()

        async def until_killed():
            server = await start()
            far.send(server.sockets[0].getsockname()[1])
            await server.serve_forever()

        asyncio.run(until_killed())

    process = multiprocessing.Process(target=run, daemon=True)
    process.start()
    return process, near.recv()


async def answer_calls(reader, writer):
    """The other end of mux sockets that a plain HAProxy passes on: an answer of two frames to each request but those to /silent."""
    while True:
        opcode, payload = await read_frame(reader)
        if opcode == BINARY and payload[0] == REQUEST and b"/silent" not in payload:
            number = payload[1:5]
            answer = frame(BINARY, bytes([RESPONSE]) + number + b'{"status":200}', masked=False)
            writer.write(answer + frame(BINARY, bytes([END]) + number, masked=False))


async def worker():
    """Echoes data frames. In the session's name is said what else the worker does: `deaf` reads nothing after its 101, `sink` reads
    and says nothing, `pongs` says Pongs for ever. Mux sockets of clients without a token are read. A plain request is answered, unless
    its path ends with /silent."""

    async def tunnel(reader, writer, path, named):
        while path.endswith("pongs"):
            writer.write(frame(PONG, b"none", masked=False) * 6000)
            await writer.drain()
        if path.endswith("deaf"):
            await asyncio.sleep(3600)
        if path.endswith("/mux") and named:
            await answer_calls(reader, writer)
        while not path.endswith(("sink", "/mux")):
            opcode, payload = await read_frame(reader)
            if opcode in (TEXT, BINARY):
                writer.write(frame(opcode, payload, masked=False))
            elif opcode == CLOSE:
                writer.write(frame(CLOSE, payload, masked=False))
                return
        await discard(reader)

    async def connection(reader, writer):
        try:
            while True:
                (_, path, _), fields = await read_head(reader)
                if "sec-websocket-key" in fields:
                    accept = accept_of(fields["sec-websocket-key"].encode()).decode()
                    resume = "Cell-Resume: 1; recv=0; next=1; buffer=1048576\r\n" if "cell-resume" in fields else ""
                    writer.write(f"HTTP/1.1 101 x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: {accept}\r\n{resume}\r\n".encode())
                    return await tunnel(reader, writer, path, "authorization" in fields)
                await reader.readexactly(int(fields.get("content-length", 0)))
                if path.endswith("/silent"):
                    return await discard(reader)
                writer.write(b"HTTP/1.1 200 x\r\nContent-Length: 2\r\n\r\nok")
        except (asyncio.IncompleteReadError, OSError):
            pass
        finally:
            writer.close()

    return await asyncio.start_server(connection, "127.0.0.1", 0, backlog=4096, limit=1 << 20)


def destination():
    """Echoes bytes; what is sent to `pour` of the two ports is answered with as much as the other side takes. A CONNECT, which only
    a plain HAProxy passes on, is admitted first; one to a silent zone is not."""

    async def echo(reader, writer):
        try:
            first = await reader.read(1 << 16)
            if first.startswith(b"CONNECT "):
                admitted = b".silent.test" not in first
                writer.write(b"HTTP/1.1 200 x\r\n\r\n" if admitted else b"HTTP/1.1 504 x\r\nContent-Length: 0\r\n\r\n")
                first = await reader.read(1 << 16) if admitted else b""
            while first == b"pour":
                writer.write(bytes(1 << 20))
                await writer.drain()
            writer.write(first)
            while data := await reader.read(1 << 16):
                writer.write(data)
        except OSError:
            pass
        finally:
            writer.close()

    return asyncio.start_server(echo, "127.0.0.1", 0, backlog=4096)


def plane(records):
    """A control plane that needs 100 ms for an answer. `records(name)` gives the record of a sandbox, or None. To wake a sandbox takes
    50 ms, and 2 s if it is called slow-*."""

    async def start():
        woken = set()

        async def connection(reader, writer):
            try:
                while True:
                    (method, path, _), _ = await read_head(reader)
                    name = path.split("/")[3] if path.startswith("/v1/sandboxes/") else ""
                    if method == "POST":
                        await asyncio.sleep(2 if name.startswith("slow-") else 0.05)
                        woken.add(name)
                        status, body = 200, {}
                    elif path.startswith("/v1/events"):
                        status, body = 404, {}
                    else:
                        await asyncio.sleep(0.1)
                        record = records(name)
                        if record and name in woken:
                            record = {key: value for key, value in record.items() if key != "state"}
                        status, body = (200, record) if record else (404, {"error": "sandbox_not_found"})
                    body = json.dumps(body).encode()
                    writer.write(b"HTTP/1.1 %d x\r\nContent-Length: %d\r\n\r\n" % (status, len(body)) + body)
            except (asyncio.IncompleteReadError, OSError):
                pass
            finally:
                writer.close()

        return await asyncio.start_server(connection, "127.0.0.1", 0, backlog=4096)

    return start


class Zones(dict):
    """Names below silent.test are never answered, all others are 127.0.0.1."""

    def get(self, name, otherwise=None):
        return SILENT if name.endswith(".silent.test") else ["127.0.0.1"]


def names():
    """A name server in a process of its own: (process, address)."""
    near, far = multiprocessing.Pipe()

    def run():
        server = NameServer()
        server.names = Zones()
        far.send(server.address)
        server.thread.join()

    process = multiprocessing.Process(target=run, daemon=True)
    process.start()
    return process, near.recv()


# ---- what a neighbour does, and measures ----


class Neighbour:
    """`number` of many, with an organisation and a sandbox of its own. once() does what is measured."""

    def __init__(self, stage, number):
        self.stage, self.number = stage, number
        self.org, self.sandbox = f"org-{number}", f"sb-{number}"
        self.reader = self.writer = None
        self.made = 0

    @property
    def token(self):
        return self.stage.token(self.org, self.sandbox)

    async def open(self):
        pass

    def drop(self):
        if self.writer:
            self.writer.transport.abort()
        self.reader = self.writer = None


class Tunnel(Neighbour):
    """A message of 64 bytes and its echo, in a tunnel that is open."""

    async def open(self):
        self.reader, self.writer = await websocket(self.stage.http, f"/plain/{self.sandbox}/s", self.token)

    async def once(self):
        self.writer.write(frame(BINARY, b"x" * 64))
        opcode, payload = await read_frame(self.reader)
        while opcode == PING:
            opcode, payload = await read_frame(self.reader)
        if opcode == CLOSE:
            raise Refused(f"Close {payload}")


class Call(Neighbour):
    """A request and its answer in a mux WebSocket that is open."""

    async def open(self):
        self.reader, self.writer = await websocket(self.stage.http, "/v1/mux", self.token, "Sec-WebSocket-Protocol: cellgate.mux.v1")

    async def once(self):
        self.made += 1
        message = json.dumps({"method": "GET", "path": f"/w/{self.sandbox}/x", "headers": {"Authorization": f"Bearer {self.token}"}}).encode()
        self.writer.write(frame(BINARY, struct.pack(">BI", REQUEST, self.made) + message))
        while True:
            opcode, payload = await read_frame(self.reader)
            if opcode == CLOSE:
                raise Refused(f"Close {payload}")
            if opcode != BINARY:
                continue
            kind = payload[0]
            if kind == RESET:
                raise Refused(f"RESET {payload[5:]}")
            if kind == RESPONSE and json.loads(payload[5:])["status"] != 200:
                raise Refused(f"status {json.loads(payload[5:])['status']}")
            if kind == END:
                return


class First(Neighbour):
    """The first request to a sandbox that nobody asked for before."""

    async def once(self):
        self.made += 1
        sandbox = f"new-{self.number}-{self.made}-{self.stage.round}"
        status, _, writer = await ask(self.stage.http, f"GET /w/{sandbox}/x", "Host: cell.test", f"Authorization: Bearer {self.stage.token(self.org, sandbox)}")
        writer.transport.abort()
        if status != 200:
            raise Refused(f"status {status}")


class Wake(Neighbour):
    """A terminal of a sandbox that is suspended."""

    async def once(self):
        self.made += 1
        sandbox = f"sleepy-{self.number}-{self.made}-{self.stage.round}"
        _, writer = await websocket(self.stage.http, f"/plain/{sandbox}/s", self.stage.token(self.org, sandbox))
        writer.transport.abort()


class Connect(Neighbour):
    """A CONNECT to a name that nobody asked for before, with a token that nobody showed before, and 64 bytes there and back."""

    async def once(self):
        self.made += 1
        host = f"h{self.number}-{self.made}-{self.stage.round}.good.test"
        token = self.stage.token(self.org, self.sandbox, need=["egress"], jti=host)
        status, reader, writer = await ask(self.stage.egress, f"CONNECT {host}:{self.stage.destination}", f"Host: {host}:{self.stage.destination}", f"Proxy-Authorization: Bearer {token}")
        if status == 200:
            writer.write(b"x" * 64)
            await reader.readexactly(64)
        writer.transport.abort()
        if status != 200:
            raise Refused(f"status {status}")
