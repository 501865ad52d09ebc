# SPDX-License-Identifier: MIT
"""What rules and dashboard of examples/observability ask for is there: every metric, label and value in a live cell, every entry of the
runbook. (Prometheus itself: tests/observability.)"""

import json
import re
import urllib.request

import pytest
import yaml
from cell import ROOT, free_port
from tunnels import QUICK, ROUTES, Tunnels

FOLDER = ROOT / "examples/observability"
RULES = [rule for group in yaml.safe_load((FOLDER / "cellgate.rules.yml").read_text())["groups"] for rule in group["rules"]]
DASHBOARD = json.loads((FOLDER / "cellgate.dashboard.json").read_text())
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
QUERIES = {rule["alert"]: rule["expr"] for rule in RULES}
QUERIES |= {f"{panel['title']} {target['refId']}": target["expr"] for panel in PANELS for target in panel["targets"]}
QUERIES |= {note["name"]: note["expr"] for note in DASHBOARD["annotations"]["list"]}
SERIES = re.compile(r'^([a-z_]+)(?:\{(.*)\})? [-+0-9.eNaInf]+$')
LABEL = re.compile(r'([a-z_]+)="((?:[^"\\]|\\.)*)"')
JOBS = {"agent": "cellgate-agent", "relay": "cellgate-relay", "haproxy": "cellgate-haproxy"}
FUNCTIONS = set("histogram_quantile sum count min max topk rate increase changes time by on and or unless".split())


def read(text, job):
    for line in text.splitlines():
        if not line.startswith("#"):
            name, labels = SERIES.match(line).groups()
            yield name, dict(LABEL.findall(labels or "")) | {"job": job, "instance": "a"}


@pytest.fixture(scope="module")
def series(cells):
    """[(name, labels)] of all that a cell exposes, as Prometheus has it."""
    port = free_port()
    tunnels = Tunnels(cells(config={"relay": QUICK, "routes": ROUTES}, environment={"CELLGATE_METRICS": f"127.0.0.1:{port}"}))
    worker = tunnels.worker()
    tunnels.open(worker)
    found = [("up", {"job": job, "instance": "a"}) for job in JOBS.values()]
    for name in ("agent", "relay"):
        found += read(tunnels.cell.admin("/metrics", name), JOBS[name])
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
        found += read(answer.read().decode(), JOBS["haproxy"])
    tunnels.close()
    return found


def selectors(query):
    """(metric, [(label, operator, value)]) of a query."""
    bare = re.sub(r"\b(by|on) \([^)]*\)", "", query)
    for name, matchers in re.findall(r"(?<![\w$\"])([a-z][a-z_]+)\b(?![\w\"]|\s*\()(?:\{([^}]*)\})?", bare):
        if name not in FUNCTIONS:
            yield name, re.findall(r'([a-z_]+)(=~|!~|!=|=)"([^"]*)"', matchers)


def fits(labels, matchers):
    test = {"=": lambda a, b: a == b, "!=": lambda a, b: a != b, "=~": lambda a, b: re.fullmatch(b, a), "!~": lambda a, b: not re.fullmatch(b, a)}
    return all(test[operator](labels.get(label, ""), value) for label, operator, value in matchers)


@pytest.mark.parametrize("name", QUERIES)
def test_a_query_asks_for_what_is_there(series, name):
    query = QUERIES[name]
    asked = list(selectors(query))
    assert asked, query
    labels = [set().union(*(all_of for one, all_of in series if one == metric and fits(all_of, matchers)), {"le"}) for metric, matchers in asked]
    for metric, matchers in asked:
        assert any(one == metric and fits(all_of, matchers) for one, all_of in series), (metric, matchers)
        for label, operator, value in matchers:  # each of the values, not just one
            for each in value.split("|"):
                assert operator == "=~" and "." in each or any(one == metric and all_of.get(label) == each for one, all_of in series), (metric, label, each)
    for group in re.findall(r"\b(?:by|on) \(([^)]*)\)", query):
        assert any(set(group.split(", ")) <= of_metric for of_metric in labels), group


def test_all_metrics_of_ours_that_alerts_do_not_ask_for_are_known(series):
    """A new metric belongs into the dashboard, or into this list."""
    asked = {metric for query in QUERIES.values() for metric, _ in selectors(query)}
    ours = {re.sub("_(bucket|sum|count)$", "", name) for name, _ in series if name.startswith("cellgate_")}
    rest = ours - {re.sub("_(bucket|sum|count)$", "", name) for name in asked}
    assert {name for name in rest if "_spop_" not in name} == {
        "cellgate_agent_directory_bytes", "cellgate_relay_egress_connections", "cellgate_relay_mux_ended_total", "cellgate_relay_mux_legs_total",
        "cellgate_relay_mux_requests_total", "cellgate_relay_mux_sockets", "cellgate_agent_reload_good_timestamp_seconds", "cellgate_agent_reloads_total",
        "cellgate_agent_log_lines_held_back_total", "cellgate_agent_revoked_tokens", "cellgate_agent_token_cache_total", "cellgate_agent_token_cache_shared_total", "cellgate_agent_answer_cache_total",
        "cellgate_directory_cache_bytes", "cellgate_directory_cache_evicted_total", "cellgate_directory_errors_total",
        "cellgate_directory_events_total", "cellgate_directory_objects_bytes", "cellgate_directory_odd_objects_total",
        "cellgate_directory_pushes_total", "cellgate_directory_pushing", "cellgate_relay_cut_short_total",
        "cellgate_relay_log_lines_held_back_total", "cellgate_relay_reload_good_timestamp_seconds", "cellgate_relay_reloads_total",
        "cellgate_relay_tunnels_resting", "cellgate_relay_upgrades_total", "cellgate_relay_handover_seconds", "cellgate_relay_salvaged_tunnels_total", "cellgate_relay_unconfirmed_input_bytes_total",
    }


def test_each_alert_has_an_entry_in_the_runbook_and_each_entry_an_alert():
    page = (ROOT / "docs/runbook.md").read_text()
    entries = re.findall(r"^### (\w+)$", page, re.M)
    assert entries == [rule["alert"] for rule in RULES]
    for rule in RULES:
        assert rule["annotations"]["runbook"] == f"docs/runbook.md#{rule['alert'].lower()}"
        assert rule["labels"]["severity"] in ("critical", "warning") and rule["annotations"]["summary"].endswith(".")
        body = page.split(f"### {rule['alert']}\n")[1].split("\n#")[0]
        assert "\n- Look: " in body and "\n- Do: " in body, rule["alert"]


def test_panels_have_places_and_names_of_their_own():
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])
    assert len({panel["title"] for panel in PANELS}) == len(PANELS)
    taken = set()
    for panel in DASHBOARD["panels"]:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & taken and at["x"] + at["w"] <= 24, panel["title"]
        taken |= cells


def test_legends_name_labels_of_their_queries():
    for panel in PANELS:
        for target in panel["targets"]:
            names = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
            grouped = {label for group in re.findall(r"\bby \(([^)]*)\)", target["expr"]) for label in group.split(", ")}
            assert not grouped or names <= grouped, (panel["title"], names)


def test_the_jobs_are_those_of_the_scrape_configuration():
    jobs = [job["job_name"] for job in yaml.safe_load((FOLDER / "prometheus.yml").read_text())["scrape_configs"]]
    assert sorted(jobs) == sorted(JOBS.values())
