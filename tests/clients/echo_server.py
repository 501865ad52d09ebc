#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""An echo by Python's libraries: websockets or aiohttp, and tornado, which Jupyter brings. echo_server.py LIBRARY PORT"""

import asyncio
import sys

library, port = sys.argv[1], int(sys.argv[2])


async def websockets_():
    import websockets

    async def echo(socket, path):
        async for message in socket:
            await socket.send(message)

    await websockets.serve(echo, "127.0.0.1", port, max_size=None, subprotocols=["chat"])


async def aiohttp_():
    from aiohttp import WSMsgType, web

    async def echo(request):
        socket = web.WebSocketResponse(max_msg_size=0, protocols=["chat"])
        await socket.prepare(request)
        async for message in socket:
            await (socket.send_str if message.type == WSMsgType.TEXT else socket.send_bytes)(message.data)
        return socket

    server = web.Application()
    server.add_routes([web.get("/{any:.*}", echo)])
    runner = web.AppRunner(server)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()


async def tornado_():
    from tornado import web, websocket

    class Echo(websocket.WebSocketHandler):
        def select_subprotocol(self, offered):
            return "chat" if "chat" in offered else None

        def get_compression_options(self):
            return {}

        def on_message(self, message):
            self.write_message(message, isinstance(message, bytes))

    web.Application([(".*", Echo)], websocket_max_message_size=1 << 28).listen(port, "127.0.0.1")


async def main():
    await {"websockets": websockets_, "aiohttp": aiohttp_, "tornado": tornado_}[library]()
    await asyncio.Event().wait()


asyncio.run(main())
