# SPDX-License-Identifier: MIT
"""agent-sandbox's own Python client, as its users have it: a step for each line that comes, its result as a line (npm.Program)."""

import json
import sys

answers, sys.stdout = sys.stdout, sys.stderr  # the client logs to standard output
wanted = json.loads(sys.stdin.readline())
sys.path.insert(0, wanted["source"] + "/clients/python/agentic-sandbox-client")

from k8s_agent_sandbox.models import SandboxDirectConnectionConfig  # noqa: E402
from k8s_agent_sandbox.sandbox_client import SandboxClient  # noqa: E402

client = SandboxClient(connection_config=SandboxDirectConnectionConfig(api_url=wanted["url"]))
sandbox = other = None
CONTENT = bytes(i % 251 for i in range(100_000))


def create():
    global sandbox
    sandbox = client.create_sandbox(warmpool="a-pool", sandbox_ready_timeout=30)
    return {"claim": sandbox.claim_name, "sandbox": sandbox.sandbox_id, "all": client.list_all_sandboxes()}


def run(command):
    done = sandbox.commands.run(command)
    return [done.stdout, done.stderr, done.exit_code]


def files():
    sandbox.files.write("folder/bytes", CONTENT)
    sandbox.files.write("text", "words €")
    return {"same": sandbox.files.read("folder/bytes") == CONTENT, "text": sandbox.files.read("text").decode(),
            "exists": [sandbox.files.exists(path) for path in ("text", "folder/bytes", "none")],
            "list": sorted((entry.name, entry.type, entry.size) for entry in sandbox.files.list("folder"))}


def attach():
    """A second client, by the claim's name."""
    global other
    other = SandboxClient(connection_config=SandboxDirectConnectionConfig(api_url=wanted["url"])).get_sandbox(sandbox.claim_name)


def run_there(command):
    return other.commands.run(command).stdout


def delete():
    client.delete_sandbox(sandbox.claim_name)
    return client.list_all_sandboxes()


def attempt(step, *arguments):
    try:
        return {"value": globals()[step](*arguments)}
    except Exception as error:
        return {"error": type(error).__name__, "message": str(error), "status": getattr(error, "status_code", None)}


for line in sys.stdin:
    answers.write(json.dumps(attempt(*json.loads(line))) + "\n")
    answers.flush()
