# SPDX-License-Identifier: MIT
"""Java's own clients (java/Client.java), which Debian's java compiles as it starts, led over the line of npm.py."""

import base64
import subprocess
from pathlib import Path

from npm import Program

JAVA = Path(__file__).parent / "java"
GATE = "gate.example.com"


class Refused(Exception):
    """A library's upgrade that was refused: its status."""


def pack(data):
    return base64.b64encode(data.encode() if isinstance(data, str) else data).decode()


class Jvm(Program):
    """A JVM that trusts these certificates and knows these names, which are this machine's, with one HttpClient; with a token it
    answers a proxy that asks for a password."""

    def __init__(self, folder, certificates, names=(GATE,), token="", **properties):
        hosts, trusted = folder / "hosts", folder / "trusted"
        hosts.write_text("".join(f"127.0.0.1 {name}\n" for name in names))
        for number, certificate in enumerate(certificates):
            command = ["keytool", "-importcert", "-noprompt", "-alias", str(number), "-file", certificate, "-keystore", trusted, "-storepass", "trusted"]
            subprocess.run(command, check=True, capture_output=True)
        given = {"jdk.net.hosts.file": hosts, "javax.net.ssl.trustStore": trusted, "javax.net.ssl.trustStorePassword": "trusted"}
        given |= {name.replace("_", "."): value for name, value in properties.items()}
        options = " ".join(["-XX:TieredStopAtLevel=1", *(f"-D{name}={value}" for name, value in given.items())])
        super().__init__(JAVA, "Client.java", f"client {token}", {"JDK_JAVA_OPTIONS": options}, "java", errors=folder / "java.err")

    def ask(self, *words):
        """What it tells next, as words."""
        self.say(" ".join(map(str, words)))
        return self.hear().split(" ")

    def request(self, url, token="", size=0, step="request"):
        """(status, version, body), or (None, None, an error)."""
        status, *rest = self.ask(step, url, token, size)
        return (None, None, base64.b64decode(rest[0])) if status == "error" else (int(status), rest[0], base64.b64decode(rest[1]))


class JavaSocket:
    """Its WebSocket, in the form of the clients of test_websockets.py; its JVM is the class's."""

    jvm = None

    def __init__(self, url, headers, subprotocols=()):
        said = self.jvm.ask("open", url.replace("127.0.0.1", GATE), headers["Authorization"].partition(" ")[2], ",".join(subprotocols))
        if said[0] == "refused":
            raise Refused(int(said[1]))
        assert said[0] == "open", said
        self.subprotocol = said[1]

    def say(self, message):
        self.jvm.say(f"{'text' if isinstance(message, str) else 'bytes'} {pack(message)}")

    def hear(self):
        kind, data = self.jvm.hear().split(" ")
        assert kind in ("text", "bytes"), (kind, data)
        return base64.b64decode(data).decode() if kind == "text" else base64.b64decode(data)

    def ping(self):
        assert self.jvm.ask("ping", pack("there?")) == ["pong", pack("there?")]

    def close(self):
        self.jvm.say("close 1000")
        return int(self.jvm.until(lambda said: said.startswith("close ")).split(" ")[1])
