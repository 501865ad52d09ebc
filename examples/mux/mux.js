// SPDX-License-Identifier: MIT
// fetch() over one WebSocket, by cellgate.mux.v1 (docs/mux.md). For browsers, and for node with a WebSocket class.
//
//     const mux = new Mux("wss://gate.example.com/v1/mux", { protocols: [`cellgate.bearer.${token}`] });
//     const answer = await mux.fetch("/sandbox/sb-1/api/execute", { method: "POST", body: JSON.stringify({ command: "ls" }) });
//     console.log(answer.status, await answer.json());
//
// Bodies may be anything that fetch() takes, a ReadableStream too. What you do not read stops its own worker, and nobody else's.
// `signal` cancels. A WebSocket that is lost while something is on its way is replaced by another one, on which all goes on: nothing
// is asked twice. Where the gate cannot do that (it was restarted, or `grace` is over), what was on its way fails and is not
// repeated: whether a POST was carried out nobody here knows. The next call connects again.

const PROTOCOL = "cellgate.mux.v1";
const RESUMED = "cellgate.mux.v1.resume";
const WINDOW = 262144; // bytes of messages that may be unacknowledged, and COST for each
const COST = 16;
const ACKNOWLEDGE_MS = 100;
const SILENCE_MS = 60_000; // the gate says something every 25 seconds
const LAST = [1002, 1009, 4001, 4400, 4401, 4403, 4404, 4410]; // closes behind which there is no coming back
const [REQUEST, RESPONSE, DATA, END, RESET, CREDIT] = [1, 2, 3, 4, 5, 6];
const PIECE = 65536; // bytes of a message at most
const UPLOAD = 262144; // bytes of a body before there is credit
const encode = (value) => new TextEncoder().encode(JSON.stringify(value));
const decode = (bytes) => JSON.parse(new TextDecoder().decode(bytes));
const cancelled = (signal) => signal.reason ?? new DOMException("The request was cancelled", "AbortError");

/** Messages to the gate and back, over as many WebSockets as it takes (docs/resume-protocol.md, "Browser binding"). */
class Line {
    #dial;
    #user;
    #id = Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
    #attempt = 0;
    #known = false; // the gate has answered once
    #plain = false; // it does not resume
    #socket = null;
    #ready = false; // messages may be sent
    #marked = false; // its next close is the end
    #kept = []; // messages of ours that are not acknowledged; the first is #acknowledged + 1
    #acknowledged = 0;
    #next = 1; // of ours, to be sent on this WebSocket
    #flight = 0; // cost of what was sent on it and is not acknowledged
    #window = WINDOW;
    #counter = 1; // number of the gate's next message on it
    #recv = 0; // of the gate's, the last that was heard
    #untold = 0; // cost of what is heard and not acknowledged
    #telling = 0;
    #silence = 0;
    #lost = 0;

    /** dial(query): a new WebSocket. user: grace, opened(), heard(message), ended(error), waits(): whether anything is on its way. */
    constructor(dial, user) {
        this.#dial = dial;
        this.#user = user;
        this.#connect();
    }

    send(message) {
        if (this.#plain) return this.#socket?.readyState === 1 && this.#socket.send(message);
        this.#kept.push(message);
        this.#pump();
    }

    /** On purpose. */
    end() {
        if (this.#ready && !this.#plain && this.#next > this.#acknowledged + this.#kept.length) this.#say("end", this.#next);
        this.#end(1000, "");
    }

    #connect() {
        this.#attempt += 1;
        const query = { cr_tunnel: this.#id, cr_attempt: this.#attempt, cr_buffer: WINDOW, ...(this.#known && { cr_recv: this.#recv }) };
        const socket = (this.#socket = this.#dial(query));
        this.#ready = this.#marked = false;
        socket.binaryType = "arraybuffer";
        socket.onopen = () => {
            if (socket.protocol === RESUMED) return this.#listen();
            if (this.#known) return this.#end(1011, "the gate does not resume it any more");
            this.#plain = this.#ready = true;
            this.#user.opened();
        };
        socket.onmessage = ({ data }) => this.#take(data);
        socket.onerror = () => {}; // a close follows
        socket.onclose = ({ code, reason }) => this.#closed(code, reason);
    }

    #leave(code) {
        clearTimeout(this.#telling);
        clearTimeout(this.#silence);
        this.#telling = 0;
        this.#ready = false;
        const socket = this.#socket;
        this.#socket = null;
        if (!socket) return;
        socket.onopen = socket.onmessage = socket.onclose = null;
        socket.close(code);
    }

    #end(code, reason) {
        this.#leave(1000);
        this.#user.ended(new TypeError(`the WebSocket ended: ${code} ${reason}`.trim()));
    }

    #closed(code, reason) {
        const again = this.#known && !this.#marked && !LAST.includes(code) && this.#waits();
        if (!again) return this.#end(code, reason);
        this.#leave(4000);
        this.#lost ||= Date.now();
        const passed = Date.now() - this.#lost;
        if (passed > this.#user.grace) return this.#end(code, reason);
        setTimeout(() => (this.#waits() ? this.#connect() : this.#end(code, reason)), Math.min(50 + passed / 2, 5000) * (0.8 + 0.4 * Math.random()));
    }

    #waits() {
        return this.#kept.length > 0 || this.#user.waits();
    }

    #listen() {
        clearTimeout(this.#silence);
        this.#silence = setTimeout(() => this.#closed(1006, "silence"), SILENCE_MS);
        this.#silence.unref?.();
    }

    #say(what, number) {
        this.#socket.send(`{"cell-resume":{"${what}":${number}}}`);
    }

    #pump() {
        while (this.#ready && this.#next <= this.#acknowledged + this.#kept.length) {
            const message = this.#kept[this.#next - this.#acknowledged - 1];
            if (this.#flight + message.length + COST > this.#window) return;
            this.#flight += message.length + COST;
            this.#next += 1;
            this.#socket.send(message);
        }
    }

    #drop(number) {
        for (; this.#acknowledged < number; this.#acknowledged++) {
            const { length } = this.#kept.shift();
            if (this.#acknowledged + 1 < this.#next) this.#flight -= length + COST;
        }
    }

    #take(data) {
        if (this.#plain) return this.#user.heard(new Uint8Array(data));
        this.#listen();
        if (typeof data === "string") return this.#control(JSON.parse(data)["cell-resume"]);
        this.#marked = false;
        if (this.#counter++ <= this.#recv) return;
        this.#recv += 1;
        this.#user.heard(new Uint8Array(data));
        this.#untold += data.byteLength + COST;
        if (this.#untold >= WINDOW / 4) this.#tell();
        else this.#telling ||= setTimeout(() => this.#tell(), ACKNOWLEDGE_MS);
    }

    #tell() {
        clearTimeout(this.#telling);
        this.#telling = this.#untold = 0;
        if (this.#ready) this.#say("recv", this.#recv);
    }

    #control({ recv, next, buffer, end }) {
        if (next !== undefined) {
            if (recv < this.#acknowledged || recv > this.#acknowledged + this.#kept.length || next > this.#recv + 1) return this.#end(1011, "resume expired");
            this.#next = 0;
            this.#drop(recv);
            this.#next = recv + 1;
            this.#flight = this.#lost = 0;
            this.#counter = next;
            this.#window = Math.min(WINDOW, buffer);
            const first = !this.#known;
            this.#known = this.#ready = true;
            if (first) this.#user.opened();
            else this.#tell();
        } else if (end !== undefined) {
            this.#marked = true;
        } else if (recv < this.#next) {
            this.#drop(recv);
        }
        this.#pump();
    }
}

export class Mux {
    #url;
    #options;
    #line; // a promise of it
    #calls = new Map();
    #last = 0;

    /**
     * options: protocols; headers (node's `ws` alone); WebSocket: the class; timeout: milliseconds until an answer begins
     * (120,000); window: bytes of an answer that wait for its reader at most (1 MiB); resume: false: what is on its way fails with
     * its WebSocket; grace: milliseconds in which a lost one is replaced (60,000, as long as the gate waits by default)
     */
    constructor(url, options = {}) {
        this.#url = url;
        this.#options = { WebSocket: globalThis.WebSocket, timeout: 120_000, window: 1 << 20, resume: true, grace: 60_000, protocols: [], ...options };
    }

    async fetch(path, options = {}) {
        const { signal } = options;
        if (signal?.aborted) throw cancelled(signal);
        const line = await this.#connected();
        if (signal?.aborted) throw cancelled(signal);
        // a Request knows how a body becomes bytes, and which type that is
        const request = new Request(new URL(path, this.#url.replace(/^ws/, "http")), { duplex: "half", ...options, signal: undefined });
        const call = { number: ++this.#last, line, credit: UPLOAD };
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
        this.#line?.then((line) => line.end(), () => {});
    }

    /** One attempt for all calls that come meanwhile. */
    #connected() {
        this.#line ??= new Promise((resolve, reject) => {
            const { WebSocket, protocols, headers, resume, grace } = this.#options;
            this.#last = 0;
            const dial = (query) => {
                const url = new URL(this.#url, globalThis.location?.href);
                if (resume) for (const [name, value] of Object.entries(query)) url.searchParams.set(name, value);
                return new WebSocket(url, [...(resume ? [RESUMED] : []), PROTOCOL, ...protocols], ...(headers ? [{ headers }] : []));
            };
            const line = new Line(dial, {
                grace,
                waits: () => this.#calls.size > 0,
                opened: () => resolve(line),
                heard: (message) => this.#take(message),
                ended: (error) => {
                    this.#line = undefined;
                    reject(error);
                    for (const call of [...this.#calls.values()]) this.#end(call, error);
                },
            });
        });
        return this.#line;
    }

    #put({ line, number }, type, payload = new Uint8Array()) {
        const message = new Uint8Array(5 + payload.length);
        new DataView(message.buffer).setUint32(1, number);
        message[0] = type;
        message.set(payload, 5);
        line.send(message);
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
