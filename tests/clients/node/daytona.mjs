// SPDX-License-Identifier: MIT
// Daytona's SDK, as its users have it.
import { createRequire } from "node:module";

import { failure, heard, tell, wanted } from "./steps.mjs";

const { Daytona } = createRequire(import.meta.url)("@daytonaio/sdk");
const daytona = new Daytona({ apiKey: wanted.apiKey, apiUrl: wanted.apiUrl, target: "us", useDeprecatedPolling: true });
const sandbox = await daytona.get("sb-1");
let screen = "";
let look = () => {};
const onData = (data) => {
    screen += Buffer.from(data);
    look();
};
const until = (text) =>
    new Promise((done) => {
        look = () => screen.includes(text) && done();
        look();
    });
const open = (id) => sandbox.process.createPty({ id, cols: 90, rows: 25, envs: { A: "b" }, onData });

const steps = {
    async run() {
        const done = await sandbox.process.executeCommand("echo out; exit 3");
        return [done.exitCode, done.result];
    },
    async logs() {
        await sandbox.process.createSession("s");
        const { cmdId } = await sandbox.process.executeSessionCommand("s", { command: "seq 20000; echo err >&2", runAsync: true });
        let out = "", errors = "";
        await sandbox.process.getSessionCommandLogs("s", cmdId, (text) => (out += text), (text) => (errors += text));
        return [out.split("\n").length, out.slice(-6), errors];
    },
    async files() {
        const bytes = Buffer.from(Array.from({ length: 3_000_000 }, (_, i) => i % 251));
        await sandbox.fs.uploadFile(bytes, "/some/bytes");
        const back = await sandbox.fs.downloadFile("/some/bytes");
        return { same: Buffer.compare(back, bytes) === 0, names: (await sandbox.fs.listFiles("/some")).map(({ name }) => name), missing: await failure(sandbox.fs.downloadFile("/none")) };
    },
    async terminal() {
        const terminal = await open("t1");
        await terminal.sendInput("stty size; echo $OFFERED fi''rst\n");
        await until("first\r");
        await terminal.resize(120, 40);
        await terminal.sendInput("stty size; echo sec''ond\n");
        await until("second\r");
        await terminal.sendInput("exit 7\n");
        return [screen.match(/^\d+ \d+(?=\r)/gm), screen.match(/^\d first/m)?.[0], (await terminal.wait()).exitCode];
    },
    async lost() {
        const terminal = await open("t2");
        await terminal.sendInput("echo be''gun\n");
        await until("begun\r");
        tell("begun");
        const { exitCode } = await terminal.wait();
        return { exitCode: exitCode ?? null, connected: terminal.isConnected() };
    },
    async preview() {
        const { url, token } = await sandbox.getPreviewLink(3000);
        const get = async (headers) => {
            const response = await fetch(url, { headers });
            return [response.status, await response.text()];
        };
        return [await get({ "x-daytona-preview-token": token, Authorization: "Bearer of-the-application" }), (await get({}))[0]];
    },
    refused: async () => ({
        run: await failure(sandbox.process.executeCommand("true")),
        list: await failure(sandbox.fs.listFiles("/")),
        terminal: await failure(open("t3")),
    }),
};
for (;;) tell(await steps[await heard()]());
