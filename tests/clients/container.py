#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A stand-in for the server in sandbox-sdk's container, as far as its SDK's commands, files and terminal ask: /api/execute,
/api/execute/stream, /api/write, /api/read, the same on one WebSocket (/ws), and /ws/pty. Its state ends with it, as theirs does.

container.py PORT"""

import asyncio
import fcntl
import json
import os
import pty
import struct
import sys
import termios

from aiohttp import WSMsgType, web

files, terminals = {}, {}


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
            fcntl.ioctl(terminal.master, termios.TIOCSWINSZ, struct.pack("HHHH", size["rows"], size["cols"], 0, 0))
    terminal.watching.discard(socket)
    return socket


async def main():
    server = web.Application(client_max_size=1 << 28)
    server.add_routes([web.get("/ws", multiplexed), web.get("/ws/pty", screen), web.post("/api/{rest:.*}", plain)])
    runner = web.AppRunner(server)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", int(sys.argv[1]), reuse_address=True).start()
    print(f"listening http://127.0.0.1:{sys.argv[1]}", flush=True)
    await asyncio.Event().wait()


asyncio.run(main())
