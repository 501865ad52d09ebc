// SPDX-License-Identifier: MIT
// A terminal by npm's `ws`, as node's users write one: what it is told it sends, what comes it tells.
import WebSocket from "ws";

import { heard, tell, wanted } from "./steps.mjs";

const socket = new WebSocket(wanted.url, wanted.protocols ?? [], { headers: wanted.headers });
socket.on("open", () => tell({ open: socket.protocol }));
socket.on("message", (data, binary) => tell(binary ? { bytes: data.toString("latin1") } : { text: data.toString() }));
socket.on("close", (code, reason) => tell({ code, reason: reason.toString() }));
socket.on("error", ({ message }) => tell({ error: message }));
for (;;) {
    const { bytes, text } = await heard();
    socket.send(bytes === undefined ? text : Buffer.from(bytes, "latin1"));
}
