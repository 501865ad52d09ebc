#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A stand-in for e2b's envd, as far as its SDK's commands, files and terminals ask: process.Process (Start, SendInput, Update,
SendSignal, List) and filesystem.Filesystem (ListDir, MakeDir, Stat, Remove) in Connect's JSON, GET and POST /files, /health. It is
unkind: each envelope of a stream is cut within its head and within its body, and who lacks its token is refused.

envd.py TOKEN FOLDER"""

import base64
import email
import fcntl
import json
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

TOKEN, FOLDER = sys.argv[1], Path(sys.argv[2])
running = {}  # pid: (process, descriptor that is written to)


class Failure(Exception):
    def __init__(self, status, code, message):
        self.status, self.body = status, {"code": code, "message": message}


def window(descriptor, size):
    fcntl.ioctl(descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", size["rows"], size["cols"], 0, 0))


def place(path):
    return FOLDER / path.lstrip("/")


def entry(path):
    kind = "FILE_TYPE_DIRECTORY" if path.is_dir() else "FILE_TYPE_FILE"
    return {"name": path.name, "type": kind, "path": "/" + str(path.relative_to(FOLDER)), "size": str(path.stat().st_size)}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def body(self):
        if self.headers.get("Transfer-Encoding", "") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        parts = []
        while size := int(self.rfile.readline().split(b";")[0], 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)

    def answer(self, status, body, kind="application/json"):
        body = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        self.serve()

    def do_POST(self):
        self.serve()

    def serve(self):
        body = self.body()
        try:
            if self.headers.get("X-Access-Token") != TOKEN:
                raise Failure(401, "unauthenticated", "no valid access token")
            path, query = urlsplit(self.path).path, parse_qs(urlsplit(self.path).query)
            if path == "/health":
                self.answer(204, b"")
            elif path == "/files":
                self.files(query, body)
            elif path == "/process.Process/Start":
                self.start(json.loads(body[5:]))
            else:
                method = getattr(self, path.rpartition("/")[2], None)
                if not method or not path.startswith(("/process.Process/", "/filesystem.Filesystem/")):
                    raise Failure(404, "unimplemented", path)
                self.answer(200, method(json.loads(body)))
        except Failure as failure:
            self.answer(failure.status, failure.body)

    # ---- files ----
    def files(self, query, body):
        if self.command == "GET":
            file = place(query["path"][0])
            if not file.is_file():
                raise Failure(404, "not_found", "path does not exist")
            return self.answer(200, file.read_bytes(), "application/octet-stream")
        if self.headers["Content-Type"].startswith("multipart/"):
            message = email.message_from_bytes(b"Content-Type: " + self.headers["Content-Type"].encode() + b"\r\n\r\n" + body)
            parts = [(part.get_filename(), part.get_payload(decode=True)) for part in message.get_payload()]
        else:
            parts = [(None, body)]
        written = []
        for name, data in parts:
            file = place(query["path"][0] if "path" in query else name)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(data)
            written.append({"name": file.name, "type": "file", "path": "/" + str(file.relative_to(FOLDER))})
        return self.answer(200, written)

    def ListDir(self, wanted):
        return {"entries": [entry(path) for path in sorted(place(wanted["path"]).iterdir())]}

    def MakeDir(self, wanted):
        place(wanted["path"]).mkdir(parents=True)
        return {"entry": entry(place(wanted["path"]))}

    def Stat(self, wanted):
        if not place(wanted["path"]).exists():
            raise Failure(404, "not_found", "no such file")
        return {"entry": entry(place(wanted["path"]))}

    def Remove(self, wanted):
        place(wanted["path"]).unlink()
        return {}

    # ---- processes ----
    def envelope(self, document, flags=0):
        data = json.dumps(document).encode()
        data = bytes([flags]) + struct.pack(">I", len(data)) + data
        for part in (data[:3], data[3:9], data[9:]):
            if part:
                self.wfile.write(b"%x\r\n" % len(part) + part + b"\r\n")
                self.wfile.flush()

    def event(self, **what):
        with self.lock:
            self.envelope({"event": what})

    def start(self, wanted):
        said = wanted["process"]
        settings = {"env": os.environ | said.get("envs", {}) | {"WHO": self.who()}, "cwd": FOLDER, "start_new_session": True}
        master = None
        if "pty" in wanted:
            master, slave = pty.openpty()
            window(master, wanted["pty"]["size"])
            settings |= dict.fromkeys(("stdin", "stdout", "stderr"), slave)
        else:
            settings |= {"stdin": subprocess.PIPE if wanted.get("stdin") else subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        process = subprocess.Popen([said["cmd"], *said.get("args", [])], **settings)
        if master is not None:
            os.close(slave)
        running[process.pid] = (process, master)
        self.lock = threading.Lock()
        self.send_response(200)
        self.send_header("Content-Type", "application/connect+json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.event(start={"pid": process.pid})
        sources = [("pty", master)] if master is not None else [("stdout", process.stdout.fileno()), ("stderr", process.stderr.fileno())]
        readers = [threading.Thread(target=self.pour, args=source) for source in sources]
        for reader in readers:
            reader.start()
        for reader in readers:
            reader.join()
        code = process.wait()
        del running[process.pid]
        said = {"exited": code >= 0, "status": f"exit status {code}"} | ({"exitCode": code} if code > 0 else {})
        self.event(end=said if code >= 0 else said | {"exitCode": -1, "error": "signal: killed"})
        self.envelope({}, flags=2)
        self.wfile.write(b"0\r\n\r\n")

    def who(self):
        basic = self.headers.get("Authorization", "")
        return base64.b64decode(basic[6:]).decode().rstrip(":") if basic.startswith("Basic ") else ""

    def pour(self, kind, descriptor):
        while True:
            try:
                data = os.read(descriptor, 40000)
            except OSError:  # a terminal that nobody has any more
                return
            if not data:
                return
            self.event(data={kind: base64.b64encode(data).decode()})

    def chosen(self, wanted):
        found = running.get(wanted["process"]["pid"])
        if not found:
            raise Failure(404, "not_found", "no such process")
        return found

    def SendInput(self, wanted):
        process, master = self.chosen(wanted)
        for kind, data in wanted["input"].items():
            data = base64.b64decode(data)
            if kind == "pty":
                os.write(master, data)
            else:
                process.stdin.write(data)
                process.stdin.flush()
        return {}

    def Update(self, wanted):
        window(self.chosen(wanted)[1], wanted["pty"]["size"])
        return {}

    def SendSignal(self, wanted):
        os.killpg(self.chosen(wanted)[0].pid, signal.SIGKILL if wanted["signal"] == "SIGNAL_SIGKILL" else signal.SIGTERM)
        return {}

    def List(self, wanted):
        return {"processes": [{"pid": pid, "config": {"cmd": process.args[0], "args": process.args[1:]}} for pid, (process, _) in running.items()]}


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[3]) if len(sys.argv) > 3 else 0), Handler)
    server.daemon_threads = True
    print(f"listening http://127.0.0.1:{server.server_port}", flush=True)
    server.serve_forever()
