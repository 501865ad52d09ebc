// SPDX-License-Identifier: MIT
// One WebSocket of npm's `ws`. Reads {url, protocols, headers, messages: [{text}|{base64}]} from standard input, writes what
// became of it: {protocol, messages, code, reason} or {status, body}.
import { createRequire } from "node:module";

const { WebSocket } = createRequire(process.argv[2] + "/")("ws");
const chunks = [];
for await (const chunk of process.stdin) chunks.push(chunk);
const wanted = JSON.parse(Buffer.concat(chunks));
const seen = { messages: [], pongs: 0 };
const socket = new WebSocket(wanted.url, wanted.protocols, { headers: wanted.headers, rejectUnauthorized: false });
const end = () => process.stdout.write(JSON.stringify(seen) + "\n", () => process.exit(0));

socket.on("unexpected-response", (_, response) => {
    seen.status = response.statusCode;
    seen.body = "";
    response.on("data", (data) => (seen.body += data));
    response.on("end", end);
});
socket.on("open", () => {
    seen.protocol = socket.protocol;
    socket.ping("are you there");
    for (const { text, base64 } of wanted.messages) socket.send(text ?? Buffer.from(base64, "base64"));
    if (wanted.messages.length === 0 && !wanted.waits) socket.close(1000, "done");
});
socket.on("pong", () => seen.pongs++);
socket.on("message", (data, binary) => {
    seen.messages.push(binary ? { base64: data.toString("base64") } : { text: data.toString() });
    if (seen.messages.length === wanted.messages.length) socket.close(1000, "done");
});
socket.on("close", (code, reason) => {
    Object.assign(seen, { code, reason: reason.toString() });
    if (seen.status === undefined) end();
});
socket.on("error", (error) => (seen.error = error.message));
