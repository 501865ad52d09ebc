// SPDX-License-Identifier: MIT
// The other side of sandbox-sdk's RPC: capnweb's own server, on `ws`. It counts in the connection, as theirs keeps its stubs there.
import { createServer } from "node:http";

import { newWebSocketRpcSession, RpcTarget } from "capnweb";
import WebSocket, { WebSocketServer } from "ws";

globalThis.WebSocket = WebSocket; // node 20 has none of its own

class Counter extends RpcTarget {
    #count = 0;
    add(n) {
        return (this.#count += n);
    }
    async each(n, told) {
        for (let i = 0; i < n; i++) await told(i);
        return "done";
    }
}
const server = createServer();
new WebSocketServer({ server }).on("connection", (socket) => newWebSocketRpcSession(socket, new Counter()));
server.listen(Number(process.argv[2]), "127.0.0.1", () => console.log(`listening http://127.0.0.1:${server.address().port}`));
