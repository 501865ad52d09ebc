// SPDX-License-Identifier: MIT
// Where the terminal is and with which token: from the page's URL, /ui/SANDBOX/#token=TOKEN&port=PORT&path=TEMPLATE.
//
// A place is a token and where it is for, and they stay together: a link without a token of its own says nothing about
// where the token of this tab goes, and a link with one says nothing about another token.

const KEY = `cellgate:${location.pathname}`;

function meta(name) {
  return document.querySelector(`meta[name="${name}"]`).content;
}

/** The place of the page's own, or the one that this tab was at. */
export function keptPlace() {
  return named(JSON.parse(sessionStorage.getItem(KEY) ?? "{}"));
}

/** The place of the link that was followed; null if it names none. Its fragment is taken out of the address bar, so that a
 * token is in no history entry and no screenshot. */
export function linkedPlace() {
  const said = new URLSearchParams(location.hash.slice(1));
  if (location.hash) history.replaceState(null, "", location.pathname + location.search);
  if (!said.get("token")) return null;
  const place = { token: said.get("token") };
  for (const name of ["port", "path"]) if (said.has(name)) place[name] = said.get(name);
  return named(place);
}

function named(place) {
  return { ...place, sandbox: decodeURIComponent(location.pathname.split("/").filter(Boolean).at(-1) ?? "") };
}

/** Kept for reloads of this tab. */
export function keepPlace({ token, port, path, typed, agreed }) {
  sessionStorage.setItem(KEY, JSON.stringify({ token, port, path, typed, agreed }));
}

/** Whether a person has to agree first: a link's path runs a command, or a token that did not come with it goes there. */
export function needsConsent({ path, typed, agreed }) {
  if (path === undefined || agreed) return false;
  const names = [...new URL(path, location.origin).searchParams.keys()];
  return typed === true || names.some((name) => name.trim().toLowerCase() === "command");
}

/** The WebSocket's URL. */
export function addressOf({ sandbox, port, path }, cols, rows) {
  const filled = (path ?? meta("cellgate-path"))
    .replace("{sandbox}", encodeURIComponent(sandbox))
    .replace("{port}", encodeURIComponent(port ?? meta("cellgate-port")));
  const url = new URL(filled, location.origin);
  url.protocol = location.protocol === "https:" ? "wss:" : "ws:";
  url.host = location.host;
  url.searchParams.set("cols", cols);
  url.searchParams.set("rows", rows);
  return url.href;
}
