// SPDX-License-Identifier: MIT
// socket.io's server: it counts in the connection, and echoes.
import { createServer } from "node:http";

import { Server } from "socket.io";

const server = createServer();
new Server(server).on("connection", (socket) => {
    let count = 0;
    socket.on("add", (n, done) => done((count += n)));
    socket.on("echo", (data, done) => done(data));
    socket.on("pour", (n) => {
        for (let i = 0; i < n; i++) socket.emit("drop", i);
    });
});
server.listen(Number(process.argv[2]), "127.0.0.1");
