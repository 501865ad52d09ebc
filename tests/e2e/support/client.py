# SPDX-License-Identifier: MIT
"""Clients that send exactly the bytes a test wants: HTTP/1.1, HTTP/2 (python3-h2) and WebSockets over both."""

import socket
import ssl
import struct

import h2.config
import h2.connection
import h2.events
import h2.settings
from origin import Connection

KEY = "dGhlIHNhbXBsZSBub25jZQ=="
WEBSOCKET = [("Upgrade", "websocket"), ("Connection", "Upgrade"), ("Sec-WebSocket-Version", "13"), ("Sec-WebSocket-Key", KEY)]


def connect(port, tls=False, alpn=None, timeout=10, room=None):
    """room: bytes that the kernel takes for who does not read."""
    sock = socket.socket()
    sock.settimeout(timeout)
    if room:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, room)
    sock.connect(("127.0.0.1", port))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if tls:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.set_alpn_protocols([alpn or "http/1.1"])
        sock = context.wrap_socket(sock, server_hostname="localhost")
        assert sock.selected_alpn_protocol() == (alpn or "http/1.1")
    return sock


def exchange(port, data, timeout=5.0, tls=False):
    """Sends the bytes and reads to the end: (all that came, whether the server closed within the time)."""
    with connect(port, tls, timeout=timeout) as sock:
        answer = b""
        try:
            sock.sendall(data)
            while more := sock.recv(65536):
                answer += more
        except TimeoutError:
            return answer, False
        except ConnectionError:
            pass
        return answer, True


class Response:
    def __init__(self, status, headers, body=b""):
        self.status, self.headers, self.body = status, headers, body

    def all(self, name):
        return [v for n, v in self.headers if n.lower() == name.lower()]

    def get(self, name, default=None):
        return next(iter(self.all(name)), default)


def head(method, target, headers, version="HTTP/1.1"):
    lines = [f"{method} {target} {version}", *(f"{n}: {v}" for n, v in headers)]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


class Http1(Connection):
    """One connection to HAProxy; requests with headers in the order given, nothing added but Host."""

    def __init__(self, port, tls=False, timeout=10, sock=None):
        """sock: instead of a new connection."""
        super().__init__(sock or connect(port, tls, timeout=timeout))
        self.interim = []  # answers before the last one

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.sock.close()

    def request(self, method, target, headers=(), body=b"", host="cell.test"):
        headers = ([("Host", host)] if host else []) + list(headers)
        if body:
            headers.append(("Content-Length", len(body)))
        self.send(head(method, target, headers) + body)
        return self.response(method)

    def response_head(self):
        text = self.read_until(b"\r\n\r\n")
        assert text is not None, "the connection ended before an answer"
        line, *lines = text.decode("latin-1").split("\r\n")
        headers = [(n, v.strip()) for n, _, v in (x.partition(":") for x in lines)]
        return Response(int(line.split(" ")[1]), headers)

    def response(self, method="GET"):
        self.interim = []
        while (response := self.response_head()).status in (100, 103):
            self.interim.append(response)
        if response.status in (101, 204, 304) or method == "HEAD":
            return response
        if response.get("transfer-encoding") == "chunked":
            response.body = self.read_body(response)
        elif (size := response.get("content-length")) is not None:
            response.body = self.read_exactly(int(size))
        else:
            while data := self.read():
                response.body += data
        return response

    def upgrade(self, target, headers=(), host="cell.test"):
        return self.request("GET", target, [*WEBSOCKET, *headers], host=host)


def request(port, method, target, headers=(), body=b"", tls=False, **more):
    with Http1(port, tls, **more) as connection:
        return connection.request(method, target, headers, body)


def answer_of(headers):
    """Of HTTP/2."""
    return Response(int(dict(headers)[":status"]), [h for h in headers if not h[0].startswith(":")])


class Http2:
    """One HTTP/2 connection, one stream at a time; `upgrade` opens a WebSocket by extended CONNECT (RFC 8441), after
    which send() and read() are the tunnel's bytes."""

    def __init__(self, port, tls=True, timeout=10, sock=None):
        self.sock = sock or connect(port, tls, "h2", timeout)
        self.h2 = h2.connection.H2Connection(h2.config.H2Configuration(header_encoding="latin-1", validate_outbound_headers=False, normalize_outbound_headers=False))
        self.h2.initiate_connection()
        self.stream = None
        self.data, self.headers, self.trailers, self.ended, self.extended = [], None, [], False, False
        self.interim = []
        self._flush()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.sock.close()

    def _flush(self):
        self.sock.sendall(self.h2.data_to_send())

    def _pump(self):
        """Takes what is there; waits for something. Behind the end of the connection there is nothing to wait for."""
        received = self.sock.recv(1 << 18)
        if not received:
            if self.ended:
                raise ConnectionError("the connection ended")
            self.ended = True
        for event in self.h2.receive_data(received) if received else ():
            if isinstance(event, h2.events.RemoteSettingsChanged):
                self.extended |= h2.settings.SettingCodes.ENABLE_CONNECT_PROTOCOL in event.changed_settings
            elif isinstance(event, h2.events.InformationalResponseReceived):
                self.interim.append(answer_of(event.headers))
            elif isinstance(event, h2.events.ResponseReceived):
                self.headers = event.headers
            elif isinstance(event, h2.events.TrailersReceived):
                self.trailers = event.headers
            elif isinstance(event, h2.events.DataReceived):
                self.data.append(event.data)
                self.h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            elif isinstance(event, (h2.events.StreamEnded, h2.events.StreamReset, h2.events.ConnectionTerminated)):
                self.ended = True
        self._flush()

    def _open(self, pseudo, headers, end):
        self.data, self.headers, self.trailers, self.ended, self.interim = [], None, [], False, []
        self.stream = self.h2.get_next_available_stream_id()
        self.h2.send_headers(self.stream, pseudo + [(n.lower(), str(v)) for n, v in headers], end_stream=end)
        self._flush()

    def send(self, data, end=False):
        view = memoryview(data)
        while view or end:
            size = min(len(view), self.h2.local_flow_control_window(self.stream), self.h2.max_outbound_frame_size)
            if size <= 0 and view:
                self._pump()
                continue
            self.h2.send_data(self.stream, bytes(view[:size]), end_stream=end and size == len(view))
            self._flush()
            view = view[size:]
            if not view:
                return

    def read(self):
        while not self.data and not self.ended:
            self._pump()
        return self.data.pop(0) if self.data else b""

    def _rest(self):
        return b"".join(iter(self.read, b""))

    def read_exactly(self, size):
        parts, have = [], 0
        while have < size:
            data = self.read()
            if not data:
                raise ConnectionError(f"{have} of {size} bytes")
            parts.append(data)
            have += len(data)
        data = b"".join(parts)
        if data[size:]:
            self.data.insert(0, data[size:])
        return data[:size]

    def _response(self):
        while self.headers is None and not self.ended:
            self._pump()
        assert self.headers is not None, "the stream ended before an answer"
        return answer_of(self.headers)

    def request(self, method, target, headers=(), body=b"", host="cell.test"):
        pseudo = [(":method", method), (":scheme", "https"), (":authority", host), (":path", target)]
        self._open(pseudo, headers, end=not body)
        if body:
            self.send(body, end=True)
        response = self._response()
        response.body = self._rest()
        return response

    def upgrade(self, target, headers=(), host="cell.test"):
        while not self.extended:
            self._pump()
        pseudo = [(":method", "CONNECT"), (":protocol", "websocket"), (":scheme", "https"), (":authority", host), (":path", target)]
        self._open(pseudo, [("sec-websocket-version", "13"), *headers], end=False)
        response = self._response()
        if response.status != 200:
            response.body = self._rest()
        return response


def frame(opcode, payload=b"", fin=True, mask=None, bits=0):
    """A WebSocket frame (RFC 6455 section 5.2); with `mask`, as a client sends it."""
    first, size = (0x80 if fin else 0) | bits | opcode, len(payload)
    masked = 0x80 if mask else 0
    if size < 126:
        start = struct.pack(">BB", first, masked | size)
    elif size < 65536:
        start = struct.pack(">BBH", first, masked | 126, size)
    else:
        start = struct.pack(">BBQ", first, masked | 127, size)
    if not mask:
        return start + payload
    pattern = (mask * (size // 4 + 1))[:size]
    scrambled = (int.from_bytes(payload, "big") ^ int.from_bytes(pattern, "big")).to_bytes(size, "big")
    return start + mask + scrambled
