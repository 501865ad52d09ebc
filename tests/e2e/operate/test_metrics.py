# SPDX-License-Identifier: MIT
"""What Prometheus reads: each metric has a type that fits its name, and tells what it says."""

import json
import re
import shutil
import signal
import subprocess
import time
import urllib.error
import urllib.request

import pytest
from cell import BIN, Cell, closed_port, free_port, until
from client import request
from tunnels import QUICK, ROUTES, Tunnels

SAMPLE = re.compile(r'([a-z_][a-z0-9_]*)(?:\{((?:[a-z_]+="(?:[^"\\]|\\.)*",?)*)\})? (-?[0-9.e+-]+|\+Inf|NaN)$')


@pytest.fixture(scope="module")
def tunnels(cells):
    tunnels = Tunnels(cells(config={"relay": QUICK, "routes": ROUTES}))
    yield tunnels
    tunnels.close()


def samples(cell, name):
    found = {}
    for line in cell.admin("/metrics", name).splitlines():
        if not line.startswith("#"):
            metric, labels, value = SAMPLE.match(line).groups()
            found[f"{metric}{{{labels}}}" if labels else metric] = float(value)
    return found


def check_metrics(text, well_named=False):
    """By promtool, where Debian's package prometheus is there. It returns 3 for names that it finds unusual."""
    if shutil.which("promtool"):
        done = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True, timeout=20)
        assert done.returncode in ([0] if well_named else [0, 3]), done.stdout + done.stderr


@pytest.mark.parametrize("name", ["agent", "relay"])
def test_each_has_a_type_that_fits_its_name(tunnels, name):
    text = tunnels.cell.admin("/metrics", name)
    types, helps, seen = {}, set(), set()
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            _, _, metric, kind = line.split()
            assert metric not in types and metric in helps, line
            types[metric] = kind
        elif line.startswith("# HELP "):
            helps.add(line.split()[2])
        else:
            assert line not in seen and SAMPLE.match(line), line
            seen.add(line)
            metric = SAMPLE.match(line)[1]
            family = metric if metric in types else re.sub("_(bucket|sum|count)$", "", metric)
            assert family in types, line
    assert set(types.values()) == {"counter", "gauge", "histogram"}
    for metric, kind in types.items():
        assert (kind == "counter") == metric.endswith("_total"), (metric, kind)
    check_metrics(text, well_named=True)


@pytest.mark.parametrize("name", ["agent", "relay"])
def test_a_process_tells_of_itself(tunnels, name):
    found = samples(tunnels.cell, name)
    (build,) = [key for key in found if key.startswith("cellgate_build_info")]
    assert f'program="{name}"' in build and re.search(r'version="\d+\.\d+\.\d+', build) and found[build] == 1
    assert time.time() - 600 < found["process_start_time_seconds"] <= time.time() + 1
    assert found["process_cpu_seconds_total"] >= 0 and found["process_max_fds"] >= 1024
    with open(f"/proc/{tunnels.cell.pid(name)}/statm") as file:
        resident = int(file.read().split()[1]) * 4096
    assert resident / 2 < found["process_resident_memory_bytes"] < resident * 2
    assert found["process_virtual_memory_bytes"] >= found["process_resident_memory_bytes"]


@pytest.mark.parametrize("name", ["agent", "relay"])
def test_a_reload_is_seen(tunnels, name):
    cell = tunnels.cell
    before = samples(cell, name)
    assert before[f"cellgate_{name}_reload_good"] == 1
    text = cell.config_file.read_text()
    try:
        cell.config_file.write_text("{")
        cell.kill(name, signal.SIGHUP)
        bad = f'cellgate_{name}_reloads_total{{outcome="bad"}}'
        until(lambda: samples(cell, name)[bad] == before[bad] + 1, 10)
        now = samples(cell, name)
        assert now[f"cellgate_{name}_reload_good"] == 0
        at = f"cellgate_{name}_reload_good_timestamp_seconds"
        assert now[at] == before[at] <= time.time()
    finally:
        cell.config_file.write_text(text)
    cell.kill(name, signal.SIGHUP)
    until(lambda: samples(cell, name)[f"cellgate_{name}_reload_good"] == 1, 10)
    assert samples(cell, name)[at] >= before[at]


def decisions(cell, route, verdict):
    return samples(cell, "agent").get(f'cellgate_agent_route_decisions_total{{route="{route}",verdict="{verdict}"}}')


def test_decisions_are_counted_by_route(tunnels):
    cell, worker = tunnels.cell, tunnels.worker()
    before = {key: decisions(cell, *key) for key in [("plain", "relay"), ("secure", "deny"), ("none", "deny"), ("api", "deny")]}
    assert None not in before.values() and decisions(cell, "other", "deny") == 0
    tunnels.open(worker)
    assert tunnels.refused("sb-1", "secure") == (401, "token_missing")
    assert request(cell.http, "GET", "/nowhere").status == 404
    until(lambda: decisions(cell, "none", "deny") == before["none", "deny"] + 1, 10)
    assert decisions(cell, "plain", "relay") == before["plain", "relay"] + 1
    assert decisions(cell, "secure", "deny") == before["secure", "deny"] + 1


def test_an_answer_that_is_given_again_counts_as_a_decision(tmp_path):
    with Cell(tmp_path, config={"tokens": [{"kind": "jwt", "alg": "HS256", "secret_file": "k1.secret"}], "agent": {"threads": 1, "audit": "all"},
                                "routes": [{"name": "api", "path": "/api/{sandbox}/{rest...}", "need": "http"}]}) as cell:
        cell.set_sandboxes(sb={"worker": f"http://127.0.0.1:{closed_port()}"})
        bearer = cell.bearer("sb")
        decided = 'cellgate_agent_decisions_total{verdict="direct",error="none"}'
        until(lambda: (request(cell.http, "GET", "/api/sb/x", [bearer]), samples(cell, "agent")[decided])[1], 10)
        before = samples(cell, "agent")
        for _ in range(10):
            request(cell.http, "GET", "/api/sb/x", [bearer])
        after = samples(cell, "agent")
        more = {name: after[name] - before[name] for name in after}
        assert more['cellgate_agent_answer_cache_total{outcome="hit"}'] >= 8  # it is kept from the second time on
        assert more[decided] == more["cellgate_agent_decision_seconds_count"] == 10
        assert more['cellgate_agent_route_decisions_total{route="api",verdict="direct"}'] == 10
        assert more['cellgate_agent_tokens_total{kind="jwt",outcome="none"}'] == more['cellgate_agent_token_cache_total{outcome="hit"}'] == 10
        ids = until(lambda: (found := re.findall(r"msg=audit .*?\bid=(\S+)", (cell.run_dir / "agent.log").read_text())) and len(found) >= 10 and found, 10)
        assert len(set(ids)) == len(ids)  # each line has its request's


def test_a_route_that_a_reload_brings_is_counted(tunnels):
    cell = tunnels.cell
    text = cell.config_file.read_text()
    brought = {"name": "brought", "path": "/brought/{sandbox}", "need": "http"}
    reloads = 'cellgate_agent_reloads_total{outcome="good"}'
    before = samples(cell, "agent")[reloads]
    try:
        cell.config_file.write_text(json.dumps(json.loads(text) | {"routes": [brought, *ROUTES]}))
        cell.kill("agent", signal.SIGHUP)
        until(lambda: samples(cell, "agent")[reloads] == before + 1, 10)
        assert decisions(cell, "brought", "deny") == 0
        plain = decisions(cell, "plain", "relay")
        assert request(cell.http, "GET", "/brought/sb-1").status == 401
        until(lambda: decisions(cell, "brought", "deny") == 1, 10)
        tunnels.open(tunnels.worker())  # this one has kept its place
        assert decisions(cell, "plain", "relay") == plain + 1
    finally:
        cell.config_file.write_text(text)
        cell.kill("agent", signal.SIGHUP)
    until(lambda: samples(cell, "agent")[reloads] == before + 2, 10)
    assert decisions(cell, "brought", "deny") == 1


def test_a_gap_is_seen_as_long_as_a_move_may_take(tunnels):
    found = samples(tunnels.cell, "relay")
    assert 'cellgate_relay_gap_seconds_bucket{le="600"}' in found and 'cellgate_relay_gap_seconds_bucket{le="0.001"}' in found


def test_a_relay_tells_of_its_limits_its_dials_and_its_tunnels_ages(tunnels):
    cell = tunnels.cell
    before = samples(cell, "relay")
    assert before["cellgate_relay_memory_limit_bytes"] == 256 << 20 and before["cellgate_relay_max_tunnels"] > 0
    assert before["cellgate_relay_draining"] == 0
    until(lambda: samples(cell, "relay")["cellgate_relay_agent_connected"] == 1, 10)
    tunnels.cell.set_sandboxes(nobody={"worker": f"http://127.0.0.1:{closed_port()}", "epoch": 1})
    tunnels.known()
    sandbox = "nobody"
    assert tunnels.refused(sandbox) == (502, "worker_unreachable")
    assert samples(cell, "relay")["cellgate_relay_dials_failed_total"] > before["cellgate_relay_dials_failed_total"]
    worker = tunnels.worker()
    sandbox = tunnels.sandbox(worker)
    client, _ = tunnels.open(worker, sandbox)
    client.close()
    tunnels.gone(sandbox)
    until(lambda: samples(cell, "relay")["cellgate_relay_tunnel_age_seconds_count"] == before["cellgate_relay_tunnel_age_seconds_count"] + 1, 10)


def test_a_relay_without_its_agent_says_so(tunnels, tmp_path):
    cell, port = tunnels.cell, free_port()
    keys = {"listen": f"unix@{tmp_path}/listen", "control": f"unix@{tmp_path}/control", "agent": f"unix@{tmp_path}/nobody", "admin": f"127.0.0.1:{port}"}
    relay = cell.spawn("lonely-relay", BIN / "cellgate-relay", "-c", cell.config_file, *[x for key, value in keys.items() for x in ("-o", f"relay.{key}={value}")])
    until(lambda: (tmp_path / "control").exists() or relay.poll() is not None, 20)
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
        assert "\ncellgate_relay_agent_connected 0\n" in answer.read().decode()


def test_haproxy_tells_of_itself_where_it_is_told_to(tmp_path):
    port = free_port()
    with Cell(tmp_path, environment={"CELLGATE_METRICS": f"127.0.0.1:{port}"}):
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
            text = answer.read().decode()
        assert 'haproxy_frontend_http_requests_total{proxy="cellgate"' in text
        check_metrics(text)
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=5)
        assert refused.value.code == 404
