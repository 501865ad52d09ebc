// SPDX-License-Identifier: MIT
// resume.js against a session of the test's own, on a simulated network and clock: a conversation whose leg is lost, or
// whose page is reloaded, at each of its steps. Usage: node resume_page.mjs MODULE; prints the number of runs.

import assert from "node:assert";
import { webcrypto } from "node:crypto";

globalThis.crypto ??= webcrypto;
const { Fate, Tunnel } = await import(process.argv[2]);

// ---- the network and the clock: everything that happens is a task, taken in order ----

let tasks, timers;

globalThis.setTimeout = (run, after) => {
  timers.push(after < 1000 ? run : null); // a leg is not silent for a minute here
  return timers.length; // never 0
};
globalThis.clearTimeout = (id) => id && (timers[id - 1] = null);

globalThis.WebSocket = class {
  static OPEN = 1;
  readyState = 0;

  constructor(url, protocols) {
    const query = new URL(url).searchParams;
    assert.equal(protocols[0], "cell-resume.1");
    this.session = globalThis.session;
    tasks.push(() => this.readyState === 0 && this.session.accept(this, query));
  }

  send(data) {
    assert.equal(this.readyState, 1);
    tasks.push(() => this.session.take(this, data));
  }

  deliver(data) {
    tasks.push(() => this.readyState === 1 && this.onmessage?.({ data }));
  }

  close(code) {
    if (this.readyState === 3) return;
    this.readyState = 3;
    tasks.push(() => this.session.left(this, code));
  }

  lose(code, reason = "") {
    if (this.readyState === 3) return;
    this.readyState = 3;
    this.session.left(this);
    this.onclose?.({ code, reason });
  }
};

// ---- the session: as docs/resume-protocol.md says, as simple as can be ----

class Session {
  output = []; // all items there ever were; the last is { end }
  input = [];
  attempt = 0;
  acknowledged = 0;
  leg = null;

  accept(socket, query) {
    const attempt = Number(query.get("cr_attempt"));
    assert(!this.over, "the session has heard that its end is known");
    assert.match(query.get("cr_tunnel"), /^[0-9a-f]{32}$/);
    assert(attempt > this.attempt, "an attempt is used once");
    this.attempt = attempt;
    const recv = Number(query.get("cr_recv") ?? 0);
    assert(recv >= this.acknowledged && recv <= this.output.length);
    const old = this.leg;
    this.leg = socket;
    old?.lose(4001, "taken over");
    this.acknowledged = recv;
    this.next = recv;
    socket.protocol = "cell-resume.1";
    socket.readyState = 1;
    socket.onopen?.();
    socket.deliver(`{"cell-resume":{"recv":${this.input.length},"next":${recv + 1},"buffer":4096}}`);
    this.flush();
  }

  flush() {
    while (this.leg && this.next < this.output.length) {
      const item = this.output[this.next++];
      const leg = this.leg;
      if (!item.end) leg.deliver(item);
      else leg.deliver(`{"cell-resume":{"end":${this.next}}}`);
      leg.ended = Boolean(item.end);
      if (item.end) tasks.push(() => leg.lose(1000, "process exited"));
    }
  }

  put(item) {
    this.output.push(item);
    this.flush();
  }

  take(socket, data) {
    if (socket !== this.leg) return;
    const said = /^\{"cell-resume":\{"recv":(\d+)\}\}$/.exec(data);
    if (said) {
      assert(Number(said[1]) <= this.output.length);
      this.acknowledged = Math.max(this.acknowledged, Number(said[1]));
      return;
    }
    this.input.push(typeof data === "string" ? data : Buffer.from(data).toString());
    socket.deliver(`{"cell-resume":{"recv":${this.input.length}}}`);
  }

  left(socket, code) {
    if (socket !== this.leg) return;
    this.leg = null;
    if (socket.ended && code === 1000) this.over = true; // as an answer to its own Close
  }
}

// ---- a page ----

const storage = (kept = new Map()) => ({
  getItem: (key) => kept.get(key) ?? null,
  setItem: (key, value) => kept.set(key, String(value)),
  removeItem: (key) => kept.delete(key),
  kept,
});

const LINES = 24;
const encode = (text) => new TextEncoder().encode(text);
const settle = async () => {
  for (let i = 0; i < 4; i += 1) await null;
};

const line = (word, i) => `${word} ${i} ${".".repeat(1000)}`; // a few fill the window

const isText = (i) => i % 5 === 4;
const output = (i) => (isText(i) ? line("out", i) : encode(line("out", i)));
const numberOf = (text) => Number(text.split(" ")[1]);
const inOrder = (lines) => [...lines].sort((a, b) => numberOf(a) - numberOf(b));
const textOnce = (lines) => lines.filter((text, at) => !isText(numberOf(text)) || lines.indexOf(text) === at);

/** Runs one conversation; at step `at` and every `every` steps from there the leg is lost, or left for another one, or the
 * page reloaded, or it crashes: then what it has shown and not acknowledged is shown again. A slow page shows bytes some steps later, and text at
 * once: after a reload text that was shown before the bytes in front of it is shown again with them. */
async function converse({ at, every, how, slow }) {
  tasks = [];
  timers = [];
  const session = (globalThis.session = new Session());
  const kept = storage();
  const shown = [];
  const waiting = []; // messages that are not shown yet
  let fate = null, life = 0, typed = 0;
  const handlers = (of) => ({
    opened() {},
    async message(data) {
      if (slow && typeof data !== "string") await new Promise((done) => waiting.push(done));
      if (of === life) shown.push(typeof data === "string" ? data : Buffer.from(data).toString());
    },
    closed(_, became) {
      fate = became;
      if (became === Fate.AGAIN) tasks.push(() => of === life && dial());
    },
  });
  let tunnel = new Tunnel(kept, "key");
  const dial = () => tunnel.dial("ws://host/terminal?cols=80", ["cellgate"], handlers(life));
  dial();
  let steps = 0;
  for (; fate !== Fate.ENDED; steps += 1) {
    assert(steps < 20000, `no end: ${fate}`);
    if (typed < LINES && steps % 3 === 0) tunnel.send(typed++ % 2 ? line("line", typed - 1) : encode(line("line", typed - 1)));
    if (session.output.length < LINES && steps % 4 === 0) session.put(output(session.output.length));
    else if (session.output.length === LINES && session.input.length === LINES) session.put({ end: true });
    if (steps === at || (every && steps > at && (steps - at) % every === 0)) {
      if (how === "again") {
        dial();
      } else if (how !== "cut") {
        if (how === "reload") tunnel.keep();
        life += 1;
        session.leg?.lose(1006);
        tunnel = new Tunnel(kept, "key");
        dial();
      } else {
        session.leg?.lose(1006);
      }
    }
    if (steps % 7 === 0) waiting.shift()?.();
    const task = tasks.shift();
    if (task) task();
    else timers.splice(0).forEach((run) => run?.());
    await settle();
  }
  for (let done; (done = waiting.shift()); ) done();
  await settle();
  const expected = (word) => Array.from({ length: LINES }, (_, i) => line(word, i));
  assert.deepEqual(session.input, expected("line"));
  assert.deepEqual(inOrder(how === "crash" ? new Set(shown) : textOnce(shown)), expected("out"));
  assert.equal(kept.kept.size, 0, "nothing is left behind");
  return steps;
}

let runs = 0;
for (const how of ["cut", "again", "reload", "crash"]) {
  for (const slow of [false, true]) {
    const length = await converse({ at: -1, how, slow });
    for (let at = 0; at <= length; at += 1, runs += 1) await converse({ at, how, slow });
    for (let every = 30; every < 70; every += 1, runs += 1) await converse({ at: every, every, how, slow });
  }
}
console.log(runs);
