#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A stand-in for Daytona's toolbox, as far as its SDK's commands, sessions, files and terminals ask: /process/execute, the logs of a
session's command on a WebSocket, /files/bulk-upload, /files/bulk-download, /files, /process/pty/create-connect and its resize.
Output on a WebSocket is cut anywhere.

toolbox.py PORT"""

import asyncio
import fcntl
import json
import os
import pty
import struct
import sys
import termios

from aiohttp import web

files, commands, terminals = {}, {}, {}
STREAMS = {"stdout": b"\1\1\1", "stderr": b"\2\2\2"}


async def execute(request):
    process = await asyncio.create_subprocess_exec("bash", "-c", (await request.json())["command"], stdout=-1, stderr=-2)
    out, _ = await process.communicate()
    return web.json_response({"exitCode": process.returncode, "result": out.decode()})


async def begin(request):
    commands["c1"] = (await request.json())["command"]
    return web.json_response({"cmdId": "c1"}, status=202)


async def logs(request):
    socket = web.WebSocketResponse()
    await socket.prepare(request)
    process = await asyncio.create_subprocess_exec("bash", "-c", commands["c1"], stdout=-1, stderr=-1)

    async def pour(name, stream):
        while data := await stream.read(10000):
            data = STREAMS[name] + data
            for part in (data[:2], data[2:7], data[7:]):
                await socket.send_bytes(part)

    await pour("stdout", process.stdout)
    await pour("stderr", process.stderr)
    await socket.close()
    return socket


async def upload(request):
    told = {}
    async for part in await request.multipart():
        told[part.name] = bytes(await part.read())
    for name, value in told.items():
        if name.endswith(".path"):
            files[value.decode()] = told[name.replace(".path", ".file")]
    return web.json_response({})


async def download(request):
    boundary = "a-boundary"
    body = b""
    for path in (await request.json())["paths"]:
        kind, data = ("file", files[path]) if path in files else ("error", b"file not found")
        disposition = f'Content-Disposition: form-data; name="{kind}"; filename="{path}"'
        body += f"--{boundary}\r\n{disposition}\r\nContent-Type: application/octet-stream\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data + b"\r\n"
    return web.Response(body=body + f"--{boundary}--\r\n".encode(), headers={"Content-Type": f"multipart/form-data; boundary={boundary}"})


async def listing(request):
    below = request.query["path"].rstrip("/") + "/"
    named = {path[len(below) :]: data for path, data in files.items() if path.startswith(below)}
    return web.json_response([{"name": name, "isDir": False, "size": len(data), "group": "", "mode": "", "modTime": "", "owner": "", "permissions": ""}
                              for name, data in named.items()])


def resize(descriptor, columns, rows):
    fcntl.ioctl(descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", int(rows), int(columns), 0, 0))


async def terminal(request):
    offered = request.headers["Sec-WebSocket-Protocol"].replace(" ", "").split(",")
    socket = web.WebSocketResponse(protocols=["X-Daytona-Pty-Exit-Control"])
    await socket.prepare(request)
    pid, master = pty.fork()
    if pid == 0:
        os.execvpe("bash", ["bash", "--norc"], os.environ | {"OFFERED": str(len(offered))})
    terminals[request.query["id"]] = master
    resize(master, request.query["cols"], request.query["rows"])
    await socket.send_json({"type": "control", "status": "connected"})
    loop, shown = asyncio.get_running_loop(), asyncio.Queue()

    def read():
        try:
            data = os.read(master, 65536)
        except OSError:
            data = b""
        if not data:
            loop.remove_reader(master)
        shown.put_nowait(data)

    async def show():
        while data := await shown.get():
            await socket.send_bytes(data)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        await socket.send_json({"type": "control", "status": "exited", "exitCode": code})
        await socket.close(code=1000, message=json.dumps({"exitCode": code}).encode())

    loop.add_reader(master, read)
    showing = asyncio.create_task(show())
    async for message in socket:
        os.write(master, message.data)
    await showing
    return socket


async def resized(request):
    said = await request.json()
    resize(terminals[request.match_info["id"]], said["cols"], said["rows"])
    return web.json_response({"id": request.match_info["id"], "active": True} | said)


async def main():
    server = web.Application(client_max_size=1 << 28)
    server.add_routes([
        web.post("/process/execute", execute), web.post("/process/session", lambda request: web_ok()),
        web.post("/process/session/{s}/exec", begin), web.get("/process/session/{s}/command/{c}/logs", logs),
        web.post("/files/bulk-upload", upload), web.post("/files/bulk-download", download), web.get("/files", listing),
        web.get("/process/pty/create-connect", terminal), web.post("/process/pty/{id}/resize", resized),
    ])
    runner = web.AppRunner(server)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", int(sys.argv[1])).start()
    await asyncio.Event().wait()


async def web_ok():
    return web.json_response({}, status=201)


asyncio.run(main())
