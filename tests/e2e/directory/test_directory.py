# SPDX-License-Identifier: MIT
"""The directory file and the configuration are replaced while requests run: decisions come from one whole good version."""

import json
import os
import signal
import threading

import pytest
from cell import SECRET, token, until
from client import Http1

CONFIG = {"routes": [{"name": "proxy", "path": "/s/{sandbox}/{rest...}", "to": "/{rest}", "need": "none"}]}
SANDBOXES = [f"sb-{i}" for i in range(8)]


def metric(cell, name):
    return next(float(line.rpartition(" ")[2]) for line in cell.admin("/metrics").splitlines() if line.startswith(name))


def loads(cell, outcome):
    return metric(cell, f'cellgate_agent_directory_loads_total{{outcome="{outcome}"}}')


class Load:
    """Threads that ask for one sandbox after the other until stopped; every answer is kept."""

    def __init__(self, cell, threads=3):
        self.cell, self.answers, self.errors = cell, [], []
        self.stopping = threading.Event()
        self.threads = [threading.Thread(target=self._run, args=(n,)) for n in range(threads)]
        for thread in self.threads:
            thread.start()

    def _run(self, number):
        try:
            with Http1(self.cell.http, timeout=20) as client:
                while not self.stopping.is_set():
                    name = SANDBOXES[(number + len(self.answers)) % len(SANDBOXES)]
                    self.answers.append(client.request("GET", f"/s/{name}/x").status)
        except Exception as error:  # noqa: BLE001 a thread's error is the test's
            self.errors.append(repr(error))

    def stop(self):
        self.stopping.set()
        for thread in self.threads:
            thread.join()
        assert not self.errors


def write(cell, text):
    part = cell.folder / "sandboxes.json.part"
    part.write_text(text)
    part.rename(cell.folder / "sandboxes.json")


def answered(cell, path):
    with Http1(cell.http) as client:
        return client.request("GET", path).status


def version(number, worker):
    return {"sandboxes": {name: {"worker": worker, "epoch": number} for name in SANDBOXES}}


def test_a_file_replaced_100_times_under_load_gives_only_whole_good_versions(cells, origins):
    good, bad = [origins(), origins()], origins()
    cell = cells(sandboxes={name: {"worker": good[0].url, "epoch": 1} for name in SANDBOXES}, config=CONFIG)
    load = Load(cell)
    broken = 0
    for number in range(2, 102):
        before = loads(cell, "good"), loads(cell, "bad")
        if number % 10 == 0:
            # Whole but for its end: half of its records name a worker that must never be asked.
            text = json.dumps(version(number, bad.url))
            write(cell, text[: len(text) * (number // 10) // 11])
            broken += 1
            until(lambda: loads(cell, "bad") > before[1], 10, "the broken version was not noticed")
        else:
            write(cell, json.dumps(version(number, good[number % 2].url)))
            until(lambda: loads(cell, "good") > before[0], 10, "the new version was not noticed")
            sandbox = SANDBOXES[number % len(SANDBOXES)]
            asked = len(good[number % 2].requests)
            until(lambda: answered(cell, f"/s/{sandbox}/now") == 200)
            assert any(r.target == "/now" for r in good[number % 2].requests[asked:])
    load.stop()
    # a busy machine may have no time for an answer of the agent's
    assert set(load.answers) <= {200, 503}
    until(lambda: load.answers.count(503) <= cell.access_log().count(" spoe=1"), 10, "requests were refused that were not late")
    assert len(load.answers) > 200
    assert not bad.requests
    assert broken == 10
    assert loads(cell, "bad") == 10


def test_records_that_go_appear_and_change_state_take_effect(cells, origins):
    origin = origins()
    cell = cells(sandboxes={"sb-1": {"worker": origin.url, "epoch": 1}}, config=CONFIG)

    def answer(name="sb-1"):
        with Http1(cell.http) as client:
            response = client.request("GET", f"/s/{name}/x")
            return response.status, json.loads(response.body)["error"] if response.status != 200 else None

    def becomes(record, expected, name="sb-1"):
        cell.set_sandboxes(**{name: record})
        until(lambda: answer(name) == expected, 2, f"{name} did not become {expected}")

    assert answer() == (200, None)
    becomes({"state": "stopped", "epoch": 2}, (410, "sandbox_stopped"))
    becomes({"state": "migrating", "epoch": 3}, (503, "sandbox_migrating"))
    becomes({"state": "waking", "epoch": 4}, (503, "sandbox_waking"))
    becomes({"state": "migrating", "worker": origin.url, "epoch": 5}, (200, None))
    becomes({"worker": "http://127.0.0.1:1", "epoch": 6}, (502, "worker_unreachable"))
    becomes({"worker": "http://192.0.2.1:80", "epoch": 7}, (502, "worker_unreachable"))
    becomes({"worker": origin.url.replace("127.0.0.1", "localhost"), "epoch": 8}, (200, None))
    becomes(None, (404, "sandbox_not_found"))
    becomes({"worker": origin.url, "epoch": 9}, (200, None), name="sb-2")
    # An epoch that goes back is an old record come late: the newer one stays.
    before = metric(cell, "cellgate_agent_directory_epochs_behind_total")
    cell.set_sandboxes(**{"sb-2": {"state": "stopped", "epoch": 1}})
    until(lambda: metric(cell, "cellgate_agent_directory_epochs_behind_total") > before)
    assert answer("sb-2") == (200, None)


def test_headers_in_a_file_that_everybody_can_read_are_warned_of(cells, origins):
    origin = origins()
    cell = cells(config=CONFIG, sandboxes={"sb-1": {"worker": origin.url, "epoch": 1}})
    warning = "everybody on this machine can read the directory's file"

    def warned():
        return warning in (cell.run_dir / "agent.log").read_text()

    def loaded(mode, **record):
        before = loads(cell, "good")
        cell.sandboxes["sb-1"] = {"worker": origin.url} | record
        part = cell.folder / "sandboxes.json.part"
        part.write_text(json.dumps({"sandboxes": cell.sandboxes}))
        part.chmod(mode)
        part.rename(cell.folder / "sandboxes.json")
        until(lambda: loads(cell, "good") > before)
        return warned()

    port = {"ports": {"3000": {"url": origin.url, "headers": {"X-App": "1"}}}}
    assert not loaded(0o644, epoch=2)
    assert not loaded(0o640, epoch=3, **port)
    loaded(0o644, epoch=4, **port)
    until(warned)


def test_without_a_directory_nobody_gets_in_and_existence_stays_unknown(cells, origins):
    origin = origins()
    cell = cells(config=CONFIG | {"directory": {"kind": "file", "path": "later.json"}})
    with Http1(cell.http) as client:
        response = client.request("GET", "/s/sb-1/x")
    assert response.status == 503
    assert json.loads(response.body) == {
        "error": "directory_unavailable",
        "message": "It is not known at the moment where the sandbox is.",
        "retryable": True,
    }
    assert response.get("retry-after") == "1"
    (cell.folder / "later.json").write_text(json.dumps({"sandboxes": {"sb-1": {"worker": origin.url}}}))

    def served():
        with Http1(cell.http) as client:
            return client.request("GET", "/s/sb-1/x").status == 200

    until(served)


# ---- configuration and keys ----

CLOSED = {"routes": [{"name": "proxy", "path": "/s/{sandbox}/{rest...}", "to": "/{rest}", "need": "http"}]}


def status(cell, secret=SECRET):
    with Http1(cell.http) as client:
        headers = [("Authorization", "Bearer " + token(sandbox="sb-1", secret=secret))]
        return client.request("GET", "/s/sb-1/x", headers).status


@pytest.fixture
def closed(cells, origins):
    return cells(sandboxes={"sb-1": {"worker": origins().url}}, config=CLOSED)


def test_a_key_file_that_is_replaced_takes_effect_without_a_signal(closed):
    fresh = b"another secret, also of 32 bytes or more"
    assert (status(closed), status(closed, fresh)) == (200, 401)
    part = closed.folder / "k1.secret.part"
    part.write_bytes(fresh)
    part.rename(closed.folder / "k1.secret")
    until(lambda: (status(closed), status(closed, fresh)) == (401, 200), 10, "the new key is not used")
    (closed.folder / "k1.secret").write_bytes(b"short")
    until(lambda: 'reloads_total{outcome="bad"} 1' in closed.admin("/metrics"))
    assert (status(closed), status(closed, fresh)) == (401, 200)


def test_sighup_takes_a_good_configuration_and_leaves_a_bad_one(closed):
    good = closed.config_file.read_text()
    changed = json.loads(good)
    changed["routes"][0]["need"] = "none"

    def reload(text, outcome, count):
        closed.config_file.write_text(text)
        closed.kill("agent", signal.SIGHUP)
        until(lambda: f'reloads_total{{outcome="{outcome}"}} {count}' in closed.admin("/metrics"))

    reload(json.dumps(changed), "good", 1)
    with Http1(closed.http) as client:
        assert client.request("GET", "/s/sb-1/x").status == 200
    log = (closed.run_dir / "agent.log").read_text
    # Cut at every 7th byte: what was in force stays, and each time one line says where it is broken.
    bad = 0
    for length in range(0, len(good) - 1, 7):
        bad += 1
        reload(good[:length], "bad", bad)
        with Http1(closed.http) as client:
            assert client.request("GET", "/s/sb-1/x").status == 200
    assert log().count("not reloaded") == bad
    assert str(closed.config_file) + ":1:" in log()
    reload(good, "good", 2)
    with Http1(closed.http) as client:
        assert client.request("GET", "/s/sb-1/x").status == 401
    assert os.path.exists(f"/proc/{closed.pid('agent')}")


def test_new_keys_are_good_for_no_sandbox_of_the_last_directory(closed, origins):
    """A reload changes both, and the new directory is not there yet."""
    fresh, second = b"another secret, also of 32 bytes or more", origins()
    (closed.folder / "k2.secret").write_bytes(fresh)
    changed = json.loads(closed.config_file.read_text())
    changed["directory"]["path"] = "elsewhere.json"
    changed["tokens"][0]["secret_file"] = "k2.secret"
    before = metric(closed, 'cellgate_agent_reloads_total{outcome="good"}')
    closed.config_file.write_text(json.dumps(changed))
    closed.kill("agent", signal.SIGHUP)
    until(lambda: metric(closed, 'cellgate_agent_reloads_total{outcome="good"}') > before)
    assert (status(closed), status(closed, fresh)) == (401, 503)
    (closed.folder / "elsewhere.json").write_text(json.dumps({"sandboxes": {"sb-1": {"worker": second.url}}}))
    until(lambda: status(closed, fresh) == 200)
    assert len(second.requests) == 1
