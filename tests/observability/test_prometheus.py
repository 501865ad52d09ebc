# SPDX-License-Identifier: MIT
"""What promtool says of rules, tests of rules and metrics, and which alerts a fault raises."""

import re
import subprocess
import urllib.request

import pytest
from cell import BIN, ROOT, free_port
from tunnels import QUICK, ROUTES, Tunnels

FOLDER = ROOT / "examples/observability"


def promtool(*arguments, **more):
    done = subprocess.run(["promtool", *arguments], cwd=FOLDER, capture_output=True, text=True, timeout=60, **more)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("what", [("check", "rules", "cellgate.rules.yml"), ("test", "rules", "cellgate.rules.test.yml"), ("check", "config", "prometheus.yml")])
def test_promtool_accepts(what):
    code, said = promtool(*what)
    assert code == 0 and "SUCCESS" in said, said


def test_each_alert_has_a_test_that_fires_and_one_that_does_not():
    alerts = re.findall(r"- alert: (\w+)", (FOLDER / "cellgate.rules.yml").read_text())
    tests = (FOLDER / "cellgate.rules.test.yml").read_text()
    for alert in alerts:
        assert re.search(rf"alertname: {alert}\n +exp_alerts:\n +- exp_labels", tests), alert
        assert re.search(rf"alertname: {alert}, exp_alerts: \[\]", tests), alert


@pytest.mark.parametrize("name", ["agent", "relay", "haproxy"])
def test_metrics_are_in_order(cells, name):
    """HAProxy's own names are not ours to change: 3 is what promtool returns for those that it finds unusual."""
    port = free_port()
    cell = cells(config={"relay": QUICK, "routes": ROUTES}, environment={"CELLGATE_METRICS": f"127.0.0.1:{port}"})
    tunnels = Tunnels(cell)
    try:
        tunnels.open(tunnels.worker())
        if name == "haproxy":
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
                text = answer.read().decode()
        else:
            text = cell.admin("/metrics", name)
    finally:
        tunnels.close()
    code, said = promtool("check", "metrics", input=text)
    assert code in ((0, 3) if name == "haproxy" else (0,)), said


@pytest.mark.parametrize("fault", ["worker", "agent", "limit", "reload"])
def test_a_fault_raises_its_alerts_and_the_dashboard_can_be_asked(fault):
    done = subprocess.run([FOLDER / "incident", fault], capture_output=True, text=True, timeout=400, env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "CELLGATE_BIN": str(BIN)})
    assert done.returncode == 0, done.stdout + done.stderr
    assert "repaired, and quiet again" in done.stdout and " queries of the dashboard asked, " in done.stdout
