// SPDX-License-Identifier: MIT
// MCP's server from its SDK, over streamable HTTP: a session for each client. Each process keeps its own sessions.
import { randomUUID } from "node:crypto";
import { createServer } from "node:http";

import { McpServer } from "@modelcontextprotocol/sdk/server/mcp.js";
import { StreamableHTTPServerTransport } from "@modelcontextprotocol/sdk/server/streamableHttp.js";
import { z } from "zod";

const text = (said) => ({ content: [{ type: "text", text: String(said) }] });
const make = () => {
    const server = new McpServer({ name: "tools", version: "1" });
    const progress = (more, n) => more.sendNotification({ method: "notifications/progress", params: { progressToken: more._meta.progressToken, progress: n } });
    server.registerTool("add", { inputSchema: { a: z.number(), b: z.number() } }, async ({ a, b }) => text(a + b));
    server.registerTool("much", { inputSchema: {} }, async () => text("x".repeat(3_000_000)));
    server.registerTool("count", { inputSchema: { to: z.number() } }, async ({ to }, more) => {
        for (let n = 1; n <= to; n++) await progress(more, n);
        return text("counted");
    });
    server.registerTool("stuck", { inputSchema: {} }, async (_, more) => {
        await progress(more, 1);
        return new Promise(() => {});
    });
    return server;
};

const sessions = new Map();
const server = createServer(async (request, response) => {
    const session = request.headers["mcp-session-id"];
    let transport = sessions.get(session);
    if (session && !transport) return response.writeHead(404).end("no such session");
    if (!transport) {
        transport = new StreamableHTTPServerTransport({ sessionIdGenerator: randomUUID, onsessioninitialized: (id) => sessions.set(id, transport), onsessionclosed: (id) => sessions.delete(id) });
        await make().connect(transport);
    }
    await transport.handleRequest(request, response);
});
server.listen(Number(process.argv[2]), "127.0.0.1");
