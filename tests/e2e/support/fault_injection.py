# SPDX-License-Identifier: MIT
"""Daemons that run out of memory, or of descriptors, at each place in turn (tests/soak/fault_injection.c)."""

import mmap
import os
import struct

from cell import BIN, end, until
from worker import start

FAULT_INJECTION = BIN.parent / "soak/fault_injection.so"
EVERY = 1 if os.environ.get("CELLGATE_LONG") else 40
ALL = 1 << 40


class Supply:
    """Of one daemon: memory, which it allocates, or descriptors, which it opens."""

    LAYOUT = struct.Struct("=QQqQQ")  # struct counted of the library
    LIMITS = struct.Struct("=QQ")

    def __init__(self, file):
        file.write_bytes(bytes(self.LAYOUT.size))
        with open(file, "r+b") as opened:
            self.map = mmap.mmap(opened.fileno(), self.LAYOUT.size)

    def counts(self):
        """(asked for so far, failed of these, there now)"""
        return self.LAYOUT.unpack_from(self.map)[:3]

    def fail(self, first, count):
        """Of those that come, `count` from the first-th on (0 is the next), whose number is returned."""
        first += self.counts()[0]
        self.LIMITS.pack_into(self.map, self.LAYOUT.size - self.LIMITS.size, first, first + count)
        return first

    def suffices(self):
        self.fail(0, 0)


class Faulty:
    """Daemons whose allocations and descriptors may fail. `failing` tells operations whether they do at the moment."""

    def __init__(self, folder, *names):
        self.folder, self.names = folder, names
        self.memory = {name: Supply(folder / f"{name}.allocations") for name in names}
        self.descriptors = {name: Supply(folder / f"{name}.descriptors") for name in names}
        self.failing = False

    def environment(self, name):
        # what was freed has other bytes then
        files = (f"FAULT_ALLOC={self.folder}/{name}.allocations", f"FAULT_FILES={self.folder}/{name}.descriptors")
        return f"LD_PRELOAD={FAULT_INJECTION}", *files, "MALLOC_PERTURB_=165"

    def alone_and_together(self, name, operation, every=EVERY, opens=False, keeps=0):
        """With each allocation failing; with each descriptor, too, if it opens any. It may keep so many allocations for a while
        besides what it keeps when it has enough."""
        for count in (1, ALL):
            self.sweep(name, operation, count, self.memory[name], every, keeps)
            if opens:
                self.sweep(name, operation, count, self.descriptors[name], 1, keeps)

    def sweep(self, name, operation, count, supply, every, keeps=0):
        """operation() with each that it asks for failing (and the next count - 1), until it asks for no more, and again with
        enough after each: it tells whether it was served, which it has to be then, at the latest when HAProxy has looked
        whether the daemon is there again."""
        memory, pid, at, rounds, calls = self.memory[name], self.pid(name), 0, 0, 0

        def call():
            nonlocal calls
            calls += 1
            return operation()

        def descriptors():
            return len(os.listdir(f"/proc/{pid}/fd"))

        for _ in range(8):
            until(call, 10, "not served at all")  # what is made once is there
        began, calls, opened = memory.counts()[2], 0, descriptors()
        had_enough = False
        while not had_enough:
            had = supply.counts()[1]
            first = supply.fail(at, count)
            self.failing = True
            try:
                served = call()
            finally:
                self.failing = False
                asked = supply.counts()[0] > first
                supply.suffices()
            failed = supply.counts()[1] > had
            had_enough = served and not asked and not failed
            why = f"after number {at} of {name} had failed"
            until(call, 10, f"not served {why}\n{self.logs()}")
            assert self.pid(name) == pid, f"{name} ended {why}\n{self.logs()}"
            if failed:  # otherwise it was refused before it asked, or asked before it was to fail: once more
                at, rounds = at + every, rounds + 1
        assert rounds, "it asks for none at all"
        half, all_calls = memory.counts()[2], 2 * calls
        while calls < all_calls:
            until(call, 10)
        usual = max(memory.counts()[2] - half, 0)  # as many calls that had enough of all
        most = began + 2 * usual + 50 + rounds // 10 + keeps * calls
        until(lambda: memory.counts()[2] <= most, 10, f"{name} keeps more than {most - began} allocations; {usual} are usual for half of the calls")
        until(lambda: descriptors() <= opened + 5, 10, f"{name} had {opened} descriptors, and keeps more")


class FaultyCell(Faulty):
    def __init__(self, cells, folder, **arguments):
        super().__init__(folder, "agent", "relay")
        programs = folder / "bin"
        programs.mkdir()
        (programs / "cellgate").symlink_to(BIN / "cellgate")
        for name in self.names:
            script = programs / f"cellgate-{name}"
            script.write_text(f'#!/bin/sh\nexec env {" ".join(self.environment(name))} {BIN}/cellgate-{name} "$@"\n')
            script.chmod(0o755)
        self.cell = cells(environment={"CELLGATE_BIN": str(programs)}, **arguments)
        self.pid, self.logs = self.cell.pid, self.cell.logs


class FaultyExamples(Faulty):
    """Daemons of examples/, which say where they listen."""

    def __init__(self, folder, *names):
        super().__init__(folder, *names)
        self.processes = {}

    def start(self, name, *arguments):
        self.processes[name], address = start("env", *self.environment(name), BIN / name, *arguments)
        return address

    def pid(self, name):
        return self.processes[name].pid if self.processes[name].poll() is None else None

    def logs(self):
        return ""

    def close(self):
        for process in reversed(self.processes.values()):
            end(process)
