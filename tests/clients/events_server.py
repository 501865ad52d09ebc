#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A page, and a stream of events that counts on from the Last-Event-ID that it is told. events_server.py PORT"""

import asyncio
import sys

from aiohttp import web


async def page(_):
    return web.Response(text="<!doctype html><title>events</title>", content_type="text/html")


async def events(request):
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-store"})
    await response.prepare(request)
    number = int(request.headers.get("Last-Event-ID", 0))
    await response.write(b"retry: 200\n\n")
    while True:
        number += 1
        await response.write(b"id: %d\ndata: %d\n\n" % (number, number))
        await asyncio.sleep(0.05)


server = web.Application()
server.add_routes([web.get("/", page), web.get("/events", events)])
web.run_app(server, host="127.0.0.1", port=int(sys.argv[1]), print=None)
