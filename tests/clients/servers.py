# SPDX-License-Identifier: MIT
"""Servers of the field as processes of their own, which are killed and come back at the same port."""

import contextlib
import os
import signal
import socket
import subprocess

from cell import end, free_port, until


class Server:
    """command(port) starts it. It is ready when its port takes a connection."""

    def __init__(self, command, log, environment=None):
        self.port, self.command, self.log, self.environment = free_port(), command, log, environment or {}
        self.url = f"http://127.0.0.1:{self.port}"
        self.start()

    def start(self):
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen([str(x) for x in self.command(self.port)], stdout=log, stderr=log, stdin=subprocess.DEVNULL,
                                            env=os.environ | self.environment, start_new_session=True)
        until(self.listens, 60, f"{self.process.args[0]} does not listen; {self.log}")

    def listens(self):
        assert self.process.poll() is None, self.log.read_text(errors="replace")[-3000:]
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
            return True
        return False

    def kill(self):
        """It and what it has started, at once."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def stop(self):
        end(self.process)
        self.kill()
