// SPDX-License-Identifier: MIT
// OpenSandbox's SDK, as its users have it.
import { Sandbox } from "@alibaba-group/opensandbox";

import { failure, heard, tell, wanted } from "./steps.mjs";

const connectionConfig = { disableMetrics: true, requestTimeoutSeconds: 20, ...wanted.connection };
const connected = Sandbox.connect({ sandboxId: "sb-1", connectionConfig, readyTimeoutSeconds: wanted.ready ?? 20 });
let sandbox = wanted.refused ? null : await connected;
const text = (messages) => messages.map((message) => message.text).join("");

const steps = {
    connect: () => failure(connected),
    async run() {
        const order = [];
        const done = await sandbox.commands.run("echo out; echo err >&2; exit 3", {}, { onStdout: () => order.push("stdout"), onStderr: () => order.push("stderr"), onInit: () => order.unshift("init") });
        return { stdout: text(done.logs.stdout), stderr: text(done.logs.stderr), exitCode: done.exitCode, first: order[0], order: order.slice(1).sort() };
    },
    async much() {
        const done = await sandbox.commands.run("seq 100000");
        return { exitCode: done.exitCode, sum: text(done.logs.stdout).match(/\d+/g).reduce((sum, n) => sum + Number(n), 0) };
    },
    async files() {
        const bytes = new Uint8Array(3_000_000).map((_, i) => i % 251);
        await sandbox.files.writeFiles([{ path: "/bytes", data: bytes }, { path: "/text \u20ac", data: "words" }]);
        const streamed = [];
        for await (const part of sandbox.files.readBytesStream("/bytes")) streamed.push(part);
        return {
            whole: Buffer.compare(Buffer.from(await sandbox.files.readBytes("/bytes")), Buffer.from(bytes)) === 0,
            streamed: Buffer.compare(Buffer.concat(streamed), Buffer.from(bytes)) === 0,
            text: await sandbox.files.readFile("/text \u20ac"),
            missing: await failure(sandbox.files.readFile("/none")),
        };
    },
    async preview() {
        const port = wanted.port ?? 8080, got = [];
        for (const { endpoint, headers } of [await sandbox.getEndpoint(port), await sandbox.getSignedEndpoint(port, 4102444800)]) {
            const response = await fetch(`https://${endpoint}/`, { headers });
            got.push([response.status, await response.text()]);
        }
        return got;
    },
    state: async () => (await sandbox.getInfo()).status.state,
    attempt: () => failure(sandbox.commands.run("echo out")),
    pause: () => failure(sandbox.pause()),
    async resume() {
        sandbox = await sandbox.resume();
        return "resumed";
    },
    kill: () => failure(sandbox.kill()),
    // The test takes the worker away once the first line is there.
    lost: () => failure(sandbox.commands.run("echo begun; sleep 600", {}, { onStdout: () => tell("begun") })),
};

for (;;) tell(await steps[await heard()]());
