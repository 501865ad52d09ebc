# SPDX-License-Identifier: MIT
"""Debian's ssh, scp and sshd, carried on a WebSocket by a stand-in's two ends (ssh_end.py)."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

END = Path(__file__).parent / "ssh_end.py"
WAY = {"path": "/ssh/{sandbox}", "to": "/", "need": "pty"}
ROUTES = [{"name": "relay", "upgrade": True, "via": "relay", "redial": False} | WAY, {"name": "direct"} | WAY | {"path": "/direct/{sandbox}"}]
WAYS = {"relay": "ssh", "direct": "direct"}


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    """Of the host and of the user, and sshd's configuration."""
    folder = tmp_path_factory.mktemp("ssh")
    for name in ("host", "user"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name], check=True)
    (folder / "known").write_text("sandbox " + (folder / "host.pub").read_text())
    (folder / "sshd").write_text(f"HostKey {folder}/host\nAuthorizedKeysFile {folder}/user.pub\nStrictModes no\nUsePAM no\nSubsystem sftp internal-sftp\nPidFile none\n")
    return folder


@pytest.fixture(scope="module")
def server(servers, keys):
    Path("/run/sshd").mkdir(exist_ok=True)  # sshd separates its privileges there
    return servers(lambda port: [sys.executable, END, "server", port, keys / "sshd"], "sshd")


@pytest.fixture(scope="module")
def cell(cells, node, server):
    return cells(sandboxes={"sb-1": {"worker": server.url}}, config={"routes": ROUTES}, environment=node.certificate)


@pytest.fixture(scope="module")
def run(cell, keys, node):
    """Starts ssh or scp: run("ssh", "relay", "sandbox", "true")."""
    def start(program, way, *arguments, token=None):
        end = [sys.executable, END, "client", f"wss://127.0.0.1:{cell.https}/{WAYS[way]}/sb-1", token or cell.token(), node.certificate["CELLGATE_CERT"]]
        options = {"ProxyCommand": shlex.join(map(str, end)), "UserKnownHostsFile": keys / "known", "IdentityFile": keys / "user", "BatchMode": "yes", "IdentitiesOnly": "yes"}
        given = [word for name, value in options.items() for word in ("-o", f"{name}={value}")]
        command = [program, "-F", "/dev/null", *given, *map(str, arguments)]
        return subprocess.Popen(command, stdin=-1, stdout=-1, stderr=-1, text=True)

    return start


def ended(process, said=None):
    out, errors = process.communicate(said, 60)
    return process.returncode, out, errors


@pytest.mark.parametrize("way", WAYS)
def test_commands_and_files(run, tmp_path, way):
    assert ended(run("ssh", way, "sandbox", "cat; echo err >&2; exit 3"), "this") == (3, "this", "err\n")
    code, out, _ = ended(run("ssh", way, "sandbox", "seq 100000"))
    assert (code, out) == (0, "".join(f"{i}\n" for i in range(1, 100001)))
    content = os.urandom(3_000_000)
    (tmp_path / "there").write_bytes(content)
    for source, to in ((tmp_path / "there", f"sandbox:{tmp_path}/inside"), (f"sandbox:{tmp_path}/inside", tmp_path / "back")):
        code, _, errors = ended(run("scp", way, source, to))
        assert code == 0, errors
    assert (tmp_path / "back").read_bytes() == content


@pytest.mark.parametrize("way", WAYS)
def test_a_lost_worker_ends_it_readably(run, server, way):
    process = run("ssh", way, "sandbox", "echo begun; exec sleep 600")
    assert process.stdout.readline() == "begun\n"
    server.kill()
    code, _, errors = ended(process)
    assert code == 255
    assert ("1012 worker lost" if way == "relay" else "1006") in errors, errors
    server.start()
    assert ended(run("ssh", way, "sandbox", "echo again"))[:2] == (0, "again\n")


@pytest.mark.parametrize("way", WAYS)
def test_a_wrong_token_is_reported(run, way):
    code, _, errors = ended(run("ssh", way, "sandbox", "true", token="x"))
    assert code == 255 and "the gate says 401" in errors, errors
