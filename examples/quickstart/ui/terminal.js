// SPDX-License-Identifier: MIT
// A terminal in a browser. Binary messages are bytes of the terminal; text messages are JSON: {"type":"resize","cols":..,
// "rows":..} to the sandbox, {"type":"exit","exit_code":..} and {"type":"error","message":..} from it.

import { FitAddon } from "./addon-fit.js";
import { addressOf, keepPlace, keptPlace, linkedPlace, needsConsent } from "./place.js";
import { Fate, Tunnel } from "./resume.js";
import { explain, isAboutToken, isPassing } from "./words.js";
import { Terminal } from "./xterm.js";

const FIRST_WAIT_MS = 500;
const LONGEST_WAIT_MS = 15000;
const ATTEMPTS = 10; // until a person is asked; counted anew after a connection that lasted
const LASTED_MS = 10000;
const MESSAGE_MAX = 16384; // bytes of input sent at once
const SCREEN_MAX = 262144; // bytes of output that are kept for a reload
// out of the alternate screen, modes as at the start: the program that set them is gone
const RESET_MODES = "\x1b[?1047l\x1b[!p\x1b[?1000;1002;1003;1004;1006;2004l\x1b[0m";

const byId = (id) => document.getElementById(id);
const encoder = new TextEncoder();

let place = keptPlace();
let asked = null; // a place that a person has to agree to
let tunnel = null;
let exit = null; // the remote's exit code, once it said one
let failures = 0;
let timer = 0; // of the next attempt

// ---- the screen ----

const terminal = new Terminal({
  cursorBlink: true,
  fontFamily: 'ui-monospace, "JetBrains Mono", "DejaVu Sans Mono", Menlo, Consolas, monospace',
  fontSize: 14,
  scrollback: 10000,
  theme: { background: "#0e1116", foreground: "#d7dde5", cursor: "#3b82f6", selectionBackground: "#264f78" },
});
const fit = new FitAddon();
terminal.loadAddon(fit);
terminal.open(byId("terminal"));

function showState(state, text) {
  document.body.dataset.state = state;
  byId("state").textContent = text;
}

function showNotice({ title, detail, done }, askToken) {
  byId("notice-title").textContent = title;
  byId("notice-detail").textContent = detail;
  byId("notice").dataset.kind = done ? "done" : "failed";
  byId("token-label").hidden = !askToken;
  byId("agree").textContent = asked ? "Open" : "Reconnect";
  byId("notice").hidden = false;
  fit.fit();
}

function hideNotice() {
  byId("notice").hidden = true;
  fit.fit();
}

function showSize() {
  byId("size").textContent = `${terminal.cols}×${terminal.rows}`;
}

// ---- output: one piece at a time, as xterm.js drops what is given faster than it can draw ----

// xterm.js draws for a while, then sets a timer without delay for the rest. In a hidden tab that takes a second, later a
// minute, and the program waits for what is not drawn: there a message, which takes no time, stands in for it.
const setTimer = setTimeout;
const mail = new MessageChannel();
const postponed = [];
mail.port1.onmessage = () => postponed.shift()();
globalThis.setTimeout = (run, ...rest) => {
  if (rest.length || !document.hidden) return setTimer(run, ...rest);
  postponed.push(run);
  mail.port2.postMessage(null);
  return 0; // nobody clears one of these
};

const pieces = [];
const drawn = []; // the last of them, for a reload
let drawing = false;
let drawnSize = 0;

function remember(piece) {
  drawn.push(piece);
  drawnSize += piece.length;
  while (drawnSize > SCREEN_MAX) drawnSize -= drawn.shift().length;
}

function drawNext() {
  const next = pieces.shift();
  drawing = next !== undefined;
  if (!drawing) return;
  terminal.write(next.piece, () => {
    remember(next.piece);
    next.done();
    drawNext();
  });
}

/** Resolves when it is drawn. */
function draw(piece) {
  return new Promise((done) => {
    pieces.push({ piece: typeof piece === "string" ? encoder.encode(piece) : piece, done });
    if (!drawing) drawNext();
  });
}

/** What an earlier life of this page has drawn is in its tab's storage while it reloads. */
function keepScreen() {
  try {
    const text = drawn.map((piece) => Array.from(piece, (byte) => String.fromCharCode(byte)).join("")).join("");
    sessionStorage.setItem(`${tunnelKey()}:screen`, text);
  } catch {
    // the storage is full: the screen will be empty, but nothing of the session is lost
  }
}

function drawKept() {
  const text = sessionStorage.getItem(`${tunnelKey()}:screen`);
  sessionStorage.removeItem(`${tunnelKey()}:screen`);
  if (text && tunnel.isKnown) draw(Uint8Array.from(text, (c) => c.charCodeAt(0)));
}

// ---- the connection ----

/** A tunnel belongs to a terminal's address, whatever the token. */
function tunnelKey() {
  return `cellgate:tunnel:${new URL(addressOf(place, 0, 0)).pathname}`;
}

/** What is typed while the connection is lost is sent when it is back. */
function sendBytes(bytes) {
  if (!tunnel || !(tunnel.isOpen || tunnel.isKnown)) return;
  for (let at = 0; at < bytes.length; at += MESSAGE_MAX) tunnel.send(bytes.slice(at, at + MESSAGE_MAX));
}

function sendSize() {
  if (tunnel?.isOpen) tunnel.send(JSON.stringify({ type: "resize", cols: terminal.cols, rows: terminal.rows }));
}

function takeControl(text) {
  let control;
  try {
    control = JSON.parse(text);
  } catch {
    return; // not a control message: nothing to show
  }
  if (control?.type === "exit" && Number.isInteger(control.exit_code)) exit = control.exit_code;
  if (control?.type === "error") return draw(`\r\n\x1b[31m${String(control.message).replace(/[^ -~]/g, "?")}\x1b[0m\r\n`);
}

function end(closed) {
  const askToken = isAboutToken(closed.code) || !closed.opened;
  const words = explain(closed);
  const state = closed.exit === null ? `Disconnected (${closed.code})` : `Exit code ${closed.exit}`;
  showState(words.done ? "done" : "failed", state);
  showNotice(words, askToken);
}

/** Waits longer each time, with jitter so that many pages do not come back at the same moment. */
function retry() {
  const wait = Math.min(FIRST_WAIT_MS * 2 ** failures, LONGEST_WAIT_MS) * (0.8 + 0.4 * Math.random());
  const due = performance.now() + wait;
  failures += 1;
  (function countDown() {
    const left = due - performance.now();
    if (left <= 0) {
      connect();
      return;
    }
    showState("waiting", `Reconnecting in ${Math.ceil(left / 1000)} s (attempt ${failures} of ${ATTEMPTS})`);
    timer = setTimeout(countDown, Math.min(left, 250));
  })();
}

/** Its first dial may find that the session of an earlier page is gone. */
function beginAnew() {
  draw(`${RESET_MODES}\r\n\x1b[2m── the earlier session is gone: new session ──\x1b[0m\r\n`);
  tunnel = new Tunnel(sessionStorage, tunnelKey());
  connect();
}

function closed(event, fate, wasKnown, openedAt) {
  const opened = openedAt !== 0;
  if (opened && performance.now() - openedAt > LASTED_MS) failures = 0;
  if (fate !== Fate.AGAIN) draw(RESET_MODES);
  const again = fate === Fate.AGAIN || (fate === Fate.PLAIN && exit === null && isPassing(event.code));
  // the gate tells what is final by codes of its own, also to a page that can go on
  if (fate === Fate.AGAIN && !isPassing(event.code) && !tunnel.isKnown) end({ code: event.code, reason: event.reason, exit, opened });
  else if (again && failures < ATTEMPTS) retry();
  else if (fate === Fate.GONE && wasKnown && !opened) beginAnew();
  else end({ code: event.code, reason: event.reason, exit, opened });
}

/** What an older connection still says is of no interest, and is not told. */
function handlers() {
  const { isKnown } = tunnel;
  let openedAt = 0;
  return {
    opened() {
      openedAt = performance.now();
      showState("open", "Connected");
      sendSize();
      terminal.focus();
    },
    message: (data) => (typeof data === "string" ? takeControl(data) : draw(new Uint8Array(data))),
    closed: (event, fate) => closed(event, fate, isKnown, openedAt),
  };
}

function connect() {
  clearTimeout(timer);
  if (tunnel.isOutdated) return location.reload();
  if (!tunnel.isKnown) exit = null;
  hideNotice();
  showState("connecting", failures ? `Connecting (attempt ${failures} of ${ATTEMPTS})` : "Connecting");
  // a browser can set no header: the token goes as a subprotocol that is never selected
  const protocols = place.token ? ["cellgate", `cellgate.bearer.${place.token}`] : ["cellgate"];
  try {
    tunnel.dial(addressOf(place, terminal.cols, terminal.rows), protocols, handlers());
  } catch {
    showState("failed", "Disconnected");
    showNotice({ title: "The address or the token is malformed.", detail: "Open this page with a fresh link." }, true);
  }
}

/** Goes on with a session that can go on, and begins a new one otherwise. */
function connectNow() {
  failures = 0;
  if (!tunnel.isKnown) {
    draw("\r\n\x1b[2m── new session ──\x1b[0m\r\n");
    tunnel.end();
    tunnel = new Tunnel(sessionStorage, tunnelKey());
  }
  connect();
}

/** Goes there; a session that belongs to another place ends. */
function go(next) {
  const before = tunnelKey();
  place = next;
  keepPlace(place);
  if (tunnelKey() !== before) {
    tunnel.end();
    tunnel = new Tunnel(sessionStorage, tunnelKey());
    drawKept();
  }
  connectNow();
}

function needsConsentOrFails(next) {
  try {
    addressOf(next, 0, 0);
    return needsConsent(next);
  } catch {
    return true;
  }
}

/** Goes there, or asks first: what runs already goes on meanwhile. */
function follow(next) {
  try {
    addressOf(next, 0, 0);
    if (!needsConsent(next)) return go(next);
  } catch {
    return showNotice({ title: "The address or the token is malformed.", detail: "Open this page with a fresh link." }, true);
  }
  asked = next;
  const { pathname, search } = new URL(next.path, location.origin);
  showNotice({ title: "A link wants to open another terminal, or to run a command in it.", detail: `${pathname}${search}` }, false);
}

// ---- what a person does ----

terminal.onData((text) => sendBytes(encoder.encode(text)));
terminal.onBinary((text) => sendBytes(Uint8Array.from(text, (c) => c.charCodeAt(0))));
terminal.onTitleChange((title) => (document.title = title || place.sandbox));
terminal.onResize(() => {
  showSize();
  sendSize();
});
new ResizeObserver(() => requestAnimationFrame(() => fit.fit())).observe(byId("terminal"));

byId("reconnect").addEventListener("click", () => {
  asked = null;
  connectNow();
});
byId("again").addEventListener("submit", (event) => {
  event.preventDefault();
  const token = byId("token").value.trim();
  byId("token").value = "";
  const agreed = asked;
  asked = null;
  if (agreed) go({ ...agreed, agreed: true });
  else if (token) follow({ ...place, token, typed: true, agreed: false });
  else connectNow();
});
byId("reader").addEventListener("click", () => {
  terminal.options.screenReaderMode = !terminal.options.screenReaderMode;
  byId("reader").setAttribute("aria-pressed", String(terminal.options.screenReaderMode));
  terminal.focus();
});
addEventListener("hashchange", () => {
  const linked = linkedPlace();
  if (linked) follow(linked);
});
addEventListener("pagehide", () => {
  if (!tunnel.isKnown || tunnel.isOutdated) return;
  tunnel.keep();
  keepScreen();
});
// a browser shows a page that was left as it was then; its socket may tell of its end before that
addEventListener("pageshow", () => tunnel.isOutdated && location.reload());
addEventListener("online", () => document.body.dataset.state === "waiting" && connect());

byId("sandbox").textContent = document.title = place.sandbox || "Terminal";
fit.fit();
showSize();
const linked = linkedPlace();
if (linked && !needsConsentOrFails(linked)) {
  place = linked;
  keepPlace(place);
}
tunnel = new Tunnel(sessionStorage, tunnelKey());
drawKept();
if (linked && place !== linked) {
  showState("waiting", "Not connected");
  follow(linked);
} else connect();
