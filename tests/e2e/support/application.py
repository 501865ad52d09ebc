# SPDX-License-Identifier: MIT
"""A web application in a sandbox, as people have them: a form, a session cookie, redirects that start with a slash or name its
own address, server-sent events, and a WebSocket that echoes and may speak one of the subprotocols it knows. It knows neither
under which host it is reached nor below which path; its page has relative addresses only."""

from direct import CLOSE, PING, PONG, Peer
from origin import switch

START = b'<!doctype html><title>start</title><form method=post action=login><input name=name value=ada><button id=go>go</button></form>'
HOME = b'<!doctype html><title>home</title><p id=who>ada</p><p id=events></p><p id=ws></p><script src=app.js></script>'
SCRIPT = b"""
const events = new EventSource("events");
events.onmessage = (e) => { document.querySelector("#events").textContent += e.data + " "; if (e.data === "3") events.close(); };
const socket = new WebSocket(new URL("ws", location.href).href.replace(/^http/, "ws"));
socket.onopen = () => socket.send("through the gate");
socket.onmessage = (e) => { document.querySelector("#ws").textContent = e.data; };
"""
KNOWN = ("binary", "base64", "chat")  # subprotocols, in the order of preference


def send(connection, status, body=b"", *lines):
    head = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *lines]
    connection.send("\r\n".join(head).encode() + b"\r\n\r\n" + body)


def answer(connection, request):
    connection.read_body(request)
    signed_in = "session=ada" in request.get("cookie", "")
    path = request.target.partition("?")[0]
    if path == "/":
        send(connection, "200 OK", START, "Content-Type: text/html")
    elif path == "/login":
        send(connection, "303 See Other", b"", "Location: /home", "Set-Cookie: session=ada; Path=/; HttpOnly", "Set-Cookie: theme=dark; Path=/")
    elif path == "/own-address":
        send(connection, "302 Found", b"", f"Location: http://{request.get('host')}/home")
    elif not signed_in:
        send(connection, "302 Found", b"", "Location: /")
    elif path == "/home":
        send(connection, "200 OK", HOME, "Content-Type: text/html")
    elif path == "/app.js":
        send(connection, "200 OK", SCRIPT, "Content-Type: text/javascript")
    elif path == "/events":
        connection.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n")
        for n in (1, 2, 3):
            connection.send(b"data: %d\n\n" % n)
        return True
    else:
        send(connection, "404 Not Found")


def upgrade(connection, request):
    offered = [p.strip() for line in request.all("sec-websocket-protocol") for p in line.split(",")]
    chosen = next((p for p in KNOWN if p in offered), None)
    switch(connection, request, f"Sec-WebSocket-Protocol: {chosen}\r\n".encode() if chosen else b"")
    peer = Peer(connection.sock, masks=False, seconds=60)
    peer.bytes = connection.rest
    try:
        while True:
            opcode, payload, fin = peer.hear()
            peer.say(payload, {PING: PONG}.get(opcode, opcode), fin)
            if opcode == CLOSE:
                return True
    except EOFError:
        return True


