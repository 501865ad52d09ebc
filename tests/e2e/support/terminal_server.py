# SPDX-License-Identifier: MIT
"""A stand-in for a gate with a terminal behind it: a websockets server on a thread of its own."""

import asyncio
import concurrent.futures
import threading

import websockets


class TerminalServer:
    """Serves `handler(websocket)` on a free port of 127.0.0.1 until the end of the `with` block.

    Other keywords go to websockets.serve. `calls` are the WebSockets opened so far, in order."""

    def __init__(self, handler, **options):
        self._handler = handler
        self._options = {"ping_interval": None, "close_timeout": 2, "max_size": None, **options}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self.calls = []

    async def _serve(self):
        async def handler(websocket):
            self.calls.append(websocket)
            try:
                await self._handler(websocket)
            except websockets.ConnectionClosed:
                pass

        return await websockets.serve(handler, "127.0.0.1", self._options.pop("port", 0), **self._options)

    def run(self, coroutine, timeout=10):
        """Runs a coroutine on the server's loop and waits for its result."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(timeout)

    def __enter__(self):
        self._thread.start()
        self._server = self.run(self._serve())
        self.port = self._server.sockets[0].getsockname()[1]
        scheme = "wss" if self._options.get("ssl") else "ws"
        self.url = f"{scheme}://127.0.0.1:{self.port}/v1/sandboxes/sb-1/proxy/44772/terminal"
        return self

    def stop(self):
        async def stop():
            self._server.close()
            await self._server.wait_closed()

        try:
            self.run(stop())
        except concurrent.futures.TimeoutError:
            pass

    def __exit__(self, *_):
        self.stop()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()
