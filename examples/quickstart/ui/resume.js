// SPDX-License-Identifier: MIT
// Cell-Resume for pages: a conversation that outlives its WebSockets and the page's reloads (docs/resume-protocol.md,
// "Browser binding"). Every message arrives once and in order, in both directions.
//
//   const tunnel = new Tunnel(sessionStorage, "a key");
//   tunnel.dial(url, ["other", "subprotocols"], {
//     opened(resumed) {},   // messages may be sent; resumed: it goes on where it was
//     message(data) {},     // text, or bytes in an ArrayBuffer; a promise, if it takes time to show it
//     closed(event, fate) {}, // { code, reason }, and what may be done about it: one of Fate
//   });
//   tunnel.send(data);      // text or Uint8Array, at any time: it is kept until the other side has it
//   tunnel.end();           // on purpose: the session is hung up
//
// It dials only when it is told to. Where the other side does not know Cell-Resume, it is a plain WebSocket.

const PROTOCOL = "cell-resume.1";
const PREFIX = '{"cell-resume":';
const COST = 16; // of a message beside its bytes
const WINDOW = 262144; // bytes that may be unacknowledged
const ACKNOWLEDGE_MS = 100;
const SILENCE_MS = 60000; // without a message; the other side speaks every 25 seconds
const CONTROL = /^\{"cell-resume":\{"(recv|end)":(\d+)(?:,"next":(\d+),"buffer":(\d+))?\}\}$/;
const MOVED = 4000; // closes a leg that is left: no session ends with it, so that it is no answer to an end
const LOST = { code: 1006, reason: "" };

/** What became of a tunnel when its WebSocket closed. */
export const Fate = {
  AGAIN: "again", // nothing is lost: dial again
  PLAIN: "plain", // no Cell-Resume was spoken: another dial begins anew
  ENDED: "ended", // the session has said its last word
  REFUSED: "refused", // these credentials are not good for it; others may be
  TAKEN: "taken", // somebody else goes on with this tunnel
  GONE: "gone", // the session does not know it any more, or broke the protocol
};

const encoder = new TextEncoder();
const sizeOf = (data) => (typeof data === "string" ? encoder.encode(data).length : data.byteLength);
const pack = (data) => (typeof data === "string" ? `t${data}` : `b${btoa(Array.from(data, (b) => String.fromCharCode(b)).join(""))}`);
const unpack = (text) => (text[0] === "t" ? text.slice(1) : Uint8Array.from(atob(text.slice(1)), (c) => c.charCodeAt(0)));

function newId() {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (b) => b.toString(16).padStart(2, "0")).join("");
}

export class Tunnel {
  #storage;
  #key;
  #id = newId();
  #attempt = 0;
  #known = false; // the session has answered once
  #reloaded = false; // what was sent before may not have been stored
  #plain = false;
  // output
  #taken = 0; // items given to the page
  #shown = 0; // items it is done with, and with all before them
  #showing = Promise.resolve(); // the last of those given to it
  #told = 0; // items acknowledged
  #untold = 0; // bytes in between
  // input
  #inputs = new Map(); // what is not acknowledged, by number
  #count = 0;
  #acknowledged = 0;
  // the leg
  #socket = null;
  #greeted = false;
  #counter = 0; // number of the next item on it
  #next = 0; // input to send on it
  #flight = 0; // bytes sent on it and not acknowledged
  #window = WINDOW;
  #mark = 0; // its next close is this item
  #handlers = null;
  #timer = 0;
  #silence = 0;

  constructor(storage, key) {
    this.#storage = storage;
    this.#key = key;
    const kept = JSON.parse(storage.getItem(key) ?? "null");
    if (!kept) return;
    ({ id: this.#id, attempt: this.#attempt, known: this.#known, recv: this.#shown, acknowledged: this.#acknowledged } = kept);
    this.#taken = this.#told = this.#shown;
    this.#count = this.#acknowledged;
    for (let text; (text = storage.getItem(`${key}.${this.#count + 1}`)) !== null; ) this.#inputs.set(++this.#count, unpack(text));
    this.#reloaded = true;
  }

  /** Whether there is something to go on with. */
  get isKnown() {
    return this.#known;
  }

  /** Whether a later page of this tab has gone on with it, or has another one: this one was put away meanwhile, and what is
   * kept is the later one's. */
  get isOutdated() {
    const kept = JSON.parse(this.#storage.getItem(this.#key) ?? "null");
    return kept !== null && (kept.id !== this.#id || kept.attempt > this.#attempt);
  }

  get isOpen() {
    return this.#socket?.readyState === WebSocket.OPEN && (this.#plain || this.#greeted);
  }

  /** Leaves the WebSocket that there is, if any. Throws what WebSocket throws. */
  dial(address, protocols, handlers) {
    this.#leave(MOVED);
    this.#attempt += 1;
    this.#save();
    const url = new URL(address);
    url.searchParams.set("cr_tunnel", this.#id);
    url.searchParams.set("cr_attempt", this.#attempt);
    url.searchParams.set("cr_buffer", WINDOW);
    if (this.#known) url.searchParams.set("cr_recv", this.#shown);
    const socket = new WebSocket(url, [PROTOCOL, ...protocols]);
    socket.binaryType = "arraybuffer";
    socket.onopen = () => this.#opened();
    socket.onmessage = ({ data }) => this.#heard(data);
    socket.onclose = (event) => this.#closed(event);
    this.#socket = socket;
    this.#handlers = handlers;
    this.#greeted = this.#plain = false;
    this.#mark = 0;
  }

  send(data) {
    if (this.#plain) {
      this.#socket?.send(data);
      return;
    }
    this.#count += 1;
    this.#inputs.set(this.#count, data);
    this.#store(`${this.#key}.${this.#count}`, pack(data));
    this.#pump();
  }

  /** Nothing is told any more. */
  end() {
    if (this.isOpen && !this.#plain && this.#next > this.#count) this.#say("end", this.#count + 1);
    this.#leave(1000);
    this.forget();
  }

  /** For a page that is going away: what it has shown is not told again to the one after it. */
  keep() {
    if (this.#known) this.#save();
  }

  /** A new tunnel of this key begins anew. */
  forget() {
    this.#known = false;
    const outdated = this.isOutdated;
    for (const number of outdated ? [] : this.#inputs.keys()) this.#storage.removeItem(`${this.#key}.${number}`);
    this.#inputs.clear();
    if (!outdated) this.#storage.removeItem(this.#key);
  }

  // ---- what is kept ----

  #store(key, text) {
    try {
      this.#storage.setItem(key, text);
    } catch {
      // it is full: what was to be stored is lost if the page is reloaded now
    }
  }

  #save() {
    if (this.isOutdated) return;
    const kept = { id: this.#id, attempt: this.#attempt, known: this.#known, recv: this.#shown, acknowledged: this.#acknowledged };
    this.#store(this.#key, JSON.stringify(kept));
  }

  #drop(number) {
    while (this.#acknowledged < number) {
      this.#acknowledged += 1;
      const data = this.#inputs.get(this.#acknowledged);
      if (data !== undefined && this.#acknowledged < this.#next) this.#flight -= sizeOf(data) + COST;
      this.#inputs.delete(this.#acknowledged);
      this.#storage.removeItem(`${this.#key}.${this.#acknowledged}`);
    }
    this.#save();
  }

  // ---- the leg ----

  #leave(code) {
    clearTimeout(this.#timer);
    clearTimeout(this.#silence);
    this.#timer = 0;
    if (!this.#socket) return;
    this.#socket.onopen = this.#socket.onmessage = this.#socket.onclose = null;
    this.#socket.close(code);
    this.#socket = null;
  }

  #lose(event, fate) {
    this.#leave(MOVED);
    if (fate === Fate.GONE || fate === Fate.ENDED) this.forget();
    this.#handlers.closed(event, fate);
  }

  #listen() {
    clearTimeout(this.#silence);
    this.#silence = setTimeout(() => this.#lose(LOST, Fate.AGAIN), SILENCE_MS);
  }

  #opened() {
    if (this.#socket.protocol === PROTOCOL) return this.#listen();
    if (this.#known) return this.#broken("resume expired");
    this.#plain = true;
    this.#handlers.opened(false);
    for (const data of this.#inputs.values()) this.#socket.send(data);
    this.forget();
  }

  #closed(event) {
    this.#lose(event, this.#plain ? Fate.PLAIN : this.#fateOf(event.code));
  }

  #fateOf(code) {
    if (this.#mark && code !== 1006) return Fate.ENDED;
    if (code === 4401 || code === 4403) return Fate.REFUSED;
    if (code === 4001) return Fate.TAKEN; // a leg that was left is not listened to: this was the highest attempt
    return [1002, 1009, 4400, 4404, 4410].includes(code) ? Fate.GONE : Fate.AGAIN;
  }

  #broken(reason = "worker protocol error", code = 1011) {
    this.#lose({ code, reason }, Fate.GONE);
  }

  // ---- input ----

  #say(what, number) {
    this.#socket.send(`${PREFIX}{"${what}":${number}}}`);
  }

  #pump() {
    while (this.isOpen && this.#next <= this.#count) {
      const data = this.#inputs.get(this.#next);
      const cost = sizeOf(data) + COST;
      if (cost > this.#window) return this.#broken("message too big", 1009);
      if (this.#flight + cost > this.#window) return;
      this.#flight += cost;
      this.#next += 1;
      this.#socket.send(data);
    }
  }

  // ---- output ----

  #heard(data) {
    if (this.#plain) return this.#handlers.message(data);
    this.#listen();
    if (typeof data === "string" && data.startsWith(PREFIX)) return this.#control(CONTROL.exec(data));
    if (!this.#greeted) return this.#broken();
    this.#mark = 0;
    const number = this.#counter++;
    if (number <= this.#taken) return;
    this.#taken = number;
    const size = sizeOf(data);
    const shown = this.#handlers.message(data);
    this.#showing = this.#showing.then(() => shown).then(() => this.#wasShown(number, size + COST));
  }

  #wasShown(number, cost) {
    this.#shown = number;
    this.#untold += cost;
    if (this.#untold >= this.#window / 4) this.#acknowledge();
    else this.#timer ||= setTimeout(() => this.#acknowledge(), ACKNOWLEDGE_MS);
  }

  /** Stored before it is said. */
  #acknowledge() {
    clearTimeout(this.#timer);
    this.#timer = 0;
    if (!this.isOpen || this.#plain || this.#told === this.#shown) return;
    this.#untold = 0;
    this.#told = this.#shown;
    this.#save();
    this.#say("recv", this.#told);
  }

  #control(said) {
    const [what, number, next, buffer] = said ? [said[1], ...said.slice(2).map(Number)] : [];
    if (!this.#greeted && buffer) return this.#greet(number, next, buffer);
    if (!this.#greeted || !what) return this.#broken();
    if (number > (what === "end" ? this.#counter : this.#next - 1)) return this.#broken();
    if (what === "end") this.#mark = number;
    else this.#drop(number);
    this.#pump();
  }

  #greet(recv, next, buffer) {
    if (recv < this.#acknowledged || next > this.#taken + 1) return this.#broken("resume expired");
    if (recv > this.#count && !this.#reloaded) return this.#broken();
    const resumed = this.#known;
    this.#count = Math.max(this.#count, recv);
    this.#next = 0;
    this.#known = this.#greeted = true;
    this.#drop(recv);
    this.#reloaded = false;
    this.#next = recv + 1;
    this.#flight = 0;
    this.#counter = next;
    this.#window = Math.min(WINDOW, buffer);
    this.#told = next - 1;
    this.#pump();
    this.#handlers.opened(resumed);
    if (this.#shown > this.#told) this.#acknowledge();
  }
}
