# SPDX-License-Identifier: MIT
"""The relay's keeper: its server is killed, crashes, drains and is reloaded, and the sockets on which the relay listens stay open."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest
from cell import AT_ONCE, BIN, SANITIZED, alive, free_port, stop, until
from direct import CLOSE, frame
from fault_injection import FAULT_INJECTION
from tunnels import QUICK, ROUTES, Tunnels, pass_both_ways

pytestmark = pytest.mark.skipif(SANITIZED, reason="sanitizers do not know the keeper's clone")


@pytest.fixture
def tunnels(cells):
    made = Tunnels(cells(config={"relay": QUICK | {"max_restarts": 2}, "routes": ROUTES}, environment={"CELLGATE_KEEPER": "on"}))
    yield made
    made.close()


def server(tunnels):
    """The process id of the server that runs now."""
    return int((tunnels.cell.run_dir / "relay.server.pid").read_text())


def next_server(tunnels, before):
    return until(lambda: (pid := server(tunnels)) != before and alive(pid) and pid, AT_ONCE, "no other server is started")


def kill(tunnels, number=signal.SIGKILL):
    before = server(tunnels)
    os.kill(before, number)
    return next_server(tunnels, before)


@pytest.mark.parametrize(("number", "cause"), [(signal.SIGKILL, "killed"), (signal.SIGSEGV, "crashed")])
def test_a_server_that_dies_is_replaced(tunnels, number, cause):
    keeper, worker = tunnels.cell.pid("relay"), tunnels.worker()
    kill(tunnels, number)
    pass_both_ways(*tunnels.open(worker))
    assert tunnels.cell.pid("relay") == keeper and alive(keeper)
    assert tunnels.metric(f'cellgate_relay_server_restarts_total{{cause="{cause}"}}') == 1
    assert tunnels.metric("cellgate_relay_server_restarts_total") == 1


def test_a_client_that_comes_while_there_is_no_server_waits(tunnels):
    keeper, before = tunnels.cell.pid("relay"), server(tunnels)
    stop(keeper)
    try:
        os.kill(before, signal.SIGKILL)
        until(lambda: not alive(before), AT_ONCE)
        client = tunnels.ask(tunnels.sandbox(worker := tunnels.worker()))
    finally:
        os.kill(keeper, signal.SIGCONT)
    upstream = worker.serve()
    pass_both_ways(tunnels.accepted(client), upstream)


def test_nothing_of_a_dead_server_stays_open(tunnels):
    """In the table that the keeper and all servers share."""
    worker, keeper = tunnels.worker(), Path(f"/proc/{tunnels.cell.pid('relay')}/fd")
    kill(tunnels)
    until(lambda: tunnels.metric("cellgate_relay_agent_connected") == 1, AT_ONCE)
    before = len(list(keeper.iterdir()))
    opened = [tunnels.open(worker) for _ in range(20)]
    kill(tunnels)
    for client, upstream in opened:
        client.close()
        assert upstream.ended()
    until(lambda: tunnels.metric("cellgate_relay_agent_connected") == 1, AT_ONCE)
    # beside them there may be a check of HAProxy's for a moment
    until(lambda: len(list(keeper.iterdir())) <= before, AT_ONCE, "descriptors of a dead server are left")


def test_a_keeper_whose_servers_die_over_and_over_gives_up(tunnels):
    keeper = tunnels.cell.pid("relay")
    kill(tunnels)
    kill(tunnels)
    last = server(tunnels)
    os.kill(last, signal.SIGKILL)
    until(lambda: not alive(keeper), AT_ONCE, "the keeper goes on")
    tunnels.cell.says("relay", "level=error", "giving up")


def test_the_server_ends_with_its_keeper(tunnels):
    keeper, running = tunnels.cell.pid("relay"), server(tunnels)
    os.kill(keeper, signal.SIGKILL)
    until(lambda: not alive(running), AT_ONCE, "the server goes on without its keeper")


def test_signals_reach_the_server(tunnels):
    keeper = tunnels.cell.pid("relay")
    os.kill(keeper, signal.SIGUSR1)
    tunnels.cell.says("relay", "msg=summary")
    os.kill(keeper, signal.SIGHUP)
    tunnels.cell.says("relay", "configuration reloaded")
    client, _ = tunnels.open(tunnels.worker())
    os.kill(keeper, signal.SIGTERM)
    assert client.closed()[0] == 1012
    until(lambda: not alive(keeper), AT_ONCE, "the keeper does not end behind its server")


def channel_of(pid):
    """The path of the pipe by which a server tells its keeper."""
    for path in Path(f"/proc/{pid}/fd").iterdir():
        flags = int(re.search(r"flags:\s*(\d+)", Path(f"/proc/{pid}/fdinfo/{path.name}").read_text())[1], 8)
        if os.readlink(path).startswith("pipe:") and flags & os.O_ACCMODE == os.O_WRONLY and flags & os.O_NONBLOCK:
            return path
    raise AssertionError("no pipe that a server would write to")


def test_a_server_that_never_stops_talking_keeps_its_keeper_from_nothing(tunnels):
    """A server that was taken over, played by a program that writes to its pipe."""
    keeper, before = tunnels.cell.pid("relay"), server(tunnels)
    with open(channel_of(keeper), "wb", buffering=0) as channel:
        flood = subprocess.Popen(["timeout", "60", "cat", "/dev/zero"], stdout=channel)
    try:
        os.kill(keeper, signal.SIGUSR1)
        tunnels.cell.says("relay", "msg=summary")
        os.kill(before, signal.SIGKILL)
        next_server(tunnels, before)
        pass_both_ways(*tunnels.open(tunnels.worker()))
    finally:
        flood.terminate()
        flood.wait()


def test_a_server_reads_what_a_reload_has_changed(tunnels):
    """And goes on with the configuration of the start if the file is not good."""
    file = tunnels.cell.config_file
    good = file.read_text()
    file.write_text(good.replace('"max_restarts": 2', '"max_restarts": 2, "max_tunnels": 77'))
    kill(tunnels)
    assert until(lambda: tunnels.metric("cellgate_relay_max_tunnels"), AT_ONCE) == 77
    file.write_text("{")
    kill(tunnels)
    tunnels.cell.says("relay", "the configuration of the start is used")
    assert until(lambda: tunnels.metric("cellgate_relay_max_tunnels"), AT_ONCE) != 77


def test_the_admin_listener_is_kept_too(tunnels):
    with socket.create_connection(("127.0.0.1", tunnels.cell.ports["relay-admin"])):
        kill(tunnels)
    assert tunnels.cell.admin("/healthz", "relay")


# ---- upgrades ----


@pytest.fixture
def installed(tmp_path, cells):
    """A cell whose relay runs a program of its own, which a test can replace as a package would."""
    folder = tmp_path / "bin"
    shutil.copytree(BIN, folder)
    made = Tunnels(cells(config={"relay": QUICK | {"upgrade_timeout": "2s"}, "routes": ROUTES},
                         environment={"CELLGATE_KEEPER": "on", "CELLGATE_BIN": str(folder)}))
    made.program = folder / "cellgate-relay"
    yield made
    made.close()


def install(tunnels, content, mode=0o755):
    part = tunnels.program.with_name("part")
    part.write_bytes(content)
    part.chmod(mode)
    part.rename(tunnels.program)


def upgrade(tunnels, *arguments):
    command = [BIN / "cellgate", "upgrade", "--relay", f"unix@{tunnels.cell.run_dir}/relay.control.sock", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def test_the_program_is_replaced_under_open_listeners(installed):
    keeper, before, worker = installed.cell.pid("relay"), server(installed), installed.worker()
    pass_both_ways(*installed.open(worker))
    install(installed, installed.program.read_bytes())
    for count in (1, 2):
        done = upgrade(installed)
        assert (done.returncode, done.stderr) == (0, ""), done
        assert done.stdout.startswith("upgraded: ")
        assert installed.metric('cellgate_relay_upgrades_total{outcome="done"}') == count
    assert alive(keeper) and server(installed) != before and not alive(before)
    assert Path(f"/proc/{keeper}/exe").resolve() == installed.program
    assert Path(f"/proc/{keeper}/comm").read_text() == "cellgate-relay\n"
    pass_both_ways(*installed.open(worker))
    installed.close()
    os.kill(keeper, signal.SIGTERM)
    until(lambda: not alive(keeper), AT_ONCE)


def test_same_applies_what_is_read_at_the_start_alone(installed):
    file = installed.cell.config_file
    config = json.loads(file.read_text())
    config["relay"]["threads"] = 3
    file.write_text(json.dumps(config))
    done = upgrade(installed, "--same")
    assert done.returncode == 0, done
    os.kill(installed.cell.pid("relay"), signal.SIGUSR1)
    installed.cell.says("relay", "msg=summary", "thread=2")


def test_an_address_that_left_the_configuration_is_refused_after_the_upgrade(installed):
    file, ports = installed.cell.config_file, [free_port(), free_port()]
    config = json.loads(file.read_text())
    for port in ports:
        config["relay"] |= {"monitor": f"127.0.0.1:{port}", "monitor_token_file": "k1.secret"}
        file.write_text(json.dumps(config))
        assert upgrade(installed, "--same").returncode == 0
        socket.create_connection(("127.0.0.1", port)).close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", ports[0]))
    pass_both_ways(*installed.open(installed.worker()))


@pytest.mark.parametrize("script", [
    "#!/bin/sh\nexit 1\n",                                          # does not find the configuration good
    "no program at all",
], ids=["not good", "no program"])
def test_a_program_that_cannot_serve_is_refused_before_anything_happens(installed, script):
    before, pair = server(installed), installed.open(installed.worker())
    install(installed, script.encode())
    done = upgrade(installed)
    assert done.returncode == 1 and "the old program goes on" in done.stderr, done
    assert server(installed) == before
    assert installed.metric('cellgate_relay_upgrades_total{outcome="failed"}') == 1
    pass_both_ways(*pair)


def test_a_server_that_dies_while_the_new_program_is_checked_is_replaced_at_once(installed, tmp_path):
    worker, before, checked = installed.worker(), server(installed), tmp_path / "checked"
    real = installed.program.with_name("real")
    shutil.copy(installed.program, real)
    begun = tmp_path / "begun"
    install(installed, f"""#!/bin/sh
for argument; do [ "$argument" = -t ] && : >{begun} && until [ -e {checked} ]; do sleep 0.02; done; done
exec {real} "$@"
""".encode())
    os.kill(installed.cell.pid("relay"), signal.SIGUSR2)
    until(begun.exists, AT_ONCE)
    os.kill(before, signal.SIGKILL)
    second = next_server(installed, before)
    pair = installed.open(worker)
    pass_both_ways(*pair)
    checked.touch()
    next_server(installed, second)
    installed.cell.says("relay", "tunnels taken over", "tunnels=1 lost=0")
    pass_both_ways(*pair)


def test_a_program_that_others_can_write_is_not_run(installed):
    before = server(installed)
    install(installed, installed.program.read_bytes(), 0o775)
    done = upgrade(installed)
    assert done.returncode == 1 and "can be written by others" in done.stderr, done
    assert server(installed) == before


SCRIPT = """#!/bin/sh
for argument; do [ "$argument" = -t ] && exec REAL "$@"; done
LD_PRELOAD=LIBRARY FAULT_THREAD=HOW exec REAL "$@"
"""


@pytest.mark.parametrize("how", ["exit", "hang", "crash"])
def test_a_program_that_does_not_get_ready_gives_way_to_the_old_one(installed, how):
    """The new program is good when it is checked, and fails when it is to serve."""
    keeper, before, worker, old = installed.cell.pid("relay"), server(installed), installed.worker(), installed.program.read_bytes()
    real = installed.program.with_name("real")
    real.write_bytes(old)
    real.chmod(0o755)
    script = SCRIPT.replace("REAL", str(real)).replace("LIBRARY", str(FAULT_INJECTION)).replace("HOW", how)
    install(installed, script.encode())
    done = upgrade(installed)
    assert done.returncode == 1 and "the old program goes on" in done.stderr, done
    assert alive(keeper) and next_server(installed, before)
    assert installed.metric('cellgate_relay_upgrades_total{outcome="failed"}') == 1
    assert installed.metric('cellgate_relay_upgrades_total{outcome="done"}') == 0
    pass_both_ways(*installed.open(worker))


# ---- tunnels over an upgrade ----


@pytest.mark.parametrize("route", ["plain", "text", "exec", "ring"])
def test_tunnels_go_on_over_upgrades(installed, route):
    worker = installed.worker()
    pairs = [installed.open(worker, route=route) for _ in range(8)]
    time.sleep(1)  # some rest
    for pair in pairs[:4]:
        pass_both_ways(*pair)
    for _ in range(3):
        assert upgrade(installed).returncode == 0
        for number, pair in enumerate(pairs):
            pass_both_ways(*pair, b"%d" % number)
    assert installed.metric("cellgate_relay_tunnels{") == 8
    installed.cell.says("relay", "tunnels taken over", "tunnels=8 lost=0")
    pass_both_ways(*installed.open(worker, route=route))


def test_none_of_many_tunnels_is_forgotten(installed):
    """More of them than are written at once."""
    worker = installed.worker()
    pairs = [installed.open(worker, session=f"s{number}", headers=[("X-Long", "x" * 3000)]) for number in range(300)]
    assert upgrade(installed).returncode == 0
    installed.cell.says("relay", "tunnels taken over", "tunnels=300 lost=0")
    for number, pair in enumerate(pairs):
        pass_both_ways(*pair, b"%d" % number)


@pytest.mark.parametrize("cut", [0, 1, 2, 5, 9, 70_000])
def test_a_frame_that_is_cut_by_an_upgrade_is_whole(installed, cut):
    worker = installed.worker()
    client, upstream = installed.open(worker)
    word = os.urandom(100_000)
    sent = frame(2, word, mask=b"abcd")
    client.send(sent[:cut])
    back = frame(2, word)
    upstream.send(back[:cut])
    assert upgrade(installed).returncode == 0
    client.send(sent[cut:])
    upstream.send(back[cut:])
    assert upstream.message() == (2, word)
    assert client.message() == (2, word)
    pass_both_ways(client, upstream)


def test_what_waits_for_a_side_that_is_not_read_comes_after_the_upgrade(installed):
    """Both send queues are full, and both sides are read again after it."""
    worker = installed.worker()
    client, upstream = installed.open(worker)
    pieces = [os.urandom(16_384) for _ in range(400)]
    sent = [0, 0]
    for index, (end, masks) in enumerate(((client, True), (upstream, False))):
        end.sock.settimeout(0.3)
        try:
            for piece in pieces:
                end.sock.sendall(frame(2, piece, mask=b"abcd" if masks else None))
                sent[index] += 1
        except TimeoutError:
            pass
        end.sock.settimeout(10)
    assert upgrade(installed).returncode == 0
    for got, count in ((upstream, sent[0]), (client, sent[1])):
        for piece in pieces[:count]:
            assert got.message() == (2, piece)


@pytest.mark.parametrize("route", ["plain", "text", "exec", "ring"])
def test_the_last_words_of_a_session_come_after_the_upgrade(installed, route):
    """The worker has ended the session, and the client has not read all of it yet."""
    worker = installed.worker()
    sandbox = installed.sandbox(worker)
    client, upstream = installed.open(worker, sandbox, route=route)
    said = 0
    while installed.tunnels(sandbox)[0]["held"] < 20_000:  # the sockets on the way to the client are full
        upstream.say(b"\1" + b"%d" % said + bytes(16_000))
        said += 1
    if route in ("exec", "ring"):
        upstream.say(b"\3" + bytes(4))  # the frame with the exit code
    upstream.close_with(1000, b"bye")
    installed.state(sandbox, "closing")
    assert upgrade(installed).returncode == 0
    for number in range(said):
        assert client.message()[1].startswith(b"\1%d\0" % number)
    if route in ("exec", "ring"):
        assert client.message()[1][0] == 3
    assert client.closed() == (1000, "bye")
    installed.gone(sandbox)


def test_a_close_that_waits_for_its_answer_goes_on_over_an_upgrade(installed):
    client, upstream = installed.open(installed.worker())
    client.close_with(1000, b"done")
    assert upstream.hear()[0] == CLOSE
    assert upgrade(installed).returncode == 0
    upstream.say(b"last words")
    upstream.close_with(1000, b"done")
    assert client.message() == (2, b"last words")
    assert client.closed() == (1000, "done")


def hold_between(tunnels):
    """Stops the keeper when the server has handed over, before the next one starts; returns the keeper, which the caller lets go on."""
    keeper, before = tunnels.cell.pid("relay"), server(tunnels)
    pending = Path(f"/proc/{before}/status")
    stop(before)
    os.kill(keeper, signal.SIGUSR2)
    until(lambda: int(re.search(r"ShdPnd:\s+(\w+)", pending.read_text())[1], 16) >> (signal.SIGUSR2 - 1) & 1, AT_ONCE, "no upgrade is begun")
    stop(keeper)
    os.kill(before, signal.SIGCONT)
    until(lambda: not alive(before), AT_ONCE, "the server does not hand over")
    return keeper


def limit(tunnels, most):
    file = tunnels.cell.config_file
    config = json.loads(file.read_text())
    config["relay"] |= {"max_tunnels_per_sandbox": most}
    file.write_text(json.dumps(config))


def test_clients_that_wait_take_no_place_of_a_tunnel(installed):
    """They come between two servers, and the sandbox has as many tunnels as it may have."""
    worker = installed.worker()
    sandbox = installed.sandbox(worker)
    limit(installed, 3)
    os.kill(installed.cell.pid("relay"), signal.SIGHUP)
    installed.cell.says("relay", "configuration reloaded")
    pairs = [installed.open(worker, sandbox, session=f"s{number}") for number in range(3)]
    keeper = hold_between(installed)
    try:
        more = [installed.ask(sandbox, session="another") for _ in range(3)]
        time.sleep(0.3)  # HAProxy has connected for them
    finally:
        os.kill(keeper, signal.SIGCONT)
    for client in more:
        assert installed.answer(client)[2]["error"] == "too_many_tunnels"
    for pair in pairs:
        pass_both_ways(*pair)


def test_a_lower_limit_ends_no_tunnel_over_an_upgrade(installed):
    worker = installed.worker()
    sandbox = installed.sandbox(worker)
    pairs = [installed.open(worker, sandbox, session=f"s{number}") for number in range(3)]
    limit(installed, 1)
    assert upgrade(installed, "--same").returncode == 0
    for pair in pairs:
        pass_both_ways(*pair)
    assert installed.refused(sandbox) == (503, "too_many_tunnels")


def test_a_worker_that_ends_after_an_upgrade_is_dialled_again(installed):
    worker = installed.worker()
    client, upstream = installed.open(worker)
    assert upgrade(installed).returncode == 0
    upstream.close()
    upstream = worker.serve()
    pass_both_ways(client, upstream)


def test_a_tunnel_without_a_worker_finds_one_after_an_upgrade(installed):
    worker = installed.worker()
    sandbox = installed.sandbox(worker)
    client, upstream = installed.open(worker, sandbox)
    away = installed.worker()
    away.close()
    installed.place(sandbox, away)
    upstream.close()
    installed.state(sandbox, "redialling")
    assert upgrade(installed).returncode == 0
    installed.place(sandbox, worker)
    pass_both_ways(client, worker.serve())


def test_the_agent_is_asked_again_after_an_upgrade(installed):
    """A sandbox that stops ends its tunnels, and one that moves takes them along."""
    one, other = installed.worker(), installed.worker()
    stays, moves = installed.sandbox(one), installed.sandbox(one)
    ends, goes = installed.open(one, stays), installed.open(one, moves)
    assert upgrade(installed).returncode == 0
    installed.place(moves, other)
    upstream = other.serve()
    pass_both_ways(goes[0], upstream)
    installed.place(stays, one, state="stopped")
    assert ends[0].closed()[0] == 1000


def test_no_descriptor_of_the_shared_table_is_a_program_to_be_executed(installed):
    """A server that was taken over could put another file at its number."""
    keeper, worker = installed.cell.pid("relay"), server(installed)
    pair = installed.open(installed.worker())
    stop(worker)
    try:
        os.kill(keeper, signal.SIGUSR2)
        installed.cell.says("relay", "upgrading")
        targets = [os.readlink(fd) for fd in Path(f"/proc/{keeper}/fd").iterdir()]
        assert not [target for target in targets if "cellgate-relay" in target], targets
    finally:
        os.kill(worker, signal.SIGCONT)
    next_server(installed, worker)
    pass_both_ways(*pair)


def test_who_stops_the_relay_while_it_is_upgraded_is_heard(installed):
    keeper, worker = installed.cell.pid("relay"), server(installed)
    stop(worker)
    try:
        os.kill(keeper, signal.SIGUSR2)
        installed.cell.says("relay", "upgrading")
        os.kill(keeper, signal.SIGTERM)
    finally:
        os.kill(worker, signal.SIGCONT)
    until(lambda: not alive(keeper), AT_ONCE, "the relay goes on")
