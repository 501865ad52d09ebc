// SPDX-License-Identifier: MIT
// fetch() over one WebSocket to a route with "mux": "sandbox-sdk" (docs/mux.md). For browsers, and for node with a WebSocket class.
//
//     const mux = new Mux("wss://gate.example.com/v1/mux", { protocols: ["cellgate", `cellgate.bearer.${token}`] });
//     const answer = await mux.fetch("/sandbox/sb-1/api/execute", { method: "POST", body: JSON.stringify({ command: "ls" }) });
//     console.log(answer.status, await answer.json());
//
// An event stream arrives as it comes: for await (const chunk of answer.body). `signal` cancels. What is on its way when the socket
// ends fails with its code, and is not repeated: whether a POST was carried out nobody here knows. The next call connects again.

const encoder = new TextEncoder();
const eventOf = ({ event, data }) => encoder.encode((event ? `event: ${event}\n` : "") + data.split("\n").map((line) => `data: ${line}\n`).join("") + "\n");
const cancelled = (signal) => signal.reason ?? new DOMException("The request was cancelled", "AbortError");

export class Mux {
    #url;
    #options;
    #socket;
    #calls = new Map();
    #last = 0;

    /** options: protocols; headers (node's `ws` alone); WebSocket: the class; timeout: milliseconds until the first message of an answer (120,000) */
    constructor(url, options = {}) {
        this.#url = url;
        this.#options = { WebSocket: globalThis.WebSocket, timeout: 120_000, ...options };
    }

    async fetch(path, { method = "GET", headers = {}, body, signal } = {}) {
        if (signal?.aborted) throw cancelled(signal);
        const socket = await this.#connected();
        const id = `mux_${++this.#last}`;
        const answer = new Promise((resolve, reject) => this.#calls.set(id, { id, resolve, reject }));
        const call = this.#calls.get(id);
        call.timer = setTimeout(() => this.#cancel(socket, call, new DOMException("There was no answer in time", "TimeoutError")), this.#options.timeout);
        signal?.addEventListener("abort", () => this.#cancel(socket, call, cancelled(signal)), { once: true });
        socket.send(JSON.stringify({ type: "request", id, method, path, headers: Object.fromEntries(new Headers(headers)), body: body === undefined ? undefined : JSON.parse(body) }));
        return answer;
    }

    /** Ends the socket, and what is on its way with it. */
    close() {
        this.#socket?.then((socket) => socket.close(1000), () => {});
    }

    /** One attempt for all calls that come meanwhile. */
    #connected() {
        this.#socket ??= new Promise((resolve, reject) => {
            const { WebSocket, protocols, headers } = this.#options;
            const socket = headers ? new WebSocket(this.#url, protocols ?? [], { headers }) : new WebSocket(this.#url, protocols);
            socket.onopen = () => resolve(socket);
            socket.onmessage = ({ data }) => this.#take(JSON.parse(data));
            socket.onerror = () => {}; // a close follows
            socket.onclose = ({ code, reason }) => {
                const error = new TypeError(`the WebSocket ended: ${code} ${reason}`.trim());
                this.#socket = undefined;
                reject(error);
                for (const call of [...this.#calls.values()]) this.#fail(call, error);
            };
        });
        return this.#socket;
    }

    #take(message) {
        const call = this.#calls.get(message.id);
        if (!call) return; // cancelled meanwhile
        clearTimeout(call.timer);
        if (message.type === "error") {
            this.#fail(call, Object.assign(new TypeError(message.message), { code: message.code, status: message.status }));
        } else if (message.type === "stream") {
            this.#stream(call).enqueue(eventOf(message));
        } else {
            this.#calls.delete(call.id);
            if (call.stream) call.stream.close();
            else call.resolve(answerOf(message));
        }
    }

    /** An answer that streams is there with its first event. */
    #stream(call) {
        if (!call.stream) {
            const body = new ReadableStream({ start: (stream) => (call.stream = stream), cancel: () => this.#connected().then((socket) => this.#cancel(socket, call)) });
            call.resolve(new Response(body, { headers: { "content-type": "text/event-stream" } }));
        }
        return call.stream;
    }

    #cancel(socket, call, error) {
        if (!this.#calls.has(call.id)) return;
        if (socket.readyState === 1) socket.send(JSON.stringify({ type: "cancel", id: call.id }));
        if (error) this.#fail(call, error);
        this.#calls.delete(call.id);
    }

    #fail(call, error) {
        this.#calls.delete(call.id);
        clearTimeout(call.timer);
        if (call.stream) call.stream.error(error);
        else call.reject(error);
    }
}

function answerOf({ status, headers, body }) {
    const empty = status === 204 || status === 205 || status === 304;
    return new Response(empty || body === undefined ? null : JSON.stringify(body), { status, headers });
}
