// SPDX-License-Identifier: MIT
// MCP's client from its SDK, over streamable HTTP. It is told what to do, and tells what it sees.
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";

import { failure, heard, tell, wanted } from "./steps.mjs";

let client, transport;
const steps = {
    connect: () =>
        failure(
            (async () => {
                const headers = { Authorization: `Bearer ${wanted.token}` };
                transport = new StreamableHTTPClientTransport(new URL(wanted.url), {
                    requestInit: { headers },
                    reconnectionOptions: { initialReconnectionDelay: 50, maxReconnectionDelay: 200, reconnectionDelayGrowFactor: 1, maxRetries: 200 },
                });
                client = new Client({ name: "cellgate-test", version: "1" });
                client.onerror = ({ message }) => tell({ trouble: message });
                await client.connect(transport);
                return client.getServerVersion().name;
            })(),
        ),
    tools: async () => (await client.listTools()).tools.map(({ name }) => name),
    add: () => failure(client.callTool({ name: "add", arguments: { a: 40, b: 2 } }).then(({ content }) => content[0].text)),
    much: async () => (await client.callTool({ name: "much", arguments: {} })).content[0].text.length,
    // A tool that says how far it is, on a stream of events.
    async count() {
        const seen = [];
        const done = await client.callTool({ name: "count", arguments: { to: 5 } }, undefined, { onprogress: ({ progress }) => seen.push(progress) });
        return [done.content[0].text, seen];
    },
    stuck: () => failure(client.callTool({ name: "stuck", arguments: {} }, undefined, { onprogress: () => tell("begun"), timeout: 3_000 })),
    close: async () => (await transport.terminateSession(), await client.close(), "closed"),
};
for (;;) tell({ did: await steps[await heard()]() });
