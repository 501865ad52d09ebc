# SPDX-License-Identifier: MIT
"""A cell under traffic: hosts (a cell-sandboxd with two cell-workers each), sandboxes on them, and the clients of
traffic.c. Used by tests/soak/soak and tests/soak/faults."""

import json
import os
import re
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "e2e/support"))
os.environ.setdefault("HAPROXY", "haproxy")
from cell import BIN, WORKER_BEARER, Cell, end, on_worker, token, until, worker_command  # noqa: E402,F401
from worker import start as start_worker  # noqa: E402

SOAK = BIN.parent / "soak"
RELAY = {"keepalive": "1s", "dead_after": "4s", "dial_timeout": "4s", "connect_budget": "20s", "redial_budget": "60s",
         "redial_backoff": ["20ms", "50ms", "100ms", "200ms"], "max_tunnels": 5000,
         "max_tunnels_per_sandbox": 0, "max_tunnels_per_org": 0, "max_tunnels_per_token": 0, "flap_limit": 8, "flap_window": "1s"}


class Worker:
    def __init__(self, host, number):
        self.host, self.address = host, "127.0.0.1:0"
        self.start()
        self.url = "http://" + self.address

    def start(self):
        self.process, self.address = start_worker(*worker_command(self.host.socket, listen=self.address))

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()
        self.process.stderr.close()


class Host:
    """A machine of the sandbox cloud: its sessions outlive its workers."""

    def __init__(self, stage, number):
        self.sandbox, self.at = f"sb-{number}", 0
        name = f"host{number}"
        socket = stage.cell.folder / f"{name}.sock"
        self.sandboxd = stage.cell.spawn(name, BIN / "cell-sandboxd", "--socket", socket, "--sessions", "512", "--memory", "1024")
        stage.cell.listening(name)
        self.socket = socket
        self.workers = [Worker(self, 0), Worker(self, 1)]

    @property
    def serving(self):
        return self.workers[self.at]


class Traffic:
    """The clients; `lines` is what they told so far."""

    def __init__(self, stage, paths, *arguments):
        file = stage.cell.folder / f"paths{len(paths)}-{time.monotonic_ns()}"
        file.write_text("".join(path + "\n" for path in paths))
        bearer = "Authorization: Bearer " + token("test", sandbox="*", org="acme", ttl=3600)
        command = [SOAK / "traffic", f"127.0.0.1:{stage.cell.http}", "-f", file, "-H", bearer, *arguments]
        self.process = subprocess.Popen([str(x) for x in command], stdout=subprocess.PIPE)
        self.lines, self.total = [], None
        self.heard = threading.Condition()
        threading.Thread(target=self.listen, daemon=True).start()

    def listen(self):
        for line in self.process.stdout:
            told = json.loads(line)
            with self.heard:
                if "total" in told:
                    self.total = told
                else:
                    self.lines.append(told)
                self.heard.notify_all()
        with self.heard:
            self.heard.notify_all()

    def wait(self, check, seconds, what):
        """Until check(line) is true of a line told from now on; that line is returned."""
        limit, seen = time.monotonic() + seconds, len(self.lines)
        with self.heard:
            while True:
                for line in self.lines[seen:]:
                    if check(line):
                        return line
                seen = len(self.lines)
                assert time.monotonic() < limit and self.process.poll() is None, f"{what}: {self.lines[-1:]}"
                self.heard.wait(1)

    def finish(self):
        """Asks all sessions what they heard; the totals."""
        self.process.terminate()
        self.process.wait(120)
        until(lambda: self.total, 10, "the clients told no total")
        return self.total


class Stage:
    def __init__(self, folder, hosts, relay=None, config=None, environment=None):
        org = {"org": "acme"}
        self.cell = Cell(folder, config={"relay": RELAY | (relay or {}), "agent": {"auth_failures": 0}, "worker_networks": ["127.0.0.0/8"]} | (config or {}),
                         environment={"CELLGATE_MAXCONN": "30000"} | (environment or {}))
        self.cell.start()
        self.hosts, self.epoch, self.record, self.traffic = [], 0, org, None
        for number in range(hosts):
            self.hosts.append(Host(self, number))
        self.place(self.hosts)
        until(self.known, 10, "the agent does not know the sandboxes")

    def known(self):
        return self.metric("cellgate_agent_directory_records", "agent") == len(self.hosts)

    def place(self, hosts):
        """The directory says where these are now."""
        self.epoch += 1
        self.tell({h.sandbox: self.record | on_worker(h.workers[h.at].url, epoch=self.epoch) for h in hosts})

    def tell(self, records):
        self.cell.set_sandboxes(**records)

    def move(self, hosts):
        for host in hosts:
            host.at = 1 - host.at
        self.place(hosts)

    def terminals(self):
        """Paths of new sessions that speak Cell-Resume, a host after the other."""
        program = SOAK / "session"
        return [f"/v1/sandboxes/{h.sandbox}/proxy/44772/terminal?command={program}+{{id}}" for h in self.hosts]

    def plain(self, count, first):
        """Paths of sessions of OpenComputer's kind, whose adapter is `none`."""
        paths = []
        for number in range(first, first + count):
            host = self.hosts[number % len(self.hosts)]
            script = self.cell.folder / f"session{number}"
            script.write_text(f"#!/bin/sh\nexec {SOAK / 'session'} {number}\n")
            script.chmod(0o755)
            body = json.dumps({"shell": str(script)}).encode()
            made = urllib.request.Request(f"{host.workers[0].url}/sandboxes/{host.sandbox}/pty", body, dict([WORKER_BEARER]))
            with urllib.request.urlopen(made, timeout=20) as answer:
                paths.append(f"/api/sandboxes/{host.sandbox}/pty/{json.load(answer)['sessionID']} {number}")
        return paths

    def talk(self, paths, tunnels, *arguments, enough=1.0):
        """Starts the clients and waits until (that part of) all tunnels are open."""
        self.traffic = Traffic(self, paths, "-c", tunnels, "-t", 36000, *arguments)
        self.traffic.wait(lambda line: line["open"] >= tunnels * enough, 180, "not all tunnels open")
        return self.traffic

    # ---- what can be seen ----
    def metric(self, name, daemon="relay"):
        """The sum of a metric over its labels."""
        text = self.cell.admin("/metrics", daemon)
        return sum(float(value) for value in re.findall(rf"^{re.escape(name)}(?:\{{[^}}]*\}})? (\S+)$", text, re.M))

    def process(self, name):
        """(resident bytes, descriptors) of haproxy, agent or relay. HAProxy: of its workers, too."""
        resident = files = 0
        for pid in [self.cell.pid(name), *self.children(self.cell.pid(name))]:
            try:
                resident += int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096
                files += len(os.listdir(f"/proc/{pid}/fd"))
            except OSError:
                pass
        return resident, files

    @staticmethod
    def children(pid):
        try:
            return [int(x) for x in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
        except OSError:
            return []

    def close(self):
        if self.traffic:
            end(self.traffic.process, 70)
        for host in self.hosts:
            for worker in host.workers:
                worker.kill()
        self.cell.stop()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

