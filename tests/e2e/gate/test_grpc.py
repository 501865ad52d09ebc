# SPDX-License-Identifier: MIT
"""gRPC through the gate: grpcio's client and server, on HTTP/2 with and without TLS to the worker, by the host's name and below a
path. A call's status stands in trailers, so these pass, too."""

import queue
import subprocess
import threading
from concurrent import futures

import pytest
from cell import token, until

grpc = pytest.importorskip("grpc")

LARGE = bytes(range(256)) * 8192  # 2 MiB: many frames, and more than a window
ROUTES = [
    {"name": "host", "host": "{port}-{sandbox}.grpc.test", "need": "http", "protocol": "h2"},
    {"name": "record", "path": "/r/{sandbox}/{rest...}", "to": "/{rest}", "need": "http"},
    {"name": "path", "path": "/s/{sandbox}/{rest...}", "to": "/{rest}", "need": "http", "protocol": "h2"},
]


def refuse(context):
    context.set_trailing_metadata([("why", "no such thing"), ("bytes-bin", b"\0\xff")])
    context.abort(grpc.StatusCode.NOT_FOUND, "not here")


class Service(grpc.GenericRpcHandler):
    """Echoes, with what the caller sent beside it; `cancelled` tells that a caller went."""

    def __init__(self):
        self.metadata, self.cancelled = [], threading.Event()

    def service(self, call):
        self.metadata.append(dict(call.invocation_metadata))
        return {
            "/cell.Test/Unary": grpc.unary_unary_rpc_method_handler(self.unary),
            "/cell.Test/Pour": grpc.unary_stream_rpc_method_handler(lambda request, context: (b"%d" % i for i in range(int(request)))),
            "/cell.Test/Collect": grpc.stream_unary_rpc_method_handler(lambda requests, context: b"".join(requests)),
            "/cell.Test/Talk": grpc.stream_stream_rpc_method_handler(lambda requests, context: requests),
            "/cell.Test/Refuse": grpc.unary_unary_rpc_method_handler(lambda request, context: refuse(context)),
            "/cell.Test/Wait": grpc.unary_stream_rpc_method_handler(self.wait),
        }.get(call.method)

    def unary(self, request, context):
        context.send_initial_metadata([("head", "said first")])
        context.set_trailing_metadata([("tail", "said last")])
        return request

    def wait(self, request, context):
        context.add_callback(self.cancelled.set)
        yield b"begun"
        self.cancelled.wait(30)


def openssl(folder, *arguments):
    subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)


def certificates(folder):
    """A CA, and certificates of a worker and of the gate."""
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    openssl(folder, "req", "-x509", *key, "-subj", "/CN=ca", "-keyout", "ca.key", "-out", "ca.pem")
    for name, host in (("worker", "localhost"), ("gate", "*.grpc.test")):
        openssl(folder, "req", *key, "-subj", f"/CN={name}", "-addext", f"subjectAltName=DNS:{host}", "-keyout", f"{name}.key", "-out", "csr")
        openssl(folder, "x509", "-req", "-in", "csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-copy_extensions", "copy", "-out", f"{name}.crt")
        (folder / f"{name}.pem").write_bytes((folder / f"{name}.crt").read_bytes() + (folder / f"{name}.key").read_bytes())


@pytest.fixture(scope="module", params=["plain", "tls"])
def stage(request, cells, tmp_path_factory):
    """(cell, service, a maker of channels by form)"""
    folder = tmp_path_factory.mktemp("grpc")
    certificates(folder)
    service = Service()
    server = grpc.server(futures.ThreadPoolExecutor(16), handlers=[service], options=[("grpc.max_receive_message_length", -1)])
    if request.param == "tls":
        port = server.add_secure_port("127.0.0.1:0", grpc.ssl_server_credentials([((folder / "worker.key").read_bytes(), (folder / "worker.crt").read_bytes())]))
    else:
        port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    url = f"https://localhost:{port}" if request.param == "tls" else f"http://127.0.0.1:{port}"
    said = {"worker": url, "serves": "application"}
    cell = cells(sandboxes={"sb-1": said, "sb-2": said | {"protocol": "h2"}, "sb-3": {"ports": {"7": {"url": url, "protocol": "h2"}}}},
                 config={"routes": ROUTES}, environment={"CELLGATE_WORKER_CA": str(folder / "ca.pem"), "CELLGATE_CERT": str(folder / "gate.pem")})
    credentials = grpc.ssl_channel_credentials((folder / "ca.pem").read_bytes())
    channels = []

    def channel(form, worker_port=None, sandbox="sb-1"):
        host = f"{worker_port or port}-{sandbox}.grpc.test:{cell.https}" if form == "host" else f"cell.grpc.test:{cell.https}"
        options = [("grpc.default_authority", host), ("grpc.ssl_target_name_override", host.rpartition(":")[0]), ("grpc.max_receive_message_length", -1)]
        channels.append(grpc.secure_channel(f"127.0.0.1:{cell.https}", credentials, options))
        below = {"host": "", "path": f"/s/{sandbox}", "record": f"/r/{sandbox}"}[form]
        return channels[-1], lambda name: f"{below}/cell.Test/{name}"

    yield cell, service, channel
    for one in channels:
        one.close()
    assert server.stop(0).wait(20), "the server does not end"  # stop(None) waits without a bound


def bearer(sandbox="sb-1", **claims):
    return [("authorization", "Bearer " + token("test", sandbox=sandbox, need=["http"], **claims))]


FORMS = pytest.mark.parametrize("form,sandbox", [("host", "sb-1"), ("path", "sb-1"), ("record", "sb-2")])


@FORMS
def test_unary(stage, form, sandbox):
    _, service, channel = stage
    wire, method = channel(form, sandbox=sandbox)
    for request in (b"", b"x", LARGE):
        answer, call = wire.unary_unary(method("Unary")).with_call(request, timeout=20, metadata=[*bearer(sandbox), ("own", "value"), ("own-bin", b"\0\1")])
        assert answer == request
        assert dict(call.initial_metadata())["head"] == "said first" and dict(call.trailing_metadata())["tail"] == "said last"
        assert call.code() == grpc.StatusCode.OK
    seen = service.metadata[-1]
    assert seen["own"] == "value" and seen["own-bin"] == b"\0\1" and "authorization" not in seen


@FORMS
def test_streams_of_the_worker_and_of_the_client(stage, form, sandbox):
    _, _, channel = stage
    wire, method = channel(form, sandbox=sandbox)
    assert list(wire.unary_stream(method("Pour"))(b"2000", timeout=20, metadata=bearer(sandbox))) == [b"%d" % i for i in range(2000)]
    parts = [LARGE[: 70_000 + i] for i in range(20)]
    assert wire.stream_unary(method("Collect"))(iter(parts), timeout=20, metadata=bearer(sandbox)) == b"".join(parts)


@FORMS
def test_both_talk_in_turns(stage, form, sandbox):
    """Each message is answered before the next one is said: nothing waits for the end."""
    _, _, channel = stage
    wire, method = channel(form, sandbox=sandbox)
    said = queue.Queue()
    call = wire.stream_stream(method("Talk"))(iter(said.get, None), timeout=30, metadata=bearer(sandbox))
    for i in range(50):
        said.put(b"%d" % i * 1000)
        assert next(call) == b"%d" % i * 1000
    said.put(None)
    assert list(call) == [] and call.code() == grpc.StatusCode.OK


@FORMS
def test_a_refusal_stands_in_trailers(stage, form, sandbox):
    _, _, channel = stage
    wire, method = channel(form, sandbox=sandbox)
    with pytest.raises(grpc.RpcError) as refused:
        wire.unary_unary(method("Refuse"))(b"", timeout=20, metadata=bearer(sandbox))
    assert refused.value.code() == grpc.StatusCode.NOT_FOUND and refused.value.details() == "not here"
    tail = dict(refused.value.trailing_metadata())
    assert tail["why"] == "no such thing" and tail["bytes-bin"] == b"\0\xff"


def test_a_port_of_the_record_says_it_speaks_h2(stage):
    _, _, channel = stage
    wire, _ = channel("host", worker_port=7, sandbox="sb-3")
    assert wire.unary_unary("/cell.Test/Unary")(b"x", timeout=20, metadata=bearer("sb-3")) == b"x"


def test_who_may_not_is_told_so_by_the_gate(stage):
    _, service, channel = stage
    before = len(service.metadata)
    wire, method = channel("path")
    for metadata, code in (([], grpc.StatusCode.UNAUTHENTICATED), (bearer("sb-2"), grpc.StatusCode.PERMISSION_DENIED)):
        with pytest.raises(grpc.RpcError) as refused:
            wire.unary_unary(method("Unary"))(b"x", timeout=20, metadata=metadata)
        assert refused.value.code() == code
    assert len(service.metadata) == before


def test_a_client_that_cancels_is_noticed_by_the_worker(stage):
    _, service, channel = stage
    service.cancelled.clear()
    wire, method = channel("path")
    call = wire.unary_stream(method("Wait"))(b"", timeout=30, metadata=bearer())
    assert next(call) == b"begun"
    call.cancel()
    until(service.cancelled.is_set, 10, "the worker's call goes on")
