#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A stand-in for the server in sandbox-sdk's container, as far as its SDK's commands, files and terminal ask: /api/execute,
/api/execute/stream, /api/write, /api/read, the same on one WebSocket (/ws), and /ws/pty; and of version 1.0 /ws/terminal. Its state ends
with it, as theirs does. SIGUSR1 cuts the connections of /ws/terminal: the n-th time in the middle of a chunk if n is odd.

container.py PORT"""

import asyncio
import fcntl
import json
import os
import pty
import signal
import struct
import sys
import termios

from aiohttp import WSMsgType, web

files, terminals, logs = {}, {}, {}


class NotFound(Exception):
    pass


async def call(path, body):
    """The document that answers; for a stream, an iterator of its events."""
    if path == "/api/execute":
        process = await asyncio.create_subprocess_exec("bash", "-c", body["command"], stdout=-1, stderr=-1)
        out, errors = await process.communicate()
        return {"success": process.returncode == 0, "exitCode": process.returncode, "stdout": out.decode(), "stderr": errors.decode(), "command": body["command"]}
    if path == "/api/execute/stream":
        return stream(body["command"])
    if path == "/api/write":
        files[body["path"]] = body["content"]
        return {"success": True, "path": body["path"]}
    if path == "/api/read":
        if body["path"] not in files:
            raise NotFound(body["path"])
        return {"success": True, "path": body["path"], "content": files[body["path"]]}
    raise NotFound(path)


async def stream(command):
    process = await asyncio.create_subprocess_exec("bash", "-c", command, stdout=-1, stderr=-2)
    yield {"type": "start", "command": command}
    try:
        while data := await process.stdout.readline():
            yield {"type": "stdout", "data": data.decode()}
        yield {"type": "complete", "exitCode": await process.wait()}
    finally:
        if process.returncode is None:
            process.kill()


def missing(path):
    return {"code": "FILE_NOT_FOUND", "message": f"File not found: {path}", "context": {"path": str(path)}, "httpStatus": 404, "timestamp": "now"}


async def plain(request):
    try:
        answer = await call(request.path, await request.json())
    except NotFound as failure:
        return web.json_response(missing(failure), status=404)
    if isinstance(answer, dict):
        return web.json_response(answer)
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    async for event in answer:
        await response.write(b"data: " + json.dumps(event).encode() + b"\n\n")
    return response


async def multiplexed(request):
    socket = web.WebSocketResponse(max_msg_size=0)
    await socket.prepare(request)
    tasks = {}

    async def serve(wanted):
        number = wanted["id"]
        try:
            answer = await call(wanted["path"], wanted.get("body"))
        except NotFound as failure:
            return await socket.send_json({"type": "response", "id": number, "status": 404, "body": missing(failure), "done": True})
        if isinstance(answer, dict):
            return await socket.send_json({"type": "response", "id": number, "status": 200, "body": answer, "done": True})
        async for event in answer:
            await socket.send_json({"type": "stream", "id": number, "data": json.dumps(event)})
        return await socket.send_json({"type": "response", "id": number, "status": 200, "done": True})

    async for message in socket:
        wanted = json.loads(message.data)
        if wanted["type"] == "cancel":
            tasks.pop(wanted["id"]).cancel()
        else:
            tasks[wanted["id"]] = asyncio.create_task(serve(wanted))
    for task in tasks.values():
        task.cancel()
    return socket


class Terminal:
    """A shell, what it has shown, and who watches."""

    def __init__(self):
        self.shown, self.watching = b"", set()
        pid, self.master = pty.fork()
        if pid == 0:
            os.execvp("bash", ["bash", "--norc"])
        asyncio.get_running_loop().add_reader(self.master, self.read)

    def read(self):
        try:
            data = os.read(self.master, 65536)
        except OSError:
            data = b""
        if not data:
            asyncio.get_running_loop().remove_reader(self.master)
        self.shown += data
        for socket in self.watching:
            asyncio.create_task(socket.send_bytes(data) if data else socket.send_json({"type": "exit", "code": 0}))


async def screen(request):
    socket = web.WebSocketResponse()
    await socket.prepare(request)
    name = request.query["sessionId"]
    terminal = terminals.get(name) or terminals.setdefault(name, Terminal())
    if terminal.shown:
        await socket.send_bytes(terminal.shown)
    terminal.watching.add(socket)
    await socket.send_json({"type": "ready"})
    async for message in socket:
        if message.type == WSMsgType.BINARY:
            os.write(terminal.master, message.data)
        else:
            size = json.loads(message.data)
            resize(terminal.master, size)
    terminal.watching.discard(socket)
    return socket


class Log:
    """The chunks of a terminal of 1.0, each with a cursor, and who reads them."""

    cuts = 0

    def __init__(self):
        self.chunks, self.more, self.exited, self.readers = [], asyncio.Condition(), False, set()
        pid, self.master = pty.fork()
        if pid == 0:
            os.execvp("bash", ["bash", "--norc"])
        asyncio.get_running_loop().add_reader(self.master, self.read)

    def read(self):
        try:
            data = os.read(self.master, 4096)
        except OSError:
            data = b""
        if data:
            self.chunks.append(data)
        else:
            self.exited = True
            asyncio.get_running_loop().remove_reader(self.master)
        asyncio.create_task(self.tell())

    async def tell(self):
        async with self.more:
            self.more.notify_all()

    async def send(self, socket, transport):
        """All chunks after the cursor, those to come as well, until the terminal has exited."""
        at = int(socket.cursor[3:] or 0) if socket.cursor else 0
        await socket.send_json({"type": "ready", **({"cursor": socket.cursor} if socket.cursor else {})})
        while at < len(self.chunks) or not self.exited:
            async with self.more:
                await self.more.wait_for(lambda: at < len(self.chunks) or self.exited)
            for chunk in self.chunks[at:]:
                at += 1
                await socket.send_json({"type": "chunk", "cursor": f"v1-{at}", "byteLength": len(chunk)})
                if socket.cut:
                    Log.cuts += 1
                    if Log.cuts % 2:  # a frame that says more than follows
                        transport.write(struct.pack("!BBH", 0x82, 126, len(chunk)) + chunk[: len(chunk) // 2] if len(chunk) > 125 else
                                        struct.pack("!BB", 0x82, len(chunk)) + chunk[: len(chunk) // 2])
                    transport.close()
                    return
                await socket.send_bytes(chunk)
        await socket.send_json({"type": "exit", "cursor": f"v1-{at + 1}", "exit": {"code": 0}})
        await socket.close(code=1000, message=b"Terminal exited")


async def terminal(request):
    if "terminalId" not in request.query:
        return web.Response(status=400)
    socket = web.WebSocketResponse(compress=False)
    socket.cursor, socket.cut = request.query.get("cursor"), False
    await socket.prepare(request)
    name = request.query["terminalId"]
    log = logs.get(name) or logs.setdefault(name, Log())
    if request.query.get("cols"):
        resize(log.master, request.query)
    log.readers.add(socket)
    sender = asyncio.create_task(log.send(socket, request.transport))
    async for message in socket:
        if message.type == WSMsgType.BINARY:
            os.write(log.master, message.data)
        elif message.type == WSMsgType.TEXT:
            resize(log.master, json.loads(message.data))
    log.readers.discard(socket)
    sender.cancel()
    return socket


def resize(master, size):
    fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", int(size["rows"]), int(size["cols"]), 0, 0))


def cut():
    for log in logs.values():
        for socket in log.readers:
            socket.cut = True


async def main():
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, cut)
    server = web.Application(client_max_size=1 << 28)
    server.add_routes([web.get("/ws", multiplexed), web.get("/ws/pty", screen), web.get("/ws/terminal", terminal), web.post("/api/{rest:.*}", plain)])
    runner = web.AppRunner(server)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", int(sys.argv[1]), reuse_address=True).start()
    print(f"listening http://127.0.0.1:{sys.argv[1]}", flush=True)
    await asyncio.Event().wait()


asyncio.run(main())
