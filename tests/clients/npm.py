# SPDX-License-Identifier: MIT
"""npm's packages, in the versions of node/package-lock.json, and node programs that a test leads step by step."""

import fcntl
import json
import os
import queue
import shutil
import subprocess
import threading
from pathlib import Path

from cell import ROOT, end
from network import outside

NODE = Path(__file__).parent / "node"
FOLDER = ROOT / "build/clients"  # node_modules is large: it stays as long as the lock file does
HOSTS = ["*.example.com", "*.e2b.example.com", "*.sandboxes.example.com", "*.preview.example.com", "*.proxy.example.com", "localhost"]


def install():
    """The folder with node_modules and our scripts beside it, where node finds one from the other."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    with open(FOLDER / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # several files of tests begin at once
        installed = FOLDER / "installed.json"
        wanted = (NODE / "package-lock.json").read_bytes()
        for file in NODE.iterdir():
            if file.is_file():  # others may be reading it
                shutil.copy(file, FOLDER / "copy")
                os.replace(FOLDER / "copy", FOLDER / file.name)
        if not installed.exists() or installed.read_bytes() != wanted:
            command = ["npm", "ci", "--ignore-scripts", "--no-progress", "--prefer-offline"]
            done = subprocess.run(outside(*command), cwd=FOLDER, timeout=280, capture_output=True, text=True)
            assert done.returncode == 0, done.stderr
            installed.write_bytes(wanted)
    return FOLDER


def version(package):
    return json.loads((FOLDER / "node_modules" / package / "package.json").read_text())["version"]


def certificate(folder):
    """A certificate of the gate for the tests' names, with its key behind it. Clients trust it, and check it as ever."""
    names = ",".join("DNS:" + name for name in HOSTS)
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj", "/CN=gate"]
    subprocess.run([*command, "-addext", "subjectAltName=" + names, "-keyout", "key", "-out", "crt"], cwd=folder, check=True, capture_output=True)
    pem = folder / "gate.pem"
    pem.write_bytes((folder / "crt").read_bytes() + (folder / "key").read_bytes())
    return pem


class Program:
    """A script of ours, which drives a client: it reads what is wanted as its first line, and tells and is told one JSON document a line.
    For node all below example.com is this machine (loopback.cjs)."""

    def __init__(self, folder, script, wanted, environment, interpreter="node", errors=None):
        options = f"--require {folder}/loopback.cjs"
        self.errors = open(errors or folder / f"{script}.{os.getpid()}.err", "w+")
        self.process = subprocess.Popen([interpreter, folder / script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors,
                                        text=True, env=os.environ | {"NODE_OPTIONS": options} | environment)
        self.heard, self.told = [], queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()
        self.say(wanted)

    def _read(self):
        for line in self.process.stdout:
            self.told.put(json.loads(line))
        self.told.put(None)

    def say(self, what="go"):
        self.process.stdin.write(json.dumps(what) + "\n")
        self.process.stdin.flush()

    def hear(self, seconds=60):
        """The next document; whatever it wrote as an error belongs to the report of a test that fails here."""
        try:
            said = self.told.get(timeout=seconds)
        except queue.Empty:
            said = None
        if said is None:
            self.errors.seek(0)
            raise AssertionError(f"nothing more from {self.process.args[1].name}; heard {self.heard[-5:]}\n{self.errors.read()[-4000:]}")
        self.heard.append(said)
        return said

    def until(self, check, seconds=60):
        """The first document from now on for which check() is true."""
        while not check(said := self.hear(seconds)):
            pass
        return said

    def end(self):
        if self.process.poll() is None:
            self.process.stdin.close()
            end(self.process)
        self.errors.close()
        Path(self.errors.name).unlink(missing_ok=True)
