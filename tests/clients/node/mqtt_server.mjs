// SPDX-License-Identifier: MIT
// aedes, an MQTT broker, on `ws`. Each process keeps its own sessions.
import { createServer } from "node:http";

import { Aedes } from "aedes";
import { createWebSocketStream, WebSocketServer } from "ws";

const broker = await Aedes.createBroker();
const server = createServer();
new WebSocketServer({ server, handleProtocols: () => "mqtt" }).on("connection", (socket, request) => broker.handle(createWebSocketStream(socket), request));
server.listen(Number(process.argv[2]), "127.0.0.1");
