// SPDX-License-Identifier: MIT
// socket.io's client. It is told what to do, and tells what it sees.
import { io } from "socket.io-client";

import { heard, tell, wanted } from "./steps.mjs";

const socket = io(wanted.url, { extraHeaders: wanted.headers, transports: wanted.transports, path: wanted.path, reconnectionDelay: 50, reconnectionDelayMax: 50, timeout: 60000 });
socket.io.on("open", () => socket.io.engine.on("upgrade", ({ name }) => tell({ upgraded: name })));
socket.on("connect", () => tell({ connected: true }));
socket.on("disconnect", (reason, details) => tell({ disconnected: reason, code: details?.context?.code ?? null }));
socket.on("connect_error", (error) => tell({ refused: error.message, status: error.description?.message ?? error.description ?? null }));

const steps = {
    count: async () => [await socket.emitWithAck("add", 40), await socket.emitWithAck("add", 2)],
    async bytes() {
        const bytes = Buffer.alloc(500_000, "\0\u00ff");
        return Buffer.compare(await socket.emitWithAck("echo", bytes), bytes) === 0;
    },
    pour: () =>
        new Promise((done) => {
            const seen = [];
            socket.on("drop", (i) => seen.push(i) === 5000 && done(seen.every((n, at) => n === at)));
            socket.emit("pour", 5000);
        }),
};
for (;;) tell({ did: await steps[await heard()]() });
