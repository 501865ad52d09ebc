// SPDX-License-Identifier: MIT
// e2b's SDK, as its users have it.
import { Sandbox } from "e2b";

import { failure, heard, tell, wanted } from "./steps.mjs";

const sandbox = await Sandbox.connect("i1abc", wanted);
const as = { user: "root" };

const steps = {
    async run() {
        const done = await sandbox.commands.run("echo out; echo err >&2; echo $WHO", as);
        return { stdout: done.stdout, stderr: done.stderr, exitCode: done.exitCode };
    },
    home: async () => (await sandbox.commands.run("echo $HOME", as)).stdout,
    // Each line as it comes, of more than a window of HTTP/2 holds.
    async much() {
        let count = 0;
        const done = await sandbox.commands.run("seq 200000", { ...as, onStdout: (text) => (count += text.length) });
        return { count, last: done.stdout.trimEnd().split("\n").at(-1) };
    },
    fails: () => failure(sandbox.commands.run("exit 3", as)),
    async stdin() {
        const command = await sandbox.commands.run("read line; echo got $line", { ...as, background: true, stdin: true });
        await command.sendStdin("this\n");
        return (await command.wait()).stdout;
    },
    async killed() {
        const command = await sandbox.commands.run("sleep 600", { ...as, background: true });
        const listed = (await sandbox.commands.list()).some(({ pid }) => pid === command.pid);
        return { listed, killed: await command.kill(), ...(await failure(command.wait())) };
    },
    async files() {
        const folder = `/by/${wanted.sandboxUrl ? "header" : "host"}`;
        const bytes = new Uint8Array(3_000_000).map((_, i) => i % 251);
        await sandbox.files.makeDir(folder);
        await sandbox.files.write(folder + "/bytes", bytes.buffer);
        await sandbox.files.write(folder + "/text \u20ac", "words");
        const back = await sandbox.files.read(folder + "/bytes", { format: "bytes" });
        return {
            same: Buffer.compare(Buffer.from(back), Buffer.from(bytes)) === 0,
            text: await sandbox.files.read(folder + "/text \u20ac"),
            names: (await sandbox.files.list(folder)).map(({ name }) => name),
            missing: await failure(sandbox.files.read(folder + "/else")),
        };
    },
    async terminal() {
        let seen = "";
        let look = () => {};
        const until = (text) =>
            new Promise((done) => {
                look = () => seen.includes(text) && done();
                look();
            });
        const terminal = await sandbox.pty.create({ cols: 80, rows: 24, user: "root", onData: (data) => ((seen += Buffer.from(data)), look()) });
        const type = (text) => sandbox.pty.sendInput(terminal.pid, new TextEncoder().encode(text));
        await type("stty size; echo fi''rst\n");
        await until("first");
        await sandbox.pty.resize(terminal.pid, { cols: 120, rows: 40 });
        await type("stty size; echo sec''ond\n");
        await until("second");
        await type("exit 0\n");
        await terminal.wait();
        return { sizes: seen.match(/^\d+ \d+/gm) };
    },
    async preview() {
        const url = `https://${sandbox.getHost(3000)}/`;
        const get = async (headers) => {
            const response = await fetch(url, { headers });
            return { status: response.status, text: await response.text() };
        };
        return [await get({ "e2b-traffic-access-token": sandbox.trafficAccessToken, Authorization: "Bearer of-the-application" }), await get({})];
    },
    // The test takes the worker away once the first line is there.
    async lost() {
        const command = await sandbox.commands.run("echo begun; sleep 60", { ...as, background: true, onStdout: () => tell("begun") });
        return failure(command.wait());
    },
    refused: async () => ({
        run: await failure(sandbox.commands.run("true", as)),
        write: await failure(sandbox.files.write("/x", "y")),
        list: await failure(sandbox.files.list("/")),
    }),
};

for (;;) tell(await steps[await heard()]());
