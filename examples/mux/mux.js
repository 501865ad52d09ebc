// SPDX-License-Identifier: MIT
// fetch() over one WebSocket, by cellgate.mux.v1 (docs/mux.md). For browsers, and for node with a WebSocket class.
//
//     const mux = new Mux("wss://gate.example.com/v1/mux", { protocols: [`cellgate.bearer.${token}`] });
//     const answer = await mux.fetch("/sandbox/sb-1/api/execute", { method: "POST", body: JSON.stringify({ command: "ls" }) });
//     console.log(answer.status, await answer.json());
//
// Bodies may be anything that fetch() takes, a ReadableStream too. What you do not read stops its own worker, and nobody else's.
// `signal` cancels. What is on its way when the socket ends fails with its code, and is not repeated: whether a POST was carried
// out nobody here knows. The next call connects again.

const PROTOCOL = "cellgate.mux.v1";
const [REQUEST, RESPONSE, DATA, END, RESET, CREDIT] = [1, 2, 3, 4, 5, 6];
const PIECE = 65536; // bytes of a message at most
const UPLOAD = 262144; // bytes of a body before there is credit
const encode = (value) => new TextEncoder().encode(JSON.stringify(value));
const decode = (bytes) => JSON.parse(new TextDecoder().decode(bytes));
const cancelled = (signal) => signal.reason ?? new DOMException("The request was cancelled", "AbortError");

export class Mux {
    #url;
    #options;
    #socket;
    #calls = new Map();
    #last = 0;

    /**
     * options: protocols; headers (node's `ws` alone); WebSocket: the class; timeout: milliseconds until an answer begins
     * (120,000); window: bytes of an answer that wait for its reader at most (1 MiB)
     */
    constructor(url, options = {}) {
        this.#url = url;
        this.#options = { WebSocket: globalThis.WebSocket, timeout: 120_000, window: 1 << 20, protocols: [], ...options };
    }

    async fetch(path, options = {}) {
        const { signal } = options;
        if (signal?.aborted) throw cancelled(signal);
        const socket = await this.#connected();
        if (signal?.aborted) throw cancelled(signal);
        // a Request knows how a body becomes bytes, and which type that is
        const request = new Request(new URL(path, this.#url.replace(/^ws/, "http")), { duplex: "half", ...options, signal: undefined });
        const call = { number: ++this.#last, socket, credit: UPLOAD };
        const answer = new Promise((resolve, reject) => Object.assign(call, { resolve, reject }));
        this.#calls.set(call.number, call);
        call.timer = setTimeout(() => this.#cancel(call, new DOMException("There was no answer in time", "TimeoutError")), this.#options.timeout);
        signal?.addEventListener("abort", () => this.#cancel(call, cancelled(signal)), { once: true });
        const { pathname, search } = new URL(request.url);
        const follows = options.body !== undefined && options.body !== null;
        this.#put(call, REQUEST, encode({ method: request.method, path: pathname + search, headers: Object.fromEntries(request.headers), body: follows, window: this.#options.window }));
        if (follows) this.#upload(call, request).catch((error) => this.#cancel(call, error));
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
            const socket = new WebSocket(this.#url, [PROTOCOL, ...protocols], ...(headers ? [{ headers }] : []));
            socket.binaryType = "arraybuffer";
            this.#last = 0;
            socket.onopen = () => resolve(socket);
            socket.onmessage = ({ data }) => this.#take(new Uint8Array(data));
            socket.onerror = () => {}; // a close follows
            socket.onclose = ({ code, reason }) => {
                const error = new TypeError(`the WebSocket ended: ${code} ${reason}`.trim());
                this.#socket = undefined;
                reject(error);
                for (const call of [...this.#calls.values()]) this.#end(call, error);
            };
        });
        return this.#socket;
    }

    #put({ socket, number }, type, payload = new Uint8Array()) {
        if (socket.readyState !== 1) return;
        const message = new Uint8Array(5 + payload.length);
        new DataView(message.buffer).setUint32(1, number);
        message[0] = type;
        message.set(payload, 5);
        socket.send(message);
    }

    async #upload(call, request) {
        for await (const bytes of read(request)) {
            for (let at = 0; at < bytes.length && this.#goesOn(call);) {
                if (!call.credit) await new Promise((resolve) => (call.wake = resolve));
                const piece = bytes.subarray(at, at + Math.min(PIECE, call.credit));
                this.#put(call, DATA, piece);
                call.credit -= piece.length;
                at += piece.length;
            }
            if (!this.#goesOn(call)) return;
        }
        if (this.#goesOn(call)) this.#put(call, END);
    }

    #goesOn(call) {
        return this.#calls.get(call.number) === call;
    }

    #take(message) {
        const payload = message.subarray(5);
        const call = this.#calls.get(new DataView(message.buffer).getUint32(1));
        if (!call) return; // cancelled meanwhile
        if (message[0] === RESPONSE) {
            clearTimeout(call.timer);
            call.resolve(this.#answer(call, decode(payload)));
        } else if (message[0] === DATA) {
            call.enqueue?.(payload.slice());
        } else if (message[0] === CREDIT) {
            call.credit += new DataView(message.buffer).getUint32(5);
            call.wake?.();
        } else if (message[0] === END) {
            this.#end(call);
        } else if (message[0] === RESET) {
            const { code, message: text, status } = decode(payload);
            this.#end(call, Object.assign(new TypeError(text), { code, status }));
        }
    }

    #answer(call, { status, headers }) {
        const all = new Headers();
        for (const [name, values] of Object.entries(headers)) for (const value of [values].flat()) all.append(name, value);
        const empty = status === 204 || status === 205 || status === 304;
        const { window } = this.#options;
        let waits = 0;
        const body = new ReadableStream({
            start: (stream) => {
                call.stream = stream;
                call.enqueue = (bytes) => {
                    waits += bytes.length;
                    stream.enqueue(bytes);
                };
            },
            // called when the reader has taken all that was there
            pull: () => {
                if (waits < window / 4) return;
                const credit = new Uint8Array(4);
                new DataView(credit.buffer).setUint32(0, waits);
                waits = 0;
                this.#put(call, CREDIT, credit);
            },
            cancel: () => this.#cancel(call),
        });
        return new Response(empty ? null : body, { status, headers: all });
    }

    #cancel(call, error) {
        if (!this.#goesOn(call)) return;
        this.#put(call, RESET);
        this.#end(call, error ?? new DOMException("The request was cancelled", "AbortError"), !error);
    }

    #end(call, error, quiet) {
        this.#calls.delete(call.number);
        clearTimeout(call.timer);
        call.wake?.();
        if (!call.stream) call.reject(error);
        else if (!error) call.stream.close();
        else if (!quiet) call.stream.error(error);
    }
}

/** Pieces of a body. Not every browser has `body`, or goes through a stream by itself. */
async function* read(request) {
    if (!request.body) {
        yield new Uint8Array(await request.arrayBuffer());
        return;
    }
    const reader = request.body.getReader();
    for (let part; !(part = await reader.read()).done; ) yield part.value;
}
