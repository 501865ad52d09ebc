// SPDX-License-Identifier: MIT
// npm's `mqtt` over WebSocket. It is told what to do, and tells what it sees.
import mqtt from "mqtt";

import { heard, tell, wanted } from "./steps.mjs";

const client = mqtt.connect(wanted.url, {
    wsOptions: { headers: { Authorization: `Bearer ${wanted.token}` } },
    clientId: wanted.client,
    clean: wanted.clean,
    reconnectPeriod: 50,
    connectTimeout: 60_000,
});
client.on("connect", ({ sessionPresent }) => tell({ connected: sessionPresent }));
client.on("close", () => tell({ closed: true }));
client.on("error", ({ message }) => tell({ error: message }));
client.on("message", (topic, payload) => tell({ topic, size: payload.length, text: payload.subarray(0, 20).toString() }));

const steps = {
    subscribe: async () => (await client.subscribeAsync("things/#", { qos: 1 })).map(({ qos }) => qos),
    publish: async () => (await client.publishAsync("things/one", await heard(), { qos: 1 }), "published"),
    much: async () => (await client.publishAsync("things/much", Buffer.alloc(1_000_000, "x"), { qos: 1 }), "published"),
    // Is acknowledged once there is a connection again.
    later: async () => {
        const done = client.publishAsync("things/later", "kept", { qos: 1 });
        tell("queued");
        return await done, "published";
    },
};
for (;;) tell({ did: await steps[await heard()]() });
