# SPDX-License-Identifier: MIT
"""What a newcomer does: the commands of docs/install.md as they stand there, and the mistakes that everybody makes once. Each of those ends with a
status that is not 0 and says on standard error which file, key, option, port or socket it is about."""

import json
import os
import re
import socket
import subprocess

import pytest
from cell import BIN, ROOT

UP = ROOT / "examples/quickstart/up"
GOOD = {
    "cell": "cell-a",
    "directory": {"kind": "file", "path": "sandboxes.json"},
    "worker_networks": ["127.0.0.0/8", "::1/128"],
    "tokens": [{"kind": "jwt", "alg": "HS256", "secret_file": "k1.secret"}],
    "systems": ["opensandbox"],
}


def run(*command, folder, stdin="", **environment):
    environment = {k: v for k, v in os.environ.items() if not k.startswith("CELLGATE_")} | {"CELLGATE_BIN": str(BIN)} | environment
    return subprocess.run([str(c) for c in command], cwd=folder, env=environment, input=stdin, capture_output=True, text=True, timeout=30)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """With a configuration, and several that are wrong in one thing each."""
    folder = tmp_path_factory.mktemp("steps")
    (folder / "k1.secret").write_bytes(bytes(range(32)))
    (folder / "short.secret").write_bytes(b"short")
    (folder / "sandboxes.json").write_text('{"sandboxes": {"sb-1": {"worker": "http://127.0.0.1:9"}}}')
    (folder / "torn.json").write_text('{"sandboxes": {"sb-1": {"worker": "http://127.0.0.1:9"}')
    (folder / "typo.json").write_text('{"sandboxes": {"sb-1": {"worker": "http://127.0.0.1:9", "sate": "stopped"}}}')

    def write(name, **changes):
        (folder / name).write_text(json.dumps(GOOD | changes, indent=1))

    write("good", agent={"control": "unix@agent.control.sock"}, relay={"listen": "unix@relay.sock", "control": "unix@relay.control.sock"})
    write("key", tokns=[])
    write("system", systems=["opensandbox", "opensandbx"])
    write("no-form", systems=["opensandbox"], domains={"e2b": ["e2b.example"]})
    (folder / "no-routes").write_text(json.dumps({k: v for k, v in GOOD.items() if k != "systems"}, indent=1))
    write("value", relay={"keepalive": "soon"})
    write("no-secret", tokens=[{"kind": "jwt", "alg": "HS256", "secret_file": "k2.secret"}])
    write("short-secret", tokens=[{"kind": "jwt", "alg": "HS256", "secret_file": "short.secret"}])
    write("no-tokens", tokens=[])
    write("tokens-route", tokens=[{"kind": "static", "routes": ["opencomputer-previw"]}])
    write("tcp", agent={"listen": "127.0.0.1:9000"})
    write("remote", agent={"admin": "0.0.0.0:9101"})
    write("torn-directory", directory={"kind": "file", "path": "torn.json"})
    write("typo-directory", directory={"kind": "file", "path": "typo.json"})
    (folder / "comma").write_text(json.dumps(GOOD, indent=1).replace('"cell-a",', '"cell-a"'))
    return folder


# What is typed, the exit status, and what it has to name.
MISTAKES = [
    # a daemon and its configuration
    ("cellgate-agent -c nowhere", 1, r"nowhere: No such file or directory"),
    ("cellgate-agent -c .", 1, r"\.: .*directory"),
    ("cellgate-agent -t -c comma", 1, r"comma:3:\d+: "),
    ("cellgate-agent -t -c key", 1, r"key:\d+:\d+: .*tokns"),
    ("cellgate-agent -t -c system", 1, r"system:\d+:\d+: systems: .*opensandbox"),
    ("cellgate-agent -t -c no-form", 1, r"no-form:\d+:\d+: .*'e2b'.*systems"),
    ("cellgate-agent -t -c tokens-route", 1, r"tokens-route:\d+:\d+: routes: there is no route 'opencomputer-previw'"),
    ("cellgate-agent -t -c no-routes", 1, r"no-routes:\d+:\d+: .*`systems`.*`routes`"),
    ("cellgate-relay -t -c value", 1, r"value:\d+:\d+: .*keepalive.*duration"),
    ("cellgate-agent -t -c no-secret", 1, r"k2\.secret: No such file or directory"),
    ("cellgate-agent -t -c short-secret", 1, r"short\.secret: .*32"),
    ("cellgate-agent -t -c no-tokens", 1, r"no-tokens:\d+:\d+: .*tokens.*open"),
    ("cellgate-agent -t -c tcp", 1, r"tcp:\d+:\d+: agent\.listen .*trust_tcp"),
    ("cellgate-relay -t -c remote", 1, r"remote:\d+:\d+: agent\.admin .*loopback"),
    ("cellgate-agent -t -c torn-directory", 1, r"torn\.json:1:\d+: "),
    ("cellgate-agent -t -c typo-directory", 1, r"typo\.json:1:\d+: .*state"),
    ("cellgate-agent -t -c good -o relay.keepalife=1s", 1, r"relay\.keepalife"),
    ("cellgate-agent -t -c good -o relay.keepalive=1", 1, r"relay\.keepalive.*duration"),
    ("cellgate-agent -t -c good -o", 2, r"-o\n"),
    ("cellgate-agent --config good", 2, r"--config\n"),
    ("cellgate-relay good", 2, r"good\n"),
    # the operator's command
    ("cellgate", 2, r"usage"),
    ("cellgate tunels", 2, r"tunels"),
    ("cellgate token --config nowhere --sandbox sb-1", 1, r"nowhere: No such file or directory"),
    ("cellgate token --config good", 2, r"--sandbox"),
    ("cellgate token --config good --sandbox sb-1 --ttl 10", 2, r"--ttl"),
    ("cellgate token --config good --sandbox sb-1 --ttl 10d", 1, r"max_ttl|refused"),
    ("cellgate token --config good --sandbox sb-1 --need shell", 2, r"--need: \"shell\""),
    ("cellgate token --config good --sandbox sb-1 --port http", 2, r"--port: \"http\""),
    ("cellgate token --config good --inspect nonsense", 1, r""),
    ("cellgate explain --config good", 2, r"request"),
    ("cellgate explain --config good /v1/sandboxes/sb-1/", 2, r"METHOD URL|method|URL"),
    ("cellgate status --config good", 1, r"agent: .*agent\.control\.sock.*\n.*relay: .*relay\.control\.sock"),
    ("cellgate tunnels --config good", 1, r"relay: .*relay\.control\.sock"),
    ("cellgate tunnels --agent x", 1, r""),
    ("cellgate kick --config good", 2, r"kick: .*ID"),
    ("cellgate drain now", 2, r"drain: now"),
    ("cellgate attach", 2, r"URL"),
    ("cellgate attach localhost:8080", 255, r"ws://"),
    ("cellgate attach ws://127.0.0.1:1/", 255, r"127\.0\.0\.1 port 1: Connection refused"),
    ("cellgate attach --token-file nowhere ws://127.0.0.1:1/", 255, r"nowhere: No such file or directory"),
    ("cellgate options --samples", 2, r"usage"),
    # the examples
    ("cell-plane", 2, r"command"),
    ("cell-plane --control nowhere.sock list", 1, r"nowhere\.sock"),
    ("cell-plane serve", 2, r"--listen"),
    ("cell-plane serve --listen 0.0.0.0:0", 2, r"--secret-file.*0\.0\.0\.0:0"),
    ("cell-plane serve --listen 127.0.0.1:0", 2, r"--secret-file.*--open"),
    ("cell-plane serve --listen 127.0.0.1:0 --secret-file nowhere --control c", 1, r"nowhere"),
    ("cell-plane serve --listen 127.0.0.1:0 --secret-file x --open", 2, r"either --secret-file or --open"),
    ("cell-worker --listen 127.0.0.1:0", 2, r"--sandboxd"),
    ("cell-worker --listen localhost:0 --sandboxd s", 2, r"localhost"),
    ("cell-worker --listen 0.0.0.0:0 --sandboxd s", 2, r"--allow-remote.*0\.0\.0\.0:0"),
    ("cell-worker --listen 0.0.0.0:0 --sandboxd s --allow-remote --open", 2, r"--secret-file.*0\.0\.0\.0:0"),
    ("cell-worker --listen 127.0.0.1:0 --sandboxd s", 2, r"--secret-file.*--open"),
    ("cell-worker --listen 127.0.0.1:0 --sandboxd s --secret-file nowhere", 1, r"nowhere"),
    ("cell-worker --listen 127.0.0.1:0 --sandboxd s --secret-file /dev/null", 1, r"/dev/null"),
    ("cell-worker --listen 127.0.0.1:0 --sandboxd s --host a", 2, r"--secret-file.*--open"),
    ("cell-sandboxd", 2, r"--socket"),
    ("cell-sandboxd --socket nowhere/s", 1, r"nowhere/s: No such file or directory"),
    ("up --config good --run-dir r --haproxy no-haproxy", 1, r"no-haproxy"),
]


@pytest.mark.parametrize("typed, status, names", MISTAKES, ids=[m[0] for m in MISTAKES])
def test_a_mistake_is_named(folder, typed, status, names):
    program, *arguments = typed.split()
    done = run(UP if program == "up" else BIN / program, *arguments, folder=folder)
    assert done.returncode == status, done
    assert (done.stderr or typed.endswith("nonsense")) and re.search(names, done.stderr), done


@pytest.mark.parametrize("program, section", [("cellgate-agent", "agent"), ("cellgate-relay", "relay")])
def test_a_port_that_is_taken_and_a_folder_that_is_missing_are_named(folder, program, section):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = run(BIN / program, "-c", "good", "-o", f"{section}.admin=127.0.0.1:{port}", folder=folder)
    assert done.returncode == 1 and f"127.0.0.1:{port}: Address already in use" in done.stderr, done
    done = run(BIN / program, "-c", "good", "-o", f"{section}.admin=127.0.0.1:0", "-o", f"{section}.control=unix@nowhere/c", folder=folder)
    assert done.returncode == 1 and "nowhere/c: No such file or directory" in done.stderr, done


def test_the_configuration_of_the_page_does_what_it_says(tmp_path):
    """Its commands as they stand there, but for those that start something, then `explain`."""
    section = re.search(r"^## Trying a configuration.*?(?=^## )", (ROOT / "docs/install.md").read_text(), re.M | re.S)[0]
    blocks = ["\n".join(line[4:] for line in block.strip("\n").splitlines()) for block in re.findall(r"(?:^    .*\n|^\n(?=    ))+", section, re.M)]
    preparing, _, explaining = blocks
    starting = ("make", "python3 -m http.server", "examples/quickstart/up")
    typed = "\n".join(line for line in preparing.splitlines() if not line.startswith(starting))
    done = run("bash", "-e", "-c", typed.replace("build/bin", str(BIN)), folder=tmp_path)
    assert done.returncode == 0, done
    command, *printed = explaining.splitlines()
    done = run("bash", "-c", command.removeprefix("$ ").replace("build/bin", str(BIN)), folder=tmp_path)
    assert done.returncode == 0, done
    assert len(printed) > 5 and {line for line in printed if line != "..."} <= set(done.stdout.splitlines()), done.stdout


def test_the_sample_is_a_configuration(folder):
    (folder / "sample").write_text(run(BIN / "cellgate", "options", "--sample", folder=folder).stdout)
    done = run(BIN / "cellgate-relay", "-t", "-c", "sample", folder=folder)
    assert done.returncode == 0, done
