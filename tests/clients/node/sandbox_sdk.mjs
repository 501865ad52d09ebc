// SPDX-License-Identifier: MIT
// sandbox-sdk's SandboxClient (HTTP and WebSocket), its terminal for xterm.js, and the RPC library that it uses.
import { register } from "node:module";

import xterm from "@xterm/headless";
import { newWebSocketRpcSession, RpcTarget } from "capnweb";
import WebSocket from "ws";

import { failure, heard, tell, wanted } from "./steps.mjs";

register("./platform.mjs", import.meta.url);
globalThis.WebSocket = WebSocket; // node 20 has none of its own
globalThis.location = { protocol: "https:", host: wanted.host };
const { parseSSEStream, SandboxClient } = await import("@cloudflare/sandbox");
const { SandboxAddon } = await import("@cloudflare/sandbox/xterm");
const { SandboxAddon: NextAddon } = await import("@cloudflare/sandbox-next/xterm"); // of the preview of 1.0

const headers = wanted.token ? { Authorization: `Bearer ${wanted.token}` } : {};
const query = wanted.token ? `?cellgate_token=${wanted.token}` : "";
const below = `${wanted.host}/sandbox/sb-1`;
const client = new SandboxClient({ baseUrl: `https://${below}`, wsUrl: `wss://${below}/ws${query}`, transportMode: wanted.mode, defaultHeaders: headers });
const events = async (command, onEvent = () => {}) => {
    const seen = [];
    for await (const event of parseSSEStream(await client.commands.executeStream(command, "s"))) {
        seen.push(event.data ?? event.type);
        onEvent(event);
    }
    return seen;
};

let terminal, addon, screen = "";
const states = [];
const steps = {
    run: () => failure(client.commands.execute("echo out; echo err >&2; exit 3", "s")),
    stream: () => events("echo one; echo two"),
    async much() {
        const seen = await events("seq 20000");
        return [seen.length, seen.at(-2)];
    },
    async files() {
        const content = "text \u20ac ".repeat(100_000);
        await client.files.writeFile("/a", content, "s");
        return { same: (await client.files.readFile("/a", "s")).content === content, missing: await failure(client.files.readFile("/none", "s")) };
    },
    async many() {
        const all = await Promise.all(Array.from({ length: 50 }, (_, i) => client.commands.execute(`echo ${i}`, "s")));
        return all.every(({ stdout }, i) => stdout === `${i}\n`);
    },
    lost: () => failure(events("echo begun; sleep 600", ({ data }) => data && tell("begun"))),

    async preview() {
        const response = await fetch(wanted.preview);
        return [response.status, await response.text()];
    },

    // ---- its terminal ----
    async terminal() {
        terminal = new xterm.Terminal({ cols: 100, rows: 30, allowProposedApi: true });
        terminal.focus = () => {}; // nothing to look at has no focus
        addon = new SandboxAddon({
            getWebSocketUrl: ({ origin, sandboxId, sessionId }) => `${origin}/sandbox/${sandboxId}/ws/pty?sessionId=${sessionId}&${query.slice(1)}`,
            onStateChange: (state, error) => (states.push(state), tell({ state, error: error?.message })),
        });
        terminal.loadAddon(addon);
        terminal.onWriteParsed(() => {
            const lines = Array.from({ length: terminal.buffer.active.length }, (_, i) => terminal.buffer.active.getLine(i).translateToString(true));
            tell({ screen: (screen = lines.join("\n").trimEnd()) });
        });
        addon.connect({ sandboxId: "sb-1", sessionId: "t1" });
    },
    async next() {
        terminal = new xterm.Terminal({ cols: 100, rows: 30, scrollback: 20_000, allowProposedApi: true });
        terminal.focus = () => {};
        const more = (cursor) => `${cursor ? `cursor=${cursor}&` : ""}${query.slice(1)}`;
        addon = new NextAddon({
            getWebSocketUrl: ({ origin, sandboxId, terminalId, cursor }) =>
                `${origin}/sandbox/${sandboxId}/ws/terminal?terminalId=${terminalId}&cols=80&rows=24&${more(cursor)}`,
            onStateChange: (state, error) => tell({ state, error: error?.message }),
        });
        terminal.loadAddon(addon);
        addon.connect({ sandboxId: "sb-1", terminalId: "t1" });
    },
    lines() {
        const { active } = terminal.buffer;
        return Array.from({ length: active.length }, (_, i) => active.getLine(i).translateToString(true)).filter((line) => /^[A-Z]+ \d+( \d+)?$/.test(line));
    },
    type: async () => terminal.input(await heard()),

    // ---- RPC ----
    async rpc() {
        const stub = newWebSocketRpcSession(new WebSocket(`wss://${wanted.host}/sandbox/sb-2/rpc${query}`));
        stub.onRpcBroken((error) => tell({ broken: error.message }));
        const told = [];
        const done = await stub.each(200, (i) => void told.push(i));
        await stub.add(40);
        tell({ count: await stub.add(2), done, told: told.every((n, i) => n === i) && told.length });
    },
};

for (;;) {
    const done = await steps[await heard()]();
    if (done !== undefined) tell(done);
}
