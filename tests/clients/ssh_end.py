#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A stand-in for the two ends that carry SSH on a WebSocket. `ssh_end.py server PORT SSHD_CONFIG`: each WebSocket is the input and
output of an sshd of its own. `ssh_end.py client URL TOKEN CERTIFICATE`: a ProxyCommand. Binary messages; the end of one side is a Close."""

import asyncio
import os
import ssl
import sys

import websockets

SIZE = 1 << 16


async def serve(port, config):
    async def session(socket, _):
        sshd = await asyncio.create_subprocess_exec("/usr/sbin/sshd", "-i", "-e", "-f", config, stdin=-1, stdout=-1)

        async def answers():
            while data := await sshd.stdout.read(SIZE):
                await socket.send(data)
            await socket.close(1000)

        task = asyncio.create_task(answers())
        async for message in socket:
            sshd.stdin.write(message)
            await sshd.stdin.drain()
        sshd.stdin.close()
        await task
        await sshd.wait()

    await websockets.serve(session, "127.0.0.1", port, max_size=None, compression=None)
    await asyncio.Event().wait()


async def connect(url, token, certificate):
    trusting = ssl.create_default_context(cafile=certificate)
    trusting.check_hostname = False
    try:
        socket = await websockets.connect(url, extra_headers={"Authorization": "Bearer " + token}, ssl=trusting, max_size=None, compression=None)
    except websockets.InvalidStatusCode as refused:
        sys.exit(f"the gate says {refused.status_code}")
    loop = asyncio.get_running_loop()

    async def typed():
        while data := await loop.run_in_executor(None, os.read, 0, SIZE):
            await socket.send(data)
        await socket.close(1000)

    task = asyncio.create_task(typed())
    try:
        async for message in socket:
            while message:
                message = message[os.write(1, message):]
    except websockets.ConnectionClosed:
        pass
    task.cancel()
    if socket.close_code != 1000:
        sys.stderr.write(f"the connection ended: {socket.close_code} {socket.close_reason}\n")
        sys.stderr.flush()
    os._exit(0 if socket.close_code == 1000 else 1)  # a thread may still wait for what nobody types


asyncio.run(serve(int(sys.argv[2]), sys.argv[3]) if sys.argv[1] == "server" else connect(*sys.argv[2:]))
