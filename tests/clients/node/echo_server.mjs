// SPDX-License-Identifier: MIT
// An echo by `ws`, with compression where it is offered.
import { WebSocketServer } from "ws";

const handleProtocols = (offered) => (offered.has("chat") ? "chat" : false);
const server = new WebSocketServer({ port: Number(process.argv[2]), host: "127.0.0.1", perMessageDeflate: true, handleProtocols, maxPayload: 1 << 28 });
server.on("connection", (socket) => socket.on("message", (data, binary) => socket.send(data, { binary })));
