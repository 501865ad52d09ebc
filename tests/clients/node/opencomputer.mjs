// SPDX-License-Identifier: MIT
// OpenComputer's SDK, as its users have it. What it is sent as it opens a socket it may lose by itself: nothing is said before it asks.
import { Sandbox } from "@opencomputer/sdk";
import WebSocket from "ws";

import { failure, heard, tell, wanted } from "./steps.mjs";

globalThis.WebSocket = WebSocket; // node 20 has none of its own
const sandbox = await Sandbox.connect(wanted.sandbox, wanted);
const start = async (command, onOutput = () => {}) => {
    const seen = { stdout: "", stderr: "" };
    const take = (name) => (data) => {
        seen[name] += Buffer.from(data);
        onOutput(seen);
    };
    const session = await sandbox.exec.start("bash", { args: ["-c", command], onStdout: take("stdout"), onStderr: take("stderr") });
    return { session, seen };
};

const steps = {
    async run() {
        const { session, seen } = await start("read x; echo out $x; echo err >&2; exit 3");
        session.sendStdin("this\n");
        return { exitCode: await session.done, ...seen };
    },
    async much() {
        const { session, seen } = await start("read x; seq 100000");
        session.sendStdin("\n");
        return [await session.done, seen.stdout.match(/\d+/g).reduce((sum, n) => sum + Number(n), 0)];
    },
    async killed() {
        const { session } = await start("sleep 600");
        await session.kill();
        return session.done;
    },
    async terminal() {
        let screen = "", look = () => {};
        const until = (text) =>
            new Promise((done) => {
                look = () => screen.includes(text) && done();
                look();
            });
        const terminal = await sandbox.pty.create({
            cols: 90,
            rows: 25,
            onOutput: (data) => {
                screen += Buffer.from(data);
                look();
            },
        });
        await until(wanted.prompt);
        terminal.send("stty size; echo fi''rst\n");
        await until("first\r");
        tell("first");
        await heard(); // the test takes the worker away
        terminal.send("echo sec''ond\n");
        tell("said");
        await until("second\r");
        terminal.close();
        return [screen.match(/^\d+ \d+(?=\r)/gm), screen.split("first\r").length - 1, screen.split("second\r").length - 1];
    },
    // The worker is taken away under it; each line comes once.
    async moved() {
        const { session, seen } = await start("read x; seq 300; read x; seq 301 600; read x; exit $x", ({ stdout }) => stdout.endsWith("\n300\n") && tell("half"));
        session.sendStdin("\n");
        await heard();
        session.sendStdin("\n7\n");
        tell("said");
        return [await session.done, seen.stdout === Array.from({ length: 600 }, (_, i) => `${i + 1}\n`).join("")];
    },
    read: () => failure(sandbox.files.read("/a file")),
    refused: async () => [await failure(sandbox.exec.start("true")), await failure(sandbox.pty.create())],
};
for (;;) tell(await steps[await heard()]());
